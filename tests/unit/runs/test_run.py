"""A run with a real child process. With brokers it is tested in tests/integration."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from dragoman.catalogue.enforcement import Enforced
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import ConversationTurn, Peer
from dragoman.client.options import ConnectOptions
from dragoman.dialects.discovery import ACP, CODEX
from dragoman.errors import (
    BrokerUnavailable,
    BudgetExceeded,
    FileFailed,
    SessionUnusable,
    SpawnError,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.events.parts import Capabilities, Failure, Text
from dragoman.events.words import ErrorKind, Outcome, Role
from dragoman.paths import find_paths
from dragoman.policy import Approver, preset
from dragoman.rpc.tasks import THREAD_NAME, TaskOwner
from dragoman.runs import run as run_module
from dragoman.runs.brief import brief_of, summary_of
from dragoman.runs.changed_files import ViolationWatch
from dragoman.runs.run import LATE_LEAVE_TIMEOUT, Run
from dragoman.runs.run_values import CancelHandle, Deadline, RunListener, RunRequest, RunResult
from dragoman.runs.sessions import FRESH, LIVE, NEW, RESTORED, adopted
from dragoman.store.open import open_store
from dragoman.store.records import JobRecord, SessionRecord
from dragoman.store.store import store_path
from tests.aio import aio
from tests.unit.runs.stored import held

AGENT = (
    sys.executable,
    str(Path(__file__).parents[2] / "integration" / "cli_agent.py"),
)
CODEX_AGENT = (sys.executable, str(Path(AGENT[1]).with_name("codex_agent.py")))
FOLDERS = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")


class Heard(RunListener):
    """Remembers the callbacks, and may cancel at the first text."""

    def __init__(self, cancel: CancelHandle | None = None) -> None:
        self.calls: list[str] = []
        self.notices: list[str] = []
        self._cancel = cancel

    def connected(self, peer: Peer) -> None:
        self.calls.append("connected")

    def began(self, job: str, key: str) -> None:
        self.calls.append(f"began {job}")

    def event(self, event: model.Event) -> None:
        if isinstance(event, model.MessageDelta) and self._cancel is not None:
            self._cancel.pull()

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds requests for the tests' agent, in folders of this test alone."""
    for name in FOLDERS:
        monkeypatch.setenv(f"DRAGOMAN_{name}", str(tmp_path / name.lower()))
    work = tmp_path / "work"
    work.mkdir()

    def build(text: str = "hello", *, agent: tuple[str, ...] = (), **fields: Any) -> RunRequest:
        policy = preset("deny-all")
        plain: dict[str, Any] = {
            "peer": "tester",
            "adapter": None,
            "enforced": Enforced(way=LaunchSpec(command=(*AGENT, *agent), protocol=ACP)),
            "workspace": work,
            "prompt": [Text(text)],
            "once": True,
            "approver": Approver(policy, "tester", str(work)),
            "unattended": "deny-all",
            "budgets": Budgets(),
            "warm": False,
            "paths": find_paths(),
        }
        return RunRequest(**{**plain, **fields})

    return build


def outcome_of(seen: RunResult) -> Outcome:
    assert seen.result is not None
    return seen.result.outcome


@aio
async def test_a_run_has_a_result_and_is_recorded_as_its_job(request_of: Any) -> None:
    heard = Heard()
    seen = await Run(request_of(job="j-1", model="large"), listener=heard).run()
    assert seen.result is not None and seen.result.text == "you said hello"
    assert (seen.job, seen.context, seen.model) == ("j-1", NEW, "large-preview")
    assert seen.prompted and seen.acted and not seen.broker_failed
    assert heard.calls == ["connected", "began j-1"] and heard.notices == []
    with open_store(read_only=True) as store:
        job = store.job("j-1")
        assert job is not None and (job.outcome, job.prompt) == ("ok", "hello")
        session = store.session(job.session_key)
        assert session is not None and session.closed_at is not None


@aio
async def test_the_options_of_a_run_reach_the_connection_with_its_approver_and_budgets(
    request_of: Any,
) -> None:
    events: list[model.Event] = []
    options = ConnectOptions(
        name="a surface", max_line_size=5000, budgets=Budgets(request=1.0), on_event=events.append
    )
    async with Run(request_of(options=options, budgets=Budgets(request=7.0))) as run:
        client = run.peer.client
        assert (client.options.name, client.options.max_line_size) == ("a surface", 5000)
        assert client.budgets.request == 7.0
        assert client.options.guard == run.request.approver.guard
        seen = await run.result()
    assert outcome_of(seen) is Outcome.OK
    assert events == []


