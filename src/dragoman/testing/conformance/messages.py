"""Checks of how an agent reads and writes messages, independent of their meaning.

Covers unusual lines that an agent must survive, and rules for every line that it sends. The checks
in `WATCHING` look at the whole run and come after all others. `handshake`, `sessions` and `turns`
check the methods.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dragoman.testing.conformance import shapes
from dragoman.testing.conformance.checks import (
    AgentCheck,
    Lab,
    Skip,
    agent_check,
    expect,
    hello,
)
from dragoman.testing.conformance.conversation import Conversation
from dragoman.transports.process.stream import ProcessStream
from dragoman.wire import codes

LARGE_SIZE = 2 * 1024 * 1024
"""Number of characters in a large message: far more than any pipe buffer or the default limit of a
line reader, and less than a prompt with an image."""


# -- requests and answers


@agent_check("ACP1-EXT-04")
async def unknown_extension_is_refused(lab: Lab) -> None:
    """A request with an unknown extension method is refused with -32601."""
    conversation = await lab.ready()
    answer = await conversation.ask("_dragoman/no/such/method", {"a": 1})
    expect(answer.code == codes.METHOD_NOT_FOUND, "not refused with -32601", answer.message)


@agent_check("ACP1-RPC-10", "ACP1-ERR-01", advisory=True)
async def unknown_method_is_refused(lab: Lab) -> None:
    """A request with an unknown method is refused with -32601."""
    conversation = await lab.ready()
    answer = await conversation.ask("dragoman/no_such_method", {})
    expect(answer.code == codes.METHOD_NOT_FOUND, "not refused with -32601", answer.message)


@agent_check("ACP1-RPC-02")
async def ids_are_echoed_as_they_came(lab: Lab) -> None:
    """A response has the id of its request, with the same type: strings stay strings, numbers stay
    numbers."""
    conversation = await lab.ready()
    for id in ("a-1", "7", 2**40, 0, ""):
        await conversation.ask("_dragoman/echo", {}, id=id)


@agent_check("ACP1-TRN-01")
async def text_is_utf8(lab: Lab) -> None:
    """Non-ASCII text arrives unchanged, in both directions."""
    conversation = await lab.ready()
    await conversation.ask("_dragoman/echo", {"text": "Дж☃😀"}, id="ünï-☃-😀")


@agent_check("ACP1-RPC-03", "ACP1-EXT-05")
async def unknown_notification_is_ignored(lab: Lab) -> None:
    """An unknown notification gets no response, not even an error."""
    conversation = await lab.fresh_ready()
    await _unanswered(conversation, "_dragoman/no/such/notification", {"a": 1})
    await _unanswered(conversation, "dragoman/no_such_notification", {})


@agent_check("ACP1-RPC-03", "ACP1-RCAN-04", "ACP1-RCAN-07")
async def cancelling_an_unknown_request_is_ignored(lab: Lab) -> None:
    """`$/cancel_request` for a request that is not open is ignored and gets no response."""
    conversation = await lab.fresh_ready()
    await _unanswered(conversation, "$/cancel_request", {"requestId": "no-such-request"})
    await _unanswered(conversation, "$/dragoman/anything", {})


@agent_check("ACP1-FWD-05")
async def missing_params_are_refused(lab: Lab) -> None:
    """A request with missing params is refused with -32602."""
    conversation = await lab.fresh_ready()
    conversation.say({"jsonrpc": "2.0", "id": "bare", "method": "session/new"})
    answer = await conversation.answer("bare", "session/new without params")
    expect(answer.code == codes.INVALID_PARAMS, "not refused with -32602", answer.message)


# -- unusual lines


@agent_check("ACP1-ERR-01", advisory=True)
async def garbage_is_survived(lab: Lab) -> None:
    """A line that is not JSON does not end the agent; the response is -32700, or there is none."""
    await _survives(lab, b"this is no JSON at all {\n", "a line that is not JSON")


@agent_check("ACP1-TRN-09")
async def batch_is_survived(lab: Lab) -> None:
    """A JSON-RPC batch, which v1 does not support, does not end the agent."""
    await _survives(
        lab, b'[{"jsonrpc":"2.0","id":901,"method":"_dragoman/fence"}]\n', "a batch of requests"
    )


@agent_check("ACP1-ERR-01", advisory=True)
async def scalar_is_survived(lab: Lab) -> None:
    """A line with a number, a null or an empty object does not end the agent."""
    await _survives(lab, b"42\nnull\n{}\n", "JSON lines that are not messages")


@agent_check("ACP1-RPC-02", advisory=True)
async def null_id_is_survived(lab: Lab) -> None:
    """A request whose id is null does not end the agent."""
    line = b'{"jsonrpc":"2.0","id":null,"method":"_dragoman/fence","params":{}}\n'
    await _survives(lab, line, "a request with the id null")


@agent_check("ACP1-RPC-11")
async def stray_answer_is_survived(lab: Lab) -> None:
    """Responses to requests that were never sent do not end the agent."""
    line = b'{"jsonrpc":"2.0","id":424242,"result":{}}\n'
    await _survives(lab, line + line.replace(b"424242", b'"x"'), "a response to no request")


@agent_check("ACP1-TRN-02", advisory=True)
async def blank_and_crlf_lines_are_taken(lab: Lab) -> None:
    """Empty lines are ignored, and a carriage return before the newline is accepted."""
    await _survives(lab, b"\n\r\n", "empty lines")
    conversation = await lab.fresh()
    conversation.say_bytes(_initialize_line() + b"\r\n")
    await conversation.answer(1, "initialize with a carriage return")


@agent_check("ACP1-TRN-10")
async def large_line_is_taken(lab: Lab) -> None:
    """A message of two megabytes is accepted and answered."""
    conversation = await lab.fresh_ready()
    await conversation.ask("_dragoman/large", {"text": "x" * LARGE_SIZE})


@agent_check("ACP1-TRN-06", advisory=True)
async def end_of_input_ends_the_agent(lab: Lab) -> None:
    """The agent exits when its input ends, without a signal."""
    conversation = await lab.fresh_ready()
    stream = conversation.stream
    if not isinstance(stream, ProcessStream):
        raise Skip("it is not reached as a child process")
    await conversation.aclose()
    expect(stream.signal is None, f"it had to be ended with signal {stream.signal}")


# -- over the whole run


@agent_check("ACP1-TRN-01", "ACP1-TRN-02", "ACP1-TRN-03", "ACP1-TRN-09")
async def output_is_only_messages(lab: Lab) -> None:
    """Every output line of the whole run is one message in UTF-8."""
    _no_breach(lab, "encoding", "noise", "batch")


@agent_check("ACP1-RPC-01", "ACP1-RPC-04")
async def messages_are_well_formed(lab: Lab) -> None:
    """Every message has `"jsonrpc": "2.0"`, and every response has exactly one of result and
    error."""
    _no_breach(lab, "version", "shape", "id")


@agent_check("ACP1-RPC-02", "ACP1-RPC-04")
async def every_request_is_answered_once(lab: Lab) -> None:
    """No request of the whole run got two responses."""
    _some(lab)
    for conversation in lab.conversations:
        seen: dict[tuple[str, object], int] = {}
        for message in conversation.messages:
            id = message.get("id")
            if "method" not in message and id is not None:
                key = (type(id).__name__, str(id))
                seen[key] = seen.get(key, 0) + 1
                expect(seen[key] == 1, "a request got two responses", message)


@agent_check("ACP1-FS-01", "ACP1-TERM-01", "ACP1-ELI-02", "ACP1-CAP-01")
async def nothing_is_asked_that_was_not_offered(lab: Lab) -> None:
    """A client that offers no files, terminals or elicitation gets no requests for them."""
    _some(lab)
    for conversation in lab.conversations:
        if conversation.offers_services:
            continue
        for message in conversation.messages:
            method = message.get("method")
            gated = isinstance(method, str) and method.startswith(GATED)
            expect(not gated, f"it called {method}, which was not offered", message)


@agent_check("ACP1-EXT-01")
async def custom_fields_stay_in_meta(lab: Lab) -> None:
    """Objects of the protocol have no members that the schema does not define, except in
    `_meta`."""
    _some(lab)
    roots: list[tuple[str, object]] = [("initialize", lab.hello), ("session/new", lab.opened)]
    for conversation in lab.conversations:
        for message in conversation.heard("session/update"):
            roots.append(("session/update", message.get("params")))
    for method, fields in roots:
        if isinstance(fields, dict):
            unknown = sorted(fields.keys() - shapes.ROOTS[method])
            expect(not unknown, f"{method} has custom fields at its root: {unknown}", fields)


@agent_check("ACP1-MSG-01", "ACP1-TOOL-02", "ACP1-TOOL-03", "ACP1-TOOL-06", "ACP1-TOOL-07",
             "ACP1-TOOL-08", "ACP1-PLAN-04", "ACP1-CONT-01", "ACP1-MODE-03", "ACP1-CFG-09",
             "ACP1-USE-01")  # fmt: skip
async def updates_are_well_formed(lab: Lab) -> None:
    """Every update of the whole run has the members and values of its kind."""
    seen = 0
    for conversation in lab.conversations:
        for message in conversation.heard("session/update"):
            seen += 1
            params = message.get("params")
            expect(isinstance(params, dict), "an update has no params", message)
            assert isinstance(params, dict)
            expect(isinstance(params.get("sessionId"), str), "an update names no session", message)
            problem = shapes.update(params.get("update"))
            expect(not problem, problem, message)
    if not seen:
        raise Skip("it sent no updates")


GATED: Final = ("fs/", "terminal/", "elicitation/")


async def _unanswered(conversation: Conversation, method: str, params: object) -> None:
    before = len(conversation.messages)
    conversation.tell(method, params)
    fence = await conversation.fence(f"the notification {method}")
    for message in conversation.messages[before : fence.position]:
        answers = "method" not in message
        expect(not answers, f"the notification {method} was answered", message)


async def _survives(lab: Lab, line: bytes, what: str) -> None:
    conversation = await lab.fresh_ready()
    conversation.say_bytes(line)
    await conversation.fence(what)


def _no_breach(lab: Lab, *kinds: str) -> None:
    _some(lab)
    for conversation in lab.conversations:
        for breach in conversation.breaches:
            if breach.kind in kinds:
                expect(False, breach.reason, breach.line)


def _some(lab: Lab) -> None:
    if not any(conversation.messages for conversation in lab.conversations):
        raise Skip("it sent nothing")


def _initialize_line() -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}
    return msgspec.json.encode(message)


CHECKS: Final[tuple[AgentCheck, ...]] = (
    unknown_extension_is_refused,
    unknown_method_is_refused,
    ids_are_echoed_as_they_came,
    text_is_utf8,
    unknown_notification_is_ignored,
    cancelling_an_unknown_request_is_ignored,
    missing_params_are_refused,
    garbage_is_survived,
    batch_is_survived,
    scalar_is_survived,
    null_id_is_survived,
    stray_answer_is_survived,
    blank_and_crlf_lines_are_taken,
    large_line_is_taken,
    end_of_input_ends_the_agent,
)

WATCHING: Final[tuple[AgentCheck, ...]] = (
    output_is_only_messages,
    messages_are_well_formed,
    every_request_is_answered_once,
    nothing_is_asked_that_was_not_offered,
    custom_fields_stay_in_meta,
    updates_are_well_formed,
)
