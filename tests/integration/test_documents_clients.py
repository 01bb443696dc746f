"""Our client against agents of the documents: real child processes that are plain `json`.

The agents follow scripts made of the documents' own examples, and end if they get anything else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.budgets import Budgets
from dragoman.client.legacy import (
    DIALECTS,
    DocumentOptions,
    OneshotClient,
    ThreadsClient,
    open_peer,
)
from dragoman.client.permissions import approve_all
from dragoman.dialects.discovery import MemoryCache
from dragoman.errors import ProcessExited, ProtocolMismatch
from dragoman.events import model
from dragoman.events.words import Outcome, Role, ToolStatus
from dragoman.testing.scripted import (
    Exit,
    Expect,
    ExpectAnswer,
    GoSilent,
    Notify,
    Reply,
    Send,
    Step,
    command,
)
from tests.aio import aio
from tests.fixtures.documents import load
from tests.integration.children import TIMEOUT

QUICK = Budgets(cancel_grace=5.0)
OPTIONS = DocumentOptions(permit=approve_all, budgets=QUICK, terminals=True)


def asking(dialect: str, *names: str) -> list[Step]:
    """Steps that expect a request of the document, and answer it with the next example."""
    examples = load(dialect)
    return [
        step
        for name in names
        for step in (
            [Reply(examples[name].body)]
            if examples[name].is_answer
            else [Expect(examples[name].method)]
            if examples[name].sender == "client"
            else [Send(examples[name].message)]
        )
    ]


async def turn_of(
    dialect: str, steps: Sequence[Step], **options: Any
) -> tuple[list[model.Event], Any, Any]:
    """The events and the result of one prompt, and what the session replayed."""
    async with (
        asyncio.timeout(TIMEOUT),
        open_peer(dialect, command(*steps), options=OPTIONS, **options) as peer,
        peer.session() as session,
        session.prompt("What is the capital of France?") as turn,
    ):
        events = [event async for event in turn]
        return events, turn.result, session


def kinds(events: Sequence[model.Event]) -> list[str]:
    return [type(event).__name__ for event in events]


@aio
async def test_a_turn_of_a_oneshot_agent_becomes_events_and_a_result() -> None:
    steps = asking(
        "oneshot", "initialize", "initialized", "prompt", "chunk", "tool", "file", "answer"
    )
    events, result, _ = await turn_of("oneshot", steps)
    assert kinds(events) == [
        "TurnStarted",
        "MessageDelta",
        "ToolChanged",
        "FilesChanged",
        "ToolChanged",
        "TurnEnded",
    ]
    assert (result.outcome, result.text, result.stop) == (Outcome.OK, "...", "stop")
    assert result.usage is not None and result.usage.input_tokens == 1234


@aio
async def test_a_oneshot_agent_is_ended_by_a_cancel() -> None:
    steps = [*asking("oneshot", "initialize", "initialized", "prompt", "chunk"), GoSilent()]
    async with (
        asyncio.timeout(TIMEOUT),
        open_peer("oneshot", command(*steps), options=OPTIONS) as peer,
        peer.session() as session,
        session.prompt("x") as turn,
    ):
        async for event in turn:
            if isinstance(event, model.MessageDelta):
                turn.cancel()
        assert turn.result.outcome is Outcome.CANCELLED
        assert peer.client.connection.failure is not None


@aio
async def test_a_oneshot_agent_of_another_version_is_left() -> None:
    steps: list[Step] = [
        Expect("initialize"),
        Reply({"protocolVersion": "2024-11-05", "serverCapabilities": {}}),
    ]
    with pytest.raises(ProtocolMismatch):
        async with asyncio.timeout(TIMEOUT), open_peer("oneshot", command(*steps)):
            pass


@aio
async def test_a_threads_agent_works_with_and_without_a_handshake() -> None:
    steps = asking("threads", "start", "started", "turn", "complete")
    steps.insert(-1, Notify("whatever", {"threadId": "thread-abc123"}))
    events, result, _ = await turn_of("threads", steps)
    assert kinds(events) == ["TurnStarted", "Unknown", "TurnEnded"]
    assert (result.outcome, result.text) == (Outcome.OK, "...")
    steps = asking("threads", "initialize", "initialized", "turn", "error")
    options = DocumentOptions(handshake=True)
    async with (
        asyncio.timeout(TIMEOUT),
        open_peer("threads", command(*steps), options=options) as peer,
        peer.session() as session,
    ):
        assert (await session.ask("x")).outcome is Outcome.QUOTA


@aio
async def test_a_thread_is_loaded() -> None:
    steps = asking("threads", "resume", "resumed", "turn", "complete")
    async with (
        asyncio.timeout(TIMEOUT),
        open_peer("threads", command(*steps)) as peer,
        peer.session(load="thread-abc123") as session,
    ):
        said = [e.text for e in session.replayed if isinstance(e, model.MessageDelta)]
        assert said == ["Does it build?", "It builds.", "Done."]
        assert (await session.ask("x")).ok


@aio
async def test_a_turn_of_a_tagged_agent_becomes_events_and_a_result() -> None:
    steps = asking(
        "tagged",
        "initialize",
        "initialized",
        "new",
        "opened",
        "prompt",
        "processing",
        "tool_running",
        "tool_completed",
        "tool_error",
        "plan",
        "final_chunk",
        "end_turn",
    )
    events, result, _ = await turn_of("tagged", steps)
    tools = [event.status for event in events if isinstance(event, model.ToolChanged)]
    assert tools == [ToolStatus.RUNNING, ToolStatus.COMPLETED, ToolStatus.FAILED]
    assert result.outcome is Outcome.OK
    assert result.text == "Processing your request...\nI've read the file and..."


@aio
async def test_a_tagged_agent_is_cancelled_by_a_request() -> None:
    steps = [
        *asking("tagged", "initialize", "initialized", "new", "opened", "prompt", "processing"),
        Expect("session/cancel"),
        Reply({}),
        Reply({"stopReason": "cancelled"}, to="session/prompt"),
        *asking("tagged", "prompt", "failed"),
    ]
    async with (
        asyncio.timeout(TIMEOUT),
        open_peer("tagged", command(*steps), options=OPTIONS) as peer,
        peer.session() as session,
    ):
        async with session.prompt("x") as turn:
            async for event in turn:
                if isinstance(event, model.MessageDelta):
                    turn.cancel()
            assert turn.result.outcome is Outcome.CANCELLED
        assert (await session.ask("y")).outcome is Outcome.FAILED


def test_a_keyed_agent_gets_permission_files_and_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text("pass\n")
    read = {"sessionId": "ses_1", "path": str(tmp_path / "c.py")}
    write = {**read, "content": "return\n"}
    terminal = {
        "sessionId": "ses_1",
        "command": sys.executable,
        "args": ["-I", "-S", "-c", "print('hi')"],
    }
    steps = [
        *asking("keyed", "initialize", "initialized", "new", "opened", "prompt"),
        *asking("keyed", "chunk", "tool", "plan", "everything", "permission"),
        ExpectAnswer(7),
        Send({"jsonrpc": "2.0", "id": 10, "method": "fs/read_text_file", "params": read}),
        ExpectAnswer(10),
        Send({"jsonrpc": "2.0", "id": 11, "method": "fs/write_text_file", "params": write}),
        ExpectAnswer(11),
        Send({"jsonrpc": "2.0", "id": 12, "method": "terminal/create", "params": terminal}),
        ExpectAnswer(12),
        Reply({"stopReason": "end_turn"}, to="session/prompt"),
    ]

    @aio
    async def run() -> None:
        events, result, session = await turn_of("keyed", steps, workspace=tmp_path)
        assert result.outcome is Outcome.OK and result.text == "Looking further"
        assert session.modes == ("code", "plan")
        found = kinds(events)
        for kind in ("FilesChanged", "PlanSet", "SettingsChanged", "PermissionAnswered"):
            assert kind in found
        used = [e.operation for e in events if isinstance(e, model.ServiceCalled)]
        assert used == ["fs/read_text_file", "fs/write_text_file", "terminal/create"]
        assert all(e.error is None for e in events if isinstance(e, model.ServiceCalled))

    run()
    assert (tmp_path / "c.py").read_text() == "return\n"


@aio
async def test_a_keyed_session_is_loaded_and_cancelled() -> None:
    steps = [
        *asking("keyed", "initialize", "initialized", "load", "chunk", "loaded", "prompt"),
        *asking("keyed", "tool"),
        Expect("session/cancel"),
        Reply({"stopReason": "cancelled"}, to="session/prompt"),
    ]
    async with (
        asyncio.timeout(TIMEOUT),
        open_peer("keyed", command(*steps), options=OPTIONS) as peer,
        peer.session(load="ses_1") as session,
    ):
        assert [e.text for e in session.replayed if isinstance(e, model.MessageDelta)] == [
            "Looking"
        ]
        async with session.prompt("x") as turn:
            async for event in turn:
                if isinstance(event, model.ToolChanged):
                    turn.cancel()
            assert turn.result.outcome is Outcome.CANCELLED


def with_session(dialect: str, name: str, session_id: str) -> Step:
    message = load(dialect)[name].message
    return Send({**message, "params": {**message["params"], "sessionId": session_id}})


@aio
async def test_a_chained_turn_ends_although_its_prompt_is_never_answered() -> None:
    unknown = {"code": -32601, "message": "Method not found"}
    steps: list[Step] = []
    for name in ("session/list", "sessions/list", "list_sessions"):
        steps += [Expect(name), Reply(error=unknown)]
    steps += [Expect("listSessions"), Reply({"sessions": []})]
    steps += [Expect("startSession"), Reply(load("chained")["created"].body)]
    steps += [Expect("sendMessage")]
    for name in ("reasoning", "delta", "tool_start", "tool_result", "status"):
        steps.append(with_session("chained", name, "session-uuid-456"))
    cache = MemoryCache()
    events, result, _ = await turn_of("chained", steps, cache=cache)
    assert (result.outcome, result.text) == (Outcome.OK, "Paris")
    roles = [event.role for event in events if isinstance(event, model.MessageDelta)]
    assert roles == [Role.THOUGHT, Role.AGENT]
    tools = [event.status for event in events if isinstance(event, model.ToolChanged)]
    assert tools == [ToolStatus.RUNNING, ToolStatus.COMPLETED]


@aio
async def test_an_error_of_a_chained_agent_ends_the_turn() -> None:
    steps = [
        *asking("chained", "list", "sessions", "create", "created", "prompt", "sent"),
        with_session("chained", "error", "session-uuid-456"),
    ]
    events, result, _ = await turn_of("chained", steps)
    assert result.outcome is Outcome.QUOTA
    assert kinds(events) == ["TurnStarted", "TurnState", "ErrorReported", "TurnEnded"]


@aio
async def test_a_chained_session_is_found_in_the_list() -> None:
    examples = load("chained")
    steps: list[Step] = [
        Expect("session/list"),
        Reply(examples["page"].body),
        Expect("session/list"),
        Reply(examples["page"].body),
        Expect("prompt/send"),
        Reply({"status": "completed"}),
    ]
    async with (
        asyncio.timeout(TIMEOUT),
        open_peer("chained", command(*steps)) as peer,
        peer.session(load="session-uuid-124") as session,
    ):
        assert len(session.replayed) == 2
        assert (await session.ask("x")).stop == "completed"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_agent_that_dies_in_its_turn_is_a_crash(dialect: str) -> None:
    opening = {
        "oneshot": ("initialize", "initialized", "prompt"),
        "threads": ("start", "started", "turn"),
        "tagged": ("initialize", "initialized", "new", "opened", "prompt"),
        "keyed": ("initialize", "initialized", "new", "opened", "prompt"),
        "chained": ("list", "sessions", "create", "created", "prompt"),
    }

    @aio
    async def run() -> None:
        steps = [*asking(dialect, *opening[dialect]), Exit(3)]
        _, result, _ = await turn_of(dialect, steps)
        assert result.outcome is Outcome.CRASHED
        assert isinstance(result.error, ProcessExited) and result.error.exit_code == 3

    run()


@aio
async def test_the_small_clients_speak_to_real_programs() -> None:
    heard: list[str] = []

    def hear(method: str, params: Any) -> None:
        heard.append(method)

    steps = asking(
        "oneshot", "initialize", "initialized", "prompt", "chunk", "tool", "file", "answer"
    )
    async with asyncio.timeout(TIMEOUT), await OneshotClient.open(command(*steps)) as oneshot:
        await oneshot.initialize()
        answer = await oneshot.prompt("x", on_notification=hear)
        assert answer.content == "..."
    assert heard == ["agent_message_chunk", "tool_call", "file_change"]
    steps = [*asking("threads", "start", "started", "turn", "error"), *asking("threads", "turn")]
    steps.append(Exit(5))
    async with asyncio.timeout(TIMEOUT), await ThreadsClient.open(command(*steps)) as threads:
        thread = await threads.thread_start()
        result = await threads.turn(thread.thread_id, "x")
        assert result.status == "error"
        with pytest.raises(ProcessExited) as caught:
            await threads.turn(thread.thread_id, "y")
        assert caught.value.error_class == "process_exited"
