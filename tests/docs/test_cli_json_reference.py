"""docs/reference/cli-json.md names the fields of every line that commands print for programs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.options import Format
from dragoman.cli.output.ladders import Progress, card_as_json
from dragoman.hub.verify.card import Card
from tests.docs.markdown import ROOT, section, table
from tests.unit.cli.calling import Shell, shell_in
from tests.unit.hub.places import card_of

DOCUMENT = ROOT / "docs" / "reference" / "cli-json.md"


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    made = shell_in(tmp_path, monkeypatch, capsys)
    (made.cwd / "agents").mkdir()
    (made.cwd / "agents" / "a.md").write_text("---\ndelegate_to: nobody-plan\n---\n")
    (made.cwd / "dragoman.toml").write_text('permissions = "approve-all"\n')
    return made


def documented() -> dict[tuple[str, str], list[str]]:
    """The fields that the table names, by command and type."""
    rows = table(section(DOCUMENT, "Lines of other commands"))
    return {
        (command.strip("`"), kind.strip("`")): re.findall(r"`([a-z_]+)`", fields)
        for command, kind, fields in rows
    }


def printed(shell: Shell, *words: str) -> dict[str, dict[str, Any]]:
    """The first line of each type that a command prints."""
    found: dict[str, dict[str, Any]] = {}
    for line in shell(*words, "--format", "json").out.splitlines():
        value = json.loads(line)
        found.setdefault(value.pop("type"), value)
    return found


def test_the_table_names_the_fields_of_every_line(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    told = documented()
    for command in ("peers", "agents list", "agents validate", "config show", "config path"):
        for kind, line in printed(shell, *command.split()).items():
            assert told.pop((command, kind)) == list(line), (command, kind)
    finding = printed(shell, "doctor")["Finding"]
    fields = [name for name in told.pop(("doctor", "Finding")) if name not in ("ok", "warn", "bad")]
    assert fields == list(finding)
    page = printed(shell, "peers", "show", "scout")["Peer"]
    assert set(told.pop(("peers show", "Peer"))) <= set(page)
    Progress(Format.JSON).rung(card_of("x").rungs[0])
    rung = json.loads(capsys.readouterr().out)
    assert told.pop(("peers verify", "Rung")) == list(rung)[1:]
    assert told.pop(("peers verify", "Card")) == []
    assert set(card_as_json(card_of("x"))) == {"type", *Card.__struct_fields__}
    assert told == {}
