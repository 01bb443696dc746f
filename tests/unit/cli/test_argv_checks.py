"""Words that no command can use, and folders that no agent can work in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.argv_checks import MAX_NUMBER, checked, workspace_of
from dragoman.errors import UsageError

BAD = os.fsdecode(b"h\xff")


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("text", "text"),
        ("", ""),
        ("\u00fc", "\u00fc"),
        (MAX_NUMBER - 1, "9"),
        (1.5, "1.5"),
        (True, True),
        (Path(BAD), BAD),
        (Path(), "."),
    ],
)
def test_what_can_be_used_stays_as_it_is(value: Any, word: object) -> None:
    assert checked(value, word) == value


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (BAD, BAD),
        (MAX_NUMBER, "1"),
        (-MAX_NUMBER, "1"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (Path(), ""),
    ],
)
def test_what_no_command_can_use_is_refused(value: Any, word: object) -> None:
    with pytest.raises(ValueError):
        checked(value, word)


def test_a_workspace_is_a_folder_with_a_name_that_can_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert workspace_of(None) == workspace_of(Path()) == tmp_path
    for name in ("none", "x" * 5000):
        with pytest.raises(UsageError, match="is no folder") as refused:
            workspace_of(Path(name))
        assert len(str(refused.value)) < 400
    try:
        Path(BAD).mkdir()
    except OSError:
        pytest.skip("this file system takes only names of UTF-8 text")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        workspace_of(Path(BAD))
