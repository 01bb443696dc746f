"""scout as anybody meets it: a child process, driven through the client.

What a turn shows, what it may write, how it is cancelled, what it remembers, and that a hostile
folder gets it to do nothing else.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from dragoman.client.conversation import Conversation
from dragoman.client.permissions import Answer, Question, approve_all
from dragoman.client.results import Result
from dragoman.errors import RemoteError
from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.events.view import View
from dragoman.events.words import Outcome, PlanStatus, ToolKind, ToolStatus
from tests.aio import aio
from tests.integration.scout_child import WAIT_TIMEOUT, find_ripgrep, places, programs, scout

ENGINES = [
    pytest.param((), id="python"),
    pytest.param(
        ("rg",),
        id="ripgrep",
        marks=pytest.mark.skipif(find_ripgrep() is None, reason="there is no ripgrep here"),
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small project."""
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text(
        "import os\n\n\ndef parse_range(text):\n    # TODO: negative numbers\n    return text\n\n\n"
        "def main():\n    print(parse_range('1-2'))\n"
    )
    (root / "src" / "other.js").write_text("// FIXME later\nexport const LIMIT = 3;\n")
    (root / "README.md").write_text("# Demo\n\nA project to look at.\n")
    (root / "pyproject.toml").write_text('[project.scripts]\ndemo = "app:main"\n')
    return root


async def watch(session: Conversation, text: str) -> tuple[Result, list[model.Event], View]:
    """Ask, and keep everything that was shown on the way."""
    async with session.prompt(text) as turn:
        events = [event async for event in turn]
    return turn.result, events, fold(events)


@aio
async def test_a_turn_shows_a_moving_plan_tool_calls_with_places_and_an_answer(
    folder: Path, tmp_path: Path
) -> None:
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        scout(folder, tmp_path / "state") as peer,
        peer.session() as session,
    ):
        result, events, view = await watch(session, "where is parse_range defined?")
    assert result.outcome is Outcome.OK
    assert places(result.text) == ["src/app.py:4"]
    assert "def parse_range(text):" in result.text
    plans = [event.entries for event in events if isinstance(event, model.PlanSet)]
    moved = [sum(entry.status is PlanStatus.COMPLETED for entry in plan) for plan in plans]
    assert moved == sorted(set(moved)), "the plan moves forward, one step at a time"
    assert moved[0] == 0
    assert moved[-1] == len(plans[-1]) > 1
    search, read = view.tools.values()
    assert (search.kind, read.kind) == (ToolKind.SEARCH, ToolKind.READ)
    assert {search.status, read.status} == {ToolStatus.COMPLETED}
    here = str(folder / "src" / "app.py")
    assert [(place.path, place.line) for place in search.locations] == [(here, 4)]
    assert [(place.path, place.line) for place in read.locations] == [(here, 4)]
    assert search.input["terms"] == ["parse_range"]
    assert search.content, "what was found is shown"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("where is parse_range used?", ["src/app.py:10", "src/app.py:4"]),
        ("who calls parse_range?", ["src/app.py:10", "src/app.py:4"]),
        ("list the TODOs", ["src/app.py:5", "src/other.js:1"]),
        ("list the FIXMEs in src", ["src/other.js:1"]),
        ("are there todos about numbers?", ["src/app.py:5"]),
        ("what are the entry points?", ["pyproject.toml:2", "src/app.py:1"]),
        ("find the text 'print(parse'", ["src/app.py:10"]),
    ],
)
@aio
async def test_answers_name_places(
    text: str, expected: list[str], folder: Path, tmp_path: Path
) -> None:
    async with scout(folder, tmp_path / "state") as peer, peer.session() as session:
        result = await session.ask(text)
    assert (result.outcome, places(result.text)) == (Outcome.OK, expected)


