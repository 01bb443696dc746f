"""The changed files that tool calls report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.delegation.review import changes as module
from dragoman.delegation.review.changes import of_patch, reported
from dragoman.delegation.worktree.patch_files import PatchFile
from dragoman.events.words import FileOp
from dragoman.store import Store
from tests.unit.store.stores import job, open_store, session


def diff(path: Path | str, old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": str(path), "oldText": old, "newText": new}


def call(id: str, *content: dict[str, Any], status: str = "completed", **fields: Any) -> bytes:
    told = {"toolCallId": id, "title": f"Edit {id}", "status": status, "content": list(content)}
    line = {"sessionUpdate": "tool_call", "kind": "edit", **told, **fields}
    return msgspec.json.encode({"sessionId": "theirs", "update": line})


def stored(tmp_path: Path, turns: list[list[bytes]]) -> tuple[Store, str, list[str]]:
    store = open_store(tmp_path)
    record = session(cwd=str(tmp_path))
    store.create_session(record)
    ids, at = [], 0
    for lines in turns:
        made = job(
            record.key, state="ended", outcome="ok", started_at=1.0, first_event=at,
            next_event=at + len(lines),
        )  # fmt: skip
        store.create_job(made)
        store.append(record.key, at, lines)
        ids.append(made.id)
        at += len(lines)
    return store, record.key, ids


def test_changes_are_grouped_by_file_with_their_turns_and_lines(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("first\nsecond\nthird\n")
    store, key, (one, two) = stored(
        tmp_path,
        [
            [call("1", diff(tmp_path / "a.py", "zwei", "second")), call("2", diff("b", None, "b"))],
            [call("3", diff(tmp_path / "a.py", "3rd", "third"))],
        ],
    )
    with store:
        a, b = reported(store, key, root=tmp_path)
        assert (a.path, a.op, b.path, b.op) == ("a.py", FileOp.MODIFY, "b", FileOp.ADD)
        assert [(c.job, c.tool, c.first_line) for c in a.changes] == [
            (one, "Edit 1", 2),
            (two, "Edit 3", 3),
        ]
        (only,) = reported(store, key, root=tmp_path, job=two)
        assert [c.new_text for c in only.changes] == ["third"]


def test_edits_of_a_whole_file_that_follow_each_other_are_one(tmp_path: Path) -> None:
    lines = [call("1", diff("a", None, "one\n")), call("2", diff("a", "one\n", "two\n"))]
    store, key, _ = stored(tmp_path, [lines])
    with store:
        (file,) = reported(store, key, root=tmp_path)
    assert file.op is FileOp.ADD
    assert [(c.old_text, c.new_text) for c in file.changes] == [(None, "two\n")]


def test_what_was_refused_failed_or_only_proposed_is_not_a_change(tmp_path: Path) -> None:
    lines = [
        call("1", diff("a", "x", "y"), status="failed"),
        call("2", diff("b", "x", "y"), status="pending"),
    ]
    store, key, _ = stored(tmp_path, [lines])
    with store:
        assert [file.path for file in reported(store, key, root=tmp_path)] == []


def test_no_file_outside_of_the_workspace_is_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").write_text("found\n")
    (root / "link").symlink_to(tmp_path / "outside")
    lines = [
        call("1", diff(tmp_path / "outside", "x", "found\n")),
        call("2", diff(root / "link", "x", "found\n")),
        call("3", diff("../outside", "x", "found\n")),
    ]
    store, key, _ = stored(tmp_path, [lines])
    with store:
        found = reported(store, key, root=root)
    assert [change.first_line for file in found for change in file.changes] == [None] * 3


def test_a_review_that_is_too_large_names_the_rest_of_its_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TOTAL", 10)
    files = [PatchFile(path=name, op=FileOp.MODIFY, diff="12345678") for name in "ab"]
    one, two = of_patch(files)
    assert one.changes and not two.changes and two.left_out
    (binary,) = of_patch([PatchFile(path="c", op=FileOp.ADD, binary=True)])
    assert binary.binary and binary.changes == ()


def test_long_texts_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TEXT", 5)
    store, key, _ = stored(tmp_path, [[call("1", diff("a", "x", "1234567"))]])
    with store:
        (file,) = reported(store, key, root=tmp_path)
    assert file.changes[0].new_text == "12345" and file.changes[0].cut
