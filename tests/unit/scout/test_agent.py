from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dragoman.client.acp import ClientOptions, use_agent
from dragoman.client.permissions import approve_all
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError
from dragoman.rpc import tasks
from dragoman.scout.agent import PIECE_SIZE, build
from dragoman.scout.commands import COMMANDS
from dragoman.scout.store import PAGE_SIZE, RememberedTurn, SessionFiles
from dragoman.transports import memory_pair
from tests.aio import aio
from tests.unit.scout.asking import answer, ask, talking


def test_scout_says_what_it_can_do() -> None:
    agent = build()
    can = agent.capabilities
    assert can.load_session
    assert can.session_capabilities.list is not None
    assert can.session_capabilities.resume is not None
    assert can.session_capabilities.delete is not None
    assert set(agent.handlers.commands) == {command.name for command in COMMANDS}


def test_the_start_of_scout_loads_nothing_that_only_a_turn_needs() -> None:
    program = (
        "import sys, dragoman.scout.agent as a; a.build(); "
        "print([n for n in sys.modules if n.startswith('dragoman.scout.') or n == 'platformdirs'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    for name in ("questions", "definitions", "answers", "store", "search", "platformdirs"):
        assert name not in done.stdout


@aio
async def test_a_question_that_is_not_understood_ends_as_a_refusal(tmp_path: Path) -> None:
    reply = await answer(tmp_path, tmp_path / ".state", "why is the sky blue?")
    assert reply.stop == "refusal"
    assert "I cannot answer that" in reply.text


@aio
async def test_a_command_with_nothing_to_work_on_says_how_it_is_used(tmp_path: Path) -> None:
    reply = await answer(tmp_path, tmp_path / ".state", "/find")
    assert reply.stop == "refusal"
    assert "`/find NAME`" in reply.text


@aio
async def test_how_a_question_was_understood_is_shown(tmp_path: Path) -> None:
    reply = await answer(tmp_path, tmp_path / ".state", "where is foo defined?")
    assert reply.thought == "Where a name is defined (symbol: foo)."
    assert reply.title == "where is foo defined?"


@aio
async def test_a_pronoun_means_the_subject_of_the_last_question(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def foo():\n    pass\n\n\nfoo()\n")
    async with talking(tmp_path, tmp_path / ".state") as session:
        assert (await ask(session, "who calls it?")).stop == "refusal"
        await ask(session, "where is foo defined?")
        assert "`a.py:5`" in (await ask(session, "who calls it?")).text
        assert "def foo" in (await ask(session, "read it")).text


@aio
async def test_a_session_that_is_loaded_saves_the_last_answer_and_no_refusal(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.py").write_text("def foo():\n    pass\n")
    store = SessionFiles(tmp_path / ".state")
    async with talking(tmp_path, tmp_path / ".state") as session:
        id = session.id
        await ask(session, "where is foo defined?")
        await ask(session, "why is the sky blue?")
        await ask(session, "/save found.md")
    assert not (tmp_path / "found.md").exists()
    ours, theirs = memory_pair()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(build(store).serve(theirs))
        async with use_agent(ours, options=ClientOptions(permit=approve_all)) as client:
            await ask(await client.load_session(id, tmp_path), "/save found.md")
    assert "`foo` is defined in `a.py:1`" in (tmp_path / "found.md").read_text()


@aio
async def test_a_file_that_is_handed_over_is_read(tmp_path: Path) -> None:
    (tmp_path / "a b.py").write_text("handed = 1\n")
    link = acp.ResourceLink(uri=(tmp_path / "a b.py").as_uri(), name="a b.py")
    invalid = acp.ResourceLink(uri="file://[x/a", name="a")
    text = acp.TextContent(text="read this file")
    said = ""
    async with talking(tmp_path, tmp_path / ".state") as session:
        async with session.prompt([text, invalid, link]) as turn:
            async for update in turn:
                if isinstance(update, acp.AgentMessageChunk):
                    assert isinstance(update.content, acp.TextContent)
                    said += update.content.text
    assert "handed = 1" in said


@aio
async def test_a_long_answer_comes_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 70 + "\n" + ("y" * 70 + "\n") * 200)
    pieces = []
    async with talking(tmp_path, tmp_path / ".state") as session:
        async with session.prompt("read a.txt") as turn:
            async for update in turn:
                if isinstance(update, acp.AgentMessageChunk):
                    assert isinstance(update.content, acp.TextContent)
                    pieces.append(update.content.text)
    assert len(pieces) > 5
    assert max(map(len, pieces)) <= PIECE_SIZE
    assert "".join(pieces).count("y" * 70) == 200


@aio
async def test_a_directory_that_vanished_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    async with talking(folder, tmp_path / ".state") as session:
        folder.rmdir()
        reply = await ask(session, "what is in this folder?")
    assert reply.stop == "refusal"
    assert "I cannot search" in reply.text


@aio
async def test_the_list_of_sessions_has_pages(tmp_path: Path) -> None:
    store = SessionFiles(tmp_path / ".state")
    for number in range(PAGE_SIZE + 3):
        store.begin(f"{number:032x}", str(tmp_path))
    ours, theirs = memory_pair()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(build(store).serve(theirs))
        async with use_agent(ours, options=ClientOptions()) as client:
            listed = [one.session_id async for one in client.list_sessions()]
            with pytest.raises(RemoteError, match="cursor"):
                await client.connection.call("session/list", {"cursor": "x"})
    assert len(set(listed)) == PAGE_SIZE + 3


@aio
async def test_a_turn_ends_although_the_disk_does_not_store_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = threading.Event()

    def slow(self: SessionFiles, session_id: str, entry: RememberedTurn) -> bool:
        return stored.wait(10)

    monkeypatch.setattr(tasks, "ANSWER_TIMEOUT", 0.01)
    monkeypatch.setattr(SessionFiles, "add", slow)
    reply = await answer(tmp_path, tmp_path / "state", "/help")
    stored.set()
    assert reply.stop == "end_turn" and "There are also commands" in reply.text
