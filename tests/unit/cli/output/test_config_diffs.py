"""Diffs as a person sees them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from dragoman.cli.output.config_diffs import write_diff
from dragoman.config.file_transaction import Change


def test_a_diff_names_files_from_where_the_user_stands(tmp_path: Path) -> None:
    out = io.StringIO()
    write_diff([Change(tmp_path / "a", b"1\n", b"2\n")], cwd=tmp_path, stream=out)
    assert out.getvalue() == "--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2\n"


def test_a_file_can_not_command_the_terminal(tmp_path: Path) -> None:
    out = io.StringIO()
    write_diff([Change(tmp_path / "a", None, b"\x1b]0;title\x07\n")], stream=out)
    assert "\x1b" not in out.getvalue()


def test_colours_are_for_those_who_want_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = io.StringIO()
    write_diff([Change(tmp_path / "a", b"1\n", b"2\n")], stream=out)
    assert "\x1b[31m-1\x1b[0m" in out.getvalue()
    assert "\x1b[32m+2\x1b[0m" in out.getvalue()
