"""Answer the peer's requests in a session: permissions, questions, files, terminals.

A request goes to the caller of the running turn, if that caller can answer. Requests that a person
has to answer are also shown to watchers (`question_watchers`), and the first answer counts.
Otherwise the policy of the turn decides (`policy.approver`), questions are declined, and the broker
serves files and terminals under that policy. Each request is answered exactly once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from dragoman.broker.error_codec import refusal
from dragoman.broker.protocol import ANSWERED, AnsweredElsewhere
from dragoman.broker.server.event_reader import renamed
from dragoman.broker.server.question_watchers import (
    ANSWER_TIMEOUT,
    QuestionContent,
    QuestionWatchers,
)
from dragoman.client import file_guard
from dragoman.client.acp.calls import question_of
from dragoman.client.permissions import Answer, Question, choose, settled
from dragoman.decoders import typed_decoder
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import decoder
from dragoman.errors import DragomanError, NotPermitted, RemoteError
from dragoman.gateway.relay import HERE
from dragoman.policy.rules import PRESETS, Policy
from dragoman.rpc import LATER, Call, boundary
from dragoman.store.recorder import permission_note
from dragoman.wire import codes
from dragoman.wire.messages import UNDECODABLE, Request

if TYPE_CHECKING:
    from dragoman.broker.protocol import PolicyTerms
    from dragoman.broker.server.caller import Caller
    from dragoman.broker.server.jobs import Job
    from dragoman.broker.server.live_session import LiveSession
    from dragoman.policy.approver import Approver

log: Final = logging.getLogger("dragoman.broker")

PERMISSION: Final = acp.SESSION_REQUEST_PERMISSION.name
ELICITATION: Final = acp.ELICITATION_CREATE.name
READ: Final = acp.FS_READ_TEXT_FILE.name
WRITE: Final = acp.FS_WRITE_TEXT_FILE.name

_decode_update: Final = decoder(acp.SessionNotification)


class _Option(Struct):
    optionId: str
    kind: str = ""


class _ToolCall(Struct):
    toolCallId: str
    title: str | None = None


class _Asked(Struct):
    """The part of a permission request that is recorded with a caller's decision."""

    toolCall: _ToolCall
    options: list[_Option] = []


class _Outcome(Struct):
    outcome: str
    optionId: str | None = None


class _Decided(Struct):
    outcome: _Outcome


_decode_asked: Final = typed_decoder(_Asked)
_decode_decided: Final = typed_decoder(_Decided)

TOLD_TIMEOUT: Final = 10.0
"""Seconds that a question waits until the caller has received the events before it. A caller that
does not read for this long does not answer questions either."""

MAX_ALLOWED: Final = 256
"""Maximum number of callers' approvals that are remembered, for the rest of a turn whose caller
disconnects."""

LASTING: Final = frozenset({acp.TERMINAL_WAIT_FOR_EXIT.name})
"""Requests that may take any time and are not questions."""

SERVICES: Final[dict[str, Callable[[Any], Question]]] = {
    acp.FS_READ_TEXT_FILE.name: lambda asked: file_guard.reading(asked.session_id, asked.path),
    acp.FS_WRITE_TEXT_FILE.name: lambda asked: file_guard.writing(asked.session_id, asked.path),
    acp.TERMINAL_CREATE.name: lambda asked: file_guard.running(
        asked.session_id, asked.command, asked.args, cwd=asked.cwd, env=asked.env
    ),
}
"""Requests that need permission if this process serves them, each with the function that turns its
decoded params into a question for the policy of the turn."""

_READ_PARAMS: Final[dict[str, Callable[[Raw], Any]]] = {
    acp.FS_READ_TEXT_FILE.name: acp.FS_READ_TEXT_FILE.decode_params,
    acp.FS_WRITE_TEXT_FILE.name: acp.FS_WRITE_TEXT_FILE.decode_params,
    acp.TERMINAL_CREATE.name: acp.TERMINAL_CREATE.decode_params,
}


