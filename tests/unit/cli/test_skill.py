"""`dragoman skill` as a user calls it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from ruamel.yaml import YAML

from dragoman.catalogue.load import Catalogue, built_in
from dragoman.cli.exit_codes import ExitCode
from dragoman.cli.reference import helps
from dragoman.cli.skill import SkillClient, plan_skill, skill_text
from dragoman.setup.install.clients import MCP_CLIENTS
from dragoman.setup.install.entries import write
from tests.unit.cli.calling import Shell


def test_the_text_is_printed(shell: Shell) -> None:
    said = shell("skill")
    assert (said.code, said.out) == (0, skill_text())


def test_the_text_is_installed_and_brought_up_to_date(shell: Shell) -> None:
    said = shell("skill", "--write", "skills")
    path = shell.cwd / "skills" / "dragoman" / "SKILL.md"
    assert said.code == 0 and "was written" in said.out
    assert path.read_text("utf-8") == skill_text()
    assert "up to date" in shell("skill", "--write", "skills").out
    path.write_text("older")
    assert "Backup: skills/dragoman/SKILL.md.before-dragoman" in (
        shell("skill", "--write", "skills").out
    )


HELPS = dict(helps())

CALLS = [
    shlex.split(call, comments=True)
    for call in (
        *re.findall(r"^    (?:git diff \| )?(dragoman .*)$", skill_text(), re.MULTILINE),
        *re.findall(r"`(dragoman [a-z][^`]*)`", skill_text()),
    )
]


def test_a_model_can_read_it_at_once() -> None:
    assert len(skill_text().splitlines()) < 80
    assert max(map(len, skill_text().splitlines()[4:])) <= 100


def test_the_front_matter_is_what_agents_read_first() -> None:
    _, front, _ = skill_text().split("---\n", 2)
    told = YAML(typ="safe").load(front)
    assert set(told) == {"name", "description"}
    assert told["name"] == "dragoman" and 0 < len(told["description"]) <= 1024


def test_every_call_that_it_teaches_is_one_that_the_command_line_takes() -> None:
    for words in CALLS:
        words = words[: words.index("--")] if "--" in words else words
        path = max((p for p in HELPS if tuple(words[: len(p)]) == p), key=len)
        assert len(path) > 1, words
        # Without a subcommand, a group takes the options of its list.
        pages = HELPS[path] + HELPS.get((*path, "list"), "")
        options = re.findall(r"(?<!\S)-{1,2}[a-z-]+", pages.partition("\nOptions:\n")[2])
        assert {word for word in words if word.startswith("-") and word != "-"} <= {*options}, words


def test_the_skill_teaches_to_discover_run_delegate_add_and_rewire() -> None:
    taught = {" ".join(words[1:3]) for words in CALLS}
    assert {"peers show", "run codex", "delegate review", "peers add", "agents set"} <= taught


def test_the_roles_and_exit_codes_of_the_skill_are_the_real_ones() -> None:
    claimed = {*Catalogue(built_in()).roles}
    listed = re.search(r"Roles are ([a-z, ]+) and ([a-z]+)\.", skill_text())
    assert listed is not None
    assert {*listed[1].split(", "), listed[2]} == claimed
    codes = skill_text().partition("## Exit codes\n")[2].partition(".\n")[0]
    told = {int(code) for code in re.findall(r"\b(\d+) [a-z]", codes)}
    assert told == {int(code) for code in ExitCode if code < 100}


def test_the_skill_is_installed_in_a_folder_of_its_name_and_updated(tmp_path: Path) -> None:
    assert write(plan_skill(tmp_path)) is None
    path = tmp_path / "dragoman" / "SKILL.md"
    assert path.read_text("utf-8") == skill_text()
    assert not plan_skill(tmp_path).changes
    path.write_text("older")
    backup = write(plan_skill(tmp_path))
    assert backup is not None and backup.read_text() == "older"
    assert path.read_text("utf-8") == skill_text()


def test_the_folder_of_an_agent_is_named(shell: Shell) -> None:
    said = shell("skill", "--client", "claude")
    assert said.code == 0 and said.out == skill_text()
    assert f"--write {shell.home}/.claude/skills installs this there" in said.err
    refused = shell("skill", "--client", "claude", "--write", "x")
    assert refused.code == 2 and "both choose the directory" in refused.err


def test_every_agent_with_a_folder_of_skills_can_be_named() -> None:
    known = [name for name, client in MCP_CLIENTS.items() if client.skills is not None]
    assert [name.value for name in SkillClient] == known
