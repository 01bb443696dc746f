"""Agents whose handshake shows neither ACP nor the keyed dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.client.acp.keyed_translation import KeyedStream, KeyedTranslation
from dragoman.errors import ConnectionLost
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.rpc.other_side import OtherSide, until

EXAMPLES = load("keyed")
BARE = {"protocolVersion": 1, "agentInfo": {"name": "opencode"}, "agentCapabilities": {}}


def line(message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def greeted(hello: dict[str, Any] | None = None) -> KeyedTranslation:
    """A translation behind the handshake."""
    translation = KeyedTranslation()
    asked = line({"id": 0, "method": "initialize", "params": {}})
    assert translation.from_client(asked) == asked
    answer = line({"id": 0, "result": hello or BARE})
    assert translation.from_agent(answer) == [answer]
    return translation


def updates(translation: KeyedTranslation, name: str) -> list[Any]:
    passed = translation.from_agent(EXAMPLES[name].line)
    assert all(json.loads(each)["params"]["sessionId"] == "ses_1" for each in passed)
    return [json.loads(each)["params"]["update"] for each in passed]


@pytest.mark.parametrize(
    "hello",
    [
        {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}},
        {"protocolVersion": 1, "agentCapabilities": {"promptCapabilities": {}}},
        {"protocolVersion": 1, "authMethods": [{"id": "a", "name": "A"}]},
        {"protocolVersion": "1", "agentCapabilities": {}},
        {"protocolVersion": True},
        {"threadId": "t"},
    ],
)
def test_a_handshake_that_shows_something_ends_the_translation(hello: dict[str, Any]) -> None:
    assert greeted(hello).over


def test_an_update_of_acp_ends_the_translation() -> None:
    translation = greeted()
    assert not translation.over
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hi"}}
    told = line({"method": "session/update", "params": {"sessionId": "s", "update": update}})
    assert translation.from_agent(told) == [told]
    assert translation.over


def test_the_updates_of_the_document_are_those_of_acp() -> None:
    translation = greeted()
    assert updates(translation, "chunk") == [
        {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "Looking"},
            "messageId": "prt_1",
        }
    ]
    assert updates(translation, "tool") == [
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "call_1",
            "title": "Edit c.py",
            "kind": "edit",
            "status": "completed",
            "locations": [{"path": "/project/c.py", "line": 3}],
            "content": [
                {"type": "content", "content": {"type": "text", "text": "done"}},
                {
                    "type": "diff",
                    "path": "/project/c.py",
                    "oldText": "pass",
                    "newText": "return",
                },
            ],
        }
    ]
    kinds = [update["sessionUpdate"] for update in updates(translation, "everything")]
    assert kinds == ["agent_message_chunk", "tool_call", "plan", "current_mode_update"]
    (again,) = updates(translation, "tool")
    assert again["sessionUpdate"] == "tool_call_update"
    assert not translation.over


def test_an_update_without_any_key_is_left_as_it_is() -> None:
    translation = greeted()
    told = line({"method": "session/update", "params": {"sessionId": "s", "other": 1}})
    (passed,) = translation.from_agent(told)
    assert json.loads(passed) == json.loads(told)


def test_a_prompt_has_the_fields_of_both_until_the_agent_shows_its_dialect() -> None:
    resource = {"type": "resource", "resource": {"uri": "file:///c.py", "text": "pass"}}
    text = {"type": "text", "text": "hi"}
    params = {"sessionId": "s", "prompt": [text, resource]}
    asked = line({"id": 2, "method": "session/prompt", "params": params})
    sent = json.loads(greeted().from_client(asked))["params"]
    embedded = {"type": "embedded_resource", "uri": "file:///c.py", "text": "pass"}
    assert sent == {**params, "content": [text, embedded]}


def test_the_modes_of_an_opened_session_are_those_of_acp() -> None:
    translation = greeted()
    translation.from_client(line({"id": 3, "method": "session/new", "params": {}}))
    (passed,) = translation.from_agent(EXAMPLES["opened"].line)
    modes = json.loads(passed)["result"]["modes"]
    assert (modes["currentModeId"], len(modes["availableModes"])) == ("plan", 2)


@pytest.mark.parametrize(
    ("outcome", "decision"),
    [
        ({"outcome": "selected", "optionId": "always"}, {"decision": "always"}),
        ({"outcome": "cancelled"}, {"decision": "reject", "cancelled": True}),
    ],
)
def test_a_permission_is_asked_and_answered_in_the_words_of_each_side(
    outcome: dict[str, Any], decision: dict[str, Any]
) -> None:
    translation = greeted()
    (passed,) = translation.from_agent(EXAMPLES["permission"].line)
    question = json.loads(passed)["params"]
    assert question["toolCall"]["toolCallId"] == "call_1"
    assert [each["optionId"] for each in question["options"]] == ["once", "always", "reject"]
    answer = translation.from_client(line({"id": 7, "result": {"outcome": outcome}}))
    assert json.loads(answer)["result"] == decision
    # Another answer under this id is not that of the question.
    other = line({"id": 7, "result": {}})
    assert translation.from_client(other) == other


def test_terminals_and_files_are_those_of_the_document() -> None:
    translation = greeted()
    (created,) = translation.from_agent(EXAMPLES["create_terminal"].line)
    params = json.loads(created)["params"]
    assert params["env"] == [{"name": "A", "value": "1"}]
    assert params["outputByteLimit"] == 1024 and "outputBytesLimit" not in params
    updates(translation, "chunk")
    translation.from_agent(EXAMPLES["terminal_output"].line)
    status = {"exitCode": 0, "signal": None}
    shown = line({"id": 13, "result": {"output": "hi", "truncated": False, "exitStatus": status}})
    assert json.loads(translation.from_client(shown))["result"] == {"output": "hi", "exitCode": 0}
    translation.from_agent(EXAMPLES["write"].line)
    written = translation.from_client(line({"id": 11, "result": {}}))
    assert json.loads(written)["result"] is None


@pytest.mark.parametrize("text", [b"not json", b"[1]", b'{"method": "session/update"}'])
def test_what_is_not_a_message_passes(text: bytes) -> None:
    translation = greeted()
    assert translation.from_agent(text) == [text]
    assert translation.from_client(text) == text


class Heard:
    """The end of a stream above the translation."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.ended = True


