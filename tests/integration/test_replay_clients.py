"""Clients that send the documents' own messages, to every program of ours that serves clients.

An agent of the kit, scout, `dragoman serve acp` and the gateway. Nothing is named on their command
lines: the messages show what is spoken.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.fixtures.documents import load
from tests.fixtures.documents.shapes import CHAINS, PARAMS
from tests.integration.cli_shell import Cli, cli_in
from tests.integration.replay_client import ReplayClient, replay_client

ROOT = Path(__file__).resolve().parents[2]
KIT = [sys.executable, "-m", "tests.integration.replay_kit_agent"]
GATEWAY = [sys.executable, "-m", "dragoman.gateway", "--inherit", "PYTHONPATH"]
PROGRAMS = {
    "kit": KIT,
    "scout": [sys.executable, "-m", "dragoman.scout"],
    "serve acp": [sys.executable, "-m", "dragoman", "serve", "acp", "--peer", "scout"],
    "gateway": [*GATEWAY, "--", *KIT],
}
NOTES = """# Notes

- Research best React state libs
- Execute the build command
- What is the capital of France? Where is c.py?
"""
"""What scout finds the words of the documents' prompts in; it refuses what it finds nothing for."""

OURS = ("kit", "gateway")
"""Where the agent of the kit answers, which does everything."""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def client(cli: Cli, program: str, dialect: str) -> AbstractContextManager[ReplayClient]:
    """A client of one of the programs."""
    return running(cli, PROGRAMS[program], dialect)


@contextmanager
def running(cli: Cli, argv: list[str], dialect: str) -> Iterator[ReplayClient]:
    (cli.cwd / "c.py").write_text("pass\n")
    (cli.cwd / "notes.md").write_text(NOTES)
    env = {**cli.env, "PYTHONPATH": f"{cli.env['PYTHONPATH']}:{ROOT}"}
    with replay_client(argv, dialect, cli.cwd, env) as it:
        yield it


def oneshot(it: ReplayClient, program: str) -> None:
    hello = it.play("initialize")
    assert hello["protocolVersion"] == "2025-06-18"
    answer = it.play("prompt")
    assert answer["finish_reason"] == "stop"
    assert answer["content"] == "".join(
        params["text"] for method, params in it.told if method == "agent_message_chunk"
    )
    if program in OURS:
        assert answer["usage"] == {"input_tokens": 1234, "output_tokens": 5678}
        assert {"tool_call", "file_change"} <= {method for method, _ in it.told}


def threads(it: ReplayClient, program: str) -> None:
    first = it.play("initialize")["threadId"]
    it.names["thread-abc123"] = it.play("start")["threadId"]
    assert it.names["thread-abc123"] != first
    result = it.play("turn")
    assert result["status"] == "complete"
    if program in OURS:
        assert result["usage"] == {"input_tokens": 1234, "output_tokens": 5678}
    state = it.play("resume")
    assert state["lastResult"]["content"] == result["content"]
    assert state["turns"][-1]["text"] == "Execute the build command"


def tagged(it: ReplayClient, program: str) -> None:
    it.play("initialize")
    it.names["session-1"] = it.play("new")["session"]["id"]
    assert "session" in it.play("new_bare")
    text = [{"type": "text", "text": "Where is c.py?"}]
    assert it.play("prompt", prompt=text) == {"stopReason": "endTurn"}
    # One with an image and sound, which not every agent takes.
    it.play("prompt")
    if program in OURS:
        assert {update["type"] for _, params in it.told if (update := params["update"])} == {
            "messageChunk",
            "toolCall",
            "planUpdate",
        }
        assert it.play("command") == {"stopReason": "endTurn"}
        assert it.told[-1][1]["update"]["chunk"] == "searching routers"
        assert it.play("command_fix") == {"stopReason": "endTurn"}
        waiting = it.send("prompt", prompt=[{"type": "text", "text": "wait"}])
        it.until("session/update")
        cancel = it.send("cancel")
        # The answers to a cancel and to its prompt may come in any order.
        both = [it.next(), it.next()]
        assert {each["id"]: each["result"] for each in both} == {
            waiting: {"stopReason": "cancelled"},
            cancel: {},
        }
    else:
        it.play("command")
        it.play("command_fix")
        it.play("cancel")
    unknown = it.play("command", command={"name": "dance"}, prompt=[])
    assert unknown == {"stopReason": "error"}
    assert "There is no command /dance" in it.told[-1][1]["update"]["chunk"]


