"""Install the skill file (SKILL.md) that teaches a model dragoman's command line.

The text is skill.md in this package. It goes into a directory of its own, as agents that read
skills expect. `entries` writes the file and keeps a backup.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from dragoman.setup.install.entries import EntryEdit, read_file

FOLDER: Final = "dragoman"
"""Agents require the directory of a skill to have the skill's name."""

FILE: Final = "SKILL.md"


def skill_text() -> str:
    """The whole text."""
    return files("dragoman.setup.install").joinpath("skill.md").read_text(encoding="utf-8")


def plan_skill(folder: Path) -> EntryEdit:
    """Plan the skill file in a skills directory, such as ``~/.claude/skills``. Writes nothing."""
    path = folder / FOLDER / FILE
    return EntryEdit(path, read_file(path), skill_text().encode("utf-8"))
