"""Files of exported sessions, and the question before old sessions go."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dragoman.cli import stored_sessions
from dragoman.cli.output.history_view import Answers, HistoryView
from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.renderer import Renderer
from dragoman.cli.shared_options import ListFormat
from dragoman.errors import UsageError
from tests.unit.runs.stored import session, store_in


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"

    def broken() -> list[bytes]:
        raise UsageError("no such session")

    stored_sessions.write_lines([b"1", b"2"], file)
    assert file.read_bytes() == b"1\n2\n"
    with pytest.raises(UsageError, match="no such session"):
        stored_sessions.write_lines((line for line in [*broken()]), file, force=True)
    with pytest.raises(UsageError, match="--force"):
        stored_sessions.write_lines([b"3"], file)
    assert file.read_bytes() == b"1\n2\n"
    assert [each.name for each in tmp_path.iterdir()] == ["a.jsonl"]
    with pytest.raises(UsageError, match="cannot be written"):
        stored_sessions.write_lines([b"1"], tmp_path / "no" / "a.jsonl")


def test_stdout_by_another_name_is_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    with file.open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        stored_sessions.write_lines([b"1"], Path("-"))
        stored_sessions.write_lines([b"2"], file)
    assert file.read_bytes() == b"1\n2\n"


def test_every_format_has_its_show() -> None:
    kinds = [type(stored_sessions.show_for(format)) for format in ListFormat]
    expected: list[type[Renderer]] = [HistoryView, JsonLines, Answers]
    assert kinds == expected


def test_nothing_goes_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([False, True])
    monkeypatch.setattr("dragoman.cli.output.questions.confirm", lambda *a, **k: next(answers))
    with store_in(tmp_path) as store:
        store.create_session(session())
        for left in (1, 0):
            stored_sessions.prune(store, "1d", keep=0, yes=False, format=ListFormat.TEXT)
            assert len(store.sessions()) == left
        with pytest.raises(UsageError, match="--keep"):
            stored_sessions.prune(store, "1d", keep=-1, yes=True, format=ListFormat.TEXT)
    no, yes = capsys.readouterr().out.splitlines()
    assert (no[:19], yes[:19]) == ("sessions deleted: 0", "sessions deleted: 1")
