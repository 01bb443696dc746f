"""The depth of delegations is counted wherever it is told, and never lost on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import ConfigInvalid
from dragoman.runs import lineage
from dragoman.runs.lineage import DEPTH, LINEAGE, MAX_COUNTED, MAX_KEPT, Lineage, inherited

NOWHERE = Path("/nonexistent")


def read(environ: dict[str, str] | None = None, meta: Any = None) -> Lineage:
    return inherited(environ or {}, meta, proc=NOWHERE)


def test_a_user_at_the_keyboard_is_at_depth_zero() -> None:
    assert read() == Lineage(depth=0, jobs=())


def test_a_child_reads_from_its_environment_what_its_parent_wrote() -> None:
    first = Lineage().child("j-1")
    second = read(first.environment()).child("j-2")
    assert second == Lineage(depth=2, jobs=("j-1", "j-2"))
    assert read(second.environment()) == second


def test_a_request_carries_the_same_in_its_meta() -> None:
    second = Lineage().child("j-1").child("j-2")
    assert read(meta={"dragoman": {**second.meta(), "job": "j-3"}}) == second


def test_a_warm_peer_gets_the_depth_and_no_job() -> None:
    one, other = Lineage().child("j-1"), Lineage().child("j-2")
    assert one.environment(warm=True) == other.environment(warm=True) == {DEPTH: "1"}
    assert read(one.environment(warm=True)) == Lineage(depth=1)


def test_the_deepest_source_counts() -> None:
    meta = {"dragoman": {"depth": 1, "lineage": ["j-9"]}}
    assert read({DEPTH: "3"}, meta).depth == 3
    assert read({DEPTH: "1"}, meta) == Lineage(depth=1, jobs=("j-9",))
    assert read({LINEAGE: "a,b"}).depth == 2
    assert read({DEPTH: "1", LINEAGE: "a,b"}).depth == 2


@pytest.mark.parametrize("text", ["-1", "one", "1.5", " 1", "²", "1e3", "0x2"])
def test_an_unreadable_depth_does_not_count_as_none(text: str) -> None:
    with pytest.raises(ConfigInvalid, match=DEPTH):
        read({DEPTH: text})


def test_absurd_depths_are_bounded() -> None:
    assert read({DEPTH: "9" * 10_000}).depth == MAX_COUNTED
    assert Lineage(depth=MAX_COUNTED).child("j").depth == MAX_COUNTED
    deep = Lineage()
    for number in range(MAX_KEPT + 5):
        deep = deep.child(f"j-{number}")
    assert deep.depth == MAX_KEPT + 5
    assert len(deep.jobs) == MAX_KEPT
    assert deep.jobs[-1] == f"j-{MAX_KEPT + 4}"
    assert read(deep.environment()) == deep


@pytest.mark.parametrize(
    "meta",
    [
        None,
        [],
        "x",
        {"dragoman": 3},
        {"dragoman": {"depth": True}},
        {"dragoman": {"depth": -1}},
        {"dragoman": {"depth": "2"}},
    ],
)
def test_a_meta_that_is_not_a_lineage_says_nothing(meta: Any) -> None:
    assert read(meta=meta) == Lineage()


def test_ids_that_are_none_are_left_out() -> None:
    meta = {"dragoman": {"depth": 4, "lineage": ["j-1", 7, "\x1b[31m", "a" * 65, "j-2\n", "j-2"]}}
    assert read(meta=meta) == Lineage(depth=4, jobs=("j-1", "j-2"))


@pytest.mark.skipif(sys.platform != "linux", reason="only there other processes can be asked")
def test_a_peer_that_empties_the_environment_of_its_commands_is_still_counted() -> None:
    source = Path(lineage.__file__).parents[2]
    ask = (
        f"import sys; sys.path.insert(0, {str(source)!r}); "
        "from dragoman.runs.lineage import inherited; print(inherited())"
    )
    # The shell is the peer. It stays the parent, because it has something to do afterwards.
    done = subprocess.run(
        ["/bin/sh", "-c", f'env -i {sys.executable} -I -c "$1"; true', "sh", ask],
        env={**os.environ, DEPTH: "2", LINEAGE: "j-1,j-2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "Lineage(depth=2, jobs=('j-1', 'j-2'))"


@pytest.mark.skipif(sys.platform != "linux", reason="only there other processes can be asked")
def test_what_the_processes_above_say_is_read_with_care(tmp_path: Path) -> None:
    def process(pid: int, parent: int, environ: bytes) -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a ) b) S {parent} 1 1")
        (tmp_path / str(pid) / "environ").write_bytes(environ)

    process(30, 20, b"")
    process(20, 10, b"DRAGOMAN_DEPTH=nonsense\0DRAGOMAN_STATE_HOME=/x\0\xff\0")
    process(10, 5, b"PATH=/bin\0DRAGOMAN_DEPTH=4\0")
    process(5, 5, b"DRAGOMAN_DEPTH=1")
    assert inherited({}, pid=30, proc=tmp_path) == Lineage(depth=4)
    assert inherited({}, pid=99, proc=tmp_path) == Lineage()
