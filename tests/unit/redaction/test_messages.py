"""Pieces of a secret in a stream of messages are found, and order and everything else stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.redaction.messages import MAX_HELD, MAX_HELD_SIZE, MessageRedactor, NotJson
from dragoman.redaction.names import REDACTED
from dragoman.redaction.redactor import Redactor
from tests.keys import KEYS


def acp(text: str, session: str = "one") -> dict[str, Any]:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"method": "session/update", "params": {"sessionId": session, "update": update}}


def codex(text: str, session: str = "one") -> dict[str, Any]:
    return {"method": "item/agentMessage/delta", "params": {"threadId": session, "delta": text}}


def event(text: str, session: str = "one") -> dict[str, Any]:
    delta = {"type": "text_delta", "text": text}
    return {"type": "stream_event", "session_id": session, "event": {"index": 0, "delta": delta}}


def through(messages: list[Any], *values: str) -> list[Any]:
    redactor: MessageRedactor[int] = MessageRedactor(Redactor(values))
    out = [
        done
        for number, message in enumerate(messages)
        for done in redactor.feed(json.dumps(message).encode(), number)
    ]
    out += redactor.flush()
    assert [tag for tag, _ in out] == list(range(len(messages)))
    return [message for _, message in out]


@pytest.mark.parametrize("form", [acp, codex, event])
@pytest.mark.parametrize("key", [KEYS[0], "Qpen sesame please"])
def test_a_secret_in_pieces_is_found_in_every_protocol(form: Any, key: str) -> None:
    text = f"it is {key} here"
    messages = [form(letter) for letter in text]
    # Another session says the same, letter for letter in between.
    mixed = [each for letter in text for each in (form(letter), form(letter, "two"))]
    for given, count in ((messages, 1), (mixed, 2)):
        said = json.dumps(through(given, "Qpen sesame please"))
        assert said.count(REDACTED) == count
        assert '"g"' not in said and '"Q"' not in said


def test_a_message_whose_text_is_certain_is_not_held_back() -> None:
    redactor: MessageRedactor[int] = MessageRedactor(Redactor())
    assert [tag for tag, _ in redactor.feed(json.dumps(acp("words and ")).encode(), 1)] == [1]
    assert list(redactor.feed(json.dumps(acp("a wor")).encode(), 2)) == []
    assert list(redactor.feed(b'{"method":"other"}', 3)) == []
    assert [tag for tag, _ in redactor.feed(b'{"id":1,"result":{}}', 4)] == [2, 3, 4]


def test_only_the_runs_of_what_has_ended_end() -> None:
    redactor: MessageRedactor[int] = MessageRedactor(Redactor())
    key = KEYS[0]
    for number, (text, session) in enumerate([(key[:9], "a"), ("a wor", "b"), (key[9:], "a")]):
        assert list(redactor.feed(json.dumps(codex(text, session)).encode(), number)) == []
    assert list(redactor.end("b")) == []
    assert list(redactor.end("c")) == []
    ended = [(tag, message["params"]["delta"]) for tag, message in redactor.end("a")]
    assert ended == [(0, REDACTED), (1, "a wor"), (2, "")]
    assert not redactor.is_holding


def test_a_line_that_is_not_json_is_distinguished() -> None:
    redactor: MessageRedactor[int] = MessageRedactor(Redactor())
    ((_, text),) = redactor.feed(b"TOKEN=hunter2hunter2 x", 1)
    assert isinstance(text, NotJson) and text == f"TOKEN={REDACTED} x"


def test_what_is_held_back_is_bounded() -> None:
    redactor: MessageRedactor[int] = MessageRedactor(Redactor())
    assert list(redactor.feed(json.dumps(acp("wor")).encode(), 0)) == []
    out = 0
    for number in range(MAX_HELD):
        out += len(list(redactor.feed(b'{"method":"other"}', number)))
    assert out == MAX_HELD + 1
    for number in range(100):
        out += len(list(redactor.feed(json.dumps(acp("x" * 1000)).encode(), number)))
    assert out > MAX_HELD + 60


def test_a_run_that_waits_for_its_end_tears_no_secret_of_another_one() -> None:
    other = [acp(letter, "two") for letter in "so " * MAX_HELD]
    key = [acp(letter, "two") for letter in KEYS[0]]
    for count in (MAX_HELD - 10, MAX_HELD - 30):
        messages = through([acp("wor"), *other[:count], *key, acp(" it is", "two")])
        texts = [message["params"]["update"]["content"]["text"] for message in messages]
        assert "".join(texts) == "wor" + ("so " * MAX_HELD)[:count] + f"{REDACTED} it is"


def test_a_piece_under_a_secret_name_is_redacted_whole() -> None:
    (message,) = through([{"method": "x", "credentials": {"text": "hunter2"}}])
    assert message["credentials"] == {"text": REDACTED}


def test_bytes_that_are_held_back_are_bounded() -> None:
    redactor: MessageRedactor[int] = MessageRedactor(Redactor())
    assert not list(redactor.feed(json.dumps(acp("a")).encode(), 0))
    assert redactor.is_holding
    other = json.dumps({"method": "other", "params": {"x": "y" * 100_000}}).encode()
    out = [done for number in range(50) for done in redactor.feed(other, number)]
    assert (50 - len(out)) * len(other) <= MAX_HELD_SIZE + len(other)
    assert not redactor.is_holding


def test_outputs_of_two_tools_at_once_are_two_runs() -> None:
    key = KEYS[0]

    def output(tool: str, text: str) -> dict[str, Any]:
        update = {"sessionUpdate": "tool_call_update", "toolCallId": tool, "rawOutput": text}
        return {"method": "session/update", "params": {"sessionId": "one", "update": update}}

    mixed = [output(tool, letter) for letter in f"a {key} b" for tool in ("t1", "t2")]
    said: dict[str, str] = {"t1": "", "t2": ""}
    for message in through(mixed):
        update = message["params"]["update"]
        said[update["toolCallId"]] += update["rawOutput"]
    assert set(said.values()) == {f"a {REDACTED} b"}


def test_a_long_word_is_held_back_as_long_as_it_may_be_a_secret() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJ" + "c3ViIjoiMTIzNDU2" * 60 + ".dozjgNryP4J3jVmNHl0w5N"
    for written in (token, "".join(f"\\u{ord(letter):04x}" for letter in token)):
        pieces = [written[at : at + 50] for at in range(0, len(written), 50)]
        messages = through([acp(piece) for piece in ("it is ", *pieces, " here")])
        texts = [message["params"]["update"]["content"]["text"] for message in messages]
        assert "".join(texts) == f"it is {REDACTED} here"


def test_many_secrets_close_together_hold_back_no_more_than_one() -> None:
    text = "so " + " and ".join(f"line\\n{key}" for key in KEYS * 2) + " it is"
    redactor: MessageRedactor[None] = MessageRedactor(Redactor())
    out: list[Any] = []
    held = 0
    for number, letter in enumerate(text):
        out += redactor.feed(json.dumps(acp(letter)).encode(), None)
        held = max(held, number + 1 - len(out))
    out += redactor.flush()
    texts = [message["params"]["update"]["content"]["text"] for _, message in out]
    assert "".join(texts) == Redactor().text(text)
    assert held < MAX_HELD
