"""Convert ACP elicitations to and from the dialect-neutral `Inquiry` and `Reply`.

`client.inquiries` defines those types and the callback; `inbound` receives the requests.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

import msgspec

from dragoman.client.inquiries import DECLINED, Inquire, Inquiry, Reply
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import encode


def elicit_by(
    inquire: Inquire,
) -> Callable[[acp.CreateElicitationRequest], Awaitable[acp.CreateElicitationResponse]]:
    """Return an elicitation callback that uses the dialect-neutral `inquire`."""

    async def elicit(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        if isinstance(request, acp.UnknownElicitation):
            return acp.ElicitationDeclined()
        reply = inquire(inquiry_of(request))
        return response_of(await reply if inspect.isawaitable(reply) else reply)

    return elicit


def inquiry_of(request: acp.ElicitationForm | acp.ElicitationUrl) -> Inquiry:
    """Convert an elicitation to an `Inquiry`."""
    about = (request.session_id, request.message)
    if isinstance(request, acp.ElicitationUrl):
        return Inquiry(
            *about,
            url=request.url,
            page_id=request.elicitation_id,
            tool_call_id=request.tool_call_id,
            native=request,
        )
    schema = msgspec.json.decode(encode(request.requested_schema))
    return Inquiry(*about, schema, tool_call_id=request.tool_call_id, native=request)


def response_of(reply: Reply) -> acp.CreateElicitationResponse:
    """Convert a reply to the response for the agent."""
    match reply.action:
        case "accept":
            return acp.ElicitationAccepted(content=reply.content)
        case "cancel":
            return acp.ElicitationCancelled()
        case _:
            return acp.ElicitationDeclined()


def reply_of(response: acp.CreateElicitationResponse) -> Reply:
    """Convert a client's response to a `Reply`. An unknown action is not consent."""
    match response:
        case acp.ElicitationAccepted(content=content):
            return Reply("accept", content)
        case acp.ElicitationCancelled():
            return Reply("cancel")
        case _:
            return DECLINED
