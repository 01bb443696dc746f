"""docs/reference/cli-json.md lists the fields of every JSON line that commands print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

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
from dragoman.console.access import ConsoleAccess
from dragoman.events.parts import Choice
from dragoman.fleet.records import AttemptEnd, FleetJob, JobLine, WorkerStatus
from dragoman.fleet.submitter import FleetEvent
from dragoman.paths import find_paths
from dragoman.setup.init import VerifiedPeer
from dragoman.store.ledger import AttemptRecord
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


Fields = dict[str, str]
"""The type of each field in words."""

NO_FIELDS = {("peers verify", "Card"), ("sessions show", "Session"), ("explain", "Decision")}
"""Lines that have the fields of another one, which the page names."""


def documented() -> dict[tuple[str, str], Fields]:
    """Return the fields that the page lists, by command and type."""
    found = {}
    commands, _, _ = DOCUMENT.read_text("utf-8").partition("## Fleets")
    for line in commands.splitlines():
        if heading := re.fullmatch(r"### `([a-z ]+)`: ([A-Za-z]+)", line):
            rows = table(section(DOCUMENT, line.removeprefix("### ")))
            found[heading[1], heading[2]] = {
                name: kind.partition("<br>")[0]
                for names, kind in rows
                for name in re.findall(r"`(\w+)`", names)
            }
    return found


KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "list of strings": list,
    "list of objects": list,
    "string or list of strings": (str, list),
    "any value": object,
}


def agree(fields: Fields, line: dict[str, Any]) -> None:
    """Check that a line has the documented fields, with values of their types."""
    assert list(fields) == list(line)
    for name, kind in fields.items():
        base, _, null = kind.partition("; ")
        value = line[name]
        if value is None:
            assert null == "may be null" or base == "any value", name
        else:
            assert isinstance(value, KINDS[base]), (name, kind, value)
            assert base == "boolean" or not isinstance(value, bool) or base == "any value", name
        if isinstance(value, list):
            inner = dict if "objects" in base else str
            assert all(isinstance(each, inner) for each in value), name


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
    for key in NO_FIELDS:
        assert told.pop(key) == {}
    for command in ("peers", "agents list", "agents validate", "config show", "config path"):
        for kind, line in printed(shell, *command.split()).items():
            agree(told.pop((command, kind)), line)
    agree(told.pop(("doctor", "Finding")), printed(shell, "doctor")["Finding"])
    stored()
    session = printed(shell, "sessions", "list")["Session"]
    agree(told.pop(("sessions list", "Session")), session)
    assert list(printed(shell, "sessions", "show", "s-0000000001")["Session"]) == list(session)
    job = printed(shell, "jobs", "list")["Job"]
    agree(told.pop(("jobs list", "Job")), job)
    assert list(printed(shell, "jobs", "result", "j-0000000001")["Job"]) == list(job)
    pruned = printed(shell, "sessions", "prune", "--older-than", "1d", "--yes")["Pruned"]
    agree(told.pop(("sessions prune", "Pruned")), pruned)
    assert (pruned["sessions"], pruned["jobs"]) == (1, 1)
    # Lines from brokers are tested where there are brokers.
    agree(told.pop(("broker list", "Broker")), plain(broker_as_json(RECORD, None)))
    host = HostCheck(host="box", destination="box", findings=())
    row = host_as_json(("box", HostSettings(), host))
    agree(told.pop(("hosts", "Host")), plain(row))
    agree(told.pop(("hosts check", "HostCheck")), plain(row["check"]))
    reaped = {"broker": "b", "processes": 1, "files": ["a"]}
    agree(told.pop(("broker reap", "Reaped")), reaped)
    access = ConsoleAccess(find_paths())
    access.set_url("http://127.0.0.1:1/")
    link = shell("console", "link").out.strip()
    assert access.exchange(link.partition("#token=")[2], "a browser") is not None
    agree(told.pop(("console tokens", "Token")), printed(shell, "console", "tokens")["Token"])
    agree(told.pop(("init", "Proof")), plain(proof_as_json(VerifiedPeer(name="x"))))
    beginning = InitOutput(ListFormat.JSON, JsonLines())
    agree(told.pop(("init", "Beginning")), plain(beginning.as_json(0)))
    beginning.enabled(["x"], [], "config.toml")
    agree(told.pop(("init", "Enabled")), plain(json.loads(capsys.readouterr().out)))
    page = printed(shell, "peers", "show", "scout")["Peer"]
    other = told.pop(("peers show", "Peer"))
    agree(other, {name: page[name] for name in other})
    model = model_as_json(Choice("m", "M"), "m", peer="x", since=None)
    agree(told.pop(("peers models", "Model")), plain(model))
    LadderProgress(ListFormat.JSON).rung(card_of("x").rungs[0])
    agree(told.pop(("peers verify", "Rung")), plain(json.loads(capsys.readouterr().out)))
    assert set(card_as_json(card_of("x"))) == {"type", *Card.__struct_fields__}
    decision = printed(shell, "explain", "review")["Decision"]
    agree(told.pop(("delegate", "Decision")), decision)
    delegated = printed(shell, "delegate", "exploration", "list the TODOs")
    assert list(delegated["Decision"]) == list(decision)
    for kind in ("AttemptBegun", "Attempt", "Delegation"):
        agree(told.pop(("delegate", kind)), delegated[kind])
    listed = printed(shell, "ledger", "list")["Attempt"]
    assert told.pop(("ledger list", "Attempt")) == {}
    assert list(listed) == list(AttemptRecord.__struct_fields__)
    verdict = printed(shell, "verdict", delegated["Delegation"]["job"], "good")["Verdict"]
    agree(told.pop(("verdict", "Verdict")), verdict)
    agree(told.pop(("stats", "Stat")), printed(shell, "stats")["Stat"])
    project = shell.cwd / "dragoman.toml"
    project.write_text('[[policy.rules]]\nkind = "edit"\naction = "deny"\n')
    shown = printed(shell, "policy", "show")
    for kind in ("Preset", "Rule"):
        agree(told.pop(("policy show", kind)), shown[kind])
    agree(told.pop(("policy test", "Verdict")), printed(shell, "policy", "test", "edit")["Verdict"])
    assert told == {}


def plain(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line as a reader sees it, without its type."""
    decoded: dict[str, Any] = json.loads(json.dumps(line))
    del decoded["type"]
    return decoded


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("`fleet workers`", WorkerStatus),
        ("`fleet jobs`", JobLine),
        ("`fleet watch`: FleetEvent", FleetEvent),
        ("`fleet watch`: FleetResult", FleetJob),
    ],
)
def test_the_fields_of_fleets_are_those_of_the_records(heading: str, kind: Any) -> None:
    rows = table(section(DOCUMENT, heading))
    names = [name for cells in rows for name in re.findall(r"`(\w+)`", cells[0])]
    assert names == list(kind.__struct_fields__)
    ends = get_args(AttemptEnd)
    page = DOCUMENT.read_text("utf-8")
    assert [end for end in ends if end and f"`{end}`" not in page] == []


def test_every_type_of_line_that_is_printed_somewhere_is_named() -> None:
    page = DOCUMENT.read_text("utf-8")
    kinds = {
        kind
        for path in (ROOT / "src" / "dragoman" / "cli").rglob("*.py")
        for kind in re.findall(r'"type": "([A-Z][A-Za-z]+)"', path.read_text("utf-8"))
    }
    assert len(kinds) > 20
    assert {kind for kind in kinds if re.search(rf"`{kind}`|: {kind}\b", page) is None} == set()
