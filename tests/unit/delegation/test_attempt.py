"""One attempt: the prompt as the peer wants it, and who is at work."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.catalogue.descriptor import Descriptor, Launch
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.budgets import Budgets
from dragoman.client.results import Result
from dragoman.delegation import DelegationRequest, attempt, delegate_request
from dragoman.delegation.attempt import ask_local, prefixed, runtime_role
from dragoman.delegation.host_attempt import HostTurn
from dragoman.delegation.local_model import LocalModel
from dragoman.delegation.worktree.isolation import Isolation
from dragoman.delegation.worktree.snapshot import Snapshot
from dragoman.errors import IsolationFailed, UsageError
from dragoman.events.model import Event, MessageDelta, TurnEnded, TurnStarted
from dragoman.events.parts import FileChange
from dragoman.events.words import Outcome
from dragoman.runs.run_values import CancelHandle, Deadline, RunResult
from dragoman.store.ledger import Ledger, ledger_path
from dragoman.testing.fake_model import FakeModel
from tests.aio import aio
from tests.integration.delegated_peers import Bench, bench_in
from tests.integration.test_delegating import commit
from tests.unit.delegation.test_host_facts import place_with


@pytest.mark.parametrize(
    ("prefix", "prompt"),
    [("/review", "/review look"), ("/review ", "/review look"), ("", "look")],
)
def test_a_prefix_of_the_role_stands_before_the_prompt(prefix: str, prompt: str) -> None:
    known = Descriptor(
        name="a",
        title="A",
        launch=(Launch(),),
        roles=("review",),
        role_prefixes={"review": prefix} if prefix else {},
    )
    way = LaunchSpec(command=("a",), descriptor=known)
    assert prefixed("look", "review", way) == prompt
    assert prefixed("look", "plan", way) == "look"
    assert prefixed("look", "review", LaunchSpec(command=("a",))) == "look"
    # An adapter puts its own prefix before it.
    adapted = LaunchSpec(command=("a",), descriptor=structs.replace(known, adapter="a.py"))
    assert prefixed("look", "review", adapted) == "look"


def test_what_comes_with_dragoman_is_the_host() -> None:
    assert [runtime_role(name) for name in ("codex", "scout", "local-model")] == [
        "peer",
        "host",
        "host",
    ]


@aio
async def test_a_copy_that_cannot_be_made_is_an_attempt_that_never_ran(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "ok")
    bench.settings("alpha")
    done = await bench.delegate(isolate=True, fallback="none")
    assert done.outcome.value == "failed" and not done.final.may_have_run
    assert "without a git repository" in str(done.final.failure)
    assert bench.told("alpha", "starts") == []


@pytest.mark.parametrize("isolate", [False, True])
@aio
async def test_temporary_files_that_cannot_be_written_are_a_problem_of_the_workspace(
    isolate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_in(tmp_path)
    commit(bench.work)
    bench.peer("alpha", "write")
    bench.settings("alpha")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    done = await bench.delegate(isolate=isolate)
    assert not done.ok and not done.final.may_have_run and "full" in str(done.final.failure)
    assert bench.told("alpha", "starts") == []


@pytest.mark.parametrize("isolate", [False, True])
@aio
async def test_temporary_files_that_can_no_longer_be_written_leave_the_changes_unknown(
    isolate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_in(tmp_path)
    commit(bench.work)
    bench.peer("alpha", "write")
    bench.settings("alpha")
    work = attempt.Attempt._try

    async def fill(self: attempt.Attempt, way: LaunchSpec, workspace: Path) -> float:
        ended_at = await work(self, way, workspace)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
        return ended_at

    monkeypatch.setattr(attempt.Attempt, "_try", fill)
    done = await bench.delegate(isolate=isolate)
    assert done.final.may_have_run and done.text == "written" and done.ok is not isolate
    assert any("the changes of alpha are unknown" in text for text in bench.heard.notices)


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), IsolationFailed("packing the files", "No space left")]
)
@aio
async def test_files_that_cannot_be_sent_to_a_host_or_applied_here_are_not_the_peers_fault(
    prompted: bool, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'enabled_peers = ["codex@box"]\nwarm = false\n[hosts.box]\ndestination = "me@box"\n'
    place = place_with(tmp_path, text)
    (place.cwd / ".git").rmdir()
    commit(place.cwd)

    async def run(turn: HostTurn, worktree: Path) -> str:
        if prompted:
            turn._seen.prompted = True
            turn._seen.result = Result(Outcome.OK, "done")
        raise error

    monkeypatch.setattr(HostTurn, "run", run)
    request = DelegationRequest(role="review", prompt="look", workspace=place.cwd)
    done = await delegate_request(request, place=place)
    first = done.attempts[0]
    assert (first.peer, first.outcome, first.may_have_run) == (
        "codex@box",
        Outcome.FAILED,
        prompted,
    )
    assert first.failure is not None and "No space left" in first.failure.message
    with Ledger.open(ledger_path(place.paths.state), read_only=True) as ledger:
        assert ledger.health("codex@box").failures == 0
        assert ledger.posteriors() == {}


@aio
async def test_work_that_is_interrupted_before_its_changes_are_read_has_its_patch_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, cancel = bench_in(tmp_path), CancelHandle()
    commit(bench.work)
    bench.peer("alpha", "write")
    bench.settings("alpha")

    async def hang(isolation: Isolation) -> tuple[FileChange, ...]:
        cancel.pull()
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr(Isolation, "files", hang)
    done = await bench.delegate(isolate=True, cancel=cancel)
    assert done.interrupted and done.outcome is Outcome.CANCELLED and done.final.may_have_run
    assert done.final.isolated and done.final.patch_top == str(bench.work)
    assert done.final.patch is not None and "+done" in content(done.final.patch)


@aio
async def test_a_check_is_run_only_for_work_that_ended_well(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "error")
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta", more='check = "touch ../checked"\n')
    done = await bench.delegate()
    assert [report.check is not None for report in done.attempts] == [False, True]
    assert (tmp_path / "checked").exists()
    bare = await bench.delegate(check="")
    assert bare.final.check is None


@aio
async def test_changes_that_cannot_be_examined_are_reported_and_no_other_peer_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "error")
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta")
    take, looks = Snapshot.take, count()

    async def first_only(workspace: Path) -> Snapshot:
        if next(looks):
            raise UsageError("the folder is gone")
        return await take(workspace)

    monkeypatch.setattr(Snapshot, "take", first_only)
    done = await bench.delegate()
    assert len(done.attempts) == 1 and done.final.changed is None
    assert done.stopped == "alpha: its changes were not checked"
    assert bench.heard.notices == ["the changes of alpha are unknown: the folder is gone"]
    assert bench.told("beta", "starts") == []


class SlowTurn:
    """A clock that shows a minute more after the turn, as if it had taken that long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        turn = attempt.Attempt._try

        async def slow(self_: Any, way: LaunchSpec, workspace: Path) -> float:
            ended_at = await turn(self_, way, workspace)
            self.now += 60.0
            return ended_at

        monkeypatch.setattr(attempt.Attempt, "_try", slow)

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("hangs_at", [0, 1])
@aio
async def test_a_workspace_that_takes_long_to_read_does_not_extend_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs_at: int
) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "ok")
    bench.settings("alpha")
    take, looks = Snapshot.take, count()

    async def hangs(workspace: Path) -> Snapshot:
        if next(looks) == hangs_at:
            await asyncio.Event().wait()
        return await take(workspace)

    monkeypatch.setattr(Snapshot, "take", hangs)
    monkeypatch.setattr(attempt, "LATE_LOOK_TIMEOUT", 0.0)
    clock = SlowTurn(monkeypatch)
    clock.now = 0.0 if hangs_at else 60.0
    done = await bench.delegate(deadline=Deadline(60.0, 60.0, clock, option="--timeout"))
    assert len(done.attempts) == 1
    if hangs_at == 0:
        assert done.outcome is Outcome.TIMED_OUT and bench.told("alpha", "starts") == []
        told = f"timed out after 60 s (--timeout) while reading {bench.work}"
        assert done.final.failure is not None and done.final.failure.message == told
        assert done.stopped == "the time limit of 60 s (--timeout) was reached"
    else:
        assert done.outcome is Outcome.OK and done.final.changed is None
        assert bench.heard.notices == [
            "the changes of alpha are unknown: no time was left to check"
        ]


