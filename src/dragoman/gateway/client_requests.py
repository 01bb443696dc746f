"""Forward a peer's requests for files, terminals and user input to the client of the session.

Only capabilities that the client advertised are used. Otherwise files are served by the peer's own
client and questions are declined. Permission requests are decided in `gateway.client_session`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from dragoman.agent.client_side import ClientSide
from dragoman.client.acp.inquiries import reply_of
from dragoman.client.inquiries import DECLINED, Inquiry, Reply
from dragoman.client.permissions import Question
from dragoman.client.tool_input import part
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.methods import Method
from dragoman.errors import DragomanError, RemoteError
from dragoman.events import model
from dragoman.gateway import prompt_responses
from dragoman.gateway.acp_filter import ANSWER_KINDS

if TYPE_CHECKING:
    from dragoman.gateway.client_session import ClientSession

log: Final = logging.getLogger("dragoman.gateway")


class Services:
    """Serves a peer through the clients of a gateway. `client_of` finds the client of a session."""

    def __init__(self, client_of: Callable[[str], ClientSession | None]) -> None:
        self._client_of = client_of
        self._pages: dict[str, ClientSession] = {}
        """By elicitation id: the client whose user agreed to open a URL, until the interaction
        there is complete."""

    # -- files and terminals

    def serve(self, name: str, params: Any) -> Coroutine[Any, Any, Any] | None:
        """Return a coroutine that forwards a request to the client of its session and returns the
        result. None if no client has the session, or the client did not offer the service."""
        client = self._client_of(params.session_id)
        return None if client is None else serve(client.side(params.session_id), name, params)

    # -- questions to the user

    async def inquire(self, inquiry: Inquiry) -> Reply:
        """Ask the user of the client that has the session. Declines if no client has it."""
        client = None if inquiry.session_id is None else self._client_of(inquiry.session_id)
        if client is None or inquiry.session_id is None:
            return DECLINED
        reply, page = await ask_user(
            client.side(inquiry.session_id),
            inquiry,
            inquiry.session_id,
            caught_up=partial(client.caught_up, inquiry.session_id),
        )
        if page is not None:
            self._pages[page] = client
        return reply

    def happened(self, event: model.Event) -> None:
        """If the event reports that a user has completed the interaction at a URL, tell the user's
        client."""
        if isinstance(event, model.InputAnswered) and event.action == "completed":
            client = self._pages.pop(event.request_id, None)
            if client is not None:
                client.page_done(event.request_id)

    def forget(self, client: ClientSession) -> None:
        """Forget the URLs that a client's user agreed to open. Called when it has disconnected."""
        self._pages = {page: other for page, other in self._pages.items() if other is not client}


def serve(side: ClientSide, name: str, params: Any) -> Coroutine[Any, Any, Any] | None:
    """Return a coroutine that forwards a request for a file or a terminal to a client and returns
    the result. None if the client did not advertise that service."""
    method = acp.method_table().request(name)
    if method is None or method.gate is None or not method.gate.is_open(side.capabilities):
        return None
    return _served(side, method, params)


async def _served(side: ClientSide, method: Method[Any, Any], params: Any) -> Any:
    try:
        return await side.ask(method, params)
    except RemoteError:
        # The client's error codes are also valid for the peer.
        raise
    except DragomanError as error:
        raise prompt_responses.refusal(error) from error


def permission_options(question: Question) -> list[acp.PermissionOption]:
    """Return the options of a question as ACP types, without those of an unknown kind."""
    return [
        acp.PermissionOption(
            option_id=option.option_id,
            name=getattr(option, "name", option.option_id),
            kind=str(option.kind),
        )
        for option in question.options
        if option.kind in ANSWER_KINDS
    ]


async def ask_user(
    side: ClientSide,
    inquiry: Inquiry,
    session_id: str,
    *,
    caught_up: Callable[[], Awaitable[None]],
) -> tuple[Reply, str | None]:
    """Ask the user of a client. Returns the reply and, if the user agreed to open a URL, the id of
    the elicitation, else None. Declines if the client cannot show the question or the request
    fails. `caught_up` waits until the events before the question were sent."""
    wanted = "elicitation.form" if inquiry.url is None else "elicitation.url"
    request = request_of(inquiry, session_id) if side.can(wanted) else None
    if request is None:
        return DECLINED, None
    await caught_up()
    try:
        reply = reply_of(await side.ask(acp.ELICITATION_CREATE, request))
    except DragomanError as error:
        log.warning("the user could not be asked: %s", error)
        return DECLINED, None
    if isinstance(request, acp.ElicitationUrl) and reply.action == "accept":
        return reply, request.elicitation_id
    return reply, None


def request_of(
    inquiry: Inquiry, session_id: str | None
) -> acp.ElicitationForm | acp.ElicitationUrl | None:
    """Return the question as an ACP request, or None for a form that ACP cannot express.
    `session_id` is the client's id of the session."""
    native = inquiry.native
    if isinstance(native, acp.ElicitationForm | acp.ElicitationUrl):
        return native if native.session_id == session_id else replace(native, session_id=session_id)
    about: dict[str, Any] = {
        "message": inquiry.message,
        "session_id": session_id,
        "tool_call_id": inquiry.tool_call_id,
    }
    if inquiry.url is not None:
        return acp.ElicitationUrl(url=inquiry.url, elicitation_id=inquiry.page_id, **about)
    try:
        schema = acp.decode(msgspec.json.encode(inquiry.schema), acp.ElicitationSchema)
    except msgspec.ValidationError as error:
        log.warning("a form is declined because ACP cannot express it: %s", error)
        return None
    return acp.ElicitationForm(requested_schema=schema, **about)


def tool_call_of(question: Question) -> acp.ToolCallUpdate:
    """Return the tool call of a question for an ACP client, with everything needed to judge it.
    File changes are in the tool call that was sent before."""
    call = question.tool_call
    if isinstance(call, acp.ToolCallUpdate):
        return call
    paths = (part(each, "path") for each in part(call, "locations") or ())
    return acp.ToolCallUpdate(
        tool_call_id=question.tool_call_id,
        title=question.title,
        kind=question.kind,
        status="pending",
        locations=[acp.ToolCallLocation(path=path) for path in paths if path] or None,
        raw_input=part(call, "raw_input"),
    )
