"""However an attempt fails, its prompt is never sent again without a record that says why.

A real child process counts the prompts, and the ledger must have an attempt for each.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dragoman.delegation import CancelHandle, Delegation
from dragoman.rpc.tasks import TaskOwner
from dragoman.store.ledger import PROCESS_GONE, Ledger, ledger_path
from tests.aio import aio
from tests.integration.delegated_peers import Bench, bench_in

KINDS = {
    "dead": (0, "protocol_error"),
    "dead-session": (0, "crashed"),
    "locked": (0, "auth_required"),
    "crash": (1, "crashed"),
    "say-and-crash": (1, "crashed"),
    "killed": (1, "crashed"),
    "error": (1, "failed"),
    "auth": (1, "auth_required"),
    "quota": (1, "quota"),
    "malformed": (1, "protocol_error"),
    "garbage": (1, "timed_out"),
    "empty": (1, "empty"),
    "refuse": (1, "refused"),
    "cancel": (1, "cancelled"),
    "hang": (1, "timed_out"),
    "deaf": (1, "timed_out"),
}
"""How a peer fails, how many prompts it has received by then, and the outcome."""


def agreed(bench: Bench, done: Delegation) -> None:
    """Check that the result, the ledger and events.jsonl agree on every attempt."""
    kept = bench.attempts(done.job)
    assert [(one.peer, one.outcome, one.reason) for one in kept] == [
        (report.peer, report.outcome.value, report.reason) for report in done.attempts
    ]
    ended = ("peer_call_completed", "peer_call_failed")
    logged = [line for line in bench.events() if line["event"] in ended]
    assert [(line["peer_id"], line["outcome"]) for line in logged] == [
        (one.peer, one.outcome) for one in kept
    ]
    fell_back = [line for line in bench.events() if line["event"] == "peer_call_fell_back"]
    assert len(fell_back) == len(kept) - 1


@pytest.mark.parametrize("how", KINDS)
@aio
async def test_a_prompt_goes_to_each_peer_once_and_the_next_one_says_why(
    how: str, tmp_path: Path
) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", how)
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta")
    done = await bench.delegate()
    prompts, outcome = KINDS[how]
    assert len(bench.told("alpha")) == prompts
    assert len(bench.told("beta")) == 1
    assert [report.outcome.value for report in done.attempts] == [outcome, "ok"]
    assert done.answered == "beta" and done.text == "beta did: look at it"
    assert done.attempts[0].may_have_run is (prompts == 1 and how != "auth")
    assert done.attempts[1].reason.startswith("alpha ")
    agreed(bench, done)


@pytest.mark.parametrize("how", ["crash", "hang", "quota", "busy", "garbage"])
@aio
async def test_without_fallback_no_other_peer_is_asked(how: str, tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", how)
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta")
    done = await bench.delegate(fallback="none")
    assert not done.ok and {report.peer for report in done.attempts} == {"alpha"}
    assert bench.told("beta", "starts") == []
    assert len(bench.told("alpha")) == len(done.attempts) == (3 if how == "busy" else 1)
    agreed(bench, done)


@aio
async def test_a_passing_limit_is_waited_for_and_every_try_is_an_attempt(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "busy-once")
    bench.settings("alpha")
    done = await bench.delegate()
    assert done.answered == "alpha" and len(bench.told("alpha")) == 2
    assert "retrying after" in done.attempts[1].reason
    assert len(bench.pauses) == 1 and 0.5 <= bench.pauses[0] <= 1.0
    agreed(bench, done)


@pytest.mark.parametrize("how", ["write-and-crash", "write-outside"])
@aio
async def test_after_a_change_no_other_peer_is_asked_and_the_change_is_reported(
    how: str, tmp_path: Path
) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", how)
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta")
    done = await bench.delegate()
    assert not done.ok and len(done.attempts) == 1
    assert bench.told("beta", "starts") == []
    if how == "write-and-crash":
        assert [change.path for change in done.final.files] == ["half.txt"]
        assert done.stopped == "alpha: it changed half.txt"
    else:
        assert done.final.outside == (str(tmp_path / "outside.txt"),)
        assert "outside the workspace" in done.stopped
    agreed(bench, done)


@aio
async def test_an_interrupt_cancels_the_turn_and_no_other_peer_is_asked(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "hang")
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta", more="[timeouts]\ncancel_grace = 2\n")
    cancel = CancelHandle()
    owner = TaskOwner("test")
    running = owner.start(bench.delegate(cancel=cancel), "delegate")
    async with asyncio.timeout(20):
        while not bench.told("alpha"):
            assert not running.done()
            await asyncio.sleep(0.01)
        cancel.pull()
        done = await running
    assert done.interrupted and done.outcome.value == "cancelled"
    assert done.stopped == "it was interrupted"
    assert bench.told("beta", "starts") == [] and len(bench.told("alpha")) == 1
    (kept,) = bench.attempts(done.job)
    assert kept.outcome == "cancelled"
    with Ledger.open(ledger_path(bench.state), read_only=True) as ledger:
        assert ledger.health("alpha").failures == 0 and ledger.posteriors() == {}


@aio
async def test_a_delegation_that_is_torn_away_ends_in_the_ledger_too(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "hang")
    bench.settings("alpha", more="")
    owner = TaskOwner("test")
    running = owner.start(bench.delegate(), "delegate")
    async with asyncio.timeout(20):
        while not bench.told("alpha"):
            assert not running.done()
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    (kept,) = bench.attempts(bench.heard.jobs[0])
    assert kept.outcome == "cancelled" and kept.error_class != PROCESS_GONE
    assert len(bench.told("alpha")) == 1
