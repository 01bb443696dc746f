"""Agents that take only what their document describes, from the command line: verified, added, run.

They are written without dragoman (`strict_agent.py`) and log what they are asked.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.integration.cli_shell import Cli, Done, cli_in, warm_cli, with_open_stdin

STRICT = str(Path(__file__).with_name("strict_agent.py"))

DIALECTS = {
    "oneshot": "oneshot",
    "asp": "threads",
    "asp-handshake": "threads",
    "tagged": "tagged",
    "tagged-any-version": "tagged",
    "keyed": "keyed",
    "chained": "chained",
}
"""What the strict agents speak, by our names."""

CHAIN = {"list": "listSessions", "create": "startSession", "prompt": "sendMessage"}


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def log_of(cli: Cli) -> Path:
    return cli.home / "asked.log"


def strict(cli: Cli, kind: str, *more: str) -> tuple[str, ...]:
    return ("--", sys.executable, STRICT, kind, str(log_of(cli)), *more)


def asked(cli: Cli) -> list[str]:
    """What the agent was asked since the last look."""
    words = log_of(cli).read_text().split()
    log_of(cli).unlink()
    return words


def card_of(done: Done) -> dict[str, object]:
    return json.loads(done.out.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_strict_agent_is_found_verified_added_and_run(cli: Cli, kind: str) -> None:
    verified = cli("peers", "verify", "--no-turns", *strict(cli, kind))
    assert verified.code == 0, verified.out
    assert f"speaks {DIALECTS[kind]}, opens a session" in verified.out

    added = cli("peers", "add", "old", "--roles", "plan", "--no-turns", *strict(cli, kind))
    assert added.code == 0, added.out + added.err
    text = (cli.home / "config_home" / "peers" / "old.toml").read_text()
    assert tomllib.loads(text)["protocol"] == DIALECTS[kind]

    asked(cli)
    said = cli("run", "old", "hello", "--format", "quiet")
    assert (said.code, said.out) == (0, "strict words\n"), said.err
    assert asked(cli).count("started") == 1


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_strict_agent_whose_dialect_is_named_is_started_for_it_at_once(
    cli: Cli, kind: str
) -> None:
    dialect = ("--dialect", DIALECTS[kind])
    verified = cli(
        "peers", "verify", "--no-turns", "--format", "json", *dialect, *strict(cli, kind)
    )
    assert verified.code == 0, verified.out
    facts = card_of(verified)["facts"]
    assert isinstance(facts, dict) and facts["dialect"] == DIALECTS[kind]
    words = asked(cli)
    # ACP begins with `initialize`; what follows a start shows what was spoken.
    assert ("initialize" in words[:2]) is (kind not in ("asp", "asp-handshake", "chained"))
    added = cli("peers", "add", "old", "--roles", "plan", *dialect, *strict(cli, kind))
    assert added.code == 0, added.out + added.err
    assert cli("run", "hello", "--format", "quiet", *dialect, *strict(cli, kind)).code == 0


@pytest.mark.parametrize("kind", DIALECTS)
def test_what_was_found_out_is_not_asked_for_again(cli: Cli, kind: str) -> None:
    words = ("run", "hello", "--format", "quiet", *strict(cli, kind))
    assert cli(*words).out == "strict words\n"
    assert asked(cli).count("started") > 1
    assert cli(*words).out == "strict words\n"
    again = asked(cli)
    assert again.count("started") == 1
    if kind == "chained":
        assert again == ["started", CHAIN["create"], CHAIN["prompt"]]


def test_the_card_has_the_names_that_a_chained_agent_knows(cli: Cli) -> None:
    added = cli("peers", "add", "old", "--roles", "plan", "--turns", *strict(cli, "chained"))
    assert added.code == 0, added.out + added.err
    shown = cli("peers", "show", "old", "--format", "json")
    facts = json.loads(shown.out)["card"]["facts"]
    assert facts["methods"] == CHAIN
    assert facts["notifications"] == {
        "text/delta": ["sessionId", "turnId", "delta", "type"],
        "completion/status": ["sessionId", "turnId", "status", "detail"],
    }
    assert facts["required_params"] == {CHAIN["list"]: [], CHAIN["create"]: []}
    assert facts["optional_params"][CHAIN["create"]] == ["title", "context"]
    assert facts["lists_sessions"] is True and facts["bad_params_code"] == -32602
    assert "create: startSession" in cli("peers", "show", "old").out
    # The ladder has found the names, so that nothing is asked twice by the first prompt.
    asked(cli)
    assert cli("run", "old", "hello").code == 0
    assert asked(cli) == ["started", CHAIN["create"], CHAIN["prompt"]]


def test_the_sessions_of_a_dialect_without_folders_are_listed(cli: Cli) -> None:
    added = cli("peers", "add", "old", "--roles", "plan", "--no-turns", *strict(cli, "chained"))
    assert added.code == 0, added.out + added.err
    listed = cli("sessions", "list", "old", "--cold", "--format", "json")
    assert listed.code == 0, listed.err
    assert "session-1" in listed.out
    everywhere = cli("sessions", "list", "old", "--cold", "--all", "--format", "json")
    assert everywhere.out == listed.out


def test_an_agent_that_cannot_list_its_sessions_is_distinguished_from_one_that_has_none(
    cli: Cli,
) -> None:
    added = cli("peers", "add", "old", "--roles", "plan", "--no-turns", *strict(cli, "keyed"))
    assert added.code == 0, added.out + added.err
    assert "it rejected the handshake of acp" in added.out
    listed = cli("sessions", "list", "old", "--cold")
    assert listed.code == 0
    assert "old does not list its own sessions" in listed.err


@pytest.mark.parametrize(
    ("kind", "needs"),
    [
        ("asp", ["service_name", "experimentalRawEvents"]),
        ("keyed", ["cwd"]),
        ("tagged", []),
    ],
)
def test_the_card_has_the_params_that_an_agent_needs(cli: Cli, kind: str, needs: list[str]) -> None:
    done = cli("peers", "verify", "--no-turns", "--format", "json", *strict(cli, kind))
    facts = card_of(done)["facts"]
    assert isinstance(facts, dict)
    assert list(facts["required_params"].values()) == [needs]
    assert facts["bad_params_code"] == -32602


def test_none_of_the_names_of_a_method_is_said_at_the_first_call(cli: Cli) -> None:
    done = cli("run", "hi", "--dialect", "chained", *strict(cli, "asp"))
    assert done.code != 0
    names = "session/create, session/start, create_session, startSession"
    assert f"the agent supports none of the methods {names}" in done.err


@pytest.mark.parametrize("kind", ["asp", "asp-handshake"])
def test_an_app_server_that_is_not_codex_is_found_and_run(cli: Cli, kind: str) -> None:
    words = strict(cli, kind, "3", "app-server")
    added = cli("peers", "add", "old", "--roles", "plan", "--no-turns", *words)
    assert added.code == 0, added.out + added.err
    assert cli("run", "old", "hello", "--format", "quiet").out == "strict words\n"
    assert cli("run", "hello", "--format", "quiet", *words).out == "strict words\n"


def test_a_broker_uses_what_was_found_out_and_keeps_what_it_finds_out() -> None:
    with warm_cli() as cli:
        folder = cli.home / "config_home" / "peers"
        folder.mkdir(parents=True)
        command = json.dumps(strict(cli, "chained")[1:])
        text = f'name = "old"\ntitle = "Old"\nroles = ["plan"]\n[[launch]]\ncommand = {command}\n'
        (folder / "old.toml").write_text(text)
        for starts in (3, 1):
            said = cli("run", "old", "hello", "--format", "quiet")
            assert (said.code, said.out) == (0, "strict words\n"), said.err
            assert cli("broker", "stop", "--all").code == 0
            words = asked(cli)
            assert words.count("started") == starts
        assert words == ["started", CHAIN["create"], CHAIN["prompt"]]


def test_a_dialect_that_only_a_turn_shows_is_found_out_at_each_start(cli: Cli) -> None:
    words = strict(cli, "keyed-bare")
    added = cli("peers", "add", "bare", "--roles", "plan", "--turns", *words)
    assert added.code == 0, added.out + added.err
    assert (
        "it may speak keyed instead, which only a turn can show" in added.out
        and "FAIL" not in added.out
    )
    text = (cli.home / "config_home" / "peers" / "bare.toml").read_text()
    assert "protocol" not in tomllib.loads(text)
    assert cli("run", "bare", "hello", "--format", "quiet").out == "strict words\n"
    named = cli("peers", "verify", "--no-turns", "--dialect", "keyed", *words)
    assert named.code == 0 and "speaks keyed" in named.out


def test_the_names_of_a_named_dialect_are_not_asked_for_again(cli: Cli) -> None:
    words = ("run", "hello", "--format", "quiet", "--dialect", "chained", *strict(cli, "chained"))
    assert cli(*words).out == "strict words\n"
    assert "session/list" in asked(cli)
    assert cli(*words).out == "strict words\n"
    assert asked(cli) == ["started", CHAIN["create"], CHAIN["prompt"]]


def test_a_card_of_another_dialect_than_the_descriptors_is_not_kept(cli: Cli) -> None:
    added = cli("peers", "add", "old", "--roles", "plan", "--no-turns", *strict(cli, "asp"))
    assert added.code == 0, added.out + added.err
    tried = cli("peers", "verify", "old", "--no-turns", "--dialect", "oneshot")
    assert tried.code == 10 and "the descriptor of old names another dialect, threads" in tried.err
    card = json.loads(cli("peers", "show", "old", "--format", "json").out)["card"]
    assert card["facts"]["dialect"] == "threads"


def test_a_program_that_changed_its_dialect_is_found_out_again(cli: Cli, tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    source = Path(STRICT).read_text()
    words = ("run", "hello", "--format", "quiet", "--", sys.executable, str(agent), "x", "log")
    for kind in ("chained", "oneshot", "asp"):
        agent.write_text(source.replace("KIND, LOG = sys.argv[1]", f"KIND, LOG = {kind!r}"))
        done = cli(*words)
        assert (done.code, done.out) == (0, "strict words\n"), done.err


def test_a_dialect_is_named_by_the_word_of_its_document(cli: Cli) -> None:
    for word in ("asp", "ASP", "app-server-protocol", "threadStart"):
        done = cli("run", "hi", "--format", "quiet", "--dialect", word, *strict(cli, "asp"))
        assert (done.code, done.out) == (0, "strict words\n"), done.err
        assert "started initialize" not in " ".join(asked(cli))
    verified = cli("peers", "verify", "--no-turns", "--dialect", "asp", *strict(cli, "asp"))
    assert verified.code == 0 and "speaks threads" in verified.out


@pytest.mark.parametrize(
    "command",
    [
        ("run", "hi"),
        ("chat",),
        ("peers", "verify"),
        ("peers", "add", "old", "--roles", "plan"),
    ],
)
def test_an_unknown_dialect_is_refused_with_the_nearest_before_anything_is_started(
    cli: Cli, command: tuple[str, ...]
) -> None:
    done = cli(*command, "--dialect", "theads", *strict(cli, "asp"))
    assert done.code == 2
    assert "there is no dialect 'theads'; did you mean 'threads'?" in done.err
    done = cli(*command, "--dialect", "app-server", *strict(cli, "asp"))
    assert done.code == 2
    assert "codex (the Codex app-server), or threads" in done.err
    assert not log_of(cli).exists()


def test_clients_are_served_in_a_dialect_that_is_named_by_the_word_of_its_document(
    cli: Cli,
) -> None:
    start = '{"jsonrpc":"2.0","id":1,"method":"threadStart","params":{"service_name":"x"}}\n'
    with with_open_stdin(cli, "serve", "acp", "--dialect", "ASP") as served:
        assert served.stdin is not None and served.stdout is not None
        served.stdin.write(start)
        served.stdin.flush()
        assert '"threadId"' in served.stdout.readline()
    refused = cli.child("serve", "acp", "--dialect", "kyed")
    assert refused.code == 2 and "did you mean 'keyed'?" in refused.err


def test_the_gateway_takes_the_words_of_the_documents_too(cli: Cli) -> None:
    gateway = [sys.executable, "-m", "dragoman.gateway", "--dialect"]
    hello = {"protocolVersion": 1, "clientCapabilities": {}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    for word in ("asp", "auto"):
        done = subprocess.run(
            [*gateway, word, *strict(cli, "asp")],
            input=f"{line}\n",
            env=cli.env,
            cwd=cli.cwd,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert '"protocolVersion":1' in done.stdout, done.stderr
    done = subprocess.run(
        [*gateway, "theads", *strict(cli, "asp")],
        input=f"{line}\n",
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1 and "did you mean 'threads'?" in done.stderr


def test_a_dialect_that_is_named_wrongly_is_reported_with_the_option(cli: Cli) -> None:
    done = cli("peers", "verify", "--dialect", "tagged", *strict(cli, "asp"))
    assert done.code == 10
    assert "does not speak tagged" in done.out
    assert "Name another dialect with --dialect, or omit --dialect" in done.out
    named = cli("run", "hi", "--dialect", "oneshot", *strict(cli, "asp"))
    assert named.code != 0 and "--dialect NAME" in named.err


@pytest.mark.parametrize(
    ("kind", "mismatch"),
    [
        (
            "oneshot-older",
            "the agent speaks version '2024-11-05' of the oneshot dialect, "
            "but dragoman speaks version '2025-06-18'",
        ),
        (
            "keyed-newer",
            "the agent speaks version 2 of the keyed dialect, but dragoman speaks version 1",
        ),
    ],
)
def test_another_version_of_a_dialect_is_named_and_the_caller_may_go_on(
    cli: Cli, kind: str, mismatch: str
) -> None:
    agent = strict(cli, kind)
    done = cli("run", "hi", *agent)
    assert done.code == 1 and mismatch in done.err and "--any-version" in done.err
    # An agent that is found out to speak another version is not greeted in other dialects.
    assert set(asked(cli)) == {"started", "initialize"}
    verified = cli("peers", "verify", "--no-turns", *agent)
    assert verified.code == 10 and f"FAIL  dialect       {mismatch}" in verified.out
    went_on = cli("run", "hi", "--any-version", "--format", "quiet", *agent)
    assert (went_on.code, went_on.out) == (0, "strict words\n"), went_on.err


def test_a_program_that_refuses_every_greeting_is_reported_with_what_was_tried(
    cli: Cli, tmp_path: Path
) -> None:
    deaf = tmp_path / "deaf.py"
    deaf.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    error = {'code': -32603, 'message': 'nothing works here'}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': json.loads(line).get('id'),"
        " 'error': error}), flush=True)\n"
    )
    done = cli("peers", "verify", "--", sys.executable, str(deaf))
    assert done.code == 10
    assert "acp, oneshot, tagged, keyed, threads, chained were tried" in done.out
    assert "--dialect" in done.out
    ran = cli("run", "hi", "--", sys.executable, str(deaf))
    assert "nothing works here" in ran.err and "also refused the handshakes of oneshot" in ran.err
    added = cli("peers", "add", "deaf", "--roles", "plan", "--", sys.executable, str(deaf))
    assert added.code == 10 and "was not added" in added.err