@aio
async def test_every_turn_of_a_session_has_a_result_of_its_own(request_of: Any) -> None:
    async with Run(request_of()) as run:
        first = await run.result()
        second = await run.prompt([Text("refuse")])
    assert (outcome_of(first), first.context) == (Outcome.OK, NEW)
    assert (outcome_of(second), second.context) == (Outcome.REFUSED, LIVE)
    assert first.job != second.job and second.first_event_at is None


@aio
async def test_a_prompt_is_completed_when_it_is_known_what_the_peer_can_take(
    request_of: Any,
) -> None:
    def attach(can: Capabilities) -> list[Text]:
        return [Text(f"image {can.image}")]

    seen = await Run(request_of("blocks", attach=attach)).run()
    assert outcome_of(seen) is Outcome.OK and seen.result is not None
    assert "image True" in seen.result.text


@aio
async def test_a_model_that_the_peer_does_not_have_is_an_error_before_the_prompt(
    request_of: Any,
) -> None:
    with pytest.raises(Unsupported, match="has no model 'nonesuch'"):
        async with Run(request_of(model="nonesuch")):
            raise AssertionError("it must not be entered")
    seen = await Run(request_of(model="nonesuch")).run()
    assert isinstance(seen.error, UsageError) and not seen.prompted
    with open_store(read_only=True) as store:
        assert list(store.sessions()) == []


@aio
async def test_a_model_that_is_not_strict_is_reported_in_the_result(request_of: Any) -> None:
    seen = await Run(request_of(model="nonesuch", model_strict=False)).run()
    assert outcome_of(seen) is Outcome.OK and seen.model == "small"
    assert "has no model 'nonesuch'" in str(seen.model_error)


@aio
async def test_a_limit_ends_the_turn_and_the_peer_is_asked_whether_it_still_works(
    request_of: Any,
) -> None:
    def limit(event: model.Event) -> Failure | None:
        if not isinstance(event, model.MessageDelta) or event.role is Role.USER:
            return None
        return Failure("one word is enough", ErrorKind.QUOTA, "over_budget", False, None)

    async def still_running(peer: Peer, session: str) -> str | None:
        return "it may"

    seen = await Run(request_of("wait", limit=limit, still_running=still_running)).run()
    assert outcome_of(seen) is Outcome.TRUNCATED and seen.over is not None
    assert seen.result is not None and seen.result.failure == seen.over
    assert seen.restless == "it may"


@aio
async def test_a_cancelled_run_has_the_result_of_a_cancelled_turn(request_of: Any) -> None:
    cancel = CancelHandle()
    seen = await Run(request_of("wait"), listener=Heard(cancel), cancel=cancel).run()
    assert outcome_of(seen) is Outcome.CANCELLED and not cancel.in_turn


@aio
async def test_a_listener_takes_the_events_of_a_turn_at_its_own_speed(request_of: Any) -> None:
    class Reader(RunListener):
        events: list[model.Event] = []

        async def follow(self, turn: ConversationTurn) -> None:
            async for event in turn:
                self.events.append(event)

    seen = await Run(request_of(), listener=Reader()).run()
    assert outcome_of(seen) is Outcome.OK
    assert isinstance(Reader.events[-1], model.TurnEnded)


@aio
async def test_a_turn_that_its_caller_leaves_is_recorded_as_cancelled(request_of: Any) -> None:
    class Leaver(RunListener):
        async def follow(self, turn: ConversationTurn) -> None:
            async for event in turn:
                if isinstance(event, model.MessageDelta):
                    raise UsageError("enough")

    async with Run(request_of(keep_open=True), listener=Leaver()) as run:
        with pytest.raises(UsageError, match="enough"):
            await run.prompt([Text("wait")], job="j-1")
        with pytest.raises(UsageError, match="enough"):
            await run.prompt([Text("wait")], job="j-2")
    with open_store(read_only=True) as store:
        assert [getattr(store.job(job), "outcome", None) for job in ("j-1", "j-2")] == [
            "cancelled",
            "cancelled",
        ]


