"""A broker with a real child process behind it, as its callers see it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.error_codec import revive
from dragoman.broker.server import replay
from dragoman.client.budgets import Budgets
from dragoman.errors import ConnectionLost, RemoteError
from dragoman.rpc import outbox
from dragoman.store.records import EVENT_SPAN
from dragoman.testing import storyteller
from dragoman.wire.messages import Request
from tests.aio import aio
from tests.integration.broker_stage import TIMEOUT, Stage, stage, stored


def error_class(error: RemoteError) -> str:
    found: str = error.data["dragoman"]["errorClass"]
    return found


async def soon(work: Any) -> Any:
    async with asyncio.timeout(TIMEOUT):
        return await work


def begin(at: Stage, work: Any) -> asyncio.Task[Any]:
    """Work beside the test, owned by the broker."""
    return at.broker.tasks.start(work, "beside")


# -- sessions and prompts


@aio
async def test_a_caller_gets_every_update_of_its_prompt_and_the_answer_behind_them(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        result = await caller.prompting(session, "count 500", job="j-a")
        assert caller.texts() == [f"{session}#{n} " for n in range(500)]
        assert result["stopReason"] == "end_turn"
        assert result["_meta"]["dragoman"] == {"job": "j-a", "nextEvent": 501, "context": "live"}
        assert result["_meta"]["seen"] is None, "what is for us is none of the peer's business"


@aio
async def test_the_handshake_is_the_peers_with_what_the_broker_adds(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller(greet=False) as caller:
        hello = await caller.greet()
        assert hello["agentInfo"] == {"name": "broker-agent", "version": "1"}
        assert hello["agentCapabilities"]["sessionCapabilities"] == {"resume": {}, "close": {}}
        assert hello["_meta"]["dragoman"]["broker"]["peer"] == "agent"
        assert await caller.call("_dragoman/ping") == {}
        assert (await caller.call("_dragoman/hello", {"version": "1", "ttl": 7}))["protocol"] == 1
        assert at.host.ttl == 7
        assert (await caller.call("_dragoman/hello"))["ttl"] == 7
        assert len(at.host.peers) == 1


@aio
async def test_a_second_caller_resumes_a_live_session_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        async with at.caller() as first:
            session = await first.new(tmp_path, name="here")
            await first.prompting(session, "say one")
        async with at.caller() as second:
            cwd = str(tmp_path / "workspace")
            found = await second.call("session/resume", {"sessionId": session, "cwd": cwd})
            assert found["_meta"]["dragoman"]["context"] == "live"
            await second.prompting(session, "recall")
            assert second.texts() == ["say one"]


@aio
async def test_modes_are_remembered_for_the_caller_that_resumes(tmp_path: Path) -> None:
    async with stage(tmp_path, "--modes", mode_after_open="code") as at:
        async with at.caller() as first:
            opened = await first.call(
                "session/new", {"cwd": str(tmp_path / "workspace"), "mcpServers": []}
            )
            session = opened["sessionId"]
            assert opened["modes"]["currentModeId"] == "code", (
                "set by the broker, before the answer"
            )
        async with at.caller() as second:
            about = {"sessionId": session, "cwd": str(tmp_path)}
            assert (await second.call("session/resume", about))["modes"]["currentModeId"] == "code"
            await second.call("session/set_mode", {"sessionId": session, "modeId": "plan"})
            assert (await second.call("session/resume", about))["modes"]["currentModeId"] == "plan"
            await second.prompting(session, "think code")
            assert (await second.call("session/resume", about))["modes"]["currentModeId"] == "code"


@aio
async def test_a_mode_that_is_set_after_a_restart_of_the_peer_is_remembered(tmp_path: Path) -> None:
    flags = ("--resume", "--modes", "--state", str(tmp_path / "agent"))
    async with stage(tmp_path, *flags) as at, at.caller() as first, at.caller() as second:
        session = await first.new(tmp_path)
        await first.prompting(session, "say before")
        os.kill(at.host.peers[-1], signal.SIGKILL)
        await at.until(lambda: at.host.ended)
        await first.call("session/set_mode", {"sessionId": session, "modeId": "code"})
        about = {"sessionId": session, "cwd": str(tmp_path)}
        assert (await second.call("session/resume", about))["modes"]["currentModeId"] == "code"


@aio
async def test_what_the_broker_does_not_know_goes_to_the_peer_and_back(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        assert await caller.call("_test/echo", {"a": 1}) == {"a": 1}
        assert await caller.call("session/list") == {"sessions": []}
        for method in ("_dragoman/nothing", "nothing/at_all", "_test/unknown"):
            with pytest.raises(RemoteError) as refused:
                await caller.call(method)
            assert refused.value.code == -32601


@aio
async def test_a_session_that_is_not_open_is_closed_at_the_peer(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as one, at.caller() as two:
        session = await one.new(tmp_path)
        await two.call("session/resume", {"sessionId": session, "cwd": str(tmp_path)})
        await one.call("session/close", {"sessionId": session})
        await two.prompting(session, "say still here")
        await two.call("session/close", {"sessionId": session})
        with pytest.raises(RemoteError) as gone:
            await two.prompting(session, "say x")
        assert error_class(gone.value) == "unknown_session"
    assert [each["record"].closed_at is not None for each in stored(tmp_path)] == [True]


# -- the queue


@aio
async def test_prompts_of_different_sessions_wait_for_each_other_unless_the_peer_can_do_more(
    tmp_path: Path,
) -> None:
    for parallel in (None, True):
        folder = tmp_path / str(parallel)
        folder.mkdir()
        async with stage(folder, parallel=parallel) as at, at.caller() as one, at.caller() as two:
            slow, quick = await one.new(folder), await two.new(folder)
            hanging = begin(at, one.prompting(slow, "hang"))
            await one.heard("hanging")
            second = begin(at, two.prompting(quick, "say quick"))
            if parallel:
                await soon(second)
            else:
                await at.until(lambda: len(at.broker.turns.queue) == 1)
            status = await two.call("_dragoman/status")
            assert status["waiting"] == (0 if parallel else 1)
            one.cancel(slow)
            assert (await soon(hanging))["stopReason"] == "cancelled"
            await soon(second)
            assert two.texts() == ["quick"]


@aio
async def test_prompts_of_one_session_run_in_order(tmp_path: Path) -> None:
    async with stage(tmp_path, parallel=True) as at, at.caller() as one, at.caller() as two:
        session = await one.new(tmp_path)
        await two.call("session/resume", {"sessionId": session, "cwd": str(tmp_path)})
        prompts = [
            begin(at, (one, two)[n % 2].prompting(session, f"say {n}", job=f"j-{n}"))
            for n in range(10)
        ]
        await soon(asyncio.gather(*prompts))
        arrived = [job.prompt_text for job in at.broker.turns.jobs]
        await one.prompting(session, "recall")
        assert one.texts()[-1] == "|".join(arrived)
        assert sorted(arrived) == [f"say {n}" for n in range(10)]
        # Each sees its own turns, and nobody the other's.
        assert one.texts()[:-1] == ["0", "2", "4", "6", "8"]
        assert two.texts() == ["1", "3", "5", "7", "9"]


@aio
async def test_one_prompt_too_many_is_refused_at_once_as_busy(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        hanging = begin(at, caller.prompting(session, "hang"))
        await caller.heard("hanging")
        waiting = [begin(at, caller.prompting(session, "say x")) for _ in range(100)]
        await at.until(lambda: len(at.broker.turns.queue) == 100)
        with pytest.raises(RemoteError) as busy:
            await caller.prompting(session, "say one too many")
        assert busy.value.code == -32050
        assert error_class(busy.value) == "broker_busy"
        caller.cancel(session)
        results = await soon(asyncio.gather(hanging, *waiting))
        assert {each["stopReason"] for each in results} == {"cancelled"}
        assert caller.texts() == ["hanging"], "none of those that waited was sent"
        await caller.prompting(session, "recall")
        assert caller.texts()[-1] == "hang"


@aio
async def test_the_same_job_is_never_run_twice(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "say x", job="j-same")
        with pytest.raises(RemoteError, match="not sent twice"):
            await caller.prompting(session, "say x", job="j-same")
        assert caller.texts() == ["x"]


# -- leaving and coming back


@aio
async def test_a_turn_goes_on_without_its_caller_and_can_be_read_on_without_a_gap(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at:
        async with at.caller() as first:
            session = await first.new(tmp_path)
            begin(at, _ignored(first.prompting(session, "ask edit", job="j-q")))
            await first.until(lambda: first.questions)
        # The question is answered by nobody's policy: with a refusal.
        async with at.caller() as second:
            ended = await second.call("_dragoman/result", {"job": "j-q", "wait": True})
            assert ended["outcome"] == "denied"
            assert '"optionId": "no"' in ended["text"]
            await second.call("_dragoman/attach", {"sessionId": session, "start": 0})
            await second.until(lambda: len(second.updates) >= ended["nextEvent"])
            assert [json.loads(t)["outcome"]["optionId"] for t in second.texts()] == ["no"]


async def _ignored(work: Any) -> None:
    with contextlib.suppress(ConnectionLost):
        await work


@aio
async def test_a_caller_that_cancels_right_before_it_leaves_ends_its_turns(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        async with at.caller() as first:
            session = await first.new(tmp_path)
            begin(at, _ignored(first.prompting(session, "hang", job="j-1")))
            begin(at, _ignored(first.prompting(session, "say never", job="j-2")))
            await first.heard("hanging")
            first.connection.post("session/cancel", {"sessionId": session})
        async with at.caller() as second:
            jobs = [
                await second.call("_dragoman/result", {"job": f"j-{n}", "wait": True})
                for n in (1, 2)
            ]
            assert [job["outcome"] for job in jobs] == ["cancelled", "cancelled"]
            assert [job["text"] for job in jobs] == ["hanging", ""]


@aio
async def test_a_submitted_prompt_answers_at_once_and_its_result_can_be_fetched(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        params = {
            "sessionId": session,
            "prompt": [{"type": "text", "text": "hang"}],
            "job": "j-later",
        }
        begun = await caller.call("_dragoman/submit", params)
        assert begun == {"job": "j-later", "state": "running"}
        attached = await caller.call("_dragoman/attach", {"sessionId": session, "start": 0})
        assert attached["running"] == "j-later"
        await caller.heard("hanging")
        partial = await caller.call("_dragoman/result", {"job": "j-later"})
        assert (partial["state"], partial["outcome"]) == ("running", None)
        assert await caller.call("_dragoman/cancel", {"job": "j-later"}) == {"cancelled": True}
        ended = await caller.call("_dragoman/result", {"job": "j-later", "wait": True})
        assert (ended["outcome"], ended["text"]) == ("cancelled", "hanging")
        assert await caller.call("_dragoman/cancel", {"job": "j-later"}) == {"cancelled": False}
        with pytest.raises(RemoteError) as unknown:
            await caller.call("_dragoman/result", {"job": "j-nothing"})
        assert error_class(unknown.value) == "unknown_job"


@aio
async def test_a_slow_reader_loses_nothing_and_delays_no_other(tmp_path: Path) -> None:
    async with stage(tmp_path, parallel=True) as at:
        async with at.caller() as slow, at.caller() as quick:
            session = await slow.new(tmp_path)
            await quick.call("session/resume", {"sessionId": session, "cwd": str(tmp_path)})
            await quick.call("_dragoman/attach", {"sessionId": session, "start": 0})
            at.broker.sessions.room.limit = 2 * 1024 * 1024
            slow.connection._stream.pause_reading()
            prompting = begin(at, slow.prompting(session, "count 3000 2000"))
            # Six megabytes, of which the slow one has taken next to nothing.
            await quick.until(lambda: len(quick.texts()) == 3000)
            live = at.broker.sessions.require(session)
            await at.until(lambda: live.log.first > 0)
            assert live.log.first > 0, "more than memory is to hold, so that the disk is read"
            assert any(reader.lags for reader in live.readers.values())
            slow.connection._stream.resume_reading()
            result = await soon(prompting)
            assert len(slow.texts()) == 3000, "the answer stands behind every event"
            assert [t.split()[0] for t in slow.texts()] == [f"{session}#{n}" for n in range(3000)]
            assert result["_meta"]["dragoman"]["nextEvent"] == 3001


@aio
async def test_closing_a_session_answers_the_prompt_whose_events_were_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(tmp_path) as at, at.caller() as slow:
        session = await slow.new(tmp_path)
        slow.connection._stream.pause_reading()
        prompting = begin(at, slow.prompting(session, "count 3000 1000", job="j-1"))
        await at.until(lambda: (job := at.broker.turns.jobs.get("j-1")) and job.state == "ended")
        live = at.broker.sessions.require(session)
        assert any(reader.lags for reader in live.readers.values())
        closing = begin(at, slow.call("session/close", {"sessionId": session}))
        await at.until(lambda: not live.readers)
        slow.connection._stream.resume_reading()
        assert await soon(closing) == {}
        assert (await soon(prompting))["_meta"]["dragoman"]["job"] == "j-1"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


# -- questions


def choosing(option: str) -> Any:
    return lambda request: {"outcome": {"outcome": "selected", "optionId": option}}


@aio
async def test_a_permission_is_asked_of_the_caller_whose_turn_it_is(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as mine, at.caller() as other:
        session = await mine.new(tmp_path)
        await other.call("session/resume", {"sessionId": session, "cwd": str(tmp_path)})
        mine.answer = choosing("yes")
        await mine.prompting(session, "ask edit")
        assert json.loads(mine.texts()[-1])["outcome"]["optionId"] == "yes"
        assert len(mine.questions) == 1
        assert not other.questions


@aio
async def test_the_policy_of_a_prompt_decides_when_its_caller_has_left(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        expected = {
            ("approve-all", "edit"): "yes",
            ("approve-reads", "read"): "yes",
            ("approve-reads", "edit"): "no",
            ("deny-all", "read"): "no",
            (None, "read"): "no",
        }
        for number, ((policy, kind), option) in enumerate(expected.items()):
            params: dict[str, Any] = {
                "sessionId": session,
                "prompt": [{"type": "text", "text": f"ask {kind}"}],
                "job": f"j-{number}",
                "policy": policy,
            }
            await caller.call("_dragoman/submit", params)
            ended = await caller.call("_dragoman/result", {"job": f"j-{number}", "wait": True})
            assert json.loads(ended["text"])["outcome"]["optionId"] == option, (policy, kind)


@aio
async def test_cancelling_a_job_answers_the_question_that_its_caller_was_asked(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at, at.caller() as asked, at.caller() as other:
        session = await asked.new(tmp_path)
        prompting = begin(at, asked.prompting(session, "ask edit", job="j-1"))
        await asked.until(lambda: asked.questions)
        assert await other.call("_dragoman/cancel", {"job": "j-1"}) == {"cancelled": True}
        assert (await soon(prompting))["stopReason"] == "cancelled"


@aio
async def test_files_are_served_by_the_caller_that_offers_it_and_else_by_the_broker(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at:
        async with at.caller() as plain:
            session = await plain.new(tmp_path)
            (tmp_path / "workspace" / "a.txt").write_text("from the disk")
            await plain.prompting(session, f"read {tmp_path / 'workspace' / 'a.txt'}")
            assert json.loads(plain.texts()[-1]) == {"content": "from the disk"}
            await plain.prompting(session, "elicit")
            assert json.loads(plain.texts()[-1]) == {"action": "decline"}
        offers: dict[str, Any] = {"fs": {"readTextFile": True}, "elicitation": {"form": {}}}
        async with at.caller(**offers) as editor:
            session = await editor.new(tmp_path)
            editor.answer = _serve
            await editor.prompting(session, f"read {tmp_path / 'workspace' / 'a.txt'}")
            assert json.loads(editor.texts()[-1]) == {"content": "from the editor"}
            await editor.prompting(session, "elicit")
            assert json.loads(editor.texts()[-1]) == {"action": "accept", "content": {"name": "x"}}


def _serve(request: Request) -> Any:
    if request.method == "fs/read_text_file":
        return {"content": "from the editor"}
    return {"action": "accept", "content": {"name": "x"}}


# -- cancelling


@aio
async def test_a_session_that_ignores_a_cancel_is_abandoned_and_blocks_no_other(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at, at.caller() as one, at.caller() as two:
        stubborn, other = await one.new(tmp_path), await two.new(tmp_path)
        prompting = begin(at, one.prompting(stubborn, "stubborn"))
        await one.heard("stubborn")
        waiting = begin(at, two.prompting(other, "say at last"))
        one.cancel(stubborn)
        assert (await soon(prompting))["stopReason"] == "cancelled"
        await soon(waiting)
        assert two.texts() == ["at last"]
        with pytest.raises(RemoteError) as aside:
            await one.prompting(stubborn, "say x")
        assert error_class(aside.value) == "session_unusable"
        one.connection.post("_test/release", {})
        live = at.broker.sessions.require(stubborn)
        await at.until(lambda: not live.quarantined)
        await one.prompting(stubborn, "say usable")
        assert one.texts()[-1] == "usable"


# -- the peer dies


@aio
async def test_the_death_of_the_peer_ends_its_turns_and_what_waits_goes_on(tmp_path: Path) -> None:
    state = str(tmp_path / "agent")
    async with stage(tmp_path, "--resume", "--state", state) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "say before")
        dying = begin(at, caller.prompting(session, "die", job="j-die"))
        next_one = begin(at, caller.prompting(session, "recall", job="j-next"))
        with pytest.raises(RemoteError) as died:
            await soon(dying)
        assert error_class(died.value) == "process_exited"
        assert died.value.data["dragoman"]["details"]["signal"] == signal.SIGKILL
        result = await soon(next_one)
        assert result["_meta"]["dragoman"]["context"] == "restored"
        assert caller.texts()[-1] == "say before"
        job = await caller.call("_dragoman/result", {"job": "j-die", "wait": True})
        assert (job["outcome"], job["text"]) == ("crashed", "dying")
        assert len(at.host.peers) == 2
        assert at.host.ended == at.host.peers[:1]


@pytest.mark.parametrize("late", [False, True])
@aio
async def test_a_session_is_restored_by_loading_and_the_repeated_history_is_not_forwarded(
    tmp_path: Path, late: bool
) -> None:
    flags = ["--load", "--state", str(tmp_path / "agent"), *(["--late"] if late else [])]
    async with stage(tmp_path, *flags) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "say before")
        os.kill(at.host.peers[-1], signal.SIGKILL)
        await at.until(lambda: at.host.ended)
        result = await caller.prompting(session, "say after")
        assert result["_meta"]["dragoman"]["context"] == "restored"
        assert caller.texts() == ["before", "after"]
    (kept,) = stored(tmp_path)
    assert sum(b"as I said" in line for _, line in kept["lines"]) == 0


@aio
async def test_a_session_that_cannot_be_restored_says_so_or_begins_afresh_if_that_was_allowed(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "say before")
        os.kill(at.host.peers[-1], signal.SIGKILL)
        await at.until(lambda: at.host.ended)
        with pytest.raises(RemoteError) as lost:
            await caller.prompting(session, "say after")
        assert error_class(lost.value) == "session_lost"
        assert f"cannot reopen the session '{session}'" in str(lost.value)
        result = await caller.prompting(session, "count 2", fresh=True)
        assert result["_meta"]["dragoman"]["context"] == "fresh"
        assert {each["sessionId"] for each in caller.updates} == {session}, "under its old name"
        new = at.broker.sessions.require(session).id
        assert new != session
        assert caller.texts()[-2:] == [f"{new}#0 ", f"{new}#1 "]
        await caller.prompting(session, "recall")
        assert caller.texts()[-1] == "count 2"
    (kept,) = stored(tmp_path)
    assert kept["record"].peer_session_id == new


@aio
async def test_a_prompt_says_that_it_was_not_sent_if_its_session_cannot_begin_afresh(
    tmp_path: Path,
) -> None:
    refuses = tmp_path / "refuses"
    async with stage(tmp_path, "--new-fails", str(refuses)) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "say before")
        os.kill(at.host.peers[-1], signal.SIGKILL)
        await at.until(lambda: at.host.ended)
        refuses.touch()
        with pytest.raises(RemoteError) as refused:
            await caller.prompting(session, "say after", fresh=True)
        assert (refused.value.code, refused.value.message) == (-32002, "no more sessions")
        error = revive(refused.value.data)
        assert isinstance(error, RemoteError) and not error.may_have_run
        assert (error.code, str(error)) == (-32002, "no more sessions (-32002)")


@aio
async def test_a_session_of_an_earlier_broker_is_taken_up_and_its_numbers_go_on(
    tmp_path: Path,
) -> None:
    state = str(tmp_path / "agent")
    async with stage(tmp_path, "--resume", "--state", state) as at, at.caller() as caller:
        session = await caller.new(tmp_path, name="lasting")
        first = await caller.prompting(session, "count 3")
        key = at.broker.sessions.require(session).key
    async with stage(tmp_path, "--resume", "--state", state) as at, at.caller() as caller:
        about = {"sessionId": session, "cwd": str(tmp_path / "workspace"), "mcpServers": []}
        found = await caller.call("session/resume", about)
        assert found["_meta"]["dragoman"]["key"] == key
        second = await caller.prompting(session, "recall")
        assert caller.texts() == ["count 3"]
        ours = second["_meta"]["dragoman"]
        before = first["_meta"]["dragoman"]["nextEvent"]
        # Another process has numbers of its own, so that none is used twice after a kill.
        assert ours["nextEvent"] == before + EVENT_SPAN + 1
        await caller.call("_dragoman/attach", {"sessionId": session, "start": 0})
        await caller.until(lambda: len(caller.updates) == 1 + before + 1)
        assert caller.texts()[1:] == [f"{session}#{n} " for n in range(3)] + ["count 3"]
    (kept,) = stored(tmp_path)
    assert [number for number, _ in kept["lines"]] == [*range(before), before + EVENT_SPAN]


@aio
async def test_loading_gives_the_history_and_stores_it_once(tmp_path: Path) -> None:
    flags = ["--load", "--state", str(tmp_path / "agent")]
    async with stage(tmp_path, *flags) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "say hello")
        async with at.caller() as other:
            await other.call(
                "session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
            )
            assert other.texts() == ["hello"], "from the broker's own log"
    async with stage(tmp_path, *flags) as at, at.caller() as caller:
        about = {"sessionId": session, "cwd": str(tmp_path / "workspace"), "mcpServers": []}
        await caller.call("session/load", about)
        assert caller.texts() == ["say hello", "as I said"], "from the peer"
        await caller.prompting(session, "say more")
        assert caller.texts()[-1] == "more"
    (kept,) = stored(tmp_path)
    assert sum(b"as I said" in line for _, line in kept["lines"]) == 0
    assert sum(b'"more"' in line for _, line in kept["lines"]) == 1


@aio
async def test_a_caller_that_loads_a_session_and_stops_reading_delays_no_other(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "count 400 2000")
        about = {"sessionId": session, "cwd": str(tmp_path / "workspace"), "mcpServers": []}
        async with at.caller() as slow:
            slow.connection._stream.pause_reading()
            slow.connection.begin("session/load", about, settle=lambda result, error: None)
            live = at.broker.sessions.require(session)
            await at.until(lambda: any(reader.lags for reader in live.readers.values()))
            async with at.caller() as other:
                await other.call("session/resume", about)


@aio
async def test_closing_a_session_answers_the_load_whose_history_was_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(tmp_path) as at, at.caller() as caller, at.caller() as slow:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "count 3000 1000")
        live = at.broker.sessions.require(session)
        slow.connection._stream.pause_reading()
        about = {"sessionId": session, "cwd": str(tmp_path / "workspace"), "mcpServers": []}
        loading = begin(at, slow.call("session/load", about))
        await at.until(lambda: any(reader.lags for reader in live.readers.values()))
        closing = begin(at, slow.call("session/close", {"sessionId": session}))
        await at.until(lambda: len(live.readers) == 1)
        slow.connection._stream.resume_reading()
        assert await soon(closing) == {}
        assert "_meta" in await soon(loading)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def long_history(folder: Path, texts: int = 40, size: int = 100_000) -> tuple[str, ...]:
    """The flags of an agent with a session `old` that has a long history."""
    (folder / "agent").mkdir()
    history = [f"{number} " + "x" * size for number in range(texts)]
    (folder / "agent" / "old").write_text(json.dumps(history))
    return ("--load", "--state", str(folder / "agent"))


@aio
async def test_a_caller_that_pauses_while_it_loads_a_long_history_gets_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MAX_UNREAD_SIZE", 512 * 1024)
    monkeypatch.setattr(outbox, "MAX_UNSENT_SIZE", 2 * 1024 * 1024)
    flags = long_history(tmp_path)
    async with stage(tmp_path, *flags) as at, at.caller() as slow:
        slow.connection._stream.pause_reading()
        about = {"sessionId": "old", "cwd": str(tmp_path / "workspace"), "mcpServers": []}
        loading = begin(at, slow.call("session/load", about))
        far = at.broker.far
        assert far is not None
        await at.until(lambda: far.is_held or slow.connection.failure)
        slow.connection._stream.resume_reading()
        assert "_meta" in await soon(loading)
        told = [text.split()[0] for text in slow.texts() if text != "as I said"]
        assert told == [str(number) for number in range(40)]
        await at.until(lambda: not far.is_held)


@aio
async def test_a_caller_that_stops_reading_a_long_history_delays_the_others_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MAX_UNREAD_SIZE", 512 * 1024)
    monkeypatch.setattr(replay, "UNREAD_TIMEOUT", 0.2)
    flags = long_history(tmp_path)
    async with stage(tmp_path, *flags) as at, at.caller() as slow, at.caller() as other:
        session = await other.new(tmp_path)
        slow.connection._stream.pause_reading()
        about = {"sessionId": "old", "cwd": str(tmp_path / "workspace"), "mcpServers": []}
        loading = begin(at, slow.call("session/load", about))
        far = at.broker.far
        assert far is not None
        await at.until(lambda: far.is_held)
        await soon(other.prompting(session, "say here"))
        assert other.texts() == ["here"]
        slow.connection._stream.resume_reading()
        with pytest.raises(RemoteError, match="was not read for 0.2 s") as refused:
            await soon(loading)
        assert error_class(refused.value) == "overflow"
        assert len(slow.texts()) < 80
        # It can load the session again.
        slow.updates.clear()
        assert "_meta" in await soon(slow.call("session/load", about))
        assert len(slow.texts()) == 80


@aio
async def test_a_prompt_in_a_session_that_another_caller_loads_runs_after_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MAX_UNREAD_SIZE", 512 * 1024)
    flags = long_history(tmp_path)
    async with stage(tmp_path, *flags) as at, at.caller() as slow, at.caller() as other:
        slow.connection._stream.pause_reading()
        about = {"sessionId": "old", "cwd": str(tmp_path / "workspace"), "mcpServers": []}
        loading = begin(at, slow.call("session/load", about))
        far = at.broker.far
        assert far is not None
        await at.until(lambda: far.is_held)
        prompting = begin(at, other.prompting("old", "say here", job="j-1"))
        await at.until(lambda: at.broker.turns.jobs.get("j-1"))
        slow.connection._stream.resume_reading()
        await soon(loading)
        assert (await soon(prompting))["stopReason"] == "end_turn"
        assert other.texts() == ["here"]


@aio
async def test_a_peer_that_cannot_be_started_is_reported_to_every_caller_and_tried_again(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path, "--fails") as at, at.caller(greet=False) as caller:
        for _ in range(2):
            with pytest.raises(RemoteError) as failed:
                await caller.greet()
            assert error_class(failed.value) == "handshake_failed"
            assert "there is no key" in str(failed.value)
        assert (await caller.call("_dragoman/status"))["state"] in ("failed", "restarting")
        assert (await caller.call("_dragoman/status"))["starts"] >= 2


# -- the end


@aio
async def test_draining_takes_nothing_new_and_ends_after_the_last_turn(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        hanging = begin(at, caller.prompting(session, "hang"))
        await caller.heard("hanging")
        queued = begin(at, caller.prompting(session, "say last"))
        await at.until(lambda: len(at.broker.turns.queue) == 1)
        assert await caller.call("_dragoman/stop", {"ifIdle": True}) == {"stopping": False}
        assert await caller.call("_dragoman/stop", {"drain": True}) == {"stopping": True}
        await at.until(lambda: at.host.released)
        with pytest.raises(RemoteError) as late:
            await caller.prompting(session, "say too late")
        assert error_class(late.value) == "broker_busy"
        live = at.broker.sessions.require(session)
        assert live.job is not None
        at.broker.turns.cancel(live.job)
        assert (await soon(hanging))["stopReason"] == "cancelled"
        assert (await soon(queued))["stopReason"] == "end_turn"
        await soon(caller.connection.wait_ended())


@aio
async def test_a_stop_ends_running_turns_and_leaves_no_process(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        hanging = begin(at, _refused(caller.prompting(session, "hang", job="j-cut")))
        await caller.heard("hanging")
        assert await caller.call("_dragoman/stop", {"drain": False}) == {"stopping": True}
        await soon(asyncio.wait([hanging]))
        await soon(caller.connection.wait_ended())
    with pytest.raises(ProcessLookupError):
        os.kill(at.host.peers[0], 0)


async def _refused(work: Any) -> None:
    with contextlib.suppress(RemoteError, ConnectionLost):
        await work


# -- bad weather


@aio
async def test_a_folder_that_is_gone_is_reported_and_not_waited_for(tmp_path: Path) -> None:
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        (tmp_path / "workspace").rename(tmp_path / "moved")
        with pytest.raises(RemoteError, match="deleted or moved"):
            await caller.prompting(session, "say x")
        (tmp_path / "moved").rename(tmp_path / "workspace")
        await caller.prompting(session, "say back")
        assert caller.texts() == ["back"]


@aio
async def test_a_store_that_cannot_be_written_is_reported_and_hurts_no_turn(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    async with stage(tmp_path) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "count 50", job="j-1")
        assert len(caller.texts()) == 50
        job = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert job["text"].startswith(f"{session}#0 ")
        assert (await caller.call("_dragoman/status"))["storing"]
        await caller.call("_dragoman/attach", {"sessionId": session, "start": 0})
        await caller.until(lambda: len(caller.texts()) == 100)


@aio
async def test_a_caller_that_sends_garbage_does_not_affect_others(tmp_path: Path) -> None:
    async with stage(tmp_path, max_line_size=100_000) as at, at.caller() as good:
        session = await good.new(tmp_path)
        async with at.caller(greet=False) as bad:
            stream = bad.connection._stream
            stream.write(b"\x00\xff garbage\n{}\n[]\n" + b'{"id":null,"method":5}\n' * 100)
            for _ in range(5000):
                bad.connection.begin("_test/echo", {"x": "y"}, settle=lambda *_: None)
                bad.connection.begin("session/prompt", {"sessionId": 7}, settle=lambda *_: None)
            await good.prompting(session, "say fine")
            stream.write(b"x" * 200_000 + b"\n")
            await soon(bad.connection.wait_ended())
        await good.prompting(session, "say still fine")
        assert good.texts() == ["fine", "still fine"]


@aio
async def test_a_turn_without_a_caller_is_held_to_its_budgets(tmp_path: Path) -> None:
    budgets = Budgets(silence=0.4, cancel_grace=0.3)
    async with stage(tmp_path, budgets=budgets) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "hang"}], "job": "j-1"}
        await caller.call("_dragoman/submit", params)
        ended = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert ended["outcome"] == "timed_out"


# -- peers of other dialects


@pytest.mark.parametrize("dialect", ["keyed", "threads"])
@aio
async def test_a_peer_of_another_dialect_is_served_in_the_same_words(
    tmp_path: Path, dialect: str
) -> None:
    story = storyteller.Story((storyteller.Say("Hello."), storyteller.End()))
    teller = tuple(storyteller.command(story, dialect=dialect))
    async with stage(tmp_path, command=teller, protocol=dialect) as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        result = await caller.prompting(session, "tell", job="j-1")
        assert result["stopReason"] == "end_turn"
        assert "".join(caller.texts(session)) == "Hello."
        job = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert (job["outcome"], job["text"]) == ("ok", "Hello.")
        assert len(at.host.peers) == 1


@aio
async def test_the_death_of_a_peer_of_another_dialect_is_reported_as_such(tmp_path: Path) -> None:
    story = storyteller.Story((storyteller.Say("Hel"), storyteller.Crash()))
    teller = tuple(storyteller.command(story, dialect="keyed"))
    async with stage(tmp_path, command=teller, protocol="keyed") as at, at.caller() as caller:
        session = await caller.new(tmp_path)
        with pytest.raises(RemoteError) as died:
            await caller.prompting(session, "tell", job="j-1")
        assert error_class(died.value) == "process_exited"
        job = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert job["outcome"] == "crashed"
