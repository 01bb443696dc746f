"""A conversation hears everything, notes every breach, and waits for no longer than it said."""

from __future__ import annotations

import pytest

from dragoman.errors import ConnectionBroken, LineTooLong
from dragoman.testing.conformance import conversation as conversations
from dragoman.testing.conformance.conversation import (
    Conversation,
    Gone,
    Message,
    Silence,
    Violation,
    refuse,
)
from dragoman.transports.memory import MemoryStream, memory_pair
from tests.aio import aio
from tests.unit.rpc.other_side import OtherSide, turns

BREACHES = [
    (b"hello\n", "noise"),
    (b"42\n", "noise"),
    (b"[]\n", "batch"),
    (b'"\xff"\n', "encoding"),
    (b"[" * 100_000 + b"\n", "noise"),
    (b'{"method":"x"}\n', "version"),
    (b'{"jsonrpc":"2.0","method":5}\n', "shape"),
    (b'{"jsonrpc":"2.0","method":"x","result":1}\n', "shape"),
    (b'{"jsonrpc":"2.0","id":1}\n', "shape"),
    (b'{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}\n', "shape"),
    (b'{"jsonrpc":"2.0","id":1,"error":"no"}\n', "shape"),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":""}}\n', "shape"),
    (b'{"jsonrpc":"2.0","id":1,"error":{"code":1}}\n', "shape"),
    (b'{"jsonrpc":"2.0","result":1}\n', "shape"),
    (b'{"jsonrpc":"2.0","id":1.5,"result":1}\n', "id"),
    (b'{"jsonrpc":"2.0","id":true,"result":1}\n', "id"),
    (b'{"jsonrpc":"2.0","id":[1],"result":1}\n', "id"),
]
GOOD = [
    b'{"jsonrpc":"2.0","method":"x"}\n',
    b'{"jsonrpc":"2.0","id":"1","result":null}\r\n',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}\n',
    b"\n \n",
]


def talk(timeout: float = 20.0) -> tuple[Conversation, MemoryStream]:
    near, far = memory_pair()
    return Conversation(near, timeout=timeout, respond=lambda request: refuse()), far


@pytest.mark.parametrize(("line", "kind"), BREACHES)
@aio
async def test_a_line_that_breaks_the_rules_is_noted(line: bytes, kind: str) -> None:
    conversation, far = talk()
    far.write(line)
    await conversation.until(lambda: conversation.breaches or None, "a breach")
    assert [breach.kind for breach in conversation.breaches] == [kind]
    assert conversation.breaches[0].line == line.rstrip()


@aio
async def test_valid_lines_are_accepted_and_the_last_needs_no_newline() -> None:
    conversation, far = talk()
    for line in GOOD:
        far.write(line)
    far.write(b'{"jsonrpc":"2.0","method":"last"}')
    far.close()
    await conversation.until(lambda: conversation.failure, "the end")
    assert conversation.breaches == []
    assert [message.get("method") for message in conversation.messages] == ["x", None, None, "last"]


@aio
async def test_a_line_that_is_too_long_ends_the_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversations, "MAX_LINE_SIZE", 100)
    conversation, far = talk()
    far.write(b"x" * 200)
    with pytest.raises(Gone) as caught:
        await conversation.ask("m", {})
    assert caught.value.evidence == str(LineTooLong(100))
    far.close()
    await turns()
    assert isinstance(conversation.failure, LineTooLong)


@aio
async def test_a_request_that_cannot_be_answered_does_not_hide_the_lines_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conversation, far = talk()
    far.write(b'{"jsonrpc":"2.0","id":1,"method":"a"}\n{"jsonrpc":"2.0","method":"b"}\n')

    def broken(stream: MemoryStream, data: bytes) -> None:
        raise ConnectionBroken("it no longer reads")

    monkeypatch.setattr(MemoryStream, "write", broken)
    await conversation.until(lambda: conversation.heard("b") or None, "the second line")


@aio
async def test_an_answer_has_to_have_the_id_with_its_type() -> None:
    conversation, far = talk()
    id = conversation.begin("m", {})
    far.write(b'{"jsonrpc":"2.0","id":"1","result":1}\n{"jsonrpc":"2.0","id":true,"result":2}\n')
    far.write(b'{"jsonrpc":"2.0","id":1,"result":3}\n')
    answer = await conversation.answer(id)
    assert (answer.result(), answer.position) == (3, 2)
    assert len(conversation.answers(id)) == 1


@aio
async def test_a_refusal_has_a_code_and_no_result() -> None:
    conversation, far = talk()
    far.write(b'{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"no"}}\n')
    answer = await conversation.answer(1)
    assert answer.code == -5
    with pytest.raises(Violation, match="refused") as caught:
        answer.fields()
    assert '"code":-5' in caught.value.evidence


@aio
async def test_null_stands_for_an_empty_object_and_a_list_does_not() -> None:
    conversation, far = talk()
    far.write(b'{"jsonrpc":"2.0","id":1,"result":null}\n{"jsonrpc":"2.0","id":2,"result":[]}\n')
    assert (await conversation.answer(1)).fields() == {}
    with pytest.raises(Violation, match="not an object"):
        (await conversation.answer(2)).fields()


@aio
async def test_silence_is_distinguished_from_an_end() -> None:
    conversation, far = talk(timeout=0.05)
    with pytest.raises(Silence, match="an answer to m within 0.05 s"):
        await conversation.ask("m", {})
    with pytest.raises(Silence, match="no longer responds after x"):
        await conversation.fence("x")
    far.close()
    with pytest.raises(Gone, match="after y: it ended"):
        await conversation.fence("y")
    conversation.say({"nobody": "listens"})


@aio
async def test_requests_of_the_other_side_are_answered_as_told() -> None:
    near, far = memory_pair()
    other = OtherSide(far)
    far.start(other)
    answers: list[Message | None] = [{"result": {"x": 1}}, None, refuse(-7)]
    conversation = Conversation(near, timeout=20.0, respond=lambda request: answers.pop(0))
    for number in range(3):
        other.say({"jsonrpc": "2.0", "id": number, "method": "m"})
    assert await other.next() == {"jsonrpc": "2.0", "id": 0, "result": {"x": 1}}
    assert (await other.next())["error"]["code"] == -7
    assert [message["id"] for message in conversation.heard("m")] == [0, 1, 2]