@aio
async def test_a_stored_session_may_keep_its_model_and_mode(request_of: Any) -> None:
    settings = {"mode": "plan", "model": "large", "restored_as_is": True, "once": False}
    settings |= {"agent": ("resumes",), "keep_open": True}
    async with Run(request_of(session="talk", **settings)) as run:
        assert run.opened.context == NEW
        await run.prompt([Text("hello")])
        assert (run.seen.view.mode, run.seen.model) == ("plan", "large-preview")
    with open_store(read_only=True) as store:
        (record,) = store.sessions()
    async with Run(request_of(record=record, **settings)) as run:
        assert run.opened.context == RESTORED
        seen = await run.prompt([Text("hello")])
        assert (run.seen.view.mode, seen.model) == ("code", "small")


@aio
async def test_a_session_that_takes_the_place_of_a_lost_one_gets_the_model(request_of: Any) -> None:
    request = request_of(model="large", restored_as_is=True, fresh=True)
    record = adopted("old", peer="tester", root=request.workspace, cwd=request.workspace)
    async with Run(replace(request, record=record)) as run:
        assert run.opened.context == FRESH
        assert (await run.result()).model == "large-preview"


@aio
async def test_an_answer_is_bounded(request_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "ANSWER_SIZE", 3)
    seen = await Run(request_of()).run()
    assert seen.result is not None and (seen.result.text, seen.result.truncated) == ("you", True)


@aio
async def test_a_peer_that_cannot_be_started_is_an_error_of_the_run(request_of: Any) -> None:
    request = request_of()
    way = LaunchSpec(command=("/nonexistent/agent",), protocol=ACP)
    seen = await Run(replace(request, enforced=Enforced(way=way))).run()
    assert isinstance(seen.error, SpawnError) and not seen.prompted and seen.result is None


@aio
async def test_a_name_that_is_not_in_use_is_stored_before_the_first_prompt(
    request_of: Any,
) -> None:
    async with Run(request_of(session="talk", once=False, keep_open=True)) as run:
        with open_store(read_only=True) as store:
            (record,) = store.sessions()
        assert (record.name, record.key) == ("talk", run.opened.key)
        assert outcome_of(await run.result()) is Outcome.OK
    with open_store(read_only=True) as store:
        (record,) = store.sessions()
    assert record.closed_at is None


@aio
async def test_a_caller_that_is_cancelled_while_opening_leaves_nothing(request_of: Any) -> None:
    class Stop(RunListener):
        def connected(self, peer: Peer) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await Run(request_of(), listener=Stop()).run()
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 1
    task.uncancel()


def jobs() -> list[JobRecord]:
    """The stored jobs."""
    with open_store(read_only=True) as store:
        return list(store.jobs())


def sessions() -> list[str | None]:
    """The names of the stored sessions."""
    with open_store(read_only=True) as store:
        return [record.name for record in store.sessions()]


@pytest.mark.parametrize("fields", [{"session": "talk"}, {}], ids=["named", "unnamed"])
@aio
async def test_a_session_that_is_left_by_a_usage_error_before_its_first_prompt_is_discarded(
    request_of: Any, fields: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="no such file"):
        async with Run(request_of(once=False, keep_open=True, **fields)) as run:
            await run.keep()
            assert sessions() == [fields.get("session")]
            raise UsageError("no such file")
    assert sessions() == []
    with pytest.raises(UsageError, match="no such file"):
        async with Run(request_of(once=False, keep_open=True, **fields)) as run:
            await run.result()
            raise UsageError("no such file")
    assert sessions() == [fields.get("session")]


@aio
async def test_a_running_turn_is_cancelled_and_the_next_one_is_not(request_of: Any) -> None:
    class Cancel(RunListener):
        def event(self, event: model.Event) -> None:
            if isinstance(event, model.MessageDelta) and event.text == "waiting":
                assert run.in_turn
                run.cancel_turn()

    run = Run(request_of("wait"), listener=Cancel())
    async with run:
        assert outcome_of(await run.result()) is Outcome.CANCELLED
        assert not run.in_turn
        run.cancel_turn()
        assert outcome_of(await run.prompt([Text("hello")])) is Outcome.OK