class PendingQuestion:
    """One request from the peer that waits for an answer from a caller or a watcher."""

    __slots__ = (
        "_call",
        "_over",
        "_timer",
        "_upstream",
        "caller",
        "job",
        "questions",
        "request",
    )

    def __init__(self, questions: PeerQuestions, request: Request, caller: Caller | None) -> None:
        self.questions = questions
        self.request = request
        self.caller = caller
        """The caller that is asked; None if the question waits for an answer from a watcher."""
        self.job = questions.session.job
        self._upstream = questions.session.far.upstream
        self._call: Call | None = None
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        self._upstream.asked[request.id] = self

    @property
    def is_unattended(self) -> bool:
        return self.caller is None

    @property
    def job_id(self) -> str | None:
        return None if self.job is None else self.job.id

    @property
    def longest_wait(self) -> float:
        return 0.0 if self.job is None else self.job.wait

    def content(self) -> QuestionContent | None:
        questions, request = self.questions, self.request
        if not questions.is_for_person(request):
            return None
        session = questions.session
        return QuestionContent(
            session_id=session.id,
            key=session.key,
            job=self.job_id,
            method=request.method,
            params=questions.shown(request),
        )

    def wait_told(self) -> None:
        """Limit how long the question waits until the events before it are sent to the caller."""
        if self._call is None and not self._over:
            self.wait(TOLD_TIMEOUT)

    def wait(self, timeout: float) -> None:
        """Decide without an answer if none arrives within `timeout` seconds from now."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(timeout, self._not_told)

    def ask(self) -> None:
        """Send the question to the caller. Called when all events before it were sent there."""
        if self._over or self.caller is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        session = self.questions.session
        params = self.request.params
        name = session.name_for(self.caller)
        if name != session.id:
            params = renamed(params, name)
        try:
            self._call = self.caller.connection.begin(
                self.request.method,
                params,
                settle=self._settled,
                timeout=None if self.request.method in LASTING else ANSWER_TIMEOUT,
            )
        except DragomanError as error:
            self._settled(None, error)

    def _not_told(self) -> None:
        self._settled(None, DragomanError("there was no answer in time"))

    def _settled(self, result: Raw | None, error: DragomanError | None) -> None:
        if self._over:
            return
        self._finish("policy" if result is None else "caller")
        if result is not None:
            if self.request.method == ELICITATION and self.caller is not None:
                self._upstream.note_page(self.request, result, self.caller.connection)
            self.questions.answered(self.request, result)
        elif isinstance(error, RemoteError) and self.request.method not in (
            PERMISSION,
            ELICITATION,
        ):
            # The caller's response is passed to the peer unchanged.
            self.questions.refused(self.request, error)
        else:
            self.questions.unanswered(self.request)

    def answer(self, result: Raw, kind: str) -> bool:
        """Answer on behalf of the caller, as a watcher.

        `kind` is the kind of the option chosen for a permission request. Returns False if the
        question was already answered.
        """
        if self._over:
            return False
        self._finish("watcher")
        caller, call = self.caller, self._call
        if caller is not None and call is not None:
            tool_id = _call_of(self.request)
            # The caller would take the answer for that of another question about the same call.
            unclear = tool_id in [_call_of(each.request) for each in self.questions.open]
            if caller.terms.answered and tool_id is not None and not unclear:
                # The caller may still answer this request, but too late.
                self._tell_answered(caller, tool_id, kind)
            else:
                call.give_up(DragomanError("the question was answered elsewhere"))
        if kind.endswith("_always"):
            result = self.questions.keep_always(self.request, result, kind)
        self.questions.answered(self.request, result, by="watcher")
        return True

    def _tell_answered(self, caller: Caller, tool_id: str, kind: str) -> None:
        told = AnsweredElsewhere(self.questions.session.name_for(caller), tool_id, kind)
        try:
            caller.connection.post(ANSWERED, told)
        except DragomanError as error:
            log.debug("could not notify a caller of an answer: %s", error)

    def call_off(self) -> Request | None:
        """Stop asking. Returns the request if it still needs a response, else None."""
        if self._over:
            return None
        self._finish("cancelled")
        if self._call is not None:
            self._call.give_up(DragomanError("the question was withdrawn"))
        return self.request

    def give_up(self, error: DragomanError) -> None:
        """Withdraw the question, because the peer cancelled its request: notify the caller, and
        refuse the request with `error`."""
        if self.call_off() is not None and isinstance(error, RemoteError):
            self.questions.refused(self.request, error)

    def _finish(self, by: str) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self.questions.open.discard(self)
        self.questions.watchers.settled(self, by)
        self._upstream.asked.pop(self.request.id, None)


class PeerQuestions:
    """Answers the peer's requests in one session, and keeps those that wait for an answer."""

    def __init__(self, session: LiveSession) -> None:
        self.session = session
        self.watchers: QuestionWatchers = QuestionWatchers()
        """The watchers of the whole broker, which sets this."""
        self.open: set[PendingQuestion] = set()
        self._decides: tuple[Job | None, Approver] | None = None
        self._always: dict[tuple[object, ...], bool] = {}
        """Answers that watchers gave for the whole session."""
        self._allowed: deque[tuple[Job, Raw]] = deque(maxlen=MAX_ALLOWED)

    def request(self, request: Request) -> Any:
        """Return the answer, `LATER` if it follows, or `HERE` if the broker serves the request.
        Raises `RemoteError` if the request is invalid or refused."""
        job = self.session.job
        caller = None if job is None else job.caller
        method = request.method
        if method == PERMISSION and self.session.is_cancelling:
            return acp.cancelled()
        if caller is not None and caller.offers(method) and not self._is_kept(request):
            asked = PendingQuestion(self, request, caller)
            self.open.add(asked)
            # Before it is asked, which settles it at once if the caller cannot be asked.
            self.watchers.opened(asked)
            self.session.reader(caller).behind(asked.ask)
            asked.wait_told()
            return LATER
        id, wait = (None, 0.0) if job is None else (job.id, job.wait)
        waits = self.watchers.answers(id) or (job is not None and job.asks)
        timeout = self.watchers.timeout(id, wait) if waits else 0.0
        if timeout and self.is_for_person(request):
            asked = PendingQuestion(self, request, None)
            self.open.add(asked)
            asked.wait(timeout)
            self.watchers.opened(asked)
            return LATER
        if method == PERMISSION:
            return self._by_policy(request)
        if method == ELICITATION:
            return self._declined(request)
        if method in SERVICES:
            self._guard(request)
        return HERE

    def _is_kept(self, request: Request) -> bool:
        """Return whether a watcher's answer for the whole session decides a permission request. The
        caller does not know that answer if it was given before the caller was asked."""
        job = self.session.job
        if not self._always or request.method != PERMISSION or job is None or job.policy is None:
            return False
        try:
            asked = acp.SESSION_REQUEST_PERMISSION.decode_params(request.params)
        except msgspec.ValidationError:
            return False
        return self._approver().remembers(self._question(asked))

    def turn_ended(self, job: Job) -> None:
        """Withdraw a turn's open questions. Other requests, such as waiting for a terminal, may
        outlast it."""
        self._withdraw(
            asked
            for asked in self.open
            if asked.job is job and asked.request.method in (PERMISSION, ELICITATION)
        )

    def call_off(self) -> None:
        """Withdraw all open requests: the turn is being cancelled, or the peer is gone."""
        self._withdraw(self.open)

    def _withdraw(self, questions: Iterable[PendingQuestion]) -> None:
        for asked in list(questions):
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
        """Decide, as unanswered, the open questions that a disconnected caller was asked."""
        for asked in list(self.open):
            if asked.caller is caller and (request := asked.call_off()) is not None:
                self.unanswered(request)

    def _declined(self, request: Request) -> acp.ElicitationDeclined:
        """Decline a question that no caller or watcher answers, and note that with the job."""
        job = self.session.job
        if job is not None:
            try:
                asked = acp.ELICITATION_CREATE.decode_params(request.params)
            except msgspec.ValidationError:
                pass
            else:
                job.declined(getattr(asked, "message", ""))
        return acp.ElicitationDeclined()

    # -- for those that were asked

    def is_for_person(self, request: Request) -> bool:
        """Return whether a request is a question that neither the policy of the turn nor an earlier
        answer decides."""
        if request.method == ELICITATION:
            return True
        if request.method != PERMISSION:
            return False
        try:
            asked = acp.SESSION_REQUEST_PERMISSION.decode_params(request.params)
        except msgspec.ValidationError:
            return False
        job = self.session.job
        if job is not None and job.policy is None and job.caller is not None:
            # The caller has sent no terms, so it is asked about everything.
            return True
        return self._approver().leaves_open(self._question(asked))

    def shown(self, request: Request) -> Raw:
        """Return the parameters of a request as watchers see them. Those of a permission request
        include what is known about its tool call, and offer "always" only if that answer can be
        kept."""
        if request.method != PERMISSION:
            return request.params
        asked = acp.SESSION_REQUEST_PERMISSION.decode_params(request.params)
        question = self._question(asked)
        shown = replace(asked, tool_call=question.tool_call)
        if not self._approver().keeps_always(question):
            kept = [each for each in asked.options if str(each.kind) != "allow_always"]
            shown = replace(shown, options=kept or asked.options)
        return Raw(acp.encode(shown))

    def keep_always(self, request: Request, result: Raw, kind: str) -> Raw:
        """Remember an answer for the rest of the session. Returns the answer for the peer, which
        applies only once if the peer offers that: an agent that gets "always" stops asking, and the
        rules would no longer be checked."""
        asked = acp.SESSION_REQUEST_PERMISSION.decode_params(request.params)
        allows = kind.startswith("allow")
        self._approver().keep_always(self._question(asked), allows=allows)
        option_id = choose(asked.options, Answer.ALLOW_ONCE if allows else Answer.REJECT_ONCE)
        return result if option_id is None else Raw(acp.encode(acp.selected(option_id)))

    def answered(self, request: Request, result: Raw, *, by: str = "caller") -> None:
        self._answer(request, result)
        if request.method == PERMISSION:
            self._note_decision(request, result, by)
        elif request.method in SERVICES and request.method != READ and self.session.job is not None:
            self.session.job.decided(allowed=True)

    def refused(self, request: Request, error: RemoteError) -> None:
        if request.method in SERVICES and self.session.job is not None and _is_refusal(error):
            self.session.job.decided(allowed=False)
        self.session.refuse(request, error.code, error.message, error.data)

    def unanswered(self, request: Request) -> None:
        """Decide an unanswered request: a permission by policy; others are declined or refused."""
        if request.method == PERMISSION:
            try:
                self._answer(request, self._by_policy(request))
            except RemoteError as error:
                self.refused(request, error)
        elif request.method == ELICITATION:
            self._answer(request, self._declined(request))
        else:
            gone = refusal(
                DragomanError("the caller that should have answered this request did not")
            )
            self.refused(request, gone)

    def _note_decision(self, request: Request, result: Raw, by: str) -> None:
        """Record a decision of a caller or a watcher."""
        try:
            asked = _decode_asked(request.params)
            outcome = _decode_decided(result).outcome
        except UNDECODABLE:
            # The response was passed to the peer unchanged, and the peer has to interpret it.
            return
        option_id = outcome.optionId if outcome.outcome == "selected" else None
        kind = next((each.kind for each in asked.options if each.optionId == option_id), "")
        job = self.session.job
        if job is not None:
            job.denied = False
            if kind.startswith(("allow", "reject")):
                job.decided(allowed=kind.startswith("allow"))
            elif by == "watcher":
                # Refused, although the peer offers no option for it.
                job.decided(allowed=False)
            if kind.startswith("allow"):
                # Used only if the caller disconnects before the peer requests the approved action.
                self._allowed.append((job, request.params))
                job.allowed_calls.add(asked.toolCall.toolCallId)
        call = asked.toolCall
        self._note(by, call.title, call.toolCallId, option_id)

    def _note(self, by: str, title: str | None, call_id: str, option_id: str | None) -> None:
        self.session.note("permission", permission_note(by, title, call_id, option_id))

    def _by_policy(self, request: Request) -> acp.RequestPermissionResponse:
        job = self.session.job
        try:
            asked = acp.SESSION_REQUEST_PERMISSION.decode_params(request.params)
        except msgspec.ValidationError as error:
            raise boundary.invalid_params(error) from error
        question = self._question(asked)
        option_id, decision = settled(asked.options, self._approver().alone(question))
        if job is not None:
            job.decided(allowed=decision.allows)
            if decision.allows:
                job.allowed_calls.add(asked.tool_call.tool_call_id)
        policy = _name(None if job is None else job.policy)
        log.info("permission for %r by policy %s: %s", question.title, policy, decision)
        call = asked.tool_call
        self._note(f"policy {policy}", call.title, call.tool_call_id, option_id)
        return acp.cancelled() if option_id is None else acp.selected(option_id)

    def _guard(self, request: Request) -> None:
        """Raise `RemoteError` if the broker may not serve this request.

        The caller's terms and approvals and the policy decide; without a policy, reads are allowed.
        """
        job = self.session.job
        try:
            asked = _READ_PARAMS[request.method](request.params)
        except msgspec.ValidationError as error:
            raise boundary.invalid_params(error) from error
        question = SERVICES[request.method](asked)
        caller = None if job is None else job.caller
        if caller is not None and request.method == WRITE and not caller.terms.write_files:
            self._refuse(question, "the caller's terms")
        policy = None if job is None else job.policy
        if policy is None and request.method == READ:
            return
        approver = self._approver()
        while self._allowed:
            by_job, params = self._allowed.popleft()
            if by_job is job:
                # The caller's approvals are still valid after it has disconnected.
                with suppress(msgspec.ValidationError):
                    earlier = acp.SESSION_REQUEST_PERMISSION.decode_params(params)
                    approver.was_allowed(self._question(earlier))
        if approver.guard_alone(question).allows:
            if job is not None and request.method != READ:
                job.decided(allowed=True)
            return
        self._refuse(question, f"policy {_name(policy)}")

    def _refuse(self, question: Question, by: str) -> NoReturn:
        """Refuse a service request from the peer, and count the refusal."""
        if self.session.job is not None:
            self.session.job.decided(allowed=False)
        log.info("%r is refused by %s", question.title, by)
        self.session.note("permission", permission_note(by, question.title, None, None))
        error = NotPermitted(question.title)
        raise RemoteError(codes.INVALID_PARAMS, str(error), {"errorClass": error.error_class})

    def _approver(self) -> Approver:
        """Return the approver that decides instead of the caller. Each turn has its own."""
        # Imported here: most brokers never have to decide a request.
        from dragoman.policy.approver import Approver

        job, session = self.session.job, self.session
        if self._decides is None or self._decides[0] is not job:
            far = session.far
            approver = Approver(
                _policy(None if job is None else job.policy),
                peer=far.name,
                workspace=str(session.cwd),
                ask_before_preset=job is not None and job.asks,
                titled=far.command_titles,
                always=self._always,
            )
            self._decides = (job, approver)
        return self._decides[1]

    def _question(self, asked: acp.RequestPermissionRequest) -> Question:
        return question_of(asked, self._told(asked.tool_call.tool_call_id))

    def _told(self, tool_call_id: str) -> Iterator[acp.SessionUpdate]:
        """Yield what the peer reported about a tool call in the running turn, if it is still in
        memory.

        Lines of a session are decoded only when needed.
        """
        job, log_ = self.session.job, self.session.log
        name = tool_call_id.encode()
        start = log_.next if job is None else max(job.first_event, log_.first)
        for line in log_.lines(start, max_size=sys.maxsize):
            if name in line.line and b"tool_call" in line.line:
                with suppress(msgspec.ValidationError):
                    update = _decode_update(line.params).update
                    if getattr(update, "tool_call_id", None) == tool_call_id:
                        yield update

    def _answer(self, request: Request, result: Any) -> None:
        self.session.answer(request, result)


def _call_of(request: Request) -> str | None:
    """Return the id of the tool call that a permission request is about; None for others."""
    if request.method == PERMISSION:
        with suppress(*UNDECODABLE):
            return _decode_asked(request.params).toolCall.toolCallId
    return None


def _is_refusal(error: RemoteError) -> bool:
    data = error.data
    return isinstance(data, dict) and data.get("errorClass") == NotPermitted.error_class


def _policy(terms: PolicyTerms | None) -> Policy:
    if isinstance(terms, Policy):
        return terms
    # Without terms nothing is allowed.
    return PRESETS[terms or "deny-all"]


def _name(terms: PolicyTerms | None) -> str:
    """Return a short name of a policy, for the record."""
    policy = _policy(terms)
    return f"{policy.preset} with rules" if policy.rules or policy.limits else policy.preset
