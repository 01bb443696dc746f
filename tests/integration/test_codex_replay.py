"""Recordings of the real Codex, replayed by a child process: our client must make the same of them.

A recording is strict about what we say, too: the child ends with an error if a message of ours is
not the one that was recorded at that point. scripts/record_codex.py makes the recordings.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.codex import CodexPeer
from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.events.view import View
from dragoman.events.words import ChangeStage as FileStage
from dragoman.events.words import (
    FileOp,
    Outcome,
    PlanStatus,
    Role,
    ToolKind,
    ToolStatus,
)
from dragoman.testing import scripted
from dragoman.transports import spawn
from tests.aio import aio
from tests.integration.codex_scenarios import SCENARIOS, Stage

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "codex"

REPLAY_TIMEOUT = 30.0
"""Seconds for one replay; it takes as long as starting an interpreter."""


def recording(name: str) -> list[tuple[str, dict[str, Any]]]:
    lines = (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [(line["dir"], line["msg"]) for line in map(json.loads, lines)]


def steps(name: str) -> list[scripted.Step]:
    """The server's side of a recording as a script."""
    found: list[scripted.Step] = []
    for direction, message in recording(name):
        if direction == "recv":
            found.append(scripted.Send(message))
        elif "method" in message:
            found.append(scripted.Expect(message["method"]))
        else:
            found.append(scripted.ExpectAnswer(message["id"]))
    return found


async def replay(name: str, folder: Path) -> tuple[Stage, list[model.Event]]:
    """Play a scenario against its recording, and collect every event."""
    script = folder / "script.json"
    script.write_text(scripted.dumps(steps(name)), encoding="utf-8")
    argv = [sys.executable, "-I", "-S", scripted.__file__, str(script)]
    stream = await spawn(argv)
    events: list[model.Event] = []
    options = SCENARIOS[name].options(lambda: stage, events.append)
    async with await CodexPeer.connect(stream, folder, options) as peer:
        stage = Stage(peer)
        async with asyncio.timeout(REPLAY_TIMEOUT):
            await SCENARIOS[name].play(stage)
    return stage, events


def view_of(events: list[model.Event]) -> View:
    return fold(event for event in events if not event.replay)


