"""The prompt of an attempt on a host: what is sent, and with which limits.

Sending, following and fetching are tested with a real sshd in tests/hosts/test_host_delegate.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from dragoman.broker.client.ssh_command import Host
from dragoman.broker.host_protocol import HostPrompt, HostSubmitted
from dragoman.client.results import Result
from dragoman.delegation import host_attempt
from dragoman.delegation.attempt import AttemptSetup
from dragoman.delegation.host_attempt import HostTurn
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import Candidate
from dragoman.errors import (
    BudgetExceeded,
    CallCancelled,
    DragomanError,
    HostUnavailable,
    UsageError,
)
from dragoman.events.words import Outcome
from dragoman.policy import Policy
from dragoman.policy.rules import Rule
from dragoman.runs import host_link
from dragoman.runs.host_link import FollowedJob
from dragoman.runs.lineage import Lineage
from dragoman.runs.run_values import CancelHandle, Deadline, RunResult
from tests.aio import aio
from tests.unit.delegation.test_host_facts import CONFIG, place_with
from tests.unit.rpc.other_side import until

CODEX = Candidate(peer="codex@box", host="box", tier="default", model=None, why="")


class Link:
    """A fake connection that records the requests."""

    def __init__(self, host: Host, **options: Any) -> None:
        self.options = options
        self.cancelled: list[str] = []
        self.closed = False

    async def connection(self) -> None:
        pass

    async def aclose(self) -> None:
        self.closed = True

    async def cancel(self, job: str) -> None:
        self.cancelled.append(job)


def turn_in(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    text: str = CONFIG,
    policy: Policy | None = None,
    candidate: Candidate = CODEX,
    **wish: Any,
) -> tuple[HostTurn, RunResult]:
    monkeypatch.setattr(host_attempt, "HostLink", Link)
    place = place_with(folder, text)
    request = DelegationRequest(
        **{"role": "review", "prompt": "look", "workspace": place.cwd, **wish}
    )
    setting = AttemptSetup(
        request=request,
        place=place,
        job="j-1",
        lineage=Lineage(depth=1, jobs=("j-1",)),
        ceilings=(),
        caller=None,
        inquire=None,
        prices={},
        cancel=CancelHandle(),
        deadline=None,
        clock=lambda: 0.0,
        on_event=lambda event: None,
        on_notice=lambda text: None,
    )
    seen = RunResult()
    return HostTurn(
        setting, candidate, policy=policy or Policy(preset="approve-all"), seen=seen
    ), seen


SENT: Any = type("Sent", (), {"workspace": "/far/tree", "id": "s1"})()


def test_the_preset_model_timeout_and_role_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = CONFIG + "[limits]\nturn_seconds = 30\n"
    chosen = msgspec.structs.replace(CODEX, model="gpt-5")
    turn, _ = turn_in(tmp_path, monkeypatch, text=text, candidate=chosen)
    prompt = turn._prompt(SENT)
    assert (prompt.peer, prompt.cwd, prompt.file) == ("codex", "/far/tree", "look")
    assert prompt.options == {
        "approve_all": True, "model": "gpt-5", "timeout": 30.0, "role": "review",
    }  # fmt: skip


def test_a_role_that_the_remote_peer_does_not_claim_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, _ = turn_in(tmp_path, monkeypatch, role="translate")
    assert "role" not in turn._prompt(SENT).options


def test_a_prompt_that_names_files_is_sent_as_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, _ = turn_in(tmp_path, monkeypatch, prompt="look at @a.py", files=1)
    prompt = turn._prompt(SENT)
    assert (prompt.words, prompt.file) == (["look at @a.py"], None)


def test_the_policy_and_depth_of_this_side_are_sent_as_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = (
        Rule(action="deny", commands=("make *",), peer="codex"),
        Rule(action="deny", commands=("git push *",), peer="codex@box"),
        Rule(action="deny", commands=("rm *",), peer="gemini"),
    )
    turn, _ = turn_in(tmp_path, monkeypatch, policy=Policy(preset="ask", rules=rules))
    link: Any = turn._link
    limits = link.options["limits"]
    assert limits["DRAGOMAN_DEPTH"] == "1"
    ceiling = msgspec.json.decode(limits["DRAGOMAN_CEILING"], type=Policy)
    assert [rule.commands for rule in ceiling.rules] == [("make *",), ("git push *",)]


@aio
async def test_an_unreachable_host_fails_the_attempt_before_the_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connection(self: Link) -> None:
        raise HostUnavailable("box", "away", passing=True)

    monkeypatch.setattr(Link, "connection", connection)
    turn, seen = turn_in(tmp_path, monkeypatch)
    assert await turn.run(tmp_path) == str(tmp_path)
    assert isinstance(seen.error, HostUnavailable) and not seen.prompted
    link: Any = turn._link
    assert link.closed and not link.cancelled


@pytest.mark.parametrize("sent", [False, True])
@aio
async def test_a_lost_submission_counts_as_prompted_if_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    async def submit(self: Link, prompt: HostPrompt) -> Any:
        raise HostUnavailable("box", "cannot reconnect", passing=True, may_have_run=sent)

    monkeypatch.setattr(Link, "submit", submit, raising=False)
    monkeypatch.setattr(host_attempt, "send_workspace", send_nothing)
    turn, seen = turn_in(tmp_path, monkeypatch)
    await turn.run(tmp_path)
    assert seen.error is not None
    assert (seen.prompted, seen.error.may_have_run) == (sent, sent)
    link: Any = turn._link
    assert len(link.cancelled) == sent


@aio
async def test_a_turn_whose_host_becomes_unreachable_may_have_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def submit(self: Link, prompt: HostPrompt) -> HostSubmitted:
        return HostSubmitted(job=prompt.job, session="s", peer="codex")

    async def events(self: FollowedJob) -> AsyncGenerator[Any, None]:
        raise HostUnavailable("box", "cannot reconnect", passing=True)
        yield

    monkeypatch.setattr(Link, "submit", submit, raising=False)
    monkeypatch.setattr(FollowedJob, "events", events)
    monkeypatch.setattr(host_attempt, "send_workspace", send_nothing)
    turn, seen = turn_in(tmp_path, monkeypatch)
    await turn.run(tmp_path)
    assert isinstance(seen.error, HostUnavailable)
    assert seen.prompted and seen.error.may_have_run


@aio
async def test_a_job_is_no_longer_followed_when_an_event_cannot_be_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: list[str] = []

    async def events(self: FollowedJob) -> AsyncGenerator[Any, None]:
        try:
            yield None, None
        finally:
            over.append(self.job)

    def fail(result: RunResult, event: object, now: float) -> None:
        raise LookupError("a mistake of ours")

    monkeypatch.setattr(FollowedJob, "events", events)
    turn, _ = turn_in(tmp_path, monkeypatch)
    monkeypatch.setattr(RunResult, "observe", fail)
    with pytest.raises(LookupError):
        await turn._follow(FollowedJob(turn._link, "j-1"))
    assert over == ["j-1"]


@aio
async def test_a_submission_that_the_deadline_interrupts_may_have_run_and_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []

    async def submit(self: Link, prompt: HostPrompt) -> HostSubmitted:
        await asyncio.Event().wait()
        raise AssertionError

    async def remove(host: Host, id: str) -> None:
        removed.append(id)

    monkeypatch.setattr(Link, "submit", submit, raising=False)
    monkeypatch.setattr(host_attempt, "send_workspace", send_nothing)
    monkeypatch.setattr(host_attempt, "remove_workspace", remove)
    turn, seen = turn_in(tmp_path, monkeypatch)
    turn._setting = dataclasses.replace(turn._setting, deadline=Deadline.after(0.2))
    await turn.run(tmp_path)
    assert isinstance(seen.error, BudgetExceeded) and seen.error.may_have_run
    assert seen.prompted and removed == []
    link: Any = turn._link
    assert link.cancelled == [turn._job]


@pytest.mark.parametrize("asked", [True, False])
@aio
async def test_an_agent_on_a_host_is_silent_only_while_no_person_is_asked(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = CONFIG + "[limits]\nsilence = 0.05\n"
    turn, _ = turn_in(tmp_path, monkeypatch, text=text)

    async def submit(self: Link, prompt: HostPrompt) -> HostSubmitted:
        return HostSubmitted(job=prompt.job, session="s", peer="codex")

    async def wait(shown: object) -> None:
        # Several times the limit.
        loop = asyncio.get_running_loop()
        late = loop.time() + 0.3
        await until(lambda: loop.time() > late)

    async def events(self: FollowedJob) -> AsyncGenerator[Any, None]:
        await (turn._answer(cast("Any", None)) if asked else wait(None))
        raise HostUnavailable("box", "the end of this test", passing=True)
        yield

    monkeypatch.setattr(Link, "submit", submit, raising=False)
    monkeypatch.setattr(FollowedJob, "events", events)
    monkeypatch.setattr(host_attempt, "send_workspace", send_nothing)
    monkeypatch.setattr(turn, "_asked", wait)
    await turn.run(tmp_path)
    assert turn._silent != asked


async def send_nothing(host: Host, workspace: Path) -> Any:
    return SENT


@aio
async def test_a_turn_is_cancelled_on_the_host_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, _ = turn_in(tmp_path, monkeypatch)
    turn.cancel()
    turn.cancel()
    link: Any = turn._link
    (task,) = turn._tasks._tasks
    await task
    assert len(link.cancelled) == 1
    await turn._tasks.aclose()


@aio
async def test_files_are_sent_again_if_the_connection_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = HostUnavailable("box", "lost", passing=True)
    refused = HostUnavailable("box", "its disk is full")
    errors = [lost, lost, refused]

    async def send_workspace(host: Host, workspace: Path) -> Any:
        raise errors.pop(0)

    monkeypatch.setattr(host_attempt, "send_workspace", send_workspace)
    monkeypatch.setattr(host_link, "FIRST_PAUSE", 0.0)
    turn, seen = turn_in(tmp_path, monkeypatch)
    await turn.run(tmp_path)
    assert seen.error is refused and not errors


@pytest.mark.parametrize(
    "error",
    [UsageError("there is no such peer"), CallCancelled(-32800, "cancelled before it began")],
)
@aio
async def test_a_copy_there_that_no_agent_saw_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: DragomanError
) -> None:
    removed: list[str] = []
    error.may_have_run = False

    async def send_workspace(host: Host, workspace: Path) -> Any:
        return SENT

    async def remove_workspace(host: Host, id: str) -> None:
        removed.append(id)

    async def submit(self: Link, prompt: Any) -> Any:
        raise error

    monkeypatch.setattr(host_attempt, "send_workspace", send_workspace)
    monkeypatch.setattr(host_attempt, "remove_workspace", remove_workspace)
    monkeypatch.setattr(Link, "submit", submit, raising=False)
    turn, seen = turn_in(tmp_path, monkeypatch)
    await turn.run(tmp_path)
    assert seen.error is error and removed == ["s1"]


async def finished(turn: HostTurn, sent: Any) -> None:
    turn._seen.prompted = True
    turn._seen.result = Result(outcome=Outcome.OK, text="done")


@pytest.mark.parametrize("during", ["the fetch", "the close"])
@aio
async def test_a_user_who_interrupts_before_the_changes_are_here_gets_the_command_that_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    reached, notices = asyncio.Event(), list[str]()

    async def send_workspace(host: Host, workspace: Path) -> Any:
        return SENT

    async def fetch_result(host: Host, *, id: str) -> Any:
        reached.set()
        await asyncio.Event().wait()

    async def aclose(link: Link) -> None:
        if during == "the close":
            reached.set()
            await asyncio.sleep(0)

    monkeypatch.setattr(host_attempt, "send_workspace", send_workspace)
    monkeypatch.setattr(host_attempt, "fetch_result", fetch_result)
    monkeypatch.setattr(HostTurn, "_turn", finished)
    monkeypatch.setattr(Link, "aclose", aclose)
    turn, _ = turn_in(tmp_path, monkeypatch)
    turn._setting = dataclasses.replace(turn._setting, on_notice=notices.append)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(turn.run(tmp_path))
        await reached.wait()
        running.cancel()
    assert running.cancelled()
    assert notices == [
        "the work on box is done, but its changes were not applied; "
        "fetch them with `dragoman hosts fetch box s1`"
    ]


@aio
async def test_a_cancel_that_the_host_has_not_confirmed_is_sent_again_when_the_turn_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, sending, sent = asyncio.Event(), asyncio.Event(), list[str]()

    async def cancel(link: Link, job: str) -> None:
        sent.append(job)
        if len(sent) == 1:
            sending.set()
            await asyncio.Event().wait()

    async def wait(turn: HostTurn, sent: Any) -> None:
        turn._seen.prompted = True
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(host_attempt, "send_workspace", send_nothing)
    monkeypatch.setattr(HostTurn, "_turn", wait)
    monkeypatch.setattr(Link, "cancel", cancel)
    turn, _ = turn_in(tmp_path, monkeypatch)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(turn.run(tmp_path))
        await begun.wait()
        turn.cancel()
        await sending.wait()
        running.cancel()
    assert sent == [turn._job, turn._job]