def keyed(it: ReplayClient, program: str) -> None:
    hello = it.play("initialize")
    opened = it.play("new") if program in OURS else it.play("new_bare")
    it.names["ses_1"] = opened["sessionId"]
    if program in OURS:
        assert hello["authMethods"] == ["password", "oauth"]
        assert opened["currentModeId"] == "plan"
        for name in ("password", "oauth"):
            if program == "kit":
                it.play(name)
            else:
                # The agent behind this gateway speaks ACP, which has no secrets.
                assert it.answer(name)["error"]["code"] == -32602
    text = [{"type": "text", "text": "Where is c.py?"}]
    assert it.play("prompt", content=text) == {"stopReason": "end_turn"}
    for name in ("prompt", "prompt_more"):
        if program in OURS:
            it.play(name)
        else:
            # scout takes no images and says so.
            answer = it.answer(name)
            assert "result" in answer or answer["error"]["code"] == -32602
    keys = {key for _, params in it.told for key in params} - {"sessionId"}
    if program not in OURS:
        assert "contentChunk" in keys
        it.send("cancel")
        return
    assert keys == {"contentChunk", "toolCall", "plan", "currentModeId"}
    assert set(it.asked) == {
        "session/request_permission",
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "terminal/wait_for_exit",
        "terminal/output",
        "terminal/kill",
        "terminal/release",
    }
    it.play("set_mode")
    waiting = it.send("prompt", content=[{"type": "text", "text": "wait"}])
    it.until("session/update")
    it.send("cancel")
    assert it.answered(waiting)["result"] == {"stopReason": "cancelled"}
    it.names["ses_1"] = "earlier"
    it.told.clear()
    for name in ("load", "load_servers"):
        it.names["ses_1"] = f"earlier-{name}"
        assert it.play(name)["sessionId"] == it.names["ses_1"]
    said = [params["contentChunk"]["delta"] for _, params in it.told]
    assert said == ["Does it build?", "It builds."] * 2


def keyed_bare(it: ReplayClient, program: str) -> None:
    """A client that leaves out everything that is optional."""
    it.send("initialize_bare", clientCapabilities={})
    assert it.next()["result"]["protocolVersion"] == 1
    it.names["ses_1"] = it.play("new_bare")["sessionId"]
    text = [{"type": "text", "text": "Where is c.py?"}]
    assert it.play("prompt", content=text) == {"stopReason": "end_turn"}
    assert any("contentChunk" in params for _, params in it.told)


def chained(it: ReplayClient, program: str) -> None:
    for family in range(4):
        for concept in ("list", "create", "prompt"):
            it.names[CHAINS[concept][0]] = CHAINS[concept][family]
        it.play("list_bare")
        it.play("list")
        it.play("create_bare")
        it.names["session-uuid-123"] = it.play("create")["sessionId"]
        for name in ("prompt", "prompt_bare", "prompt_image"):
            sent = it.play(name)
            end = it.until(*CHAINS["status"])
            assert end["turnId"] == sent["turnId"]
            # Not every agent takes images.
            assert end["status"] == "completed" or name == "prompt_image"
        told = {method for method, _ in it.told}
        assert CHAINS["delta"][family] in told
        if program in OURS:
            for concept in ("tool_start", "tool_result", "reasoning", "status"):
                names = CHAINS[concept]
                assert names[min(family, len(names) - 1)] in told
        it.told.clear()
        quiet = it.play("prompt", stream=False)
        assert it.until(*CHAINS["status"])["turnId"] == quiet["turnId"]
        assert len(it.told) == 1
        it.told.clear()


