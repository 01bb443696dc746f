"""Turns: from a prompt that arrives to the answer behind its last event."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.server import recorder
from dragoman.broker.server.jobs import Job
from dragoman.broker.server.turns import MAX_TRIES
from dragoman.client.budgets import Budgets
from dragoman.errors import RemoteError
from dragoman.events.words import Outcome
from dragoman.store import Store, store_path
from tests.aio import aio
from tests.integration.broker_stage import Stage, TestCaller
from tests.unit.broker.near import NearAgent, dies, standing

RESUMES: dict[str, Any] = {"sessionCapabilities": {"resume": {}}}


def begin(at: Stage, work: Any) -> asyncio.Task[Any]:
    return at.broker.tasks.start(work, "beside")


async def prompted(
    at: Stage, agent: NearAgent, caller: TestCaller, session: str, **meta: Any
) -> asyncio.Task[Any]:
    """A prompt that has reached the agent."""
    count = len(agent.prompts)
    task = begin(at, caller.prompting(session, "x", **meta))
    await agent.until(lambda: len(agent.prompts) > count)
    return task


@aio
async def test_the_answer_comes_behind_the_updates_and_says_where_they_end(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        task = await prompted(at, agent, caller, session)
        for number in range(100):
            agent.update(session, str(number))
        agent.end()
        result = await task
        assert caller.texts() == [str(number) for number in range(100)]
        assert result["_meta"]["dragoman"]["nextEvent"] == 100


@aio
async def test_a_prompt_is_sent_once_and_without_what_is_for_us(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        task = await prompted(at, agent, caller, session, job="j-1")
        agent.end()
        await task
        sent = [params for method, params in agent.asked if method == "session/prompt"]
        assert sent == [{"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}]


@aio
async def test_a_malformed_answer_is_an_error_and_frees_the_place(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        task = await prompted(at, agent, caller, session)
        assert agent.connection is not None
        agent.connection.answer(agent.prompts.pop(), {"stopReason": 5})
        with pytest.raises(RemoteError) as refused:
            await task
        assert refused.value.data["dragoman"]["errorClass"] == "invalid_answer"
        assert not at.broker.turns.queue.busy


@aio
async def test_the_peers_own_error_travels_as_it_is(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        agent.refuses["session/prompt"] = RemoteError(-32055, "no model", {"why": "paid"})
        with pytest.raises(RemoteError) as refused:
            await caller.prompting(session, "x", job="j-1")
        assert (refused.value.code, refused.value.data) == (-32055, {"why": "paid"})
        job = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert job["outcome"] == "failed"
        assert job["failure"]["message"].startswith("no model")


@aio
async def test_the_notices_of_a_turn_are_sent_with_its_end_and_with_an_error(
    tmp_path: Path,
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        at.broker.recording.notice = "the store was damaged"
        for stop in (None, "end_turn"):
            task = await prompted(at, agent, caller, session)
            job = at.broker.sessions.require(session).job
            assert job is not None
            job.declined("Who?")
            job.declined("Where?")
            if stop is not None:
                agent.end(stop)
                own, who, where = (await task)["_meta"]["dragoman"]["notice"].split("; ")
                assert own == "the store was damaged"
            else:
                assert agent.connection is not None
                agent.connection.refuse(agent.prompts.pop(), -32055, "no model", {"why": "paid"})
                with pytest.raises(RemoteError) as refused:
                    await task
                assert refused.value.data["why"] == "paid"
                who, where = refused.value.data["dragoman"]["notice"].split("; ")
            assert "'Who?' was declined" in who and "'Where?' was declined" in where
            told = await caller.call("_dragoman/result", {"job": job.id, "wait": True})
            assert told["notices"] == job.notices
    with Store.open(store_path(Path(at.broker.spec.paths.state))) as store:
        assert store.job(job.id).notices == tuple(job.notices)  # type: ignore[union-attr]


@aio
async def test_a_cancel_is_sent_once_and_a_late_answer_ends_the_quarantine(tmp_path: Path) -> None:
    agent = NearAgent()
    budgets = Budgets(cancel_grace=0.02)
    async with standing(tmp_path, agent, budgets=budgets) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        task = await prompted(at, agent, caller, session)
        caller.cancel(session)
        caller.cancel(session)
        assert (await task)["stopReason"] == "cancelled"
        assert [method for method, _ in agent.told] == ["session/cancel"]
        live = at.broker.sessions.require(session)
        assert live.quarantined
        with pytest.raises(RemoteError, match="is quarantined"):
            await caller.prompting(session, "x")
        agent.end("cancelled")
        await at.until(lambda: not live.quarantined)
        again = await prompted(at, agent, caller, session)
        agent.end()
        await again


@aio
async def test_a_cancel_behind_a_job_that_was_left_here_leaves_that_job_alone(
    tmp_path: Path,
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller, at.caller() as other:
        session = await caller.new(tmp_path)
        left = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}], "job": "j-left"}
        await caller.call("_dragoman/submit", left)
        await agent.until(lambda: agent.prompts)
        waiting = begin(at, caller.prompting(session, "y"))
        await at.until(lambda: len(at.broker.turns.queue) == 1)
        caller.cancel(session)
        assert (await waiting)["stopReason"] == "cancelled"
        job = at.broker.turns.jobs.get("j-left")
        assert job is not None
        assert (job.state, job.session.is_cancelling) == ("running", False)
        # With nothing of its own there, a caller can only mean that job.
        other.cancel(session)
        await at.until(lambda: job.session.is_cancelling)
        agent.end()


@aio
async def test_a_job_that_never_ran_has_no_usage_and_no_events(tmp_path: Path) -> None:
    agent = NearAgent(**RESUMES)
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        running = await prompted(at, agent, caller, session, job="j-running")
        assert agent.connection is not None
        cost = {"amount": 2.0, "currency": "USD"}
        spent = {"sessionUpdate": "usage_update", "used": 5, "size": 9, "cost": cost}
        agent.connection.post("session/update", {"sessionId": session, "update": spent})
        await caller.until(lambda: caller.updates)
        waiting = begin(at, caller.prompting(session, "y", job="j-waiting"))
        await at.until(lambda: len(at.broker.turns.queue) == 1)
        await caller.call("_dragoman/cancel", {"job": "j-waiting"})
        await waiting
        agent.end()
        await running
        never, ran = [
            await caller.call("_dragoman/result", {"job": job})
            for job in ("j-waiting", "j-running")
        ]
        assert (never["usage"], never["firstEvent"], never["nextEvent"]) == (None, 1, 1)
        assert ran["usage"]["cost"] == {"amount": 2.0, "unit": "USD"}


@aio
async def test_a_job_that_is_cancelled_before_its_session_is_restored_has_no_events(
    tmp_path: Path,
) -> None:
    first, second = NearAgent(**RESUMES), NearAgent(**RESUMES)
    second.holds.add("session/resume")
    async with standing(tmp_path, first, second) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        before = await prompted(at, first, caller, session)
        first.update(session, "before")
        first.end()
        await before
        dies(first)
        task = begin(at, caller.prompting(session, "x", job="j-1"))
        await second.until(lambda: any(each == "session/resume" for each, _ in second.asked))
        caller.cancel(session)
        assert (await task)["stopReason"] == "cancelled"
        job = await caller.call("_dragoman/result", {"job": "j-1"})
        assert (job["firstEvent"], job["nextEvent"]) == (1, 1)
        second.release()
        await at.until(lambda: not at.broker.turns.queue.busy)


@aio
async def test_a_peer_that_dies_each_time_before_the_prompt_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        live: Any = at.broker.sessions.require(session)
        tries = 0

        async def restore(session: Any, far: Any, *, fresh: bool) -> str:
            # As if the peer that has the session were gone already.
            nonlocal tries
            tries += 1
            live.far = None
            return ""

        monkeypatch.setattr(at.broker, "restore", restore)
        live.far = None
        with pytest.raises(RemoteError, match="keeps ending before the prompt is sent"):
            async with asyncio.timeout(20):
                await caller.prompting(session, "x")
        assert tries == MAX_TRIES
        assert agent.prompts == [] and not at.broker.turns.queue.busy


@aio
async def test_a_mistake_of_ours_before_the_prompt_is_not_called_a_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)

        async def restore(*_: Any, **__: Any) -> str:
            raise LookupError("a mistake of ours")

        monkeypatch.setattr(at.broker, "restore", restore)
        live: Any = at.broker.sessions.require(session)
        live.far = None
        with pytest.raises(RemoteError, match="the broker failed before it sent") as refused:
            async with asyncio.timeout(20):
                await caller.prompting(session, "x")
        assert refused.value.data["dragoman"]["errorClass"] == "broker_failed"
        assert agent.prompts == [] and not at.broker.turns.queue.busy


@aio
async def test_a_prompt_that_waits_for_the_peer_can_be_cancelled_at_once(tmp_path: Path) -> None:
    first, second = NearAgent(**RESUMES), NearAgent(**RESUMES)
    async with standing(tmp_path, first, second) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        dies(first)
        await at.until(lambda: at.broker.far is None)
        task = begin(at, caller.prompting(session, "x", job="j-1"))
        await at.until(lambda: at.broker.turns.jobs.get("j-1") is not None)
        caller.cancel(session)
        assert (await task)["stopReason"] == "cancelled"
        await at.until(lambda: not at.broker.turns.queue.busy)
        assert "session/prompt" not in [method for method, _ in second.asked]


@aio
async def test_a_job_cancelled_while_it_waits_for_the_peer_stays_cancelled_at_the_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = NearAgent()
    ended: list[tuple[str, Any]] = []
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)

        async def restore(*_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

        job_ended = at.broker.job_ended

        def record(job: Job) -> None:
            ended.append((job.id, job.outcome))
            job_ended(job)

        monkeypatch.setattr(at.broker, "restore", restore)
        monkeypatch.setattr(at.broker, "job_ended", record)
        live: Any = at.broker.sessions.require(session)
        live.far = None
        task = begin(at, caller.prompting(session, "x", job="j-1"))
        await at.until(lambda: at.broker.turns.jobs.get("j-1") is not None)
        caller.cancel(session)
        assert (await task)["stopReason"] == "cancelled"
    assert ended == [("j-1", Outcome.CANCELLED)]
    with Store.open(store_path(tmp_path / "state"), read_only=True) as store:
        job = store.job("j-1")
    assert job is not None and job.outcome == "cancelled"


@aio
async def test_a_turn_of_a_dead_peer_ends_and_the_next_is_sent_to_the_living(
    tmp_path: Path,
) -> None:
    first, second = NearAgent(**RESUMES), NearAgent(**RESUMES)
    async with standing(tmp_path, first, second) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        dead = await prompted(at, first, caller, session)
        waiting = begin(at, caller.prompting(session, "y"))
        await at.until(lambda: len(at.broker.turns.queue) == 1)
        dies(first)
        with pytest.raises(RemoteError) as died:
            await dead
        assert died.value.data["dragoman"]["errorClass"] == "broken"
        await second.until(lambda: second.prompts)
        second.end()
        assert (await waiting)["_meta"]["dragoman"]["context"] == "restored"
        assert [method for method, _ in second.asked][1:] == ["session/resume", "session/prompt"]


@aio
async def test_a_turn_without_a_caller_is_watched(tmp_path: Path) -> None:
    agent = NearAgent()
    budgets = Budgets(first_event=0.05, cancel_grace=0.05)
    async with standing(tmp_path, agent, budgets=budgets) as at:
        async with at.caller() as leaving:
            session = await leaving.new(tmp_path)
            leaving.connection.begin(
                "session/prompt",
                {"sessionId": session, "prompt": [], "_meta": {"dragoman": {"job": "j-1"}}},
                settle=lambda *_: None,
            )
            await agent.until(lambda: agent.prompts)
        await agent.until(lambda: agent.told)
        assert agent.told[0][0] == "session/cancel"


@aio
async def test_the_total_time_of_a_turn_is_counted_from_its_beginning_and_not_from_its_callers_end(
    tmp_path: Path,
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as other:
        async with at.caller() as leaving:
            session = await leaving.new(tmp_path)
            meta = {"job": "j-1", "budgets": {"total": 600.0}}
            leaving.connection.begin(
                "session/prompt",
                {"sessionId": session, "prompt": [], "_meta": {"dragoman": meta}},
                settle=lambda *_: None,
            )
            await agent.until(lambda: agent.prompts)
            job = at.broker.turns.jobs.get("j-1")
            assert job is not None
            job.began -= 600.0
        await agent.until(lambda: agent.told)
        assert agent.told[0][0] == "session/cancel"
        agent.end("cancelled")
        ended = await other.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert ended["failure"]["message"] == "timed out after 600 s"


@aio
async def test_the_silence_of_a_peer_that_is_not_read_does_not_count(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.call("_dragoman/submit", {"sessionId": session, "prompt": [], "job": "j-1"})
        await agent.until(lambda: agent.prompts)
        far = at.broker.far
        assert far is not None
        (vigil,) = at.broker.turns._vigils.values()
        assert not vigil._held()
        far.connection.flow.hold()
        assert vigil._held()
        far.connection.flow.release()
        agent.end()
        await at.until(lambda: not at.broker.turns.queue.busy)


@pytest.mark.parametrize("announced", ["by an update", "by a question"])
@aio
async def test_silence_of_a_peer_during_a_tool_call_has_a_limit_of_its_own(
    tmp_path: Path, announced: str
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        limits = {"silence": 0.05, "toolSilence": 0.2}
        params = {"sessionId": session, "prompt": [], "job": "j-1", "budgets": limits}
        await caller.call("_dragoman/submit", params | {"policy": "approve-all"})
        await agent.until(lambda: agent.prompts)
        assert agent.connection is not None
        call = {"toolCallId": "t", "title": "npm test", "kind": "execute"}
        if announced == "by an update":
            agent.update(session, "I run the tests")
            update = {"sessionUpdate": "tool_call", **call}
            agent.connection.post("session/update", {"sessionId": session, "update": update})
        else:
            options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
            asked = {"sessionId": session, "toolCall": call, "options": options}
            answer = await agent.connection.call("session/request_permission", asked)
            assert b'"y"' in bytes(answer)
            agent.update(session, "I run the tests")
        await agent.until(lambda: agent.told)
        agent.end("cancelled")
        ended = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert ended["outcome"] == "timed_out"
        told = "the agent sent nothing during a tool call for 0.2 s"
        assert ended["failure"]["message"] == told


@pytest.mark.parametrize("stubborn", [False, True])
@aio
async def test_a_submitted_turn_is_held_to_the_time_that_was_said_and_ends_as_timed_out(
    tmp_path: Path, stubborn: bool
) -> None:
    agent = NearAgent()
    budgets = Budgets(first_event=None, silence=None, cancel_grace=0.05)
    async with standing(tmp_path, agent, budgets=budgets) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        params = {"sessionId": session, "prompt": [], "job": "j-1", "budgets": {"total": 0.05}}
        await caller.call("_dragoman/submit", params)
        await agent.until(lambda: agent.told)
        assert agent.told[0][0] == "session/cancel"
        if not stubborn:
            agent.end("cancelled")
        ended = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert ended["outcome"] == "timed_out"
        assert "timed out after" in ended["failure"]["message"]
        with pytest.raises(RemoteError, match="Invalid params"):
            await caller.call("_dragoman/submit", params | {"budgets": {"total": 0}})


EXPIRED = {"dragoman": {"expired": {"budget": "total", "timeout": 1.5}}}


@pytest.mark.parametrize("taken", ["cancelled", "end_turn", "refused", "ignored"])
@aio
async def test_a_turn_that_its_caller_ends_for_its_budget_has_timed_out_however_the_peer_takes_it(
    tmp_path: Path, taken: str
) -> None:
    agent = NearAgent()
    budgets = Budgets(cancel_grace=0.05 if taken == "ignored" else 10.0)
    async with standing(tmp_path, agent, budgets=budgets) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        task = await prompted(at, agent, caller, session, job="j-1")
        caller.connection.post("session/cancel", {"sessionId": session, "_meta": EXPIRED})
        # Who repeats it, without a reason, changes nothing.
        caller.cancel(session)
        await agent.until(lambda: agent.told)
        assert agent.told == [("session/cancel", {"sessionId": session})]
        if taken == "refused":
            assert agent.connection is not None
            agent.connection.refuse(agent.prompts.pop(), -32800, "cancelled")
            with pytest.raises(RemoteError):
                await task
        else:
            if taken != "ignored":
                agent.end(taken)
            await task
        ended = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert ended["outcome"] == "timed_out"
        assert "timed out after 1.5 s" in ended["failure"]["message"]


@aio
async def test_a_turn_that_was_cancelled_before_its_time_was_over_is_cancelled(
    tmp_path: Path,
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        task = await prompted(at, agent, caller, session, job="j-1")
        caller.cancel(session)
        caller.connection.post("session/cancel", {"sessionId": session, "_meta": EXPIRED})
        await caller.call("_dragoman/ping")
        agent.end("cancelled")
        await task
        ended = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert ended["outcome"] == "cancelled"


@aio
async def test_the_end_of_a_job_is_stored_before_its_caller_is_answered(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        task = await prompted(at, agent, caller, session, job="j-1")
        agent.update(session, "said")
        agent.end()
        await task
        with Store.open(store_path(tmp_path / "state"), read_only=True) as store:
            job = store.job("j-1")
        assert job is not None
        assert (job.state, job.outcome, job.text, job.next_event) == ("ended", "ok", "said", 1)


@aio
async def test_what_a_peer_says_while_the_end_is_stored_comes_behind_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        flush, reached, stored = at.broker.recording.flush, asyncio.Event(), asyncio.Event()

        async def slow() -> None:
            reached.set()
            await stored.wait()
            await flush()

        task = await prompted(at, agent, caller, session)
        monkeypatch.setattr(at.broker.recording, "flush", slow)
        agent.update(session, "in the turn")
        agent.end()
        agent.update(session, "behind it")
        await reached.wait()
        await caller.call("_dragoman/ping")
        assert (task.done(), caller.texts()) == (False, ["in the turn"])
        stored.set()
        result = await task
        await caller.heard("behind it")
        assert result["_meta"]["dragoman"]["nextEvent"] == 1


@aio
async def test_a_disk_that_hangs_does_not_keep_a_caller_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "STORED_TIMEOUT", 0.01)
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        task = await prompted(at, agent, caller, session)
        monkeypatch.setattr(at.broker.recording._recorder, "flush", asyncio.Event().wait)
        agent.end()
        assert (await task)["stopReason"] == "end_turn"
        params = {"sessionId": session, "job": "j-9", "prompt": []}
        submitted = await caller.call("_dragoman/submit", params)
        assert submitted["unstored"] == "the disk has not accepted it yet"
        monkeypatch.undo()


@aio
async def test_a_job_is_stored_before_its_submission_is_answered(tmp_path: Path) -> None:
    agent = NearAgent()
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        with Store.open(store_path(tmp_path / "state"), read_only=True) as store:
            assert [each.peer_session_id for each in store.sessions()] == [session]
        for number in (1, 2):
            prompt = [{"type": "text", "text": "x"}]
            about = {"sessionId": session, "prompt": prompt, "job": f"j-{number}"}
            await caller.call("_dragoman/submit", about)
            with Store.open(store_path(tmp_path / "state"), read_only=True) as store:
                job = store.job(f"j-{number}")
            assert job is not None and job.state == ("running" if number == 1 else "queued")


@aio
async def test_a_question_after_the_end_brings_no_update_before_the_answer(tmp_path: Path) -> None:
    agent = NearAgent()
    order: list[str] = []
    async with standing(tmp_path, agent) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}
        done = asyncio.Event()

        def settle(result: Any, error: Any) -> None:
            order.extend([*caller.texts(), "answer"])
            done.set()

        caller.connection.begin("session/prompt", params, settle=settle)
        await agent.until(lambda: agent.prompts)
        assert agent.connection is not None
        agent.update(session, "said")
        agent.end()
        agent.update(session, "late")
        asked = {"sessionId": session, "toolCall": {"toolCallId": "1"}, "options": []}
        answer = await agent.connection.call("session/request_permission", asked, timeout=5)
        await done.wait()
        assert b"cancelled" in bytes(answer)
        await caller.heard("late")
    assert order == ["said", "answer"]
