"""Every check of the doctor, healthy and sick, each sickness with its cure."""

from __future__ import annotations

import shlex
import sqlite3
import threading
from pathlib import Path

import pytest

from dragoman.catalogue.card import CardStore
from dragoman.config.secrets import report_redactor
from dragoman.runs.context import RunContext
from dragoman.setup import doctor
from dragoman.setup.doctor import (
    MAX_SHOWN,
    CheckState,
    Diagnosis,
    Leftover,
    Machine,
    compose,
    examine,
    find_leftovers,
    shown_variables,
)
from dragoman.store.store import Store
from tests.aio import aio
from tests.unit.runs.contexts import agent_file, card_of, place_in, program

HEALTHY = Machine(python=(3, 11, 7), leftovers=list, writable=lambda path: True)

NODE = "#!/bin/sh\necho v{version}\n"


async def findings(place: RunContext, machine: Machine = HEALTHY) -> list[Diagnosis]:
    return [finding async for finding in examine(place, machine)]


async def of(check: str, place: RunContext, machine: Machine = HEALTHY) -> list[Diagnosis]:
    return [finding for finding in await findings(place, machine) if finding.check == check]


@aio
async def test_a_fresh_machine_has_nothing_bad(tmp_path: Path) -> None:
    found = await findings(place_in(tmp_path))
    assert [finding for finding in found if finding.state is CheckState.BAD] == []
    assert {finding.check for finding in found} == {
        *("python", "node", "PATH", "config", "trust", "descriptors", "agents", "peers"),
        *("directories", "processes"),
    }


@aio
async def test_an_old_python_is_bad(tmp_path: Path) -> None:
    (finding,) = await of("python", place_in(tmp_path), Machine(python=(3, 10, 1), leftovers=list))
    assert (finding.state, finding.cure) == (CheckState.BAD, "install Python 3.11 or newer")


@aio
@pytest.mark.parametrize("version", ["20.1.0", "22.0.0", "what?"])
async def test_node_is_asked_for_its_version(tmp_path: Path, version: str) -> None:
    program(tmp_path, "node", NODE.format(version=version))
    (finding,) = await of("node", place_in(tmp_path))
    assert finding.state is (CheckState.OK if version == "22.0.0" else CheckState.WARN)
    assert ("install node 22" in finding.cure) is (version != "22.0.0")


@aio
async def test_folders_that_a_checkout_could_fill_are_named(tmp_path: Path) -> None:
    place = place_in(tmp_path, {"PATH": f"{tmp_path}:.:/not/there"})
    warned, counted = await of("PATH", place)
    assert warned.state is CheckState.WARN and warned.text.endswith("ignored: .")
    assert counted.text == "3 directories, 1 of them missing"
    (missing,) = await of("PATH", place_in(tmp_path, {"PATH": ""}))
    assert missing.state is CheckState.BAD


