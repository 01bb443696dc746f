"""What dragoman 0.1.0 wrote down is read, its adapters run, and its brokers give way to ours."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import dragoman
from dragoman.adapters import Adapter, Assignment
from dragoman.broker.client.find_or_start import outdated
from dragoman.broker.client.hello import BrokerHello
from dragoman.broker.endpoint import brokers_folder
from dragoman.broker.spec import BrokerSpec, Folders
from dragoman.catalogue.launch import way_to
from dragoman.errors import ConfigInvalid
from dragoman.events.words import Outcome
from dragoman.runs.adapters import load_adapter
from dragoman.runs.context import load_context
from tests.aio import aio
from tests.integration.cli_shell import TIMEOUT, Cli, Done, cli_in, warm_cli
from tests.integration.previous_state import PREVIOUS, restore

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "where is main defined?"
ANSWER = "`main` is defined in `app.py:1`"

SESSION = "s-1rfrdmyd7qrd"
COLD, WARM = "j-1rfrdmyd7qre", "j-1rfrdntja28h"
JUDGED, UNJUDGED = "j-1rfrdntd5y7b", "j-1rfrdp82fh0g"
"""Keys and ids in the stored files."""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    cli = cli_in(tmp_path)
    restore(cli)
    return cli


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def rows(done: Done) -> list[dict[str, Any]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


# -- the session store


def test_the_sessions_and_jobs_of_before_are_listed_and_shown(cli: Cli) -> None:
    (open_one,) = rows(cli.child("sessions", "list", "--format", "json"))
    assert (open_one["key"], open_one["name"], open_one["peer"]) == (SESSION, "parser", "scout")
    assert len(rows(cli.child("sessions", "list", "--closed", "--format", "json"))) == 4
    shown = cli.child("sessions", "show", "parser")
    assert shown.code == 0, shown.err
    assert (shown.out.count(f"> {QUESTION}"), shown.out.count(ANSWER)) == (2, 2)
    jobs = {
        row["job"]: row for row in rows(cli.child("jobs", "list", "--attempts", "--format", "json"))
    }
    assert {COLD, WARM, JUDGED, f"{JUDGED}-1", UNJUDGED} <= jobs.keys()
    assert len(jobs) == 7 and {row["outcome"] for row in jobs.values()} == {"ok"}
    for job in (COLD, WARM):
        told = cli.child("jobs", "result", job)
        assert (told.code, told.out.startswith(ANSWER)) == (0, True), told.err


def test_a_session_of_before_goes_on_with_its_peer(cli: Cli) -> None:
    words = ("run", "scout", QUESTION, "-s", "parser", "--format", "json")
    ended = rows(cli.child(*words))[-1]
    assert (ended["session_key"], ended["context"]) == (SESSION, "restored")
    assert ended["outcome"] == "ok"
    assert cli.child("sessions", "show", "parser").out.count(ANSWER) == 3


# -- the ledger


def test_the_ledger_of_before_is_added_up_exported_judged_and_written_on(cli: Cli) -> None:
    (stats,) = rows(cli.child("stats", "--by", "role", "--format", "json"))
    assert (stats["key"], stats["attempts"], stats["ok"], stats["good"]) == ("research", 2, 2, 1)
    exported = rows(cli.child("ledger", "export"))
    attempts = {row["job"]: row for row in exported if row["type"] == "Attempt"}
    assert {job: row["verdict"] for job, row in attempts.items()} == {
        JUDGED: "good",
        UNJUDGED: None,
    }
    assert {row["type"] for row in exported} >= {"Attempt", "Decision"}
    assert cli.child("verdict", UNJUDGED, "bad").code == 0
    done = cli.child("delegate", "research", QUESTION, "--peer", "scout")
    assert done.code == 0, done.err
    (stats,) = rows(cli.child("stats", "--by", "role", "--format", "json"))
    assert (stats["attempts"], stats["good"], stats["bad"]) == (3, 1, 1)
    events = (cli.home / "state_home" / "events.jsonl").read_text().splitlines()
    jobs = [json.loads(line)["job"] for line in events]
    assert jobs[0] == JUDGED and jobs[-1] not in (JUDGED, UNJUDGED)


# -- settings, trust and cards


def settings(cli: Cli) -> dict[str, list[str]]:
    """Every setting with its value and where it comes from."""
    done = cli.child("config", "show")
    assert done.code == 0, done.err
    lines = [re.split(r"\s{2,}", line) for line in done.out.splitlines()]
    return {name: rest for name, *rest in lines}


def test_the_settings_of_before_count(cli: Cli) -> None:
    file = cli.home / "config_home" / "config.toml"
    assert settings(cli)["timeouts.total"] == ["10 min", str(file)]
    (cli.cwd / "dragoman.toml").unlink()
    assert settings(cli)["enabled_peers"] == ["helper", str(file)]


def test_a_project_that_was_trusted_before_is_and_no_longer_when_it_changes(cli: Cli) -> None:
    project = cli.cwd / "dragoman.toml"
    assert settings(cli)["permissions"] == ["approve-reads", str(project)]
    assert settings(cli)["enabled_peers"] == ["guide", str(project)]
    assert "is already trusted" in cli.child("config", "trust").err
    project.write_bytes(project.read_bytes() + b"\n")
    assert settings(cli)["permissions"] == ["ask", "default"]
    assert "guide" not in settings(cli)["enabled_peers"][0]


def adapter_of(cli: Cli, peer: str) -> Adapter:
    place = load_context(cli.cwd, environ=cli.env)
    return load_adapter(place.catalogue.known(peer), place.config)


def test_an_adapter_that_was_trusted_before_is_and_not_with_other_bytes(cli: Cli) -> None:
    with pytest.warns(DeprecationWarning):
        assert adapter_of(cli, "guide").name == "guide"
    mark = cli.home / "ran"
    file = cli.cwd / "guide_adapter.py"
    file.write_bytes(file.read_bytes() + f"open({str(mark)!r}, 'w')\n".encode())
    with pytest.raises(ConfigInvalid, match="is not trusted, or has changed since"):
        adapter_of(cli, "guide")
    assert not mark.exists()
    unasked = cli.child("config", "trust")
    assert "is already trusted" not in unasked.err and "guide_adapter.py" in unasked.out
    assert unasked.code != 0


def test_the_card_of_before_is_shown_as_that_of_an_earlier_version(cli: Cli) -> None:
    (shown,) = rows(cli.child("peers", "show", "scout", "--format", "json"))
    (file,) = (PREVIOUS / "data" / "cards" / "scout").iterdir()
    card = json.loads(file.read_bytes())
    # What is measured only now is unknown of it.
    newer = dict.fromkeys(shown["card"]["facts"].keys() - card["facts"].keys())
    assert shown["card"] == {**card, "facts": {**card["facts"], **newer}}
    page = cli.child("peers", "show", "scout").out
    assert "with dragoman 0.1.0" in page
    assert f"version {dragoman.__version__} is installed now" in page


# -- an adapter as `peers add --python` wrote it


@aio
async def test_an_adapter_that_was_written_before_does_real_work_with_a_warning(cli: Cli) -> None:
    with pytest.warns(DeprecationWarning) as warned:
        adapter = await asyncio.to_thread(adapter_of, cli, "helper")
    said = "\n".join(str(one.message) for one in warned)
    for name in ("adapters.Errand", "opening.judge", "opening.open_peer"):
        assert f"dragoman.hub.{name} is now dragoman." in said
    place = await asyncio.to_thread(load_context, cli.cwd, environ=cli.env)
    way = way_to("helper", catalogue=place.catalogue, environ=cli.env)
    told: list[object] = []
    result = await adapter.dispatch(
        Assignment(way=way, cwd=cli.cwd), "research", QUESTION, told.append
    )
    assert (result.outcome, told != []) == (Outcome.OK, True)
    assert result.text.startswith(ANSWER)


def test_a_peer_that_was_added_before_is_asked_by_its_name(cli: Cli) -> None:
    done = cli.child("run", "helper", QUESTION, "--format", "quiet")
    assert (done.code, done.out.startswith(ANSWER)) == (0, True), done.err


# -- a broker that still runs


class Previous:
    """The process of a broker of 0.1.0."""

    def __init__(self, process: subprocess.Popen[str]) -> None:  # noqa: TID251 - only its type
        self.pid = process.pid
        self._process = process

    def ended(self) -> list[dict[str, Any]]:
        """Wait for its orderly end, and return what it was asked."""
        out, _ = self._process.communicate(timeout=TIMEOUT)
        assert self._process.returncode == 0
        return [json.loads(line) for line in out.splitlines()]


@contextmanager
def previous_broker(cli: Cli, name: str) -> Iterator[Previous]:
    folder = brokers_folder(cli.env["DRAGOMAN_RUNTIME_DIR"])
    argv = [sys.executable, "-m", "tests.integration.previous_broker", str(folder), name]
    with subprocess.Popen(  # noqa: TID251 - a process that is no broker of ours
        argv, cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield Previous(process)
        finally:
            process.kill()


def asked_once(cli: Cli) -> dict[str, Any]:
    """The end of a run in a session, which keeps its broker."""
    return rows(cli.child("run", "scout", QUESTION, "-s", "a", "--format", "json"))[-1]


def broker_of(cli: Cli) -> dict[str, Any]:
    (broker,) = rows(cli.child("broker", "list", "--format", "json"))
    return broker


def name_of_broker(cli: Cli) -> str:
    """The name that the broker of these runs has, which is free again."""
    (cli.cwd / "app.py").write_text("def main(): ...\n")
    assert asked_once(cli)["outcome"] == "ok"
    name: str = broker_of(cli)["broker"]
    assert cli.child("broker", "stop", "--all").code == 0
    return name


@pytest.mark.skipif(sys.platform == "win32", reason="sockets with paths")
def test_a_broker_of_before_gives_way_to_one_of_ours(warm: Cli) -> None:
    name = name_of_broker(warm)
    with previous_broker(warm, name) as old:
        before = broker_of(warm)
        assert (before["broker"], before["pid"], before["version"]) == (name, old.pid, "0.1.0")
        again = asked_once(warm)
        assert (again["outcome"], again["context"]) == ("ok", "restored")
        asked = old.ended()
    assert [one["method"] for one in asked[-2:]] == ["_dragoman/hello", "_dragoman/stop"]
    assert asked[-1]["params"] == {"drain": True, "ifIdle": False}
    after = broker_of(warm)
    assert (after["broker"], after["version"]) == (name, dragoman.__version__)
    assert after["pid"] != old.pid
    assert asked_once(warm)["context"] == "live"


@pytest.mark.skipif(sys.platform == "win32", reason="sockets with paths")
def test_a_broker_of_before_is_stopped_by_hand(warm: Cli) -> None:
    name = name_of_broker(warm)
    with previous_broker(warm, name) as old:
        stopped = warm.child("broker", "stop", "scout")
        assert (stopped.code, f"{name}: stopped" in stopped.out + stopped.err) == (0, True)
        assert old.ended()[-1]["method"] == "_dragoman/stop"
    assert rows(warm.child("broker", "list", "--format", "json")) == []


def test_nothing_but_the_version_makes_a_broker_of_before_give_way() -> None:
    told = json.loads((PREVIOUS / "broker" / "hello.json").read_bytes())["result"]
    folders = Folders(state="/s", runtime="/r", data="/d")
    spec = BrokerSpec(peer="scout", workspace="/srv/project", paths=folders)
    greeting = msgspec.convert(told | {"identity": spec.identity_digest}, BrokerHello)
    reason = outdated(greeting, spec)
    assert reason == f"it runs dragoman 0.1.0, and this is {dragoman.__version__}"
    assert outdated(greeting, msgspec.structs.replace(spec, version="0.1.0")) is None
