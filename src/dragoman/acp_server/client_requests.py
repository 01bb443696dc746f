"""Forward a peer's requests to the ACP client: permission, questions, files, terminals.

Only capabilities that the client announced are used; otherwise questions are declined, and files
are served by the peer's own client (`client.services`). The policy is checked before, in
`acp_server.peer_session`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from msgspec.structs import replace

from dragoman.agent.client_side import ClientSide
from dragoman.client.acp.inquiries import reply_of
from dragoman.client.inquiries import DECLINED, Inquiry, Reply
from dragoman.client.permissions import Answer, Chosen, Decision, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.methods import Method
from dragoman.errors import DragomanError, RemoteError
from dragoman.events import model
from dragoman.gateway import prompt_responses
from dragoman.gateway.client_requests import request_of, tool_call_of

log: Final = logging.getLogger("dragoman.acp_server")

_KINDS: Final = frozenset(answer.value for answer in Answer if answer is not Answer.CANCEL)


class ClientRequests:
    """Sends a peer's requests to the client of one session."""

    def __init__(
        self, session_id: str, side: ClientSide, caught_up: Callable[[], Awaitable[None]]
    ) -> None:
        self._id = session_id
        self.side = side
        self._caught_up = caught_up
        self._pages: set[str] = set()
        """Pages that the user was sent to and is not known to be done with."""

    # -- permission

    async def permit(self, question: Question) -> Decision:
        """Let the client's user decide. A client that cannot be asked raises `DragomanError`."""
        options = [
            acp.PermissionOption(
                option_id=option.option_id,
                name=getattr(option, "name", option.option_id),
                kind=str(option.kind),
            )
            for option in question.options
            if option.kind in _KINDS
        ]
        # The client must get the tool call before the request about it.
        await self._caught_up()
        chosen = await self.side.permission(_tool_call(question), options)
        if chosen is None:
            return Answer.CANCEL
        return Chosen(chosen.option_id, Answer(str(chosen.kind)))

    # -- questions

    @property
    def inquires(self) -> bool:
        """Whether the client's user can be asked at all."""
        return self.side.can("elicitation.form") or self.visits

    @property
    def visits(self) -> bool:
        return self.side.can("elicitation.url")

    async def inquire(self, inquiry: Inquiry) -> Reply:
        """Let the client's user answer."""
        wanted = "elicitation.form" if inquiry.url is None else "elicitation.url"
        request = request_of(inquiry, self._id) if self.side.can(wanted) else None
        if request is None:
            return DECLINED
        await self._caught_up()
        try:
            reply = reply_of(await self.side.ask(acp.ELICITATION_CREATE, request))
        except DragomanError as error:
            log.warning("nobody could be asked: %s", error)
            return DECLINED
        if isinstance(request, acp.ElicitationUrl) and reply.action == "accept":
            self._pages.add(request.elicitation_id)
        return reply

    async def page_done(self, event: model.InputAnswered) -> None:
        """The peer says that the user is done with a page, perhaps with one of the client's."""
        if event.action == "completed" and event.request_id in self._pages:
            self._pages.discard(event.request_id)
            await self.side.elicitation_done(event.request_id)

    # -- files and terminals

    def serve(self, name: str, params: Any) -> Coroutine[Any, Any, Any] | None:
        """Let the client serve a request; None if it did not offer that."""
        method = acp.method_table().request(name)
        if method is None or method.gate is None or not method.gate.is_open(self.side.capabilities):
            return None
        return self._served(method, replace(params, session_id=self._id))

    async def _served(self, method: Method[Any, Any], params: Any) -> Any:
        try:
            return await self.side.ask(method, params)
        except RemoteError:
            # The client's own words are the peer's, too.
            raise
        except DragomanError as error:
            raise prompt_responses.refusal(error) from error


def _tool_call(question: Question) -> acp.ToolCallUpdate:
    if isinstance(question.tool_call, acp.ToolCallUpdate):
        if question.tool_call.tool_call_id:
            return question.tool_call
        # No tool call was announced, but the client needs an id for it.
        return replace(question.tool_call, tool_call_id=f"service-{secrets.token_hex(4)}")
    return tool_call_of(question)