@pytest.mark.parametrize("size", [1, 7, 10_000])
@aio
async def test_lines_come_in_any_cut_and_the_rest_of_a_chunk_is_not_lost(size: int) -> None:
    ours, theirs = memory_pair()
    heard, agent = Heard(), OtherSide(theirs)
    theirs.start(agent)
    stream = KeyedStream(ours)
    assert stream.carrier is ours
    stream.start(heard)
    stream.write(line({"id": 0, "method": "initialize"}) + b"\n")
    update = {"sessionUpdate": "plan", "entries": []}
    acp = line({"method": "session/update", "params": {"sessionId": "s", "update": update}})
    data = b"\n".join([line({"id": 0, "result": BARE}), EXAMPLES["chunk"].line, acp, b"and"])
    for start in range(0, len(data), size):
        stream.data_received(data[start : start + size])
    lines = heard.data.split(b"\n")
    assert json.loads(lines[1])["params"]["update"]["content"]["text"] == "Looking"
    # The agent has shown that it speaks keyed, so that nothing else is believed.
    assert json.loads(lines[2])["params"]["update"] == update
    stream.write(line({"id": 1, "method": "session/prompt", "params": {"prompt": []}}) + b"\n")
    await until(lambda: len(agent.heard) == 2)
    assert agent.heard[1]["params"] == {"prompt": [], "content": []}
    await stream.aclose()
    assert heard.ended and heard.data.endswith(b"\nand")
    await theirs.aclose()


def update(**keys: Any) -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": "s", **keys}}


@pytest.mark.parametrize(
    "message",
    [
        update(plan={"steps": ["a"]}),
        update(plan={"steps": 7}),
        update(toolCall={"toolCallId": "1", "content": 7}),
        {"id": [1], "result": {}},
        {"id": {}, "method": "session/request_permission", "params": {"sessionId": "s"}},
    ],
)
@aio
async def test_a_message_that_cannot_be_translated_passes_with_the_lines_around_it(
    message: dict[str, Any],
) -> None:
    ours, theirs = memory_pair()
    heard = Heard()
    stream = KeyedStream(ours)
    stream.start(heard)
    stream.write(line({"id": 0, "method": "initialize"}) + b"\n")
    hello = line({"id": 0, "result": BARE})
    ended = line({"id": 2, "result": {"stopReason": "end_turn"}})
    stream.data_received(b"\n".join([hello, line(message), ended, b""]))
    assert heard.data.splitlines() == [hello, line(message), ended]
    # Later messages are translated.
    stream.data_received(EXAMPLES["chunk"].line + b"\n")
    last = json.loads(heard.data.splitlines()[-1])
    assert last["params"]["update"]["content"]["text"] == "Looking"
    await stream.aclose()
    await theirs.aclose()


@aio
async def test_many_lines_in_one_chunk_are_split_in_linear_time() -> None:
    ours, theirs = memory_pair()
    heard = Heard()
    stream = KeyedStream(ours)
    stream.start(heard)
    stream.data_received(line({"id": 0, "result": BARE}) + b"\r\n")
    count = 2000
    data = (EXAMPLES["chunk"].line + b"\r\n") * count
    stream.data_received(data + b"and")
    updates = heard.data.splitlines()[1:]
    assert len(updates) == count
    assert set(updates) == {updates[0]} and b"agent_message_chunk" in updates[0]
    assert stream._framer.copied < 3 * len(data)
    await stream.aclose()
    assert heard.data.endswith(b"\nand")
    await theirs.aclose()


@aio
async def test_an_agent_of_acp_is_not_touched_after_its_handshake() -> None:
    ours, theirs = memory_pair()
    heard = Heard()
    stream = KeyedStream(ours, max_line_size=1000)
    stream.start(heard)
    stream.write(line({"id": 0, "method": "initialize"}) + b"\n")
    shown = line({"id": 0, "result": {"protocolVersion": 1, "authMethods": [{"id": "a"}]}})
    stream.data_received(shown + b"\nfirst\nsecond\nthe beginning")
    assert heard.data == shown + b"\nfirst\nsecond\nthe beginning"
    stream.data_received(b" and the end")
    assert heard.data.endswith(b"\nthe beginning and the end")
    await stream.aclose()
    await theirs.aclose()


@aio
async def test_a_line_that_does_not_end_is_handed_on() -> None:
    ours, theirs = memory_pair()
    heard = Heard()
    stream = KeyedStream(ours, max_line_size=100)
    stream.start(heard)
    for _ in range(3):
        stream.data_received(b"x" * 40)
    assert heard.data == b"x" * 120
    await stream.aclose()
    await theirs.aclose()
