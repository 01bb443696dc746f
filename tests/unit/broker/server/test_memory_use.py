"""The memory of an agent is that of everything it has started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.broker.server import memory_use
from dragoman.broker.server.memory_use import resident_tree
from dragoman.transports.process.identity import resident_size

PAGE = os.sysconf("SC_PAGE_SIZE")


def process(
    proc: Path, pid: int, parent: int, pages: int, children: dict[int, str] | None = None
) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "statm").write_text(f"900 {pages} 1 1 0 1 0")
    (folder / "stat").write_text(f"{pid} (a) program) S {parent} 1 1")
    for thread, found in (children or {}).items():
        (folder / "task" / str(thread)).mkdir(parents=True)
        (folder / "task" / str(thread) / "children").write_text(found)


@pytest.mark.parametrize("listed", [True, False])
def test_children_and_their_children_count_and_strangers_do_not(
    tmp_path: Path, listed: bool
) -> None:
    def below(of: dict[int, str]) -> dict[int, str] | None:
        return of if listed else None

    process(tmp_path, 10, 1, 5, below({10: "11 ", 19: "12 404 "}))
    process(tmp_path, 11, 10, 7, below({11: "13 "}))
    process(tmp_path, 12, 10, 11, below({12: ""}))
    process(tmp_path, 13, 11, 13, below({13: "10 "}))
    process(tmp_path, 20, 1, 1000, below({20: ""}))
    (tmp_path / "uptime").write_text("no process")
    assert resident_tree(10, proc=tmp_path) == (5 + 7 + 11 + 13) * PAGE
    assert resident_tree(13, proc=tmp_path) is not None
    assert resident_tree(99, proc=tmp_path) is None


def test_no_more_processes_are_looked_at_than_anybody_should_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_use, "MAX_PROCESSES", 3)
    for pid in range(10, 20):
        process(tmp_path, pid, pid - 1, 1, {pid: str(pid + 1)})
    assert resident_tree(10, proc=tmp_path) == 3 * PAGE


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_a_real_child_is_counted_with_its_parent() -> None:
    program = "import sys; sys.stdin.read()"
    with subprocess.Popen(  # noqa: TID251 - a child to be found
        [sys.executable, "-c", program], stdin=subprocess.PIPE
    ) as child:
        alone, together = resident_size(os.getpid()), resident_tree(os.getpid())
        theirs = resident_tree(child.pid)
        assert alone is not None and together is not None and theirs is not None
        assert together >= alone + theirs / 2
        assert child.stdin is not None
        child.stdin.close()
