"""docs/reference/policy.md: its example is valid, its verdicts are right, and no key is missing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import get_args

import pytest

from dragoman.policy import rules
from scripts.reference import table_pages
from scripts.reference.toml_keys import keys
from tests.docs.markdown import ROOT, blocks, section, table
from tests.unit.cli.calling import Shell, shell_in

PAGE = ROOT / "docs" / "reference" / "policy.md"


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """A shell with the example as its settings."""
    made = shell_in(tmp_path, monkeypatch, capsys)
    _, example, *_ = [block for block in blocks(PAGE) if block.info == "toml"]
    made.config.mkdir()
    (made.config / "config.toml").write_text(example.text)
    return made


def test_every_verdict_is_what_the_example_says(shell: Shell) -> None:
    rows = table(section(PAGE, "Trying it out"))
    requests = {row[0]: row[1] for row in rows if row[1] in rules.STRICTNESS}
    assert set(requests.values()) == set(rules.STRICTNESS)
    for request, action in requests.items():
        words = shlex.split(request.strip("`"))
        said = shell("policy", "test", words[0], "--format", "quiet", *words[1:])
        assert (said.out.strip(), said.code) == (action, 5 if action == "deny" else 0), request


def test_every_command_that_is_shown_can_be_called(shell: Shell) -> None:
    block, *_ = [block for block in blocks(PAGE) if block.info == "sh"]
    for line in block.text.splitlines():
        said = shell(*shlex.split(line)[1:])
        assert said.code in (0, 5) and said.err == "", line


def test_the_tables_of_presets_and_actions_leave_nothing_out() -> None:
    actions = {row[0].strip("`") for row in table(section(PAGE, "Actions"))}
    assert actions == set(rules.STRICTNESS)
    presets = {row[0].strip("`") for row in table(section(PAGE, "Presets"))}
    assert presets == set(get_args(rules.Preset))
    prose = "\n".join(section(PAGE, "Kinds"))
    assert all(f"`{kind}`" in prose for kind in get_args(rules.Kind))


def test_every_key_of_a_rule_is_described() -> None:
    described = {key for each in table_pages.POLICY for key, *_, what in keys(each) if what}
    wanted = {*rules.Rule.__struct_fields__, *rules.PolicySettings.__struct_fields__}
    assert described == wanted
