"""Which writes outside the workspace a peer's tool calls tell of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.delegation.worktree.outside_writes import outside_writes
from dragoman.events.parts import FileChange, Location
from dragoman.events.view import Tool
from dragoman.events.words import ChangeStage, ToolKind, ToolStatus


def edit(*paths: str, status: ToolStatus = ToolStatus.COMPLETED) -> Tool:
    return Tool("t", kind=ToolKind.EDIT, status=status, changes=tuple(map(FileChange, paths)))


def test_writes_inside_are_not_told_and_those_outside_are(tmp_path: Path) -> None:
    root = tmp_path / "work"
    tools = [edit(str(root / "a"), "relative/b", str(tmp_path / "out"), "../up")]
    expected = (str(tmp_path / "out"), str(tmp_path / "up"))
    assert outside_writes(tools, [root]) == expected


def test_a_folder_whose_name_only_begins_like_the_workspace_is_outside(tmp_path: Path) -> None:
    other = str(tmp_path / "work-2" / "a")
    assert outside_writes([edit(other)], [tmp_path / "work"]) == (other,)
    assert outside_writes([edit(other)], [tmp_path / "work", tmp_path / "work-2"]) == ()


def test_a_link_inside_that_leads_outside_is_outside(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "secret").mkdir()
    os.symlink(tmp_path / "secret", tmp_path / "work" / "link")
    found = outside_writes([edit("link/x")], [tmp_path / "work"])
    assert found == (str(tmp_path / "secret" / "x"),)


def test_addresses_homes_and_the_old_name_of_a_moved_file_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    moved = Tool("m", changes=(FileChange("new", old_path="/else/where"),))
    tools = [edit(f"file://{tmp_path}/a%20b", "~/.bashrc"), moved]
    assert outside_writes(tools, [tmp_path / "work"]) == (
        str(tmp_path / "a b"),
        str(tmp_path / "home" / ".bashrc"),
        "/else/where",
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("file://[x/else/where", ("/else/where",)),
        ("file://[x", ()),
        ("file://localhost/else/where?a#b", ("/else/where",)),
        ("file:///else%00where", ()),
    ],
)
def test_addresses_that_are_not_valid_raise_no_error(name: str, found: tuple[str, ...]) -> None:
    assert outside_writes([edit(name)], [Path("/workspace")]) == found


@pytest.mark.parametrize(
    ("kind", "count"), [(ToolKind.DELETE, 1), (ToolKind.MOVE, 1), (ToolKind.READ, 0)]
)
def test_locations_are_writes_only_for_tools_that_write(kind: ToolKind, count: int) -> None:
    tool = Tool("t", kind=kind, locations=(Location("/etc/passwd"),))
    assert len(outside_writes([tool], [Path("/workspace")])) == count


def test_what_was_refused_failed_or_only_proposed_was_not_written() -> None:
    tools = [edit("/x", status=status) for status in (ToolStatus.FAILED, ToolStatus.DECLINED)]
    proposed = edit("/y")
    proposed.stage = ChangeStage.PROPOSED
    assert outside_writes([*tools, proposed, edit("")], [Path("/workspace")]) == ()
