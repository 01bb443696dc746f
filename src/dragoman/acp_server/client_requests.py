"""Forward a peer's requests to the ACP client: permission, questions, files, terminals.

Only capabilities that the client advertised are used; otherwise questions are declined, and files
are served by the peer's own client (`client.services`). `acp_server.peer_session` checks the policy
first.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from msgspec.structs import replace

from dragoman.agent.client_side import ClientSide
from dragoman.client.inquiries import Inquiry, Reply
from dragoman.client.permissions import Answer, Chosen, Decision, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.events import model
from dragoman.gateway.client_requests import ask_user, permission_options, serve, tool_call_of

log: Final = logging.getLogger("dragoman.acp_server")


class ClientRequests:
    """Sends a peer's requests to the client of one session."""

    def __init__(
        self, session_id: str, side: ClientSide, caught_up: Callable[[], Awaitable[None]]
    ) -> None:
        self._id = session_id
        self.side = side
        self._caught_up = caught_up
        self._pages: set[str] = set()
        """Ids of web pages that the user was sent to and may not have finished."""

    # -- permission

    async def permit(self, question: Question) -> Decision:
        """Ask the client's user for permission. Returns `Answer.CANCEL` if the question was
        cancelled. Raises `DragomanError` if the client cannot be asked."""
        # The client must get the tool call before the request about it.
        await self._caught_up()
        chosen = await self.side.permission(_tool_call(question), permission_options(question))
        if chosen is None:
            return Answer.CANCEL
        return Chosen(chosen.option_id, Answer(str(chosen.kind)))

    # -- questions

    @property
    def inquires(self) -> bool:
        """Whether the client's user can be asked a peer's questions."""
        return self.side.can("elicitation.form") or self.visits

    @property
    def visits(self) -> bool:
        return self.side.can("elicitation.url")

    async def inquire(self, inquiry: Inquiry) -> Reply:
        """Ask the client's user a peer's question and return the reply."""
        reply, page = await ask_user(self.side, inquiry, self._id, caught_up=self._caught_up)
        if page is not None:
            self._pages.add(page)
        return reply

    async def page_done(self, event: model.InputAnswered) -> None:
        """Notify the client if this event completes a question for which the user was sent to a web
        page. Called for every answered question of a peer."""
        if event.action == "completed" and event.request_id in self._pages:
            self._pages.discard(event.request_id)
            await self.side.elicitation_done(event.request_id)

    # -- files and terminals

    def serve(self, name: str, params: Any) -> Coroutine[Any, Any, Any] | None:
        """Return a coroutine in which the client serves a peer's request for a file or terminal, or
        None if the client does not offer that service."""
        return serve(self.side, name, replace(params, session_id=self._id))


def _tool_call(question: Question) -> acp.ToolCallUpdate:
    if isinstance(question.tool_call, acp.ToolCallUpdate):
        if question.tool_call.tool_call_id:
            return question.tool_call
        # No tool call was announced, but the client needs an id for it.
        return replace(question.tool_call, tool_call_id=f"service-{secrets.token_hex(4)}")
    return tool_call_of(question)
