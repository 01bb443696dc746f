"""Recordings of the real Codex behind a bridge: an ACP client sees an ordinary ACP agent."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.peer import AcpPeer, open_peer
from dragoman.client.codex import CodexPeer
from dragoman.client.permissions import Decision, Permit, Question, approve_all, deny_all
from dragoman.errors import Unsupported
from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.events.parts import Text
from dragoman.events.words import Outcome, PlanStatus, Role, ToolKind, ToolStatus
from dragoman.gateway import RAW_KEY, serve
from dragoman.rpc.tasks import TaskOwner
from dragoman.testing import scripted
from dragoman.transports import memory_pair, spawn
from tests.aio import aio
from tests.integration.codex_scenarios import SCENARIOS
from tests.integration.peers import WAIT_TIMEOUT
from tests.integration.test_codex_replay import steps


@asynccontextmanager
async def codex(
    name: str, folder: Path, permit: Permit = approve_all, *, raw: bool = False
) -> AsyncIterator[AcpPeer]:
    """An ACP client of a recording."""
    script = folder / "script.json"
    script.write_text(scripted.dumps(steps(name)), encoding="utf-8")
    stream = await spawn([sys.executable, "-I", "-S", scripted.__file__, str(script)])
    options = SCENARIOS[name].options(lambda: None)  # type: ignore[arg-type, return-value]
    tasks = TaskOwner("test")
    async with asyncio.timeout(WAIT_TIMEOUT):
        async with await CodexPeer.connect(stream, folder, options) as far:
            ours, theirs = memory_pair()
            serving = tasks.start(serve(far, theirs, raw=raw), "serve")
            near = await open_peer(ours, folder, ClientOptions(permit=permit))
            async with near:
                yield near
            await serving
    await tasks.aclose()


@aio
async def test_text_and_thoughts_of_codex_reach_an_acp_client(tmp_path: Path) -> None:
    async with codex("text", tmp_path) as peer:
        assert peer.info.name == "codex"
        assert peer.capabilities.load
        async with peer.session() as session:
            async with session.prompt("THINK please") as turn:
                view = fold([event async for event in turn])
            assert turn.result.outcome is Outcome.OK
            assert turn.result.stop == "completed", "the own word of Codex, which comes in _meta"
            assert {message.role for message in view.messages} == {
                Role.USER,
                Role.AGENT,
                Role.THOUGHT,
            }
            assert turn.result.text
            async with session.prompt("CHUNKS:3") as turn:
                deltas = [event async for event in turn if isinstance(event, model.MessageDelta)]
            assert len(deltas) >= 3
            assert view.usage["context"].context_size


@aio
async def test_a_command_of_codex_is_a_tool_call_that_is_asked_about(tmp_path: Path) -> None:
    asked: list[Question] = []

    def permit(question: Question) -> Decision:
        asked.append(question)
        return approve_all(question)

    async with codex("command", tmp_path, permit) as peer, peer.session() as session:
        async with session.prompt("SHELL:touch made.txt && echo done-it") as turn:
            events = [event async for event in turn]
    (question,) = asked
    view = fold(events)
    (tool,) = view.tools.values()
    assert question.tool_call_id == tool.tool_id
    assert (question.kind, tool.kind, tool.status) == (
        "execute",
        ToolKind.EXECUTE,
        ToolStatus.COMPLETED,
    )
    text = "".join(item.text for item in tool.content if isinstance(item, Text))
    assert "done-it" in text
    kinds = [type(event) for event in events]
    assert kinds.index(model.ToolChanged) < kinds.index(model.PermissionAsked)
    assert turn.result.ok


@aio
async def test_a_refusal_reaches_codex_and_shows_as_a_failed_tool_call(tmp_path: Path) -> None:
    async with codex("declined", tmp_path, deny_all) as peer, peer.session() as session:
        for prompt in ("SHELL:touch made.txt", "WRITE:a.txt:text"):
            async with session.prompt(prompt) as turn:
                view = fold([event async for event in turn])
            assert [tool.status for tool in view.tools.values()] == [ToolStatus.FAILED]
            assert turn.result.denials


@aio
async def test_a_changed_file_of_codex_is_a_diff(tmp_path: Path) -> None:
    async with codex("file", tmp_path) as peer, peer.session() as session:
        async with session.prompt("WRITE:made.txt:some content") as turn:
            view = fold([event async for event in turn])
    (tool,) = view.tools.values()
    assert [(change.path, change.old_text, change.new_text) for change in tool.changes] == [
        ("/workspace/made.txt", None, "some content\n")
    ]
    assert tool.kind is ToolKind.EDIT


@aio
async def test_a_plan_of_codex_is_a_plan(tmp_path: Path) -> None:
    async with codex("plan", tmp_path) as peer, peer.session() as session:
        async with session.prompt("PLAN:look;change") as turn:
            view = fold([event async for event in turn])
    entries = view.plans["main"].entries
    assert [entry.text for entry in entries] == ["look", "change"]
    assert all(isinstance(entry.status, PlanStatus) for entry in entries)


@aio
async def test_cancelling_interrupts_codex_and_the_thread_goes_on(tmp_path: Path) -> None:
    async with codex("interrupt", tmp_path) as peer, peer.session() as session:
        async with session.prompt("SLOW") as turn:
            async for event in turn:
                if isinstance(event, model.MessageDelta):
                    turn.cancel()
        assert turn.result.outcome is Outcome.CANCELLED
        assert (await session.ask("again")).ok


@aio
async def test_cancelling_withdraws_a_question_of_codex(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never(question: Question) -> Decision:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with codex("interrupt_question", tmp_path, never) as peer, peer.session() as session:
        async with session.prompt("SHELL:touch made.txt") as turn:
            await asked.wait()
            turn.cancel()
            assert (await turn.wait()).outcome is Outcome.CANCELLED


@aio
async def test_an_error_of_codex_is_an_error_and_not_an_empty_answer(tmp_path: Path) -> None:
    async with codex("errors", tmp_path) as peer, peer.session() as session:
        for prompt in ("HTTP:400", "HTTP:500"):
            result = await session.ask(prompt)
            assert result.outcome is Outcome.FAILED
            assert result.failure is not None and result.failure.message
        assert not (await session.ask("HTTP:401")).ok
        assert (await session.ask("again")).ok


@aio
async def test_threads_are_modes_sessions_and_history_for_an_acp_client(tmp_path: Path) -> None:
    events: list[model.Event] = []
    async with codex("load", tmp_path) as peer:
        peer.on_event = events.append
        async with peer.session() as session:
            assert (await session.ask("THINK first\nWRITE:made.txt:text")).ok
        view = fold(event for event in events if event.session == session.id)
        assert view.mode == "workspace-write"
        assert "read-only" in [mode.id for mode in view.modes]
        async with peer.session(load=session.id) as again:
            await again.wait_replayed()
            history = fold(again.replayed)
            assert history.messages[0].role is Role.USER
            assert history.messages[0].text.startswith("THINK first")
            assert history.tools
            assert (await again.ask("second")).ok
        with pytest.raises(Unsupported):
            async with peer.session(fork=session.id):
                pytest.fail("the stable protocol has no fork")


@aio
async def test_the_own_message_of_codex_can_travel_along(tmp_path: Path) -> None:
    async with codex("text", tmp_path, raw=True) as peer, peer.session() as session:
        async with session.prompt("THINK please") as turn:
            deltas = [event async for event in turn if isinstance(event, model.MessageDelta)]
        await session.ask("CHUNKS:3")
    assert deltas
    for delta in deltas:
        message: dict[str, Any] = msgspec.json.decode(delta.raw or b"")
        assert "method" in message["params"]["update"]["_meta"][RAW_KEY]
