"""What a run is asked for and gives back, and the handle that cancels it."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dragoman.broker.error_codec import with_notice
from dragoman.broker.protocol import Added
from dragoman.catalogue.descriptor import Quirks
from dragoman.catalogue.enforcement import Enforced
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.budgets import Budgets
from dragoman.client.results import Result
from dragoman.dialects.discovery import ACP
from dragoman.errors import BrokerError, BudgetExceeded, ProcessExited, RemoteError
from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.parts import Capabilities, Failure
from dragoman.events.words import Outcome, Role
from dragoman.policy import preset
from dragoman.policy.approver import Approver
from dragoman.runs import run_values
from dragoman.runs.run_values import (
    BrokerNotes,
    CancelHandle,
    Deadline,
    RunListener,
    RunRequest,
    RunResult,
    explain_silence,
    turn_timers,
)
from dragoman.runs.sessions import LIVE, NEW, RESTORED
from tests.aio import aio

NO_QUIRKS = Quirks()


def request_in(folder: Path, *, quirks: Quirks = NO_QUIRKS, **more: Any) -> RunRequest:
    return RunRequest(
        peer="tester",
        enforced=Enforced(way=LaunchSpec(command=("agent",), protocol=ACP, quirks=quirks)),
        adapter=None,
        workspace=folder,
        approver=Approver(preset("deny-all"), "tester", str(folder)),
        unattended="deny-all",
        budgets=Budgets(),
        **more,
    )


def test_servers_that_a_peer_cannot_use_are_left_out_with_a_notice(tmp_path: Path) -> None:
    told: list[str] = []
    for strict, used in ((False, ()), (True, ("server",))):
        request = request_in(tmp_path, mcp_servers=("server",), mcp_strict=strict, session="one")
        wanted = request.wanted_session(
            None, Capabilities(mcp_stdio=False), mode=None, on_notice=told.append
        )
        assert (tuple(wanted.mcp_servers), wanted.name) == (used, "one")
    assert told == ["tester does not support MCP servers; they are omitted"]


def test_a_prompt_carries_the_terms_of_its_job_only_to_a_broker(tmp_path: Path) -> None:
    request = request_in(tmp_path, trace={"traceparent": "x"}, meta={"depth": 1})
    direct = request.prompt_meta("j-1", warm=False, first=True)
    assert direct == {"traceparent": "x", "dragoman": {"depth": 1}}
    warm = request.prompt_meta("j-1", warm=True, first=True)["dragoman"]
    assert warm["depth"] == 1 and warm["job"] == "j-1"
    assert request_in(tmp_path).prompt_meta("j-1", warm=False, first=True) == {}


def test_a_request_that_moves_takes_its_approver_along(tmp_path: Path) -> None:
    request = request_in(tmp_path)
    assert request.moved(tmp_path) is request
    moved = request.moved(tmp_path / "began")
    assert (moved.workspace, moved.approver.workspace) == (
        tmp_path / "began",
        str(tmp_path / "began"),
    )
    assert moved.project is None


PLACE = EventEnvelope(model.Source("acp", "c"), count(), "s")
PLACE.turn = "t"
BASE = PLACE.base("x", None)


@pytest.mark.parametrize(
    ("event", "life"),
    [
        (model.MessageDelta(*BASE, role=Role.AGENT, text="a"), True),
        (model.MessageDelta(*BASE, role=Role.USER, text="a"), False),
        (model.MessageSet(*BASE, role=Role.USER, message_id="m"), False),
        (model.CommandsChanged(*BASE, commands=()), False),
        (model.SessionChanged(*BASE, title="x"), False),
        (model.TurnStarted(*BASE), False),
        (model.TurnEnded(*BASE, outcome=Outcome.OK), False),
        (model.Noticed(*BASE[:3], None, *BASE[4:], severity="info", title="x"), False),
        (model.MessageDelta(*BASE[:6], True, role=Role.AGENT, text="a"), False),
    ],
)
def test_only_what_the_peer_does_in_its_turn_is_a_sign_of_life(
    event: model.Event, life: bool
) -> None:
    seen = RunResult()
    seen.observe(event, 1.0)
    assert not seen.acted, "nothing was prompted"
    seen.prompted = True
    for at in (2.0, 3.0):
        seen.observe(event, at)
    assert (seen.acted, seen.first_event_at) == (life, 2.0 if life else None)


def test_the_end_of_a_broker_is_distinguished_from_the_end_of_an_agent() -> None:
    assert RunResult(error=BrokerError("gone")).broker_failed
    assert not RunResult(error=ProcessExited(exit_code=3)).broker_failed


class Turn:
    cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


def test_a_handle_cancels_the_running_turn_and_one_that_begins_too_late() -> None:
    handle, first, second = CancelHandle(), Turn(), Turn()
    handle.pull()
    assert handle.pulled and not handle.in_turn
    handle.hold(first)
    assert first.cancelled == 1 and handle.in_turn
    handle.hold(None)
    calm = CancelHandle()
    calm.hold(second)
    assert second.cancelled == 0
    calm.pull()
    assert second.cancelled == 1
    calm.hold(None)
    calm.pull()
    assert second.cancelled == 1


def test_a_handle_ends_what_is_between_two_turns_and_says_whether_there_is_anything() -> None:
    handle, turn, ended = CancelHandle(), Turn(), list[str]()
    handle.between_turns(lambda: ended.append("first"))
    handle.hold(turn)
    assert handle.pull() and turn.cancelled == 1 and ended == []
    handle.hold(None)
    assert handle.pull() and ended == ["first"]
    handle.between_turns(None)
    assert not handle.pull() and ended == ["first"]
    handle.between_turns(lambda: ended.append("second"))
    assert ended == ["first", "second"]


def test_a_handle_for_single_turns_does_not_cancel_the_next_one() -> None:
    handle, first, second = CancelHandle(one_turn=True), Turn(), Turn()
    handle.pull()
    handle.hold(first)
    assert first.cancelled == 1
    handle.hold(None)
    handle.hold(second)
    assert second.cancelled == 0 and not handle.pulled


def test_what_a_broker_says_with_the_end_of_a_turn_is_passed_on_and_the_same_failure_once() -> None:
    told: list[str] = []
    notes = BrokerNotes(told.append)
    full = Added(unstored="the disk is full")
    for ended in (full, full, Added(), full):
        notes.turn_begins()
        notes.ended = ended
        notes.report()
    assert told == ["this conversation is not stored: the disk is full"] * 2
    notes.ended = Added(notice="update soon")
    notes.report()
    assert told[2:] == ["update soon"]


@pytest.mark.parametrize(
    ("opened", "opening", "ending", "first", "second"),
    [
        (NEW, None, None, NEW, LIVE),
        (RESTORED, None, None, RESTORED, LIVE),
        (RESTORED, "live", None, LIVE, LIVE),
        (RESTORED, "live", "fresh", "fresh", "fresh"),
    ],
)
def test_the_context_of_a_turn_is_the_brokers_if_it_says_one(
    opened: str, opening: str | None, ending: str | None, first: str, second: str
) -> None:
    notes = BrokerNotes(lambda text: None)
    if opening is not None:
        notes.opened = Added(context=opening)
    for expected in (first, second):
        notes.turn_begins()
        if ending is not None:
            notes.ended = Added(context=ending)
        assert notes.context(opened) == expected


def test_a_deadline_counts_from_the_start_of_the_command_and_is_never_negative() -> None:
    now = 10.0
    assert Deadline.after(None) is None
    deadline = Deadline.after(3.0, clock=lambda: now)
    assert deadline is not None and deadline.left == 3.0
    now = 12.5
    assert deadline.left == 0.5
    now = 20.0
    assert deadline.left == 0.0
    error = deadline.exceeded("starting codex")
    assert str(error) == "timed out after 3 s while starting codex" and not error.may_have_run


class TimedTurn:
    def __init__(self) -> None:
        self.expired = asyncio.Event()

    def expire(self, seconds: float) -> None:
        self.expired.set()


@aio
async def test_a_turn_expires_at_the_deadline(tmp_path: Path) -> None:
    turn, deadline = TimedTurn(), Deadline.after(0.0)
    wanted = request_in(tmp_path)
    with turn_timers(
        cast(Any, turn), RunResult(), wanted, deadline=deadline, on_notice=pytest.fail
    ):
        async with asyncio.timeout(10):
            await turn.expired.wait()


@pytest.mark.parametrize(
    ("silent_retries", "acted", "told"),
    [(True, False, True), (True, True, False), (False, False, False)],
)
@aio
async def test_only_the_silence_of_an_agent_that_retries_silently_gets_a_notice(
    silent_retries: bool, acted: bool, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_values, "SILENT_SECONDS", 0.0)
    turn, notices = TimedTurn(), list[str]()
    wanted = request_in(tmp_path, quirks=Quirks(silent_retries=silent_retries))
    with turn_timers(
        cast(Any, turn), RunResult(acted=acted), wanted, deadline=None, on_notice=notices.append
    ):
        # The deadline of the second block is later, so the notice was due before.
        with turn_timers(
            cast(Any, turn), RunResult(), wanted, deadline=Deadline.after(0.0), on_notice=str
        ):
            async with asyncio.timeout(10):
                await turn.expired.wait()
    assert [("has sent nothing" in notice) for notice in notices] == [True] * told


@pytest.mark.parametrize(
    ("silent_retries", "acted", "outcome", "explained"),
    [
        (True, False, Outcome.TIMED_OUT, True),
        (True, True, Outcome.TIMED_OUT, False),
        (False, False, Outcome.TIMED_OUT, False),
        (True, False, Outcome.CANCELLED, False),
    ],
)
def test_a_timeout_after_silence_says_that_the_agent_may_have_been_retrying(
    silent_retries: bool, acted: bool, outcome: Outcome, explained: bool, tmp_path: Path
) -> None:
    error = BudgetExceeded("total", 15.0)
    result = Result(outcome, "", failure=Failure(str(error)), error=error)
    wanted = request_in(tmp_path, quirks=Quirks(silent_retries=silent_retries))
    ended = explain_silence(result, RunResult(acted=acted), wanted)
    assert ended.failure is not None and ended.error is error
    for message in (ended.failure.message, str(error)):
        assert message.startswith("timed out after 15 s")
        assert ("tester sent nothing" in message and "login, quota" in message) is explained


@aio
async def test_no_timer_outlives_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_values, "SILENT_SECONDS", 0.0)
    turn, notices = TimedTurn(), list[str]()
    wanted = request_in(tmp_path, quirks=Quirks(silent_retries=True))
    with turn_timers(
        cast(Any, turn), RunResult(), wanted, deadline=Deadline.after(0.0), on_notice=notices.append
    ):
        pass
    for _ in range(5):
        await asyncio.sleep(0)
    assert not notices and not turn.expired.is_set()


def test_a_listener_logs_a_notice_unless_it_overrides_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    RunListener().notice("the disk is full")
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("WARNING", "the disk is full")
    ]


@pytest.mark.parametrize(("warm", "expected"), [(True, ["a question was declined"]), (False, [])])
def test_a_notice_that_a_broker_sent_with_an_error_is_reported(
    warm: bool, expected: list[str]
) -> None:
    told: list[str] = []
    notes = BrokerNotes(told.append)
    error = with_notice(RemoteError(-1, "no"), "a question was declined")
    turn: Any = SimpleNamespace(answer_meta=None, result=Result(Outcome.FAILED, "", error=error))
    notes.turn_ended(turn, warm=warm)
    notes.report()
    assert told == expected