CONVERSATIONS: dict[str, Callable[[ReplayClient, str], None]] = {
    "oneshot": oneshot,
    "threads": threads,
    "tagged": tagged,
    "keyed": keyed,
    "chained": chained,
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_a_client_of_a_document_is_served(cli: Cli, dialect: str, program: str) -> None:
    with client(cli, program, dialect) as it:
        CONVERSATIONS[dialect](it, program)
        if program == "kit":
            mine = {n for n, example in load(dialect).items() if example.sender == "client"}
            # Other answers than those that the client gives here.
            others = {"always", "reject", "killed", "output_running", "output_killed"}
            assert mine - others - {"initialize_bare", "new_bare"} <= it.used


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_client_that_leaves_out_its_capabilities_is_served(cli: Cli, program: str) -> None:
    with client(cli, program, "keyed") as it:
        keyed_bare(it, program)


@pytest.mark.parametrize("dialect", CONVERSATIONS)
def test_a_client_is_served_in_the_dialect_that_is_named(cli: Cli, dialect: str) -> None:
    argv = {
        "serve acp": [*PROGRAMS["serve acp"], "--dialect", dialect],
        "gateway": [*GATEWAY, "--client-dialect", dialect, "--", *KIT],
    }
    for program, words in argv.items():
        with running(cli, words, dialect) as it:
            CONVERSATIONS[dialect](it, program)


def test_a_named_dialect_needs_no_proof(cli: Cli) -> None:
    """A client whose requests up to its prompt could be those of ACP."""
    for words in (
        [*PROGRAMS["serve acp"], "--dialect", "keyed"],
        [*GATEWAY, "--client-dialect", "keyed", "--", *KIT],
    ):
        with running(cli, words, "keyed") as it:
            it.play("initialize_bare", clientCapabilities={})
            it.names["ses_1"] = it.play("new_bare", mcpServers=[])["sessionId"]
            text = [{"type": "text", "text": "Where is c.py?"}]
            assert it.play("prompt", content=text) == {"stopReason": "end_turn"}


def test_a_dialect_in_which_no_client_is_served_is_refused_with_those_that_there_are(
    cli: Cli,
) -> None:
    refused = cli("serve", "acp", "--dialect", "codex")
    assert refused.code == 2
    assert all(dialect in refused.err for dialect in CONVERSATIONS)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dialect", ["oneshot", "threads", "chained"])
def test_a_client_need_not_shake_hands(cli: Cli, dialect: str, program: str) -> None:
    with client(cli, program, dialect) as it:
        if dialect == "threads":
            it.names["thread-abc123"] = it.play("start")["threadId"]
            assert it.play("turn")["status"] == "complete"
        elif dialect == "oneshot":
            assert it.play("prompt")["finish_reason"] == "stop"
        else:
            it.names["session-uuid-123"] = it.play("create")["sessionId"]
            it.play("prompt")
            assert it.until("turn/status")["status"] == "completed"


@pytest.mark.parametrize("program", PROGRAMS)
def test_errors_have_the_codes_of_the_documents(cli: Cli, program: str) -> None:
    with client(cli, program, "tagged") as it:
        it.play("initialize")
        it.names["session-1"] = it.play("new")["session"]["id"]
        codes = []
        for text in (
            "{not json",
            '{"jsonrpc": "2.0", "id": 7, "method": 5}',
            '{"jsonrpc": "2.0", "id": 7, "method": "session/nothing"}',
            '{"jsonrpc": "2.0", "id": 7, "method": "session/prompt", "params": {"prompt": 5}}',
        ):
            it.say(text)
            error = it.next()["error"]
            assert isinstance(error["message"], str)
            codes.append(error["code"])
        assert codes == [-32700, -32600, -32601, -32602]


def test_a_secret_passes_a_gateway_between_two_sides_of_one_document(cli: Cli) -> None:
    agent = [sys.executable, str(Path(__file__).with_name("replay_agent.py"))]
    log = cli.home / "log"
    gateway = [sys.executable, "-m", "dragoman.gateway", "--dialect", "keyed", "--", *agent]
    argv = [*gateway, str(log), "keyed", "chunk", "end_turn"]
    with replay_client(argv, "keyed", cli.cwd, cli.env) as it:
        assert it.play("initialize")["authMethods"] == ["none", "password", "oauth"]
        it.play("password")
        it.play("oauth")
        it.names["ses_1"] = it.play("new_bare")["sessionId"]
        assert it.play("prompt") == {"stopReason": "end_turn"}
        assert it.told[-1][1]["contentChunk"]["delta"] == "Looking"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    logins = [line["params"] for line in lines if line.get("method") == "authenticate"]
    assert logins == [load("keyed")["password"].body, load("keyed")["oauth"].body]
    (prompt,) = [line["params"] for line in lines if line.get("method") == "session/prompt"]
    assert prompt == load("keyed")["prompt"].body


def test_every_dialect_of_the_documents_has_a_conversation() -> None:
    assert set(CONVERSATIONS) == set(PARAMS)