@aio
async def test_the_job_of_a_prompt_that_cannot_be_sent_has_ended(request_of: Any) -> None:
    async with Run(request_of()) as run:
        conversation: Any = run.opened.conversation
        conversation.unusable = True
        with pytest.raises(SessionUnusable):
            await run.prompt([Text("hello")], job="j-1")
        await run._recorder.flush()  # type: ignore[union-attr]
        (job,) = jobs()
        assert (job.id, job.state, job.outcome) == ("j-1", "ended", "failed")
        conversation.unusable = False
        assert outcome_of(await run.prompt([Text("hello")], job="j-2")) is Outcome.OK
    assert {(job.id, job.outcome) for job in jobs()} == {("j-1", "failed"), ("j-2", "ok")}


@aio
async def test_a_stored_session_goes_on_where_it_began(request_of: Any, tmp_path: Path) -> None:
    # Both directories are of one project.
    (tmp_path / ".git").mkdir()
    began = request_of(session="talk", once=False, keep_open=True)
    async with Run(began):
        pass
    other = tmp_path / "other"
    other.mkdir()
    approver = Approver(preset("deny-all"), "tester", str(other))
    async with Run(replace(began, workspace=other, approver=approver, fresh=True)) as run:
        assert run.request.workspace == began.workspace
        assert run.request.approver.workspace == str(began.workspace)
        assert run.request.approver.rulings is approver.rulings


@aio
async def test_files_that_change_without_an_allowed_request_are_violations(
    request_of: Any,
) -> None:
    request = request_of()
    enforced = structs.replace(request.enforced, restricts=True)

    def write(name: str) -> Any:
        class Writer(RunListener):
            def event(self, event: model.Event) -> None:
                if isinstance(event, model.MessageDelta):
                    (request.workspace / name).write_text("x")

        return Writer()

    seen = await Run(replace(request, enforced=enforced), listener=write("a")).run()
    assert seen.violations == ("a",) and seen.seconds > 0
    unwatched = replace(request, enforced=enforced, watch_changes=False)
    assert (await Run(unwatched, listener=write("b")).run()).violations == ()
    assert (await Run(request, listener=write("c")).run()).violations == ()


