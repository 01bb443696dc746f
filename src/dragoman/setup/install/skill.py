"""The skill: a text that teaches a model to use the command line of dragoman.

Owns where the text is kept and where it is installed: a folder of its own with a file SKILL.md, as
agents that read skills expect it. The text itself is `setup/install/skill.md`. Replacing a file, and keeping
the one that was there, is the business of `entries`.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from dragoman.setup.install.entries import EntryEdit, read_file

FOLDER: Final = "dragoman"
"""Agents want the folder of a skill to have its name."""

FILE: Final = "SKILL.md"


def skill_text() -> str:
    """The whole text."""
    return files("dragoman.setup.install").joinpath("skill.md").read_text(encoding="utf-8")


def plan_skill(folder: Path) -> EntryEdit:
    """The skill in a folder of skills, such as ``~/.claude/skills``. Nothing is written."""
    path = folder / FOLDER / FILE
    return EntryEdit(path, read_file(path), skill_text().encode("utf-8"))
