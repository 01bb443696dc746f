"""What a peer asks about a session: who answers it.

Owns the choice between the caller whose turn it is, the policy that was left for the case that it
is gone, and this process (files and terminals). Every question is answered once, whatever becomes
of the caller: one that leaves while it is asked has the policy speak for it. The session is in
`session`; what the presets mean is in `dragoman.client.permissions`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.bridge.relay import HERE
from dragoman.client.permissions import (
    Permit,
    Question,
    approve_all,
    approve_reads,
    deny_all,
    settled,
)
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.permissions import SelectedPermissionOutcome
from dragoman.errors import DragomanError, RemoteError
from dragoman.hub.broker.extensions import refusal
from dragoman.hub.broker.reading import renamed
from dragoman.rpc import LATER, Call, boundary
from dragoman.wire.messages import Request

if TYPE_CHECKING:
    from dragoman.hub.broker.caller import Caller
    from dragoman.hub.broker.session import LiveSession

log: Final = logging.getLogger("dragoman.broker")

PERMISSION: Final = acp.SESSION_REQUEST_PERMISSION.name
ELICITATION: Final = acp.ELICITATION_CREATE.name

TOLD_TIMEOUT: Final = 10.0
"""How long a question waits for a caller to take the events before it. A caller that does not read
for so long answers no questions either."""

POLICIES: Final[dict[str | None, Permit]] = {
    "approve-all": approve_all,
    "approve-reads": approve_reads,
    "deny-all": deny_all,
    # Nobody said what to do, so nothing is allowed.
    None: deny_all,
}


class Asked:
    """One question of the peer that a caller is to answer."""

    def __init__(self, questions: Questions, request: Request, caller: Caller) -> None:
        self._questions = questions
        self.request = request
        self.caller = caller
        self._call: Call | None = None
        self._over = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(TOLD_TIMEOUT, self._not_told)

    def ask(self) -> None:
        """The caller has got everything that happened before."""
        if self._over:
            return
        self._timer.cancel()
        session = self._questions.session
        params = self.request.params
        name = session.name_for(self.caller)
        if name != session.id:
            params = renamed(params, name)
        try:
            self._call = self.caller.connection.begin(
                self.request.method, params, settle=self._settled
            )
        except DragomanError as error:
            self._settled(None, error)

    def _not_told(self) -> None:
        self._settled(None, DragomanError("the caller does not read"))

    def _settled(self, result: Raw | None, error: DragomanError | None) -> None:
        if self._over:
            return
        self._finish()
        if result is not None:
            self._questions.answered(self.request, result)
        elif isinstance(error, RemoteError) and self.request.method not in (
            PERMISSION,
            ELICITATION,
        ):
            # The caller's own words are the peer's, too.
            self._questions.refused(self.request, error)
        else:
            self._questions.unanswered(self.request)

    def call_off(self) -> Request | None:
        """Stop asking; the request, if it is still to be answered."""
        if self._over:
            return None
        self._finish()
        if self._call is not None:
            self._call.give_up(DragomanError("the question was called off"))
        return self.request

    def _finish(self) -> None:
        self._over = True
        self._timer.cancel()
        self._questions.open.discard(self)


class Questions:
    """The questions of the peer about one session."""

    def __init__(self, session: LiveSession) -> None:
        self.session = session
        self.open: set[Asked] = set()

    def request(self, request: Request) -> Any:
        """Answer a request of the peer, now or later."""
        job = self.session.job
        caller = None if job is None else job.caller
        method = request.method
        if method == PERMISSION and self.session.is_cancelling:
            return acp.cancelled()
        if caller is not None and caller.offers(method):
            asked = Asked(self, request, caller)
            self.open.add(asked)
            self.session.reader(caller).behind(asked.ask)
            return LATER
        if method == PERMISSION:
            return self._by_policy(request)
        if method == ELICITATION:
            return acp.ElicitationDeclined()
        return HERE

    def call_off(self) -> None:
        """The turn is being cancelled: whoever is asked need not answer any more."""
        for asked in list(self.open):
            request = asked.call_off()
            if request is None:
                continue
            if request.method == PERMISSION:
                self._answer(request, acp.cancelled())
            elif request.method == ELICITATION:
                self._answer(request, acp.ElicitationCancelled())
            else:
                self.unanswered(request)

    def left(self, caller: Caller) -> None:
        """A caller has gone: what it was asked is decided without it."""
        for asked in list(self.open):
            if asked.caller is caller and (request := asked.call_off()) is not None:
                self.unanswered(request)

    # -- for those that were asked

    def answered(self, request: Request, result: Raw) -> None:
        self._answer(request, result)
        if request.method == PERMISSION:
            self._note_decision(request, result)

    def refused(self, request: Request, error: RemoteError) -> None:
        self.session.refuse(request, error.code, error.message, error.data)

    def unanswered(self, request: Request) -> None:
        """The caller cannot answer."""
        if request.method == PERMISSION:
            try:
                self._answer(request, self._by_policy(request))
            except RemoteError as error:
                self.refused(request, error)
        elif request.method == ELICITATION:
            self._answer(request, acp.ElicitationDeclined())
        else:
            gone = refusal(DragomanError("the caller that should have served this has gone"))
            self.refused(request, gone)

    def _note_decision(self, request: Request, result: Raw) -> None:
        """Remember what a caller decided."""
        try:
            asked = acp.SESSION_REQUEST_PERMISSION.decode_params(request.params)
            outcome = acp.SESSION_REQUEST_PERMISSION.decode_result(result).outcome
        except msgspec.ValidationError:
            # It went to the peer as it is, who will make of it what it can.
            return
        option_id = outcome.option_id if isinstance(outcome, SelectedPermissionOutcome) else None
        kinds = {option.option_id: option.kind for option in asked.options}
        if self.session.job is not None:
            self.session.job.denied = str(kinds.get(option_id or "")).startswith("reject")
        self._note("caller", asked, option_id)

    def _note(self, by: str, asked: acp.RequestPermissionRequest, option_id: str | None) -> None:
        call = asked.tool_call
        data = {
            "by": by,
            "title": call.title,
            "toolCallId": call.tool_call_id,
            "optionId": option_id,
        }
        self.session.note("permission", data)

    def _by_policy(self, request: Request) -> acp.RequestPermissionResponse:
        job = self.session.job
        policy = None if job is None else job.policy
        try:
            asked = acp.SESSION_REQUEST_PERMISSION.decode_params(request.params)
        except msgspec.ValidationError as error:
            raise boundary.invalid_params(error) from error
        call = asked.tool_call
        question = Question(
            session_id=asked.session_id,
            tool_call_id=call.tool_call_id,
            title=call.title or "",
            kind=call.kind or "other",
            options=asked.options,
            tool_call=call,
        )
        answer = POLICIES[policy](question)
        assert not hasattr(answer, "__await__")
        option_id, decision = settled(asked.options, answer)
        if job is not None:
            job.denied = not decision.allows
        log.info("permission for %r by policy %s: %s", question.title, policy, decision)
        self._note(f"policy {policy or 'deny-all'}", asked, option_id)
        return acp.cancelled() if option_id is None else acp.selected(option_id)

    def _answer(self, request: Request, result: Any) -> None:
        self.session.answer(request, result)
