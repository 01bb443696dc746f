"""A check says how it went, and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from dragoman.client.services.terminals import Terminals
from dragoman.delegation.worktree import check_command
from dragoman.delegation.worktree.check_command import TAIL_SIZE, run_check
from dragoman.errors import UsageError
from dragoman.transports.process.child import ShutdownTimes
from dragoman.transports.process.environment import owner
from dragoman.transports.process.strays import find_owned
from tests.aio import aio


@aio
async def test_the_exit_code_is_the_verdict_and_the_line_is_a_shells(tmp_path: Path) -> None:
    good = await run_check("echo fine && pwd > where", tmp_path)
    assert (good.ok, good.exit_code, good.tail, good.problem) == (True, 0, "fine\n", "")
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)
    bad = await run_check("echo broken >&2; exit 3", tmp_path)
    assert (bad.ok, bad.exit_code, bad.tail) == (False, 3, "broken\n")


@aio
async def test_only_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    result = await run_check("seq 1 20000; echo the end", tmp_path)
    assert result.ok
    assert result.tail.endswith("20000\nthe end\n")
    assert TAIL_SIZE - 10 < len(result.tail) <= TAIL_SIZE


@aio
async def test_a_check_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    result = await run_check("echo begun; sleep 600 & sleep 600", tmp_path, timeout=0.3)
    assert not result.ok
    assert result.timed_out
    assert result.problem == "it did not end within 0.3 s"
    assert result.tail == "begun\n"
    assert find_owned(owner()) == []


@aio
async def test_a_check_that_is_killed_is_not_ok(tmp_path: Path) -> None:
    result = await run_check("kill -9 $$", tmp_path)
    assert (result.ok, result.exit_code, result.signal) == (False, None, "SIGKILL")


@aio
async def test_a_check_without_a_folder_fails_and_says_why(tmp_path: Path) -> None:
    result = await run_check("true", tmp_path / "gone")
    assert not result.ok
    assert "gone" in result.problem


@aio
async def test_secrets_that_happen_to_be_set_are_not_given_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_TOKEN", "secret")
    monkeypatch.setenv("VIRTUAL_ENV", "/some/where")
    line = "echo [$ACME_TOKEN] [$VIRTUAL_ENV]"
    result = await run_check(line, tmp_path)
    assert result.tail == "[] [/some/where]\n"


@aio
async def test_a_link_to_the_workspace_is_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    assert (await run_check("touch here", tmp_path / "link")).ok
    assert (tmp_path / "real" / "here").exists()


@aio
async def test_an_empty_check_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="empty"):
        await run_check("  ", tmp_path)


@aio
async def test_a_killed_check_whose_exit_is_never_reported_has_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(terminals: Terminals, terminal_id: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Terminals, "wait_for_exit", never)
    monkeypatch.setattr(check_command, "TIMES", ShutdownTimes(kill_timeout=0.01))
    async with asyncio.timeout(20):
        result = await run_check("sleep 600", tmp_path, timeout=0.01)
    assert (result.ok, result.timed_out, result.exit_code) == (False, True, None)
    assert find_owned(owner()) == []
