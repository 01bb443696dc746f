"""docs/reference/cli-json.md lists the fields of every JSON line that commands print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue.card import Card
from dragoman.catalogue.host_checks import HostCheck
from dragoman.cli.hosts import row_as_json as host_as_json
from dragoman.cli.output.broker_pages import as_json as broker_as_json
from dragoman.cli.output.init_progress import InitOutput, proof_as_json
from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.peer_pages import model_as_json
from dragoman.cli.output.verify_progress import LadderProgress, card_as_json
from dragoman.cli.shared_options import ListFormat
from dragoman.config.schema import HostSettings
from dragoman.events.parts import Choice
from dragoman.setup.init import VerifiedPeer
from dragoman.store.open import open_store
from dragoman.store.records import JobRecord, SessionRecord, root_of
from tests.docs.markdown import ROOT, section, table
from tests.unit.cli.brokers import RECORD
from tests.unit.cli.calling import Shell, shell_in
from tests.unit.runs.contexts import card_of

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
    """Return the fields that the table lists, by command and type."""
    rows = table(section(DOCUMENT, "Other commands"))
    return {
        (command.strip("`"), kind.strip("`")): re.findall(r"`([a-z_]+)`", fields)
        for command, kind, fields in rows
    }


def stored() -> None:
    """Put a session and a job into the store."""
    session = SessionRecord(
        key="s-0000000001",
        peer="scout",
        root=str(root_of(Path.cwd())),
        peer_session_id="1",
        cwd=str(Path.cwd()),
        created_at=1.0,
        updated_at=1.0,
    )
    with open_store() as store:
        store.create_session(session)
        store.create_job(
            JobRecord(
                id="j-0000000001",
                session_key=session.key,
                peer="scout",
                root=session.root,
                created_at=1.0,
                state="ended",
            )
        )


def fields_of(told: dict[tuple[str, str], list[str]], command: str, kind: str) -> list[str]:
    """Return the documented fields without the words that are values."""
    values = ("ok", "warn", "bad", "queued", "running", "ended")
    return [name for name in told.pop((command, kind)) if name not in values]


def printed(shell: Shell, *words: str) -> dict[str, dict[str, Any]]:
    """Return the first line of each type that a command prints."""
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
    assert fields_of(told, "doctor", "Finding") == list(finding)
    stored()
    session = list(printed(shell, "sessions", "list")["Session"])
    assert fields_of(told, "sessions list", "Session") == [*session, "key"]
    assert list(printed(shell, "sessions", "show", "s-0000000001")["Session"]) == session
    assert fields_of(told, "sessions show", "Session") == []
    job = list(printed(shell, "jobs", "list")["Job"])
    assert fields_of(told, "jobs list", "Job") == job
    assert list(printed(shell, "jobs", "result", "j-0000000001")["Job"]) == job
    pruned = printed(shell, "sessions", "prune", "--older-than", "1d", "--yes")["Pruned"]
    assert fields_of(told, "sessions prune", "Pruned") == list(pruned)
    assert (pruned["sessions"], pruned["jobs"]) == (1, 1)
    # Lines from brokers are tested where there are brokers.
    assert fields_of(told, "broker list", "Broker") == list(broker_as_json(RECORD, None))[1:]
    host = HostCheck(host="box", destination="box", findings=())
    row = host_as_json(("box", HostSettings(), host))
    assert fields_of(told, "hosts", "Host") == list(row)[1:]
    assert fields_of(told, "hosts check", "HostCheck") == list(row["check"])[2:]
    assert fields_of(told, "broker reap", "Reaped") == ["broker", "processes", "files"]
    assert told.pop(("init", "Peer")) == []
    assert told.pop(("init", "Proof")) == list(proof_as_json(VerifiedPeer(name="x")))[1:]
    beginning = InitOutput(ListFormat.JSON, JsonLines())
    assert told.pop(("init", "Beginning")) == list(beginning.as_json(0))[1:]
    beginning.enabled(["x"], [], "config.toml")
    enabled = json.loads(capsys.readouterr().out)
    assert told.pop(("init", "Enabled")) == list(enabled)[1:]
    page = printed(shell, "peers", "show", "scout")["Peer"]
    assert set(told.pop(("peers show", "Peer"))) <= set(page)
    model = model_as_json(Choice("m", "M"), "m", peer="x", since=None)
    assert told.pop(("peers models", "Model")) == list(model)[1:]
    LadderProgress(ListFormat.JSON).rung(card_of("x").rungs[0])
    rung = json.loads(capsys.readouterr().out)
    assert told.pop(("peers verify", "Rung")) == list(rung)[1:]
    assert told.pop(("peers verify", "Card")) == []
    assert set(card_as_json(card_of("x"))) == {"type", *Card.__struct_fields__}
    decision = list(printed(shell, "explain", "review")["Decision"])
    assert told.pop(("delegate", "Decision")) == decision
    assert told.pop(("explain", "Decision")) == []
    delegated = printed(shell, "delegate", "exploration", "list the TODOs")
    assert list(delegated["Decision"]) == decision
    assert told.pop(("delegate", "AttemptBegun")) == list(delegated["AttemptBegun"])
    assert set(told.pop(("delegate", "Attempt"))) <= set(delegated["Attempt"])
    assert told.pop(("delegate", "Delegation")) == list(delegated["Delegation"])
    verdict = printed(shell, "verdict", delegated["Delegation"]["job"], "good")["Verdict"]
    assert told.pop(("verdict", "Verdict")) == list(verdict)
    stat = printed(shell, "stats")["Stat"]
    assert told.pop(("stats", "Stat")) == list(stat)
    project = shell.cwd / "dragoman.toml"
    project.write_text('[[policy.rules]]\nkind = "edit"\naction = "deny"\n')
    shown = printed(shell, "policy", "show")
    for kind in ("Preset", "Rule"):
        assert told.pop(("policy show", kind)) == list(shown[kind])
    judged = printed(shell, "policy", "test", "edit")["Verdict"]
    assert told.pop(("policy test", "Verdict")) == list(judged)
    assert told == {}


def test_every_type_of_line_that_is_printed_somewhere_is_named() -> None:
    page = DOCUMENT.read_text("utf-8")
    kinds = {
        kind
        for path in (ROOT / "src" / "dragoman" / "cli").rglob("*.py")
        for kind in re.findall(r'"type": "([A-Z][A-Za-z]+)"', path.read_text("utf-8"))
    }
    assert len(kinds) > 20
    assert {kind for kind in kinds if f"`{kind}`" not in page} == set()