def test_every_scenario_is_recorded_and_every_recording_is_played() -> None:
    assert {path.stem for path in FIXTURES.glob("*.jsonl")} == set(SCENARIOS)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_recording_holds_no_path_of_the_machine_that_made_it(name: str) -> None:
    text = (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8")
    assert [part for part in ("/tmp", "/root", "/var", "/Users") if part in text] == []


@pytest.mark.parametrize("name", sorted(SCENARIOS))
@aio
async def test_every_message_becomes_an_event_in_the_order_of_the_wire(
    name: str, tmp_path: Path
) -> None:
    _, events = await replay(name, tmp_path)
    received = [
        json.dumps(message, sort_keys=True)
        for direction, message in recording(name)
        if direction == "recv"
    ]
    told: list[bytes] = []
    for event in events:
        if event.raw is not None and not event.replay and event.raw not in told[-1:]:
            told.append(event.raw)
    seen = [json.dumps(json.loads(raw), sort_keys=True) for raw in told]
    assert seen == received
    assert [event.native for event in events if isinstance(event, model.Unknown)] == []
    assert [event.seq for event in events] == sorted(event.seq for event in events)


@aio
async def test_thoughts_and_answers_become_messages_with_their_usage(tmp_path: Path) -> None:
    stage, events = await replay("text", tmp_path)
    assert [result.text for result in stage.results] == [
        "You said: THINK please",
        "chunk-1 chunk-2 chunk-3 ",
    ]
    assert [result.outcome for result in stage.results] == [Outcome.OK, Outcome.OK]
    used = [result.usage for result in stage.results]
    assert [(u.input_tokens, u.output_tokens) for u in used if u] == [(2, 7), (1, 3)]
    view = view_of(events)
    assert [(m.role, m.text) for m in view.messages] == [
        (Role.USER, "THINK please"),
        (Role.THOUGHT, "I think about this."),
        (Role.AGENT, "You said: THINK please"),
        (Role.USER, "CHUNKS:3"),
        (Role.AGENT, "chunk-1 chunk-2 chunk-3 "),
    ]


@aio
async def test_an_allowed_command_completes_with_its_output(tmp_path: Path) -> None:
    stage, events = await replay("command", tmp_path)
    (tool,) = view_of(events).tools.values()
    assert (tool.kind, tool.status, tool.exit_code) == (
        ToolKind.EXECUTE,
        ToolStatus.COMPLETED,
        0,
    )
    assert tool.output == "done-it\n"
    (result,) = stage.results
    assert result.ok
    assert result.denials == ()
    (answer,) = [event for event in events if isinstance(event, model.PermissionAnswered)]
    assert (answer.allowed, answer.option_id, answer.by) == (True, "accept", "caller")


@aio
async def test_a_refused_command_and_change_are_declined(tmp_path: Path) -> None:
    stage, events = await replay("declined", tmp_path)
    assert [tool.status for tool in view_of(events).tools.values()] == [
        ToolStatus.DECLINED,
        ToolStatus.DECLINED,
    ]
    assert [[denial.kind for denial in result.denials] for result in stage.results] == [
        ["execute"],
        ["edit"],
    ]
    assert stage.results[1].denials[0].title == "Edit /workspace/a.txt"


@aio
async def test_a_new_file_is_applied_and_its_diff_is_shown(tmp_path: Path) -> None:
    _, events = await replay("file", tmp_path)
    view = view_of(events)
    (tool,) = view.tools.values()
    assert tool.stage is FileStage.APPLIED
    assert [(change.path, change.op, change.new_text) for change in tool.changes] == [
        ("/workspace/made.txt", FileOp.ADD, "some content\n")
    ]
    assert "+some content" in str(view.changes[0].diff)


@aio
async def test_a_plan_lists_its_entries_with_their_status(tmp_path: Path) -> None:
    _, events = await replay("plan", tmp_path)
    assert [(e.text, e.status) for e in view_of(events).plans["main"].entries] == [
        ("look", PlanStatus.RUNNING),
        ("change", PlanStatus.PENDING),
    ]


@aio
async def test_an_answered_question_reaches_the_model(tmp_path: Path) -> None:
    stage, events = await replay("question", tmp_path)
    (asked,) = [event for event in events if isinstance(event, model.InputAsked)]
    assert (asked.mode, asked.message) == ("questions", "Which?")
    assert "blue" in stage.results[0].text
    assert view_of(events).waiting == set()


@aio
async def test_steering_cuts_the_answer_short_and_adds_a_prompt(tmp_path: Path) -> None:
    stage, events = await replay("steer", tmp_path)
    # Steering cuts short what the model was about to say.
    assert stage.results[0].text.startswith("You ")
    assert stage.results[0].text.endswith("You said: and this")
    said = [m.text for m in view_of(events).messages if m.role is Role.USER]
    assert said == ["HOLD it", "and this"]


@aio
async def test_an_interrupt_cancels_the_turn_and_the_next_one_works(tmp_path: Path) -> None:
    stage, events = await replay("interrupt", tmp_path)
    assert [result.outcome for result in stage.results] == [Outcome.CANCELLED, Outcome.OK]
    assert stage.results[0].text.startswith("slow-1 ")
    assert [turn.outcome for turn in view_of(events).turns] == [Outcome.CANCELLED, Outcome.OK]


@aio
async def test_an_interrupt_withdraws_an_open_question(tmp_path: Path) -> None:
    stage, events = await replay("interrupt_question", tmp_path)
    assert stage.results[0].outcome is Outcome.CANCELLED
    (answer,) = [event for event in events if isinstance(event, model.PermissionAnswered)]
    assert (answer.allowed, answer.by) == (False, "cancel")
    assert view_of(events).waiting == set()


@aio
async def test_errors_of_the_model_become_outcomes_and_retries_become_notices(
    tmp_path: Path,
) -> None:
    stage, events = await replay("errors", tmp_path)
    assert [result.outcome for result in stage.results] == [
        Outcome.FAILED,
        Outcome.FAILED,
        Outcome.AUTH_REQUIRED,
        Outcome.OK,
    ]
    retrying = [event for event in events if isinstance(event, model.Noticed) and event.retrying]
    assert len(retrying) == 2
    assert "fake error 400" in str(stage.results[0].failure)


@aio
async def test_a_loaded_thread_replays_its_history(tmp_path: Path) -> None:
    stage, events = await replay("load", tmp_path)
    assert [result.outcome for result in stage.results] == [Outcome.OK, Outcome.OK]
    replayed = fold(event for event in events if event.replay)
    assert [(m.role, m.text) for m in replayed.messages][:2] == [
        (Role.USER, "THINK first\nWRITE:made.txt:text"),
        (Role.THOUGHT, "I think about this."),
    ]
    (tool,) = replayed.tools.values()
    assert (tool.kind, tool.status) == (ToolKind.EDIT, ToolStatus.COMPLETED)
    assert [turn.outcome for turn in replayed.turns] == [Outcome.OK]
    hows = [event.how for event in events if isinstance(event, model.SessionOpened)]
    assert hows == ["new", "load", "fork"]