@aio
async def test_scout_describes_folders_files_and_itself(folder: Path, tmp_path: Path) -> None:
    async with scout(folder, tmp_path / "state") as peer, peer.session() as session:

        async def ask(text: str) -> str:
            result = await session.ask(text)
            assert result.outcome is Outcome.OK, f"{text}: {result.text}"
            return result.text

        assert "- `src/`: 2 files" in await ask("what is in this folder?")
        assert "- `src/other.js`" in await ask("what is in src/?")
        layout = await ask("summarise the layout")
        assert "A project to look at." in layout
        assert "Python" in layout
        assert "def main():" in await ask("read app.py:9-10")
        assert "# Demo" in await ask("show me the README")
        assert "`src/other.js:1`" in await ask("where is other.js?")
        assert "/todo" in await ask("what can you do?")
        assert places(await ask("where is main defined?")) == ["src/app.py:9"]
        assert "`main` is not called" in await ask("who calls it?"), "it is what was spoken of"
        assert "no files that look like tests" in await ask("where are the tests?")
        assert places(await ask("how are ranges parsed?"))[0] == "src/app.py:4"


# -- writing


@aio
async def test_saving_shows_the_change_and_asks_before_anything_is_written(
    folder: Path, tmp_path: Path
) -> None:
    asked: list[Question] = []
    target = folder / "notes.md"

    def permit(question: Question) -> Answer:
        asked.append(question)
        assert not target.exists()
        return Answer.ALLOW_ONCE

    async with scout(folder, tmp_path / "state", permit=permit) as peer, peer.session() as session:
        said = (await session.ask("where is parse_range defined?")).text
        result, _, view = await watch(session, "/save notes.md")
    assert result.outcome is Outcome.OK
    assert target.read_text() == said + "\n"
    (question,) = asked
    assert question.kind == "edit"
    (tool,) = view.tools.values()
    (change,) = tool.changes
    assert (change.path, change.new_text) == (str(target), said + "\n")


@pytest.mark.parametrize("write_files", [True, False])
@aio
async def test_a_refusal_writes_nothing_and_ends_as_denied(
    write_files: bool, folder: Path, tmp_path: Path
) -> None:
    async with (
        scout(folder, tmp_path / "state", write_files=write_files) as peer,
        peer.session() as session,
    ):
        await session.ask("where is parse_range defined?")
        result, _, view = await watch(session, "/save notes.md")
    assert result.outcome is Outcome.DENIED
    assert not (folder / "notes.md").exists()
    (tool,) = view.tools.values()
    assert tool.status is ToolStatus.FAILED


