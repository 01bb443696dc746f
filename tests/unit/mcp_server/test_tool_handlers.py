"""The tools carried out, with the SDK's own client in the same process and no peer behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from dragoman.delegation import DelegationListener
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.events.words import Outcome
from dragoman.mcp_server import tool_handlers as module
from dragoman.mcp_server.ask_peer import PeerAnswer, PeerLead, PeerQuestion
from dragoman.mcp_server.tool_handlers import ToolHandlers
from dragoman.rpc.tasks import THREAD_NAME
from dragoman.store import root_of
from dragoman.store.open import open_store
from tests.aio import aio
from tests.unit.runs.stored import job, session

MODES = ("legacy", "2026-07-28")


class Peer:
    """Stands for whoever is asked: it answers when it may, or when it is told to stop."""

    def __init__(self) -> None:
        self.asked: list[PeerQuestion] = []
        self.lines: list[str] = ["scout: looking"]
        self.told_to_stop = asyncio.Event()
        self.begun = asyncio.Event()
        self.answer = asyncio.Event()
        self.answer.set()

    def cancel(self) -> None:
        self.told_to_stop.set()
        self.answer.set()

    async def ask(
        self, question: PeerQuestion, *, audience: DelegationListener, lead: PeerLead, **_: Any
    ) -> PeerAnswer:
        self.asked.append(question)
        audience.job("j-0000000001")
        lead.hold(self)
        for line in self.lines:
            audience.tell(line)  # type: ignore[attr-defined]
        self.begun.set()
        await self.answer.wait()
        stopped = self.told_to_stop.is_set()
        report = AttemptReport(
            peer=question.peer,
            role="",
            outcome=Outcome.CANCELLED if stopped else Outcome.OK,
            text="forty-two",
            started_at=0.0,
            ended_at=1.0,
        )
        return PeerAnswer(job="j-0000000001", session="s-1", context="new", report=report)


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Peer:
    peer = Peer()
    monkeypatch.setattr(module, "ask", peer.ask)
    return peer


@asynccontextmanager
async def served(work: Path, mode: str = "legacy", **how: Any) -> AsyncIterator[Client]:
    front = ToolHandlers(cwd=work, roots=how.pop("roots", ()))
    try:
        async with Client(front.server, mode=mode, **how) as client:
            yield client
    finally:
        await front.aclose()


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@pytest.mark.parametrize("mode", MODES)
@aio
async def test_tools_are_listed_and_a_question_is_answered(
    mode: str, work: Path, peer: Peer
) -> None:
    told: list[str | None] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)
        # The client has heard of the work: now there may be an answer.
        peer.answer.set()

    async with served(work, mode) as client:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools][:2] == ["delegate", "ask_peer"]
        peer.answer.clear()
        result = await client.call_tool(
            "ask_peer", {"peer": "scout", "prompt": "what?"}, progress_callback=progress
        )
    assert not result.is_error
    assert text_of(result).startswith("forty-two")
    assert result.structured_content["outcome"] == "ok"
    assert told[0] == "scout: looking"
    (question,) = peer.asked
    assert (question.workspace, question.session) == (work, None)


@aio
async def test_directories_and_settings_are_read_in_a_thread(
    work: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(name: str) -> None:
        do = getattr(module, name)

        def noted(*args: Any, **options: Any) -> Any:
            threads[name] = threading.current_thread().name
            return do(*args, **options)

        monkeypatch.setattr(module, name, noted)

    threads: dict[str, str] = {}
    names = ("choose_workspace", "load_context", "may_see")
    for name in names:
        seen(name)
    async with served(work) as client:
        await client.call_tool("ask_peer", {"peer": "scout", "prompt": "what?"})
        await client.call_tool("job_status", {"job": "j-0000000001"})
    assert threads == dict.fromkeys(names, THREAD_NAME)


@pytest.mark.parametrize("mode", MODES)
@aio
async def test_a_workspace_outside_of_the_clients_roots_is_refused(
    mode: str, work: Path, peer: Peer, tmp_path: Path
) -> None:
    inside = work / "inside"
    inside.mkdir()

    async def roots(context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(inside.as_uri()))])

    async with served(work, mode, list_roots_callback=roots) as client:
        refused = await client.call_tool(
            "ask_peer", {"peer": "scout", "prompt": "x", "workspace": str(tmp_path)}
        )
        taken = await client.call_tool("ask_peer", {"peer": "scout", "prompt": "x"})
    assert refused.is_error
    assert "outside the roots of this client" in text_of(refused)
    assert not taken.is_error
    assert [question.workspace for question in peer.asked] == [inside]


@aio
async def test_a_client_that_does_not_tell_its_roots_gets_nothing(work: Path, peer: Peer) -> None:
    async def roots(context: Any) -> types.ErrorData:
        return types.ErrorData(code=-32603, message="not now")

    async with served(work, list_roots_callback=roots) as client:
        refused = await client.call_tool("ask_peer", {"peer": "scout", "prompt": "x"})
    assert refused.is_error
    assert "could not get the roots of the client" in text_of(refused)
    assert peer.asked == []


@pytest.mark.parametrize("mode", MODES)
@aio
async def test_a_cancelled_call_stops_the_peer(mode: str, work: Path, peer: Peer) -> None:
    peer.answer.clear()
    async with served(work, mode) as client:
        call = asyncio.get_running_loop().create_task(
            client.call_tool("ask_peer", {"peer": "scout", "prompt": "x"})
        )
        async with asyncio.timeout(10):
            await peer.begun.wait()
            call.cancel()
            await peer.told_to_stop.wait()
        with pytest.raises(asyncio.CancelledError):
            await call


@aio
async def test_work_that_is_stopped_before_it_has_begun_says_so(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = asyncio.Event()

    async def never(question: PeerQuestion, **_: Any) -> PeerAnswer:
        starting.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(module, "ask", never)
    front = ToolHandlers(cwd=work)
    async with Client(front.server, mode="legacy") as client:
        call = asyncio.get_running_loop().create_task(
            client.call_tool("ask_peer", {"peer": "scout", "prompt": "x"})
        )
        async with asyncio.timeout(10):
            await starting.wait()
            await front.aclose()
            result = await call
    assert result.is_error
    assert "the work was cancelled before a peer was prompted" in text_of(result)


@aio
async def test_a_job_is_started_watched_and_its_answer_fetched(work: Path, peer: Peer) -> None:
    peer.answer.clear()
    async with served(work) as client:
        started = await client.call_tool("start_job", {"peer": "scout", "prompt": "x"})
        assert started.structured_content["job"] == "j-0000000001"
        job = {"job": "j-0000000001"}
        status = await client.call_tool("job_status", job)
        assert "scout: looking" in text_of(status)
        peer.answer.set()
        result = await client.call_tool("job_result", {**job, "wait": 30})
        assert text_of(result).startswith("forty-two")
        again = await client.call_tool("job_status", job)
        assert again.structured_content["ok"] is True
        late = await client.call_tool("cancel_job", job)
        assert "has already ended" in text_of(late)
        assert late.structured_content["outcome"] == again.structured_content["outcome"] == "ok"


@aio
async def test_a_running_job_is_cancelled(work: Path, peer: Peer) -> None:
    peer.answer.clear()
    async with served(work) as client:
        await client.call_tool("start_job", {"peer": "scout", "prompt": "x"})
        job = {"job": "j-0000000001"}
        cancelled = await client.call_tool("cancel_job", job)
        assert cancelled.structured_content["cancelled"] is True
        result = await client.call_tool("job_result", {**job, "wait": 30})
    assert result.is_error
    assert "FAILED: scout did not complete it (cancelled)" in text_of(result)


@aio
async def test_a_job_that_another_process_runs_is_waited_for_and_told_of(work: Path) -> None:
    heard: list[str | None] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)
        with open_store() as store:
            store.update_job("j-0000000001", state="ended", outcome="ok", text="at last")

    with open_store() as store:
        store.create_session(session(root=str(root_of(work))))
        store.create_job(
            job(root=str(root_of(work)), state="running", outcome=None, text="", ended_at=None)
        )
    async with served(work) as client:
        result = await client.call_tool(
            "job_result", {"job": "j-0000000001", "wait": 30}, progress_callback=progress
        )
    assert text_of(result).startswith("at last")
    assert heard[0] == "Job j-0000000001 (scout) is running."


@aio
async def test_a_stored_job_is_seen_only_by_clients_of_its_project(
    work: Path, peer: Peer, tmp_path: Path
) -> None:
    with open_store() as store:
        store.create_session(session(root=str(root_of(work))))
        store.create_job(job(root=str(root_of(work))))
    async with served(work) as client:
        seen = await client.call_tool("job_result", {"job": "j-0000000001", "wait": 1})
        assert text_of(seen).startswith("done")
        none = await client.call_tool("job_status", {"job": "j-none"})
        assert none.is_error
        assert "there is no job" in text_of(none)
    other = tmp_path / "other"
    other.mkdir()
    async with served(work, roots=[other]) as client:
        for tool in ("job_result", "job_status", "cancel_job"):
            hidden = await client.call_tool(tool, {"job": "j-0000000001"})
            assert hidden.is_error
            assert "in the directories of this client" in text_of(hidden)


@aio
async def test_work_of_one_client_is_hidden_from_another_with_other_roots(
    work: Path, peer: Peer, tmp_path: Path
) -> None:
    peer.answer.clear()
    other = tmp_path / "other"
    other.mkdir()

    def rooted(folder: Path) -> Any:
        async def roots(context: Any) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=FileUrl(folder.as_uri()))])

        return roots

    front = ToolHandlers(cwd=work)
    job = {"job": "j-0000000001"}
    async with (
        Client(front.server, mode="legacy", list_roots_callback=rooted(work)) as mine,
        Client(front.server, mode="legacy", list_roots_callback=rooted(other)) as theirs,
    ):
        await mine.call_tool("start_job", {"peer": "scout", "prompt": "x"})
        for tool in ("job_status", "job_result", "cancel_job"):
            hidden = await theirs.call_tool(tool, job)
            assert hidden.is_error
            assert "in the directories of this client" in text_of(hidden)
        assert not peer.told_to_stop.is_set()
        seen = await mine.call_tool("job_status", job)
        assert "scout: looking" in text_of(seen)
    await front.aclose()


@aio
async def test_calls_that_make_no_sense_are_answered_in_words(work: Path, peer: Peer) -> None:
    async with served(work) as client:
        for tool, arguments, words in (
            ("ask_peer", {"peer": "scout"}, "prompt"),
            ("start_job", {"prompt": "x"}, "either a role or a peer"),
            ("start_job", {"prompt": "x", "role": "r", "session": "s"}, "a session belongs to one"),
            ("ask_peer", {"peer": "scout", "prompt": "x", "session": "\n"}, "printable"),
            ("delegate", {"role": "no-such-role", "prompt": "x"}, "no-such-role"),
            ("explain", {"role": "no-such-role"}, "no-such-role"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error, tool
            assert words in text_of(result)
        with pytest.raises(MCPError, match="there is no tool"):
            await client.call_tool("no_such_tool", {})
    assert peer.asked == []


@aio
async def test_peers_are_listed_and_a_choice_is_explained(work: Path) -> None:
    async with served(work) as client:
        peers = await client.call_tool("list_peers", {})
        assert "scout: enabled; roles: exploration" in text_of(peers)
        names = [one["peer"] for one in peers.structured_content["peers"]]
        assert {"scout", "codex", "gemini"} <= set(names)
        explained = await client.call_tool("explain", {"role": "review"})
        decision = explained.structured_content["decision"]
        assert decision["role"] == "review"
        assert decision["candidates"][0]["peer"] == "scout"


@aio
async def test_delegated_work_does_not_delegate_in_turn(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_DEPTH", "1")
    async with served(work) as client:
        for tool, arguments in (
            ("ask_peer", {"peer": "scout", "prompt": "x"}),
            ("delegate", {"role": "exploration", "prompt": "x"}),
            ("start_job", {"peer": "scout", "prompt": "x"}),
            ("start_job", {"role": "exploration", "prompt": "x"}),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert "this is delegated work already, at depth 1" in text_of(result)
            assert result.structured_content["error"]["class"] == "no_peer"


@aio
async def test_a_client_may_say_how_deep_it_stands(work: Path) -> None:
    async with served(work) as client:
        result = await client.call_tool(
            "ask_peer",
            {"peer": "scout", "prompt": "x"},
            meta={"dragoman": {"depth": 3}},  # type: ignore[arg-type]
        )
    assert "at depth 3" in text_of(result)
