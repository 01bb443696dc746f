"""A trace tells both directions and no secret, and its own misfortunes stay its own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from dragoman.redaction.names import REDACTED
from dragoman.redaction.redactor import Redactor
from dragoman.rpc import ConnectionSettings, Router
from dragoman.rpc import trace as trace_module
from dragoman.rpc.connection import TRACE_VARIABLE
from dragoman.rpc.trace import Trace, from_environment, redact_with
from tests.aio import aio
from tests.unit.rpc.other_side import talk, turns


def records(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@aio
async def test_both_directions_are_written_in_order(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    trace = Trace(path)
    async with talk(Router(), trace=trace) as (connection, other):
        connection.begin("ask", {"n": 1}, settle=lambda result, error: None)
        other.say({"method": "news"})
        other.answer(await other.next(), 5)
        await turns()
        other.raw(b"no JSON\n")
        await turns()
    trace.close()
    told = [(entry["dir"], entry.get("msg", entry.get("text"))) for entry in records(path)]
    assert told == [
        ("send", {"jsonrpc": "2.0", "id": 0, "method": "ask", "params": {"n": 1}}),
        ("recv", {"method": "news"}),
        ("recv", {"jsonrpc": "2.0", "id": 0, "result": 5}),
        ("recv", "no JSON"),
    ]
    assert {entry["conn"] for entry in records(path)} == {connection.name}
    times = [entry["t"] for entry in records(path)]
    assert times == sorted(times) and times[0] >= 0


@aio
async def test_a_repeated_request_and_the_refusal_of_it_are_traced(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    trace = Trace(path)
    router = Router()

    async def wait(params: Any) -> None:
        await asyncio.Event().wait()

    router.on_request("wait", wait)
    async with talk(router, trace=trace) as (_, other):
        other.say({"id": 1, "method": "wait"}, {"id": 1, "method": "wait", "again": True})
        assert (await other.next())["error"]["code"] == -32600
    trace.close()
    assert [entry["dir"] for entry in records(path)] == ["recv", "recv", "send"]
    assert records(path)[1]["msg"]["again"] is True


@aio
async def test_a_line_that_is_too_long_is_not_traced(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace")
    settings = ConnectionSettings(max_line_size=100)
    async with talk(trace=trace, settings=settings) as (connection, other):
        other.raw(b'{"method":"news"}\n' + b"x" * 101)
        await connection.wait_ended()
    trace.close()
    assert [entry["msg"] for entry in records(tmp_path / "trace")] == [{"method": "news"}]


@aio
async def test_the_environment_turns_a_trace_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace"
    monkeypatch.setenv(TRACE_VARIABLE, str(path))
    before = descriptors()
    async with talk(Router()) as (connection, other):
        connection.post("hello")
        await other.next()
        assert descriptors() == before + 1
    assert descriptors() == before
    assert [entry["msg"]["method"] for entry in records(path)] == ["hello"]
    assert path.stat().st_mode & 0o777 == 0o600


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("value", [None, ""])
@aio
async def test_without_the_variable_there_is_no_trace(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a trace was opened")

    monkeypatch.setattr(trace_module, "Trace", refuse)
    if value is None:
        monkeypatch.delenv(TRACE_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(TRACE_VARIABLE, value)
    async with talk(Router()) as (connection, other):
        connection.post("hello")
        await other.next()


def test_a_trace_that_cannot_be_opened_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path))
    with caplog.at_level(logging.WARNING, logger="dragoman.rpc"):
        assert from_environment() is None
    assert "no trace is written" in caplog.text


def test_a_pipe_without_a_reader_does_not_stop_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    monkeypatch.setenv(TRACE_VARIABLE, str(path))
    assert from_environment() is None
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        trace = from_environment()
        assert trace is not None
        with caplog.at_level(logging.WARNING, logger="dragoman.rpc"):
            for _ in range(40):
                trace.record("c", "send", b'"' + b"x" * 8000 + b'"')
        assert "the trace ends here" in caplog.text
        trace.close()
    finally:
        os.close(reader)


@aio
async def test_a_full_disk_ends_the_trace_and_not_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trace = Trace("/dev/full")
    with caplog.at_level(logging.WARNING, logger="dragoman.rpc"):
        async with talk(Router(), trace=trace) as (connection, other):
            connection.post("one")
            connection.post("two")
            assert [(await other.next())["method"] for _ in range(2)] == ["one", "two"]
            assert connection.failure is None
    assert caplog.text.count("the trace ends here") == 1
    trace.close()


def test_a_record_that_the_disk_took_in_part_ends_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trace = Trace(tmp_path / "trace")
    write = os.write
    with caplog.at_level(logging.WARNING, logger="dragoman.rpc"), monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
        trace.record("c", "send", b'{"method":"one"}')
        trace.record("c", "send", b'{"method":"two"}')
    assert caplog.text.count("the trace ends here") == 1
    assert (tmp_path / "trace").stat().st_size == 10


def test_two_connections_may_share_a_path(tmp_path: Path) -> None:
    one, two = Trace(tmp_path / "trace"), Trace(tmp_path / "trace")
    one.record("a", "send", b'{"method":"one"}')
    two.record("b", "recv", b'{"method":"two"}')
    one.close()
    two.close()
    one.record("a", "send", b'{"method":"late"}')
    assert [entry["conn"] for entry in records(tmp_path / "trace")] == ["a", "b"]


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"method":"x","params":' + b'{"a":' * 900 + b"1" + b"}" * 901,
        b'{"n":123456789012345678901234567890}',
        b"[1e999]",
        b'"\\ud800"',
    ],
    ids=["not UTF-8", "deep", "deep but JSON", "large number", "no number", "half a character"],
)
def test_every_line_can_be_written_down(line: bytes, tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace")
    trace.record("c", "recv", line)
    trace.close()
    (entry,) = records(tmp_path / "trace")
    assert ("msg" in entry) != ("text" in entry)


# -- secrets

SECRET = "hunter2-hunter2"


def test_what_is_named_a_secret_is_masked(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace")
    trace.record("c", "send", json.dumps({"id": 1, "params": {"apiKey": SECRET}}).encode())
    trace.record("c", "send", f"MY_TOKEN={SECRET}".encode())
    trace.close()
    told = [entry.get("msg", entry.get("text")) for entry in records(tmp_path / "trace")]
    assert told == [{"id": 1, "params": {"apiKey": REDACTED}}, f"MY_TOKEN={REDACTED}"]


def test_a_secret_deep_in_a_message_is_masked(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace")
    secret = json.dumps({"apiKey": SECRET}).encode()
    trace.record("c", "recv", b'{"params":' + b"[" * 900 + secret + b"]" * 900 + b"}")
    trace.close()
    assert SECRET not in (tmp_path / "trace").read_text()


@aio
async def test_a_message_that_cannot_be_recorded_ends_the_trace_and_not_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(redactor: object, value: object) -> object:
        raise KeyError("a fault")

    monkeypatch.setattr(Redactor, "value", fail)
    async with talk(Router(), trace=Trace(tmp_path / "trace")) as (connection, other):
        answers: list[object] = []
        connection.begin("ask", settle=lambda result, error: answers.append(bytes(result or b"")))
        other.answer(await other.next(), 5)
        await turns()
        assert answers == [b"5"]
    assert "the trace ends here" in caplog.text


def test_values_that_only_those_above_know_are_in_no_record(tmp_path: Path) -> None:
    redact_with(Redactor(["open sesame"]))
    try:
        trace = Trace(tmp_path / "wire.log")
        trace.record("c", "send", b'{"text":"say open sesame"}')
        trace.close()
    finally:
        redact_with(Redactor())
    assert records(tmp_path / "wire.log")[0]["msg"] == {"text": f"say {REDACTED}"}


def chunk(text: str, session: str = "one") -> bytes:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    params = {"sessionId": session, "update": update}
    return json.dumps({"method": "session/update", "params": params}).encode()


@pytest.mark.parametrize("end", ["close", "answer"])
def test_no_half_of_a_secret_is_in_a_trace(tmp_path: Path, end: str) -> None:
    key = "ghp_" + "a1B2c3D4e5F6" * 3
    trace = Trace(tmp_path / "trace")
    for letter in f"it is {key}, and":
        trace.record("c", "recv", chunk(letter))
        trace.record("c", "recv", chunk(".", "two"))
    if end == "answer":
        trace.record("c", "recv", b'{"id":1,"result":{}}')
        assert len(records(tmp_path / "trace")) > len(key)
    trace.close()
    told = records(tmp_path / "trace")
    pieces = [
        entry["msg"]["params"]["update"]["content"]["text"]
        for entry in told
        if entry["msg"].get("params", {}).get("sessionId") == "one"
    ]
    assert "".join(pieces) == f"it is {REDACTED}, and"
    assert [entry["t"] for entry in told] == sorted(entry["t"] for entry in told)


def test_a_line_that_was_cut_off_gives_no_secret_away(tmp_path: Path) -> None:
    whole = json.dumps({"env": [{"name": "API_KEY", "value": SECRET}], "apiKey": SECRET})
    trace = Trace(tmp_path / "trace")
    for size in range(1, len(whole)):
        trace.record("c", "recv", whole[:size].encode())
    trace.close()
    assert "hunter2" not in (tmp_path / "trace").read_text()
