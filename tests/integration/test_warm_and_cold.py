"""`dragoman run` shows and reports the same with a broker and without one, in every dialect."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import connect
from dragoman.client.conversation import SessionSummary
from dragoman.client.legacy import OneshotClient, ThreadsClient
from dragoman.transports import connect_unix
from tests.integration.cli_shell import Cli, Done, warm_cli
from tests.integration.pty_terminal import CTRL_C

DIALECTS = ("oneshot", "threads", "tagged", "keyed", "chained")
AGENT = Path(__file__).with_name("literal_agent.py")
PROMPTS = ("hello", "fail", "fail_call")

OWN = {"seconds", "session", "job", "session_key"}
"""What differs from one run to the next."""


def describe(cli: Cli, dialect: str, *words: str) -> str:
    """Describe the agent of a dialect as a peer; its name."""
    folder = cli.home / "config_home" / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    name = "-".join(("literal", dialect, *(word.strip("-") for word in words)))
    command = [sys.executable, str(AGENT), dialect, f"log={cli.home / dialect}.log", *words]
    (folder / f"{name}.toml").write_text(
        f'name = "{name}"\ntitle = "Literal"\nprotocol = "{dialect}"\n'
        f"[[launch]]\ncommand = {json.dumps(command)}\n"
    )
    return name


def received(cli: Cli, dialect: str) -> list[dict[str, Any]]:
    """The lines that the agent got."""
    lines = (cli.home / f"{dialect}.log").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def both(cli: Cli, *words: str) -> tuple[Done, Done]:
    """A command without a broker, and with one."""
    return cli(*words, "--cold"), cli(*words)


def lines(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def told(done: Done) -> dict[str, Any]:
    """The result of a run, as JSON has it."""
    return {name: value for name, value in lines(done)[-1].items() if name not in OWN}


def text(done: Done) -> str:
    """The output of a run as text, without times and ids."""
    return re.sub(r"[\d.]+ s\b|\bj-\w+", "_", done.out + done.err)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_turn_is_shown_and_reported_the_same_with_and_without_a_broker(
    warm: Cli, dialect: str
) -> None:
    peer = describe(warm, dialect)
    for prompt in PROMPTS:
        cold, again = both(warm, "run", peer, prompt, "--approve-all")
        assert text(cold) == text(again)
        assert cold.code == again.code
        cold, again = both(warm, "run", peer, prompt, "--approve-all", "--format", "json")
        assert told(cold) == told(again)
        for done in (cold, again):
            sources = {line["source"]["dialect"] for line in lines(done) if "source" in line}
            assert sources == {dialect}


def test_file_changes_and_tool_output_are_shown_as_text(warm: Cli) -> None:
    changed = text(warm("run", describe(warm, "oneshot"), "hello", "--cold"))
    assert "  c.py (changed)\n    @@ -1 +1 @@\n    -return\n    +pass\n" in changed
    for dialect in ("tagged", "chained"):
        shown = text(warm("run", describe(warm, dialect), "hello", "--cold"))
        assert "[tool] read_file: done\n  | file contents\n" in shown


def test_an_error_keeps_its_code_its_kind_and_whether_to_try_again(warm: Cli) -> None:
    cold, again = both(warm, "run", describe(warm, "threads"), "fail", "--format", "json")
    for done in (cold, again):
        failure = told(done)["failure"]
        assert failure == {
            "message": "Rate limit exceeded for thread-abc123",
            "kind": "rate_limited",
            "code": "rate_limit",
            "retryable": True,
            "data": None,
        }
        assert (done.code, told(done)["error"]) == (8, None)


@pytest.mark.parametrize("words", [(), ("--cold",)], ids=["warm", "cold"])
def test_a_login_that_is_missing_is_not_the_fault_of_the_agent(
    words: tuple[str, ...], warm: Cli
) -> None:
    done = warm("run", "login", *words, "--", *warm.agent)
    assert done.code == 6, done
    assert "whose fault: the agent's login" in done.err and "log in" in done.err


def test_a_session_that_was_begun_for_an_unknown_model_is_closed_once(warm: Cli) -> None:
    done = warm("run", "hello", "-m", "nosuch", "--format", "json", "--", *warm.agent)
    assert done.code == 2, done
    closed = [line for line in lines(done) if line.get("native") == "session/close"]
    assert [line["failure"] for line in closed] == [None]


def test_progress_of_a_turn_is_text_as_it_comes(warm: Cli) -> None:
    for done in both(warm, "run", describe(warm, "threads"), "progress", "--format", "json"):
        pieces = [line["text"] for line in lines(done) if line["type"] == "MessageDelta"]
        assert pieces == ["Half ", "done."]
        assert told(done)["text"] == "Half done."


@pytest.mark.parametrize("dialect", ["tagged", "chained"])
def test_metadata_reaches_a_new_session(warm: Cli, dialect: str) -> None:
    peer = describe(warm, dialect)
    words = ("--meta", "branch=main", "--meta", "title=Parser", "--format", "quiet")
    for done in both(warm, "run", peer, "meta", *words):
        metadata = json.loads(done.out.removeprefix("You said: "))
        if dialect == "chained":
            assert metadata.pop("title") == "Parser"
            metadata = metadata["context"]
        else:
            assert metadata["title"] == "Parser"
        assert metadata["branch"] == "main"


@pytest.mark.parametrize("dialect", ["oneshot", "threads", "keyed"])
def test_metadata_is_refused_where_the_dialect_has_none(warm: Cli, dialect: str) -> None:
    peer = describe(warm, dialect)
    for done in both(warm, "run", peer, "hello", "--meta", "branch=main"):
        assert done.code == 2
        assert "cannot take metadata for a session" in done.err


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_trace_has_the_talk_with_the_agent(warm: Cli, dialect: str) -> None:
    peer = describe(warm, dialect)
    talks: list[list[tuple[str, str | None]]] = []
    for how in (["--cold"], []):
        trace = warm.home / f"trace{len(talks)}"
        assert warm("run", peer, "hello", "--trace", str(trace), *how).code == 0
        talks.append([_spoken(json.loads(line)) for line in trace.read_text().splitlines()])
    cold, again = talks
    # The broker has greeted the agent before the command that traces it, and knows its methods.
    handshake, same = cold[: -len(again)], cold[-len(again) :]
    assert again == same
    assert [method for _, method in handshake] in ([], ["initialize", None], ["session/list", None])


def _spoken(entry: dict[str, Any]) -> tuple[str, str | None]:
    return entry["dir"], entry["msg"].get("method")


@pytest.mark.parametrize("dialect", ["oneshot", "threads", "keyed"])
def test_the_small_clients_work_on_the_socket_of_a_broker(warm: Cli, dialect: str) -> None:
    peer = describe(warm, dialect)
    assert warm("run", peer, "hello", "--approve-all").code == 0
    (broker,) = map(json.loads, warm("broker", "list", "--format", "json").out.splitlines())
    asyncio.run(_ask_by_small_clients(broker["address"]))
    assert warm("run", peer, "hello again").code == 0


async def _ask_by_small_clients(address: str) -> None:
    heard: list[tuple[str, Any]] = []
    async with OneshotClient(await connect_unix(address)) as client:
        greeted = await client.initialize()
        assert greeted.protocol_version == "2025-06-18"
        answer = await client.prompt(
            "from a socket", on_notification=lambda method, params: heard.append((method, params))
        )
        assert (answer.content, answer.finish_reason) == ("You said: from a socket", "stop")
        assert ("agent_message_chunk", {"text": "You said: from a socket"}) in heard
    async with ThreadsClient(await connect_unix(address)) as threads:
        thread = await threads.thread_start()
        result = await threads.turn(thread.thread_id, "from a socket")
        assert (result.status, result.content) == ("complete", "You said: from a socket"), result
        failed = await threads.turn(thread.thread_id, "fail_call")
        assert failed.status == "error"


def test_a_login_is_named_and_made_from_the_shell(warm: Cli) -> None:
    peer = describe(warm, "keyed", "--login")
    for done in both(warm, "run", peer, "hello"):
        assert done.code == 6
        assert "password" in done.err and "oauth" in done.err
        assert "dragoman login" in done.err
    assert warm("login", peer).code == 2
    wrong = warm("login", peer, "password", stdin="swordfish\n")
    assert (wrong.code, "swordfish" in wrong.err + wrong.out) == (6, False)
    assert warm("run", peer, "hello").code == 6
    right = warm("login", peer, "password", stdin="open sesame\n")
    assert (right.code, right.err) == (0, f"dragoman: logged in to {peer} with password\n")
    assert warm("run", peer, "hello").code == 0
    assert warm("broker", "stop", "--all").code == 0
    warm.extra["LITERAL_TOKEN"] = "open sesame"
    words = ("login", peer, "oauth", "--from-env", "LITERAL_TOKEN")
    assert warm(*words, "--cold").code == warm(*words).code == 0
    assert warm("run", peer, "hello").code == 0
    asked = [line["params"] for line in received(warm, "keyed") if line["method"] == "authenticate"]
    assert asked[0] == {"method": "password", "password": "swordfish"}
    assert asked[-1] == {"method": "oauth", "token": "open sesame"}
    assert warm("login", peer, "magic").code == 2
    assert warm("login", peer, "oauth", "--from-env", "NOT_SET").code == 2
    stored = [path for path in warm.home.rglob("*") if path.is_file() and path.suffix != ".log"]
    assert [path for path in stored if b"open sesame" in path.read_bytes()] == []


@pytest.mark.parametrize("how", [(), ("--cold",)])
def test_a_password_is_typed_without_echo_and_ctrl_c_ends_the_login(
    warm: Cli, how: tuple[str, ...]
) -> None:
    peer = describe(warm, "keyed", "--login")
    with warm.terminal("login", peer, "password", *how) as terminal:
        terminal.expect("Password: ")
        assert not terminal.echoes
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
        assert terminal.echoes
        assert "Traceback" not in terminal.shown
    with warm.terminal("login", peer, "password", *how) as terminal:
        terminal.expect("Password: ")
        terminal.type("open sesame\n")
        terminal.expect(f"logged in to {peer} with password")
        assert terminal.wait() == 0
        assert terminal.echoes
        assert "open sesame" not in terminal.shown
    warm.wait_for_agents()


@pytest.mark.parametrize(
    ("flag", "said"), [("--approve-all", "from a terminal\n"), ("--deny-all", "refused: -32601")]
)
def test_a_command_line_is_offered_terminals_if_commands_may_be_run(
    warm: Cli, flag: str, said: str
) -> None:
    command = [sys.executable, str(AGENT), "keyed", f"log={warm.home}/keyed.log"]
    words = ("run", "terminal", flag, "--dialect", "keyed", "--format", "quiet", "--", *command)
    done = warm(*words)
    assert (done.code, done.out.rstrip("\n")) == (0, said.rstrip("\n")), done.err


@pytest.mark.parametrize("dialect", ["oneshot", "keyed"])
def test_a_caller_may_go_on_after_a_mismatch_of_versions(warm: Cli, dialect: str) -> None:
    peer = describe(warm, dialect, "--version-7")
    for done in both(warm, "run", peer, "hello"):
        assert done.code != 0
        assert "speaks version" in done.err
    for done in both(warm, "run", peer, "hello", "--any-version", "--format", "quiet"):
        assert (done.code, done.out) == (0, "You said: hello\n"), done.err


def test_listed_sessions_have_their_beginning_and_their_state() -> None:
    async def listed(warm: bool) -> list[SessionSummary]:
        async with connect(peer, workspace=cli.cwd, warm=warm) as connected:
            return [summary async for summary in connected.list_sessions()]

    with warm_cli() as cli, pytest.MonkeyPatch.context() as patch:
        peer = describe(cli, "chained")
        for name, value in cli.env.items():
            patch.setenv(name, value)
        for warm in (False, True):
            (summary,) = asyncio.run(listed(warm))
            assert summary.created_at == "2024-01-15T10:00:00Z"
            assert (summary.updated_at, summary.status) == ("2024-01-15T10:30:00Z", "completed")
