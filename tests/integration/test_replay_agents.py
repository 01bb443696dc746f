"""`dragoman run --dialect NAME -- AGENT` with agents that answer in the documents' own messages.

What the client sends is checked by the types of the documents, and each message of an agent is sent
at least once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fixtures.documents import load
from tests.fixtures.documents.shapes import PARAMS, RESULTS, faults
from tests.integration.cli_shell import Cli, Done, cli_in
from tests.integration.replay_agent import OPENINGS

AGENT = str(Path(__file__).with_name("replay_agent.py"))


class Case(NamedTuple):
    """What an agent does, and what `dragoman run` makes of it."""

    dialect: str
    turn: str
    """The examples that the agent answers a prompt with, and how it opens."""
    code: int = 0
    outcome: str = "ok"
    text: str = ""
    events: str = ""
    """The types of the events that must be among those of the turn."""
    options: tuple[str, ...] = ()


CASES = (
    Case("oneshot", "chunk tool file answer", text="...", events="MessageDelta ToolChanged"),
    Case("oneshot", "answer", text="..."),
    Case("threads", "complete", text="..."),
    Case("threads", "error", 8, "quota", events="ErrorReported"),
    Case(
        "tagged",
        "processing tool_running tool_completed tool_error plan final_chunk end_turn",
        text="Processing your request...\nI've read the file and...",
        events="ToolChanged Unknown",
    ),
    Case("tagged", "initialize=initialized_bare session/new=opened_bare end_turn", 1, "empty"),
    Case("tagged", "cancelled", 1, "cancelled"),
    Case("tagged", "failed", 1, "failed"),
    Case("tagged", "not_found", 1, "unsupported"),
    Case("tagged", "parse_error", 1, "protocol_error"),
    Case("tagged", "invalid_request", 1, "protocol_error"),
    Case("tagged", "invalid_params", 1, "protocol_error"),
    Case("tagged", "internal_error", 1, "failed"),
    Case(
        "keyed",
        "chunk tool tool_pending tool_failed plan mode everything end_turn",
        text="Looking further",
        events="ToolChanged FilesChanged PlanSet SettingsChanged",
    ),
    Case("keyed", "initialize=initialized_bare session/new=opened_bare chunk end_turn"),
    Case("keyed", "chunk max_tokens", 1, "truncated"),
    Case("keyed", "cancelled", 1, "cancelled"),
    Case("keyed", "tool_error", 1, "failed"),
    Case("keyed", "permission permission_bare chunk end_turn", events="PermissionAsked"),
    Case("keyed", "permission chunk end_turn", 5, "denied", options=("--deny-all",)),
    Case("keyed", "write read read_whole chunk end_turn"),
    Case(
        "keyed",
        "create_terminal create_terminal_bare terminal_output terminal_wait terminal_kill "
        "terminal_release chunk end_turn",
    ),
    Case("keyed", "session/new=auth_required end_turn", 6, ""),
    Case(
        "chained",
        "sent status_processing delta delta_reasoning delta_tool tool_start tool_result "
        "tool_failed reasoning reasoning_summary status",
        text="Paris",
        events="ToolChanged MessageDelta",
    ),
    Case("chained", "delta status", text="Paris"),
    Case("chained", "session/list=page sent_request delta status", text="Paris"),
    Case("chained", "sent_message delta status_error", 1, "failed"),
    Case("chained", "sent_bare error", 8, "quota"),
    *(Case("chained", f"family={n} sent delta tool_start tool_result status") for n in (1, 2, 3)),
)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return cli_in(tmp_path)


def run(cli: Cli, case: Case, *, named: bool = True) -> tuple[Done, list[Any]]:
    """The command, and what its agent got; without its dialect named, if it is to be found."""
    log = cli.home / "log"
    options = case.options or ("--approve-all",)
    agent = [sys.executable, AGENT, str(log), case.dialect, *case.turn.split()]
    done = cli(
        *("run", "What is the capital of France?", "--format", "json", *options),
        *(("--dialect", case.dialect) if named else ()),
        *("--", *agent),
    )
    return done, [json.loads(line) for line in log.read_text().splitlines()]


def require(dialect: str, heard: list[Any], turn: str) -> None:
    """Require that a client said nothing that its document does not have."""
    asked = {
        example.message["id"]: example.method
        for example in load(dialect).values()
        if example.sender == "agent" and not example.is_answer and "id" in example.message
    }
    for message in heard:
        if "method" in message:
            found = faults(message.get("params"), PARAMS[dialect][message["method"]])
        elif "result" in message:
            found = faults(message["result"], RESULTS[dialect][asked[message["id"]]])
        else:
            found = faults(message["error"], {"code": int, "message": str, "data?": object})
        assert not found, (turn, message, found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.dialect}: {case.turn}")
def test_an_agent_of_a_document_is_driven_from_the_command_line(cli: Cli, case: Case) -> None:
    (cli.cwd / "c.py").write_text("pass\n")
    done, heard = run(cli, case)
    assert done.code == case.code, (done.out, done.err)
    require(case.dialect, heard, case.turn)
    events = [json.loads(line) for line in done.out.splitlines()]
    kinds = {event["type"] for event in events}
    assert set(case.events.split()) <= kinds, kinds
    results = [event for event in events if event["type"] == "Result"]
    if case.outcome:
        assert results[-1]["outcome"] == case.outcome
        assert case.text in results[-1]["text"]


def test_the_requests_of_an_agent_are_answered_as_its_document_says(cli: Cli) -> None:
    (cli.cwd / "c.py").write_text("pass\n")
    _, heard = run(cli, Case("keyed", "permission permission_bare write read read_whole end_turn"))
    answers = [message["result"] for message in heard if "method" not in message]
    once = {"decision": "once"}
    content = {"content": "return\n"}
    assert answers == [once, once, None, content, content]
    assert (cli.cwd / "c.py").read_text() == "return\n"


def test_an_agent_whose_handshake_shows_nothing_is_driven_without_its_dialect_named(
    cli: Cli,
) -> None:
    (cli.cwd / "c.py").write_text("pass\n")
    bare = "initialize=initialized_bare session/new=opened_bare"
    turn = "chunk tool plan mode everything permission write read end_turn"
    done, heard = run(cli, Case("keyed", f"{bare} {turn}"), named=False)
    events = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0, done.err
    assert (events[-1]["outcome"], events[-1]["text"]) == ("ok", "Looking further")
    kinds = {event["type"] for event in events}
    assert {"ToolChanged", "FilesChanged", "PlanSet", "PermissionAsked"} <= kinds
    (prompt,) = [line["params"] for line in heard if line.get("method") == "session/prompt"]
    said = [{"type": "text", "text": "What is the capital of France?"}]
    assert (prompt["content"], prompt["prompt"]) == (said, said)
    answers = [line["result"] for line in heard if "method" not in line]
    assert answers == [{"decision": "once"}, None, {"content": "return\n"}]


def test_a_dialect_that_is_named_is_the_only_one_that_is_spoken(cli: Cli) -> None:
    log = cli.home / "log"
    bare = ["initialize=initialized_bare", "session/new=opened_bare", "chunk", "end_turn"]
    agent = [sys.executable, AGENT, str(log), "keyed", *bare]
    done = cli("run", "hello", "--format", "json", "--dialect", "acp", "--", *agent)
    assert done.code == 1
    heard = [json.loads(line) for line in log.read_text().splitlines()]
    (prompt,) = [line["params"] for line in heard if line.get("method") == "session/prompt"]
    assert set(prompt) == {"sessionId", "prompt"}


def test_a_denied_permission_is_a_rejection(cli: Cli) -> None:
    done, heard = run(cli, Case("keyed", "permission end_turn", options=("--deny-all",)))
    assert done.code == 5
    assert [m["result"] for m in heard if "method" not in m] == [{"decision": "reject"}]


def test_every_message_of_an_agent_is_replayed() -> None:
    for dialect in PARAMS:
        said = {n for n, example in load(dialect).items() if example.sender == "agent"}
        words = {
            word.rpartition("=")[2]
            for case in CASES
            if case.dialect == dialect
            for word in case.turn.split()
        }
        words |= set(OPENINGS[dialect].values())
        assert said <= words, (dialect, said - words)