@aio
async def test_a_check_ends_with_the_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "ok")
    bench.settings("alpha")
    deadline = Deadline(60.0, 60.0, SlowTurn(monkeypatch))
    done = await bench.delegate(check="exec sleep 100", deadline=deadline)
    assert done.final.check is not None and done.final.check.timed_out
    assert done.stopped == "the time limit of 60 s was reached"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


@aio
async def test_a_model_that_the_peer_does_not_have_is_never_prompted(bench: Bench) -> None:
    bench.peer("alpha", "ok")
    bench.settings("alpha")
    done = await bench.delegate(model="nonesuch", fallback="none")
    assert done.outcome is Outcome.UNSUPPORTED and not done.final.may_have_run
    assert bench.told("alpha") == [] and len(bench.told("alpha", "starts")) == 1


@aio
async def test_a_tier_that_cannot_be_had_is_reported_and_the_work_done(bench: Bench) -> None:
    bench.peer("alpha", "ok", more='[tiers]\nfast = "quick"\n')
    bench.settings("alpha")
    done = await bench.delegate(tier="fast")
    assert done.ok and done.final.asked_model == "quick"
    (notice,) = bench.heard.notices
    assert "alpha offers no choice of models" in notice


@aio
async def test_a_peer_with_a_flag_is_started_again_with_it_and_prompted_once(bench: Bench) -> None:
    bench.peer("alpha", "ok", more='[models]\nflag = "--model"\n[tiers]\nfast = "quick"\n')
    bench.settings("alpha")
    done = await bench.delegate(tier="fast")
    assert done.ok and len(bench.told("alpha")) == 1 and len(bench.told("alpha", "starts")) == 2
    assert "does not say which model it uses" in bench.heard.notices[0]


