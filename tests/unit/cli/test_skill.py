"""`dragoman skill` as a user calls it."""

from __future__ import annotations

from dragoman.setup.install.skill import skill_text
from tests.unit.cli.calling import Shell


def test_the_text_is_printed(shell: Shell) -> None:
    said = shell("skill")
    assert (said.code, said.out) == (0, skill_text())


def test_the_text_is_installed_and_brought_up_to_date(shell: Shell) -> None:
    said = shell("skill", "--write", "skills")
    path = shell.cwd / "skills" / "dragoman" / "SKILL.md"
    assert said.code == 0 and "there now" in said.out
    assert path.read_text("utf-8") == skill_text()
    assert "up to date" in shell("skill", "--write", "skills").out
    path.write_text("older")
    assert "As it was before: skills/dragoman/SKILL.md.before-dragoman" in (
        shell("skill", "--write", "skills").out
    )