@aio
async def test_without_help_of_the_client_it_writes_inside_of_the_workspace_only(
    folder: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.md"
    (folder / "link.md").symlink_to(outside)
    async with (
        scout(folder, tmp_path / "state", permit=approve_all, write_files=False) as peer,
        peer.session() as session,
    ):
        assert (await session.ask("/save notes.md")).outcome is Outcome.REFUSED, "nothing was said"
        await session.ask("list the TODOs")
        assert (await session.ask("/save notes.md")).outcome is Outcome.OK
        for path in ("../outside.md", str(outside), "link.md"):
            result = await session.ask(f"/save {path}")
            assert result.outcome is Outcome.REFUSED, path
    assert "src/app.py:5" in (folder / "notes.md").read_text()
    assert not outside.exists()


# -- cancelling


def stuck_program(folder: Path) -> tuple[str, Path]:
    """A PATH with a ripgrep that never ends, and a pipe through which it tells its process id."""
    folder.mkdir()
    started = folder / "started"
    os.mkfifo(started)
    program = folder / "rg"
    program.write_text(f"#!/bin/sh\necho $$ > {started}\nexec sleep 600\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}", started


@aio
async def test_a_cancel_ends_the_search_and_the_session_goes_on(
    folder: Path, tmp_path: Path
) -> None:
    path, started = stuck_program(tmp_path / "bin")
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        scout(folder, tmp_path / "state", path=path) as peer,
        peer.session() as session,
    ):
        async with session.prompt("where is parse_range defined?") as turn:
            pid = int(await asyncio.to_thread(started.read_text))
            turn.cancel()
            result = await turn.wait()
        assert result.outcome is Outcome.CANCELLED
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert (await session.ask("what is in this folder?")).outcome is Outcome.OK


# -- remembering


@aio
async def test_sessions_are_listed_and_loaded_by_another_process(
    folder: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with scout(folder, state) as peer:
        async with peer.session() as session:
            first = session.id
            said = (await session.ask("where is parse_range defined?")).text
        async with peer.session():
            pass
    assert sorted(os.listdir(folder)) == ["README.md", "pyproject.toml", "src"], "no litter"
    async with scout(folder, state) as peer:
        known = {summary.id: summary async for summary in peer.list_sessions()}
        assert len(known) == 2
        assert known[first].title == "where is parse_range defined?"
        assert known[first].cwd == str(folder)
        assert [s.id async for s in peer.list_sessions(cwd=tmp_path)] == []
        async with peer.session(load=first) as session:
            texts = [message.text for message in fold(session.replayed).messages]
            assert texts == ["where is parse_range defined?", said]
            assert (await session.ask("list the TODOs")).outcome is Outcome.OK
        async with peer.session(resume=first) as session:
            assert len((await session.ask("help")).text) > 100
        await peer.delete_session(first)
        assert first not in {summary.id async for summary in peer.list_sessions()}
        for unknown in (first, "0" * 32, "../../etc/passwd"):
            with pytest.raises(RemoteError) as caught:
                async with peer.session(load=unknown):
                    pass
            assert caught.value.code == -32002


@aio
async def test_a_session_that_cannot_be_deleted_is_not_reported_as_deleted(
    folder: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with scout(folder, state) as peer:
        async with peer.session() as session:
            (file,) = state.rglob(f"{session.id}.jsonl")
        file.unlink()
        file.mkdir()
        with pytest.raises(RemoteError, match="the session cannot be deleted: Is a directory"):
            await peer.delete_session(session.id)


@aio
async def test_several_sessions_work_at_once_each_in_its_own_folder(
    folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "here.py").write_text("\n\ndef parse_range():\n    pass\n")
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        scout(folder, tmp_path / "state") as peer,
        peer.session() as one,
        peer.session(cwd=other) as two,
    ):
        results = await asyncio.gather(
            *(session.ask("where is parse_range defined?") for session in (one, two))
        )
    assert [places(result.text) for result in results] == [["src/app.py:4"], ["here.py:3"]]


@aio
async def test_a_state_folder_that_cannot_be_written_does_not_keep_it_from_answering(
    folder: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    state.write_text("a file in the way")
    async with scout(folder, state) as peer, peer.session() as session:
        assert (await session.ask("where is main defined?")).outcome is Outcome.OK
        assert [summary async for summary in peer.list_sessions()] == []


@aio
async def test_a_folder_that_is_none_is_refused_when_the_session_opens(
    folder: Path, tmp_path: Path
) -> None:
    async with scout(folder, tmp_path / "state") as peer:
        with pytest.raises(RemoteError, match="there is no directory"):
            async with peer.session(cwd=tmp_path / "nowhere"):
                pass


# -- hostile folders


@pytest.mark.parametrize("names", ENGINES)
@aio
async def test_whatever_lies_in_a_folder_the_answer_is_right_and_stays_inside(
    names: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("def parse_range():\n    hunter2 = 1\n")
    (folder / "loop").symlink_to(folder)
    (folder / "out").symlink_to(tmp_path)
    (folder / "secret.py").symlink_to(secret)
    os.mkfifo(folder / "fifo.py")
    bad_name = os.fsdecode(b"bad\xff\nname.py")
    (folder / bad_name).write_bytes(b"parse_range()  # \xff\xfe\x1b[31m\n")
    (folder / "wide.js").write_text("x=1;" * 500_000 + "parse_range();" + "y=2;" * 500_000 + "\n")
    with (folder / "large.py").open("wb") as large:
        large.write(b"def parse_range():\n" * 10_000)
        large.truncate(100 * 1024 * 1024)
    (folder / "binary.bin").write_bytes(b"\0parse_range" * 100)
    path = programs(tmp_path / "bin", *names)
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        scout(folder, tmp_path / "state", path=path) as peer,
        peer.session() as session,
    ):
        defined = await session.ask("where is parse_range defined?")
        assert places(defined.text) == ["src/app.py:4"], defined.text
        used = await session.ask("where is parse_range used?")
        assert "`bad�\\nname.py:1`" in used.text
        assert "wide.js:1" in places(used.text)
        assert "\x1b" not in used.text
        assert len(used.text) < 5000
        for question in (
            "read secret.py",
            "read out/secret.py",
            "read ../secret.py",
            f"read {secret}",
            "read ~/.profile",
            "read fifo.py",
            "/layout out",
            "what is in ../",
            "/todo in out",
            "/layout ../",
            "/layout /",
        ):
            result = await session.ask(question)
            assert result.outcome is Outcome.REFUSED, f"{question}: {result.text}"
            assert "hunter2" not in result.text
        result = await session.ask("read large.py:1-2")
        assert "def parse_range():" in result.text
        assert (await session.ask("read binary.bin")).outcome is Outcome.REFUSED
        assert (await session.ask("what is in this folder?")).outcome is Outcome.OK
        assert (await session.ask("how big is this repo?")).outcome is Outcome.OK


def git(folder: Path, *words: str) -> None:
    identity = {
        f"GIT_{who}_{what}": f"ada{what}"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    subprocess.run(
        ["git", "-C", str(folder), *words],
        check=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, **identity},
    )


@aio
async def test_a_repository_cannot_have_its_own_programs_run(folder: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    sprung = tmp_path / "sprung"
    trap.write_text(f'#!/bin/sh\necho "$0 $*" >> {sprung}\ncat\n')
    trap.chmod(0o755)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Begin")
    for key in (
        "core.fsmonitor", "core.pager", "pager.log", "gpg.program", "diff.external",
        "diff.evil.textconv", "diff.evil.command", "filter.evil.clean", "filter.evil.smudge",
        "filter.evil.process", "core.sshCommand", "core.editor", "core.askPass",
        "credential.helper", "alias.log", "alias.ls-files",
    ):  # fmt: skip
        git(folder, "config", key, f"!{trap}" if key.startswith("alias") else str(trap))
    git(folder, "config", "log.showSignature", "true")
    git(folder, "config", "protocol.ext.allow", "always")
    hooks = folder / ".git" / "hooks"
    for hook in ("post-index-change", "post-checkout", "fsmonitor-watchman"):
        (hooks / hook).write_text(trap.read_text())
        (hooks / hook).chmod(0o755)
    (folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    # Same size, other time: whoever compares contents would have to read it by way of the filter.
    text = (folder / "src" / "app.py").read_text()
    (folder / "src" / "app.py").write_text(text.replace("os", "so"))
    async with scout(folder, tmp_path / "state") as peer, peer.session() as session:
        await session.ask("what changed lately?")
        await session.ask("where is parse_range defined?")
        await session.ask("summarise the layout")
    assert not sprung.exists(), sprung.read_text()


def test_the_trap_would_have_been_sprung(folder: Path, tmp_path: Path) -> None:
    # So that the test above can fail: an ordinary `git status` does run what the folder names.
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path / 'sprung'}\n")
    trap.chmod(0o755)
    git(folder, "init", "-q")
    git(folder, "config", "core.fsmonitor", str(trap))
    git(folder, "status")
    assert (tmp_path / "sprung").exists()
