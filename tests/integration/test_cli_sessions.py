"""`dragoman sessions` and `-s`, from the command line to a broker, its agent, and back."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.store.store import Store
from tests.integration.cli_shell import Cli, Done, cli_in, warm_cli
from tests.integration.mcp_places import describe
from tests.unit.store.stores import session

QUIET = ("--format", "quiet")

STORED_TIMEOUT = 30.0
"""Seconds for a broker to write down what it has said."""


def until(holds: Callable[[], bool]) -> None:
    """Wait until a broker has written something down."""
    give_up_at = time.monotonic() + STORED_TIMEOUT
    while not holds():
        assert time.monotonic() < give_up_at, "it was never written down"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def result(done: Done) -> dict[str, Any]:
    """The last line of a run in JSON."""
    assert done.out, done.err
    last: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return last


def listed(cli: Cli, *words: str) -> list[dict[str, Any]]:
    done = cli("sessions", "list", "--format", "json", *words)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_named_session_goes_on_from_another_folder_and_after_a_restart(warm: Cli) -> None:
    (warm.cwd / ".git").mkdir()
    (warm.cwd / "sub").mkdir()
    (warm.cwd / "app.py").write_text("def main(): ...\n")
    prompt = ("run", "scout", "where is main defined?", "-s", "parser", "--format", "json")
    first = result(warm.child(*prompt))
    second = result(warm(*prompt))
    assert warm("broker", "stop", "--all").code == 0
    third = result(warm(*prompt, "--cwd", "sub"))
    assert [each["context"] for each in (first, second, third)] == ["new", "live", "restored"]
    assert len({each["session"] for each in (first, second, third)}) == 1
    assert len({each["session_key"] for each in (first, second, third)}) == 1
    assert {each["outcome"] for each in (first, second, third)} == {"ok"}
    (row,) = listed(warm, "--cwd", "sub")
    assert (row["name"], row["key"], row["root"]) == ("parser", first["session_key"], str(warm.cwd))
    answer = "`main` is defined in `app.py:1`"
    until(lambda: warm("sessions", "show", "parser").out.count(answer) == 3)
    assert warm("sessions", "show", "parser").out.count("> where is main defined?") == 3


def test_a_run_without_a_name_closes_its_session_and_keeps_what_was_said(warm: Cli) -> None:
    (warm.cwd / "app.py").write_text("def main(): ...\n")
    done = result(warm("run", "scout", "where is main defined?", "--format", "json"))
    assert done["context"] == "new"
    # The broker says that it is closed before that is written down.
    until(lambda: listed(warm) == [])
    (row,) = listed(warm, "--closed")
    assert (row["key"], row["name"]) == (done["session_key"], None)
    until(lambda: "`main` is defined" in warm("sessions", "show", row["key"], *QUIET).out)


def test_sessions_are_begun_closed_and_named_anew(warm: Cli) -> None:
    first = warm("sessions", "new", "scout", "-s", "a").out.strip()
    assert first.startswith("s-")
    assert warm("sessions", "ensure", "scout", "-s", "a").out.strip() == first
    second = warm("sessions", "new", "scout", "-s", "a").out.strip()
    assert second != first
    assert [row["key"] for row in listed(warm)] == [second]
    assert warm("sessions", "close", "a").code == 0
    assert listed(warm) == []
    missing = warm("sessions", "show", "nobody")
    assert (missing.code, "there is no session 'nobody'" in missing.err) == (4, True)


@pytest.mark.parametrize("action", ["new", "ensure"])
def test_a_session_is_begun_with_the_model_that_was_asked_for(warm: Cli, action: str) -> None:
    describe(warm, "tester", "review")
    assert warm("sessions", action, "tester", "-s", "a", "-m", "large").code == 0
    done = result(warm("run", "tester", "settings", "-s", "a", "--format", "json"))
    assert done["text"].startswith("model large-preview "), done
    refused = warm("sessions", action, "tester", "-s", "b", "-m", "nonesuch")
    assert refused.code == 2 and "has no model 'nonesuch'" in refused.err
    assert [row["name"] for row in listed(warm, "--closed")] == ["a"]


def test_a_session_that_only_the_peer_remembers_is_listed_and_adopted(warm: Cli) -> None:
    (warm.cwd / "app.py").write_text("def main(): ...\n")
    done = result(warm("run", "scout", "where is main defined?", "-s", "a", "--format", "json"))
    assert warm("sessions", "delete", "a", "--yes").code == 0
    assert listed(warm) == []
    (row,) = listed(warm, "scout")
    assert (row["key"], row["peer_session_id"], row["at_peer"]) == (None, done["session"], True)
    assert warm("broker", "stop", "--all").code == 0
    adopted = warm("sessions", "resume", "scout", done["session"], "-s", "mine")
    assert adopted.code == 0, adopted.err
    (row,) = listed(warm)
    assert (row["name"], row["key"]) == ("mine", adopted.out.strip())
    again = result(warm("run", "scout", "where is main defined?", "-s", "mine", "--format=json"))
    assert (again["session"], again["context"]) == (done["session"], "live")


def test_a_session_that_nothing_knows_cannot_be_resumed(cli: Cli) -> None:
    done = cli("sessions", "resume", "scout", "unknown-id", "-s", "mine", "--cold")
    assert done.code == 4
    assert "scout cannot continue the session unknown-id: there is no such session" in done.err
    assert "--brief" not in done.err and "`dragoman sessions list scout` lists" in done.err
    assert listed(cli) == []


def test_a_session_that_its_agent_has_forgotten_is_an_error_or_begins_afresh(cli: Cli) -> None:
    def say(*words: str) -> Done:
        return cli("run", "hello", "-s", "talk", "--format", "json", *words, "--", *cli.agent)

    first = result(say())
    lost = say()
    assert lost.code == 4
    assert result(lost)["error"] == "session_lost"
    fresh = result(say("--fresh"))
    assert (fresh["context"], fresh["outcome"]) == ("fresh", "ok")
    assert fresh["session_key"] != first["session_key"]
    assert [row["key"] for row in listed(cli)] == [fresh["session_key"]]


def test_a_cold_session_is_stored_and_goes_on_warm(warm: Cli) -> None:
    (warm.cwd / "app.py").write_text("def main(): ...\n")
    prompt = ("run", "scout", "where is main defined?", "-s", "a", "--format", "json")
    cold = result(warm(*prompt, "--cold"))
    assert cold["context"] == "new"
    kept = result(warm(*prompt))
    assert (kept["context"], kept["session_key"]) == ("restored", cold["session_key"])
    until(lambda: warm("sessions", "show", "a", *QUIET).out.count("`main` is defined") == 2)


def test_a_session_travels_as_a_file(cli: Cli, tmp_path: Path) -> None:
    assert cli("run", "hello", "-s", "talk", "--", *cli.agent).code == 0
    assert cli("sessions", "export", "talk", "-o", "talk.jsonl").code == 0
    assert (cli.cwd / "talk.jsonl").stat().st_mode & 0o077 == 0
    piped = cli("sessions", "export", "talk").out
    assert piped == (cli.cwd / "talk.jsonl").read_text()
    assert cli("sessions", "delete", "talk", "--yes").code == 0
    imported = cli("sessions", "import", "talk.jsonl")
    assert imported.code == 0, imported.err
    assert cli("sessions", "show", "talk", *QUIET).out == "you said hello\n"
    (cli.cwd / "cut.jsonl").write_text(piped[: len(piped) // 2])
    assert cli("sessions", "import", "cut.jsonl").code == 2


def test_an_export_destroys_nothing_that_it_is_pointed_at(cli: Cli) -> None:
    assert cli("run", "hello", "-s", "talk", "--", *cli.agent).code == 0
    whole = cli("sessions", "export", "talk").out
    notes, link, pipe = cli.cwd / "notes", cli.cwd / "link", cli.cwd / "pipe"
    notes.write_text("mine")
    notes.chmod(0o640)
    link.symlink_to(notes)
    os.mkfifo(pipe)
    for there in (notes, link, cli.cwd):
        refused = cli.child("sessions", "export", "talk", "-o", str(there))
        assert (refused.code, refused.err.count("\n")) == (2, 2), refused.err
    assert notes.read_text() == "mine" and link.is_symlink()

    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        # The whole session fits into the pipe, so nothing waits.
        assert cli.child("sessions", "export", "talk", "-o", "pipe").code == 0
        assert os.read(reader, 1 << 16).decode() == whole
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)

    assert cli.child("sessions", "export", "talk", "-o", "link", "--force").code == 0
    assert link.is_symlink() and notes.read_text() == whole
    assert stat.S_IMODE(notes.stat().st_mode) == 0o640
    assert sorted(each.name for each in cli.cwd.iterdir()) == ["link", "notes", "pipe"]


def test_an_export_to_a_device_leaves_the_device(cli: Cli) -> None:
    assert cli("run", "hello", "-s", "talk", "--", *cli.agent).code == 0
    device = cli.cwd / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.open("wb").close()
    except OSError as error:
        pytest.skip(f"no device can be made and opened here: {error}")
    done = cli.child("sessions", "export", "talk", "-o", "null")
    assert (done.code, stat.S_ISCHR(device.lstat().st_mode)) == (0, True)


def test_old_sessions_are_deleted_on_request(cli: Cli) -> None:
    for name in ("a", "b"):
        assert cli("run", "hello", "-s", name, "--", *cli.agent).code == 0
    assert cli("sessions", "prune", "--older-than", "1d", "--yes").out.startswith(
        "sessions deleted: 0"
    )
    unasked = cli("sessions", "prune", "--older-than", "0s")
    assert (unasked.code, "add --yes" in unasked.err) == (2, True)
    pruned = cli("sessions", "prune", "--older-than", "0s", "--keep", "1", "--yes")
    assert pruned.out == "sessions deleted: 1, jobs deleted: 1\n"
    assert [row["name"] for row in listed(cli)] == ["b"]


def test_a_session_with_a_job_that_runs_is_not_deleted(warm: Cli) -> None:
    words = ("-s", "talk", "--approve-reads", "--", *warm.agent)
    job = warm("run", "wait", "--no-wait", *words).out.strip()
    refused = warm("sessions", "delete", "talk", "--yes")
    assert (refused.code, f"jobs cancel {job}" in refused.err) == (2, True)
    assert warm("jobs", "cancel", job).code == 0
    assert warm("jobs", "result", job, "--wait").out == "waiting\n"
    assert warm("sessions", "delete", "talk", "--yes").code == 0


def test_secrets_of_the_environment_are_in_no_file_of_the_store(cli: Cli) -> None:
    secret = "correct-horse-battery-staple"
    cli.extra["ACME_API_KEY"] = secret
    done = cli("run", f"say {secret}", "-s", "a", "--env", "ACME_API_KEY", "--", *cli.agent)
    assert secret in done.out
    files = [path for path in (cli.home / "state_home").rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    assert secret not in cli("sessions", "show", "a").out


def test_a_state_folder_that_cannot_be_used_costs_only_the_store(cli: Cli) -> None:
    (cli.home / "state_home").write_text("no folder")
    done = cli("run", "hello", *QUIET, "--", *cli.agent)
    assert (done.code, done.out) == (0, "you said hello\n")
    assert "this conversation is not stored" in done.err


def test_a_chat_and_a_run_go_on_with_each_other(warm: Cli) -> None:
    words = ("-s", "talk", "--approve-reads", "--format", "json", "--", *warm.agent)
    chat = warm("chat", *words, stdin="hello\nand again\n")
    assert chat.code == 0, chat.err
    told = [json.loads(line) for line in chat.out.splitlines()]
    first, second = [line for line in told if line["type"] == "Result"]
    assert (first["context"], second["context"]) == ("new", "live")
    assert first["job"] != second["job"]
    third = result(warm("run", "third", *words))
    assert (third["context"], third["session_key"]) == ("live", first["session_key"])
    all_of_it = "you said hello\nyou said and again\nyou said third\n"
    until(lambda: warm("sessions", "show", "talk", *QUIET).out == all_of_it)


def test_old_closed_sessions_go_by_themselves_and_give_their_space_back() -> None:
    with warm_cli() as cli:
        state = cli.home / "state_home"
        with Store.open(state / "sessions.db") as store:
            for key, closed_at in (("s-old", 1.0), ("s-kept", None)):
                fields = {"key": key, "peer_session_id": key, "closed_at": closed_at}
                store.create_session(session(**fields))
                store.append(key, 0, [b'"' + b"x" * 100_000 + b'"'] * (30 if closed_at else 1))
                store.update_session(key, updated_at=1.0)
        assert (state / "sessions.db").stat().st_size > 3_000_000
        assert cli.child("run", "hello", "--", *cli.agent).code == 0
        until((state / "retention.stamp").exists)
        # A broker ends after what it began when it became idle.
        assert cli.child("broker", "stop", "--all").code == 0
        assert (state / "sessions.db").stat().st_size < 1_000_000
        with Store.open(state / "sessions.db", read_only=True) as store:
            keys = {one.key for one in store.sessions()}
        assert "s-old" not in keys and "s-kept" in keys


def test_a_delegated_turn_is_shown_once_and_scout_costs_nothing(warm: Cli) -> None:
    (warm.cwd / "framer.py").write_text("class Framer: ...\n")
    done = warm("delegate", "exploration", "where is Framer defined?", "--format", "json")
    assert done.code == 0, done.err
    (attempt,) = result(done)["attempts"]
    assert attempt["cost"]["amount"] == 0
    jobs = [json.loads(line) for line in warm("jobs", "list", "--format", "json").out.splitlines()]
    shown = warm("sessions", "show", jobs[0]["session_key"])
    assert shown.code == 0, shown.err
    assert shown.out.count("> where is Framer defined?") == 1
    (row,) = map(json.loads, warm("stats", "--format", "json").out.splitlines())
    assert (row["costs"], row["cost_unknown"]) == ({"USD": 0.0}, 0)