@aio
async def test_broken_settings_and_unknown_peers_are_bad(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    place.paths.config.mkdir()
    place.paths.config_file.write_text('enabled_peers = ["codx"]\n')
    (finding,) = await of("config", place.again())
    assert (finding.state, finding.cure) == (CheckState.BAD, "dragoman peers disable codx")
    place.paths.config_file.write_text("enabeld_peers = []\n")
    (finding,) = await of("config", place.again())
    assert "did you mean `enabled_peers`" in finding.text
    assert finding.cure == f"edit {place.paths.config_file}"


@aio
async def test_a_project_that_is_not_trusted_is_reported_with_what_it_lost(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    file = place.cwd / "dragoman.toml"
    file.write_text('permissions = "approve-all"\n')
    (finding,) = await of("trust", place.again())
    assert (finding.state, finding.cure) == (CheckState.WARN, "dragoman config trust")
    assert "permissions" in finding.text
    file.write_text('format = "json"\n')
    (finding,) = await of("trust", place.again())
    assert finding.state is CheckState.OK and "nothing that needs trust" in finding.text
    place.paths.data.mkdir()
    place.paths.trust_file.write_text("{")
    finding, _ = await of("trust", place.again())
    assert (finding.state, finding.cure) == (CheckState.BAD, f"rm {place.paths.trust_file}")


@aio
async def test_broken_descriptors_and_agent_files_are_bad(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    place.paths.peers_folder.mkdir(parents=True)
    bad = place.paths.peers_folder / "x.toml"
    bad.write_text("nonsense = 1\n")
    agent_file(place, "a", "nobody-plan")
    (descriptor,) = await of("descriptors", place.again())
    assert (descriptor.state, descriptor.cure) == (CheckState.BAD, f"edit {bad}")
    (agent,) = await of("agents", place.again())
    assert agent.state is CheckState.BAD and "dragoman peers add" in agent.cure


@aio
async def test_adapters_of_enabled_peers_are_loaded(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    folder = place.paths.peers_folder
    folder.mkdir(parents=True)
    (folder / "tool.toml").write_text(
        'name = "tool"\ntitle = "Tool"\nadapter = "tool.py"\n[[launch]]\ncommand = ["tool"]\n'
    )
    (folder / "tool.py").write_text("1 / 0\n")
    # Nothing is delegated to a peer that is not enabled.
    assert await of("adapters", place.again()) == []
    place.paths.config_file.write_text('enabled_peers = ["tool"]\n')
    (finding,) = await of("adapters", place.again())
    assert finding.state is CheckState.BAD
    assert "ZeroDivisionError" in finding.text and str(folder / "tool.py") in finding.cure
    (folder / "tool.py").write_text(
        'name, protocol, ROLES_CLAIMED, ROLE_PREFIX = "tool", "acp", ["plan"], {"plan": ""}\n'
        "def claims(role): return role in ROLES_CLAIMED\n"
        "async def dispatch(launch, role, text, on_notification=None): ...\n"
    )
    (finding,) = await of("adapters", place.again())
    assert finding.state is CheckState.OK and finding.text.endswith("tool.py claims plan")


@aio
async def test_an_enabled_peer_that_is_not_installed_is_bad(tmp_path: Path) -> None:
    place = place_in(tmp_path, {"DRAGOMAN_ENABLED_PEERS": "gemini"})
    (finding,) = [each for each in await of("peers", place) if each.state is CheckState.BAD]
    assert "npm install -g @google/gemini-cli" in finding.cure
    quiet = await of("peers", place_in(tmp_path))
    assert all(each.state is CheckState.OK for each in quiet)
    assert "gemini" in quiet[-1].text


@aio
async def test_a_described_launch_that_is_known_to_be_wrong_is_reported_with_the_right_one(
    tmp_path: Path,
) -> None:
    program(tmp_path, "npx")
    place = place_in(tmp_path, {"DRAGOMAN_ENABLED_PEERS": "mine"})
    folder = place.paths.config / "peers"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        'name = "mine"\ntitle = "Mine"\n[[launch]]\ncommand = ["npx", "gemini", "acp"]\n'
    )
    (finding,) = [each for each in await of("peers", place.again()) if each.state is CheckState.BAD]
    assert finding.text.startswith("mine: ")
    assert finding.cure == "use `gemini --acp`"


@aio
async def test_a_peer_whose_node_is_too_old_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "node", NODE.format(version="18.0.0"))
    program(tmp_path, "copilot", "#!/usr/bin/env node\n")
    place = place_in(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert place.catalogue.get("copilot").install.node is not None
    (finding,) = [each for each in await of("peers", place) if each.state is CheckState.WARN]
    assert "is node 18.0.0" in finding.text and "install node" in finding.cure


@aio
async def test_cards_are_missed_for_enabled_peers_only(tmp_path: Path) -> None:
    program(tmp_path, "qwen")
    assert await of("cards", place_in(tmp_path)) == []
    place = place_in(tmp_path, {"DRAGOMAN_ENABLED_PEERS": "qwen"})
    (finding,) = await of("cards", place)
    assert (finding.text, finding.cure) == (
        "qwen was never verified",
        "dragoman peers verify qwen",
    )
    store = CardStore(place.paths.data / "cards")
    store.save(card_of("qwen", usable=False))
    (finding,) = await of("cards", place)
    assert finding.state is CheckState.BAD
    (finding,) = await of("cards", place_in(tmp_path))
    assert finding.state is CheckState.WARN
    store.save(card_of("qwen"))
    (finding,) = await of("cards", place)
    assert finding.state is CheckState.OK


@aio
async def test_a_card_of_another_version_and_a_damaged_one_are_reported(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    CardStore(place.paths.data / "cards").save(card_of("scout", version="0.0.1"))
    (place.paths.data / "cards" / "scout" / "bad.json").write_text("{")
    old, damaged = await of("cards", place)
    assert "is for version 0.0.1" in old.text
    assert damaged.state is CheckState.WARN and "bad.json" in damaged.text


@aio
async def test_folders_that_cannot_be_written_are_bad(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    machine = Machine(python=(3, 12, 0), leftovers=list, writable=lambda path: False)
    found = await of("directories", place, machine)
    assert [finding.state for finding in found] == [CheckState.BAD] * 5
    assert "DRAGOMAN_RUNTIME_DIR" in found[-1].cure
    place.paths.cache.write_text("in the way")
    (finding,) = [each for each in await of("directories", place) if each.state is CheckState.BAD]
    assert "is not a directory" in finding.text and finding.cure.startswith("mv ")


@aio
async def test_processes_that_were_left_behind_are_named_with_the_way_to_end_them(
    tmp_path: Path,
) -> None:
    machine = Machine(leftovers=lambda: [Leftover(42, "agent --acp")], writable=lambda path: True)
    (finding,) = await of("processes", place_in(tmp_path), machine)
    assert (finding.state, finding.cure) == (CheckState.WARN, "kill 42")


@aio
async def test_a_disk_that_does_not_answer_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(doctor, "STORES_TIMEOUT", 0.01)
    monkeypatch.setattr(doctor, "find_damage", lambda _: [str(answered.wait(10))])
    (finding,) = await of("stores", place_in(tmp_path))
    answered.set()
    assert finding.state is CheckState.BAD
    assert "did not answer within" in finding.text


@aio
async def test_damaged_stores_are_bad_and_what_was_set_aside_is_reported(tmp_path: Path) -> None:
    (folder := tmp_path / "Application Support").mkdir()
    place = place_in(folder)
    place.paths.state.mkdir(parents=True, exist_ok=True)
    store, ledger = place.paths.state / "sessions.db", place.paths.state / "ledger.db"
    ledger.write_bytes(b"garbage " * 1000)
    Store.open(store).close()
    aside = store.with_name("sessions.db.damaged-20260101-000000")
    aside.write_bytes(b"x")
    whole, old, bad = await of("stores", place)
    assert (whole.state, old.state, bad.state) == (CheckState.OK, CheckState.WARN, CheckState.BAD)
    assert str(aside) in old.text and str(ledger) in bad.text
    # The space in the path does not break the commands.
    assert shlex.split(old.cure)[-2:] == ["rm", f"{aside}*"]
    assert shlex.split(bad.cure)[-3:] == ["mv", str(ledger), f"{ledger}.old"]


@aio
async def test_a_store_of_a_newer_dragoman_is_reported_and_not_called_damaged(
    tmp_path: Path,
) -> None:
    place = place_in(tmp_path)
    store = place.paths.state / "sessions.db"
    Store.open(store).close()
    with sqlite3.connect(store) as later:
        later.execute("PRAGMA writable_schema = ON")
        later.execute(
            "INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql)"
            " VALUES ('table', 'later', 'later', 0, 'CREATE TABLE later (a !!) LATER')"
        )
        later.execute("PRAGMA user_version = 99")
    later.close()
    (finding,) = await of("stores", place)
    assert finding.state is CheckState.WARN and "a newer version of dragoman" in finding.text
    assert "mv " not in finding.cure
    (place.paths.state / "ledger.db").write_bytes(b"garbage " * 1000)
    (place.paths.state / "ledger.db-wal").write_bytes(b"a log")
    _, bad = await of("stores", place)
    assert "ledger.db-wal " in bad.cure


def process(proc: Path, pid: int, cmdline: bytes, environ: bytes = b"") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(cmdline)
    (folder / "environ").write_bytes(environ)


def test_a_marked_process_without_a_warden_of_its_owner_is_left_over(tmp_path: Path) -> None:
    process(tmp_path, 10, b"agent\0--acp\0", b"A=1\0DRAGOMAN_MARK=aaaa.1\0B=2\0")
    process(tmp_path, 11, b"agent\0", b"DRAGOMAN_MARK=bbbb.7\0")
    process(tmp_path, 12, b"python\0-I\0-S\0/x/warden.py\0bbbb\x003\0")
    process(tmp_path, 13, b"other\0", b"PATH=/bin\0")
    (tmp_path / "self").mkdir()
    assert find_leftovers(tmp_path, platform="linux") == [Leftover(10, "agent --acp")]


def test_a_dead_process_and_a_name_that_only_looks_like_the_mark_do_not_count(
    tmp_path: Path,
) -> None:
    process(tmp_path, 10, b"", b"DRAGOMAN_MARK=aaaa.1\0")
    process(tmp_path, 11, b"agent\0", b"MY_DRAGOMAN_MARK=aaaa.1\0")
    (tmp_path / "12").mkdir()
    assert find_leftovers(tmp_path, platform="linux") == []


def test_without_proc_nothing_is_found(tmp_path: Path) -> None:
    assert find_leftovers(tmp_path / "none", platform="linux") == []
    assert find_leftovers(platform="darwin") == []


def test_a_long_command_line_is_cut(tmp_path: Path) -> None:
    process(tmp_path, 10, b"x" * 500 + b"\0", b"DRAGOMAN_MARK=aaaa.1\0")
    assert len(find_leftovers(tmp_path, platform="linux")[0].command) == MAX_SHOWN


def test_a_report_has_what_helps_and_nothing_that_is_secret(tmp_path: Path) -> None:
    program(tmp_path, "gemini")
    environ = {
        "HOME": str(tmp_path),
        "GEMINI_API_KEY": "a-very-secret-value",
        "GOOGLE_CLOUD_PROJECT": "private-project",
        "EDITOR": "unlisted",
        "LANG": "C.UTF-8",
        "DRAGOMAN_FORMAT": "json",
    }
    place = place_in(tmp_path, environ)
    finding = Diagnosis("config", CheckState.BAD, "the key a-very-secret-value was refused", "cure")
    text = compose(place, [finding], versions="dragoman 1\nCPython 3\n")
    assert text.startswith("dragoman 1\nCPython 3\n")
    assert "bad   config       the key [redacted] was refused" in text
    assert (
        "gemini unknown: not enabled, card none, credential variables set: GEMINI_API_KEY" in text
    )
    assert "format = 'json'  (DRAGOMAN_FORMAT)" in text
    assert "LANG=C.UTF-8" in text
    assert "PATH=~/bin" in text
    for hidden in ("a-very-secret-value", "private-project", "unlisted", str(tmp_path)):
        assert hidden not in text


def test_variables_are_shown_by_an_allow_list() -> None:
    environ = {"PATH": "/bin", "SECRET_THING": "x", "LANG": "C", "HOME": "/h", "EDITOR": "vi"}
    assert shown_variables(environ) == {"PATH": "/bin", "LANG": "C"}


def test_values_are_recognised_by_the_names_of_their_variables() -> None:
    environ = {"MY_TOKEN": "hunter2hunter2", "X": "oddly-named", "PLAIN": "visible", "A_KEY": "no"}
    redact = report_redactor(environ, names=("X",))
    assert redact("a hunter2hunter2 b visible oddly-named no") == (
        "a [redacted] b visible [redacted] no"
    )
