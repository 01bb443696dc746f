"""For any path that a peer sends, it reads and changes nothing outside the workspace."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.services.files import Files
from dragoman.client.services.workspace import Workspace
from dragoman.errors import ServiceError
from tests.amounts import SOME
from tests.unit.client.services.hostile_tree import CANARY, HostileTree, build, quick_folder

INSIDE = ["file.txt", "dir", "inner.txt", "deep", "low.txt", "two.txt", "new", "new.txt", "x"]
LINKS = [
    "in_file", "in_absolute", "in_dir", "in_dir_slash", "in_out_and_in", "to_second", "here", "up",
    "out_file", "out_relative", "out_dir", "out_dir_relative", "out_new", "out_new_relative",
    "out_sibling", "out_chain", "out_deep", "up_up", "slash", "dangling", "dangling_deep", "loop_a",
    "self", "loop_dir", "proc_root", "proc_cwd", "proc_fd", "dev_fd", "dev_zero", "passwd",
]  # fmt: skip
OUTSIDE = ["secret.txt", "s.txt", "outside", "root-evil", "root", "second", "etc", "proc", "self"]
ODD = [
    "",
    ".",
    "..",
    "...",
    "~",
    " ",
    "\\",
    "..\\",
    "\n",
    "\u202e",
    "\u00e9",
    "e\u0301",
    "fifo",
    "socket",
]
BROKEN = ["\0", "\ud800", "\udcff", "n" * 256, "..\0", "%2e%2e", "{root}"]

name = st.sampled_from([*INSIDE, *LINKS, *OUTSIDE, *ODD, *BROKEN]) | st.text(max_size=4)
start = st.sampled_from(
    ["{root}", "{root}", "{root}", "{second}", "{outside}", "{base}", "/{root}", "", "/", "..", "."]
)
path = st.builds(
    lambda first, names, end: "/".join([first, *names]) + end,
    start,
    st.lists(name, max_size=8),
    st.sampled_from(["", "", "", "/", "//", "/.", "/.."]),
)
request = st.tuples(
    path,
    st.booleans(),
    st.none() | st.integers(min_value=0, max_value=3),
    st.none() | st.integers(min_value=0, max_value=3),
)


Request = tuple[str, bool, int | None, int | None]


def ask(runner: asyncio.Runner, files: Files, tree: HostileTree, asked: Request) -> bool:
    """Do what a peer asks, and return whether something was written."""
    template, writes, line, limit = asked
    text = tree.path(template)
    try:
        if writes:
            runner.run(files.write_text(text, "written by a peer"))
        else:
            got = runner.run(files.read_text(text, line=line, limit=limit))
    except ServiceError:
        return False
    # What was allowed is where the system says it is, and that is inside.
    real = Path(os.path.realpath(text))
    assert real.is_relative_to(tree.root) or real.is_relative_to(tree.second)
    if writes:
        assert real.read_text() == "written by a peer"
    else:
        assert CANARY not in got
        if line is None and limit is None:
            assert got == real.read_text()
    return writes


@pytest.mark.timeout(300)
def test_no_sequence_of_requests_reaches_anything_outside() -> None:
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        trees: list[HostileTree] = []

        @SOME
        @given(requests=st.lists(request, min_size=1, max_size=6))
        def check(requests: list[Request]) -> None:
            if not trees:
                # A new tree is needed only after something inside was changed.
                trees.append(build(stack.enter_context(quick_folder()), long_chain=False))
            tree = trees[-1]
            files = Files(Workspace([tree.root, tree.second]))
            for asked in requests:
                if ask(runner, files, tree, asked):
                    trees.clear()
            tree.assert_nothing_escaped()

        check()