@aio
async def test_a_disk_that_hangs_after_the_turn_is_a_notice_and_the_result_stays(
    request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(watch: ViolationWatch) -> tuple[str, ...]:
        raise FileFailed("/work", "the file system did not answer within 60 s")

    monkeypatch.setattr(ViolationWatch, "violations", hangs)
    request = request_of()
    heard = Heard()
    request = replace(request, enforced=structs.replace(request.enforced, restricts=True))
    async with Run(request, listener=heard) as run:
        seen = await run.prompt([Text("hello")])
    assert outcome_of(seen) is Outcome.OK and seen.violations == ()
    assert [notice.partition(":")[0] for notice in heard.notices] == [
        "it is unknown which files changed without an allowed request"
    ]


@aio
async def test_the_loop_runs_on_while_the_store_is_held_and_a_named_session_opens(
    request_of: Any,
) -> None:
    async with Run(request_of(session="talk", once=False, keep_open=True)):
        pass

    async def enter() -> str:
        async with Run(request_of(session="talk", once=False, fresh=True)) as run:
            return run.opened.context

    with held(store_path(find_paths().state)):
        entering = TaskOwner("test").start(enter(), "enter")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not entering.done()
    assert await entering == FRESH


@aio
async def test_a_session_that_replaces_a_lost_one_gets_the_history(
    request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def summary(record: SessionRecord) -> Any:
        threads.append(threading.current_thread().name)
        return summary_of(record)

    monkeypatch.setattr("dragoman.runs.brief.summary_of", summary)
    async with Run(request_of("the secret word is plum", session="talk", once=False)) as run:
        await run.result()
    with open_store(read_only=True) as store:
        (record,) = store.sessions(include_closed=True)
    heard = Heard()
    request = request_of("handover", record=record, fresh=True, brief=True, once=False)
    async with Run(request, listener=heard) as run:
        assert run.opened.context == FRESH
        first = await run.result()
        second = await run.prompt([Text("handover")])
    assert heard.notices == [
        f"tester has lost the session and gets a summary of it: {await brief_of(record)}"
    ]
    assert threads == [THREAD_NAME] * 2
    assert first.result is not None and "the secret word is plum" in first.result.text
    assert second.result is not None and "plum" not in second.result.text


@aio
async def test_a_prompt_cannot_be_left_to_a_broker_that_is_not_there(request_of: Any) -> None:
    async with Run(request_of()) as run:
        with pytest.raises(BrokerUnavailable, match="there is no broker"):
            await run.submit([Text("hello")])


@aio
async def test_a_peer_that_does_not_tell_its_sessions_is_connected_and_no_session_is_opened(
    request_of: Any,
) -> None:
    heard = Heard()
    assert await Run(request_of(), listener=heard).list_sessions(None) is None
    assert heard.calls == ["connected"] and sessions() == []


class Hours:
    """A clock that a test moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@aio
async def test_a_deadline_that_has_passed_ends_a_run_before_its_prompt(request_of: Any) -> None:
    clock = Hours()
    deadline = Deadline.after(60.0, clock=clock)
    clock.now = 60.0
    heard = Heard()
    seen = await Run(request_of(deadline=deadline), listener=heard).run()
    assert isinstance(seen.error, BudgetExceeded) and not seen.error.may_have_run
    assert str(seen.error) == "timed out after 60 s while starting tester"
    assert heard.calls == [] and not seen.prompted


@aio
async def test_a_session_that_opened_before_the_deadline_is_discarded_if_it_got_no_prompt(
    request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = asyncio.Event(), list[float]()

    class PassesOnceOpen(Deadline, frozen=True):
        async def limit(self, work: Any, during: Any) -> Any:
            task = TaskOwner("test").start(work, "open")
            await opened.wait()
            task.cancel()
            await asyncio.wait([task])
            clock.now = 60.0
            raise self.exceeded(during())

    async def choose(*args: Any, **options: Any) -> None:
        opened.set()
        await asyncio.Event().wait()

    async def leave(conversation: Any, *, timeout: float) -> None:
        closed.append(timeout)

    monkeypatch.setattr("dragoman.runs.model_choice.choose_model", choose)
    monkeypatch.setattr("dragoman.runs.sessions.leave", leave)
    clock = Hours()
    deadline = PassesOnceOpen(60.0, 60.0, clock)
    seen = await Run(request_of(model="large", keep_open=True, deadline=deadline)).run()
    assert isinstance(seen.error, BudgetExceeded)
    assert closed == [LATE_LEAVE_TIMEOUT]


@aio
async def test_the_turn_of_a_run_has_only_what_is_left_of_its_deadline(request_of: Any) -> None:
    clock = Hours()
    deadline = Deadline.after(60.0, clock=clock)

    class Slow(Heard):
        def began(self, job: str, key: str) -> None:
            # Starting the agent and opening the session took all of the time.
            clock.now = 60.0

    asked: list[str] = []

    async def still_running(peer: Peer, session: str) -> str | None:
        asked.append(session)
        return None

    request = request_of("wait", deadline=deadline, still_running=still_running)
    seen = await Run(request, listener=Slow()).run()
    assert outcome_of(seen) is Outcome.TIMED_OUT and seen.prompted
    assert seen.result is not None and str(seen.result.error) == "timed out after 60 s"
    # There is no next attempt, so the run does not wait for what the peer does now.
    assert asked == []


@aio
async def test_a_deadline_is_for_the_first_turn_only(request_of: Any) -> None:
    clock = Hours()
    async with Run(request_of(deadline=Deadline.after(60.0, clock=clock))) as run:
        assert outcome_of(await run.prompt([Text("one")])) is Outcome.OK
        clock.now = 100.0
        assert outcome_of(await run.prompt([Text("two")])) is Outcome.OK


@aio
async def test_sessions_that_the_agent_opened_itself_are_not_part_of_the_turn(
    request_of: Any,
) -> None:
    heard: list[model.Event] = []

    class Ear(RunListener):
        def event(self, event: model.Event) -> None:
            heard.append(event)

    way = LaunchSpec(command=CODEX_AGENT, protocol=CODEX)
    seen = await Run(
        request_of("help", enforced=Enforced(way=way), job="j-1"), listener=Ear()
    ).run()
    assert outcome_of(seen) is Outcome.OK, seen
    assert {event.session for event in heard} == {"t1", None}
    with open_store(read_only=True) as store:
        job = store.job("j-1")
        assert job is not None and job.text == "model sol mode readOnly"
        told = b"".join(line for _, line in store.lines(job.session_key, 0, job.next_event))
        assert b"mode readOnly" in told and b"the other agent" not in told