@aio
async def test_a_model_that_cannot_be_read_back_is_not_prompted(bench: Bench) -> None:
    bench.peer("alpha", "ok", more='[models]\nflag = "--model"\n')
    bench.settings("alpha")
    done = await bench.delegate(model="big")
    assert not done.ok and bench.told("alpha") == []


def content(path: str) -> str:
    return Path(path).read_text()


async def asked(url: str, prompt: str) -> tuple[RunResult, list[Event]]:
    events: list[Event] = []
    seen = RunResult()
    await ask_local(
        seen,
        LocalModel(api="openai", model="small", base_url=f"{url}/v1"),
        prompt,
        budgets=Budgets(),
        environ={},
        clock=lambda: 5.0,
        on_event=events.append,
    )
    return seen, events


@aio
async def test_an_answer_comes_in_pieces_and_ends_with_its_usage() -> None:
    async with FakeModel() as fake:
        seen, events = await asked(fake.url, "hello there")
    assert isinstance(events[0], TurnStarted) and isinstance(events[-1], TurnEnded)
    pieces = [event.text for event in events if isinstance(event, MessageDelta)]
    assert "".join(pieces) == "You said: hello there" and len(pieces) > 1
    assert seen.result is not None and seen.result.ok and seen.result.usage is not None
    assert (seen.prompted, seen.acted, seen.first_event_at) == (True, True, 5.0)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@aio
async def test_a_local_model_that_is_interrupted_may_have_run(bench: Bench) -> None:
    bench.peer("alpha", "ok", "plan")
    cancel = CancelHandle()
    async with FakeModel() as fake:
        text = f'[local_model]\napi = "openai"\nmodel = "small"\nbase_url = "{fake.url}/v1"\n'
        bench.settings(more=text)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(bench.delegate("HOLD", role="plan", cancel=cancel))
            async with asyncio.timeout(20):
                await fake.wait_requests(1)
            cancel.pull()
    done = running.result()
    assert done.interrupted and done.final.peer == "local-model"
    assert done.outcome is Outcome.CANCELLED and done.final.may_have_run


@aio
async def test_a_server_that_is_gone_is_a_result_too() -> None:
    seen, events = await asked("http://127.0.0.1:9", "hello")
    assert seen.result is not None and seen.result.outcome is Outcome.FAILED
    assert not seen.acted and seen.first_event_at is None
    ended = events[-1]
    assert isinstance(ended, TurnEnded) and ended.outcome is Outcome.FAILED
