"""One session of a client: who works in it, and what everybody is told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from contextlib import nullcontext
from pathlib import Path

import pytest

from dragoman.acp_server import session as module
from dragoman.acp_server.session_store import SessionStore
from dragoman.agent import Session, Turn
from dragoman.errors import RemoteError, StoreBusy
from dragoman.runs import run_values
from dragoman.runs.run_values import BrokerNotes
from dragoman.transports import listen_unix
from dragoman.transports.base import Stream
from tests.aio import aio
from tests.unit.acp_server.stage import WAIT_TIMEOUT, Peer, house


@aio
async def test_the_chosen_peer_answers_and_its_options_stand_beside_ours(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        chosen = await editor.set(session, "peer", "left")
        assert chosen == {"peer": "left", "role": "execute", "mode": "code", "model": "small"}
        assert await editor.prompt(session, "hello") == "end_turn"
        assert editor.text == "left heard hello"
        assert (await editor.set(session, "model", "large"))["model"] == "large"
        await editor.call("session/set_mode", sessionId=session, modeId="plan")
        await editor.prompt(session, "settings")
        assert editor.text == "large plan"


@aio
async def test_a_peer_that_takes_over_gets_a_brief_and_the_client_sees_a_notice(
    tmp_path: Path,
) -> None:
    left, right = Peer("left"), Peer("right")
    async with house(tmp_path, left, right) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "plan the work")
        await editor.set(session, "peer", "right")
        await editor.prompt(session, "go on")
        assert editor.text.startswith(
            "right takes over with a brief: 1 message, 2 open plan entries, 1 file\n"
        )
        (told,) = right.prompts
        assert "User: plan the work\nleft: left has a plan" in told
        assert "- first (pending)" in told and "- /w/a.py" in told
        assert told.endswith("go on")
        # Whoever comes back is told what it missed, and nothing that it knows.
        await editor.set(session, "peer", "left")
        await editor.prompt(session, "and now")
        assert "User: go on\nright: right heard go on" in left.prompts[-1]
        assert "left has a plan" not in left.prompts[-1]
        await editor.prompt(session, "again")
        assert left.prompts[-1] == "again"
        # It went on in the session that it had.
        assert [word.partition(" ")[0] for word in left.sessions] == ["new", "resumed"]


@aio
async def test_a_peer_that_forgets_sessions_gets_the_whole_brief_again(tmp_path: Path) -> None:
    left, right = Peer("left", forgets=True), Peer("right")
    async with house(tmp_path, left, right) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "one")
        await editor.set(session, "peer", "right")
        await editor.set(session, "peer", "left")
        await editor.prompt(session, "two")
        assert "User: one\nleft: left heard one" in left.prompts[-1]


@aio
async def test_a_peer_whose_stored_session_cannot_be_read_starts_a_new_one_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(*_: object) -> None:
        raise StoreBusy("sessions.db", "another process holds it")

    left, right = Peer("left"), Peer("right")
    async with house(tmp_path, left, right) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "one")
        await editor.set(session, "peer", "right")
        with monkeypatch.context() as patch:
            patch.setattr(SessionStore, "thread_record", busy)
            await editor.set(session, "peer", "left")
        await editor.prompt(session, "two")
        notice = "left starts a new session: the stored one cannot be read: "
        assert editor.text.count(notice) == 1
        assert "User: one\nleft: left heard one" in left.prompts[-1]


@aio
async def test_notices_that_do_not_fit_into_the_queue_are_counted_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def busy(*_: object) -> None:
        raise StoreBusy("sessions.db", "another process holds it")

    monkeypatch.setattr(module, "MAX_NOTICES", 1)
    async with house(tmp_path, Peer("left"), Peer("right")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.set(session, "peer", "right")
        with monkeypatch.context() as patch:
            patch.setattr(SessionStore, "thread_record", busy)
            for name in ("left", "right", "left"):
                await editor.set(session, "peer", name)
        await editor.prompt(session, "one")
        assert "left starts a new session: " in editor.text
        assert "right starts" not in editor.text
        assert "2 more notices are in the log of dragoman" in editor.text
        logged = [text for text in caplog.messages if text.startswith("too many notices")]
        assert len(logged) == 2 and "right starts a new session: " in logged[0]
        await editor.prompt(session, "two")
        assert "notice" not in editor.text


@aio
async def test_a_notice_of_a_running_turn_is_sent_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()

    async def work(turn: Turn) -> None:
        await go_on.wait()
        await turn.say("done")

    monkeypatch.setattr(run_values, "SILENT_SECONDS", 0.0)
    left = Peer("left")
    left.agent.handlers.prompt = work
    async with house(tmp_path, left) as home, home.editor() as editor:
        with (tmp_path / "config_home" / "peers" / "left.toml").open("a") as file:
            file.write("[quirks]\nsilent_retries = true\n")
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(editor.prompt(session, "work"))
            await editor.until(lambda it: "left has sent nothing for" in it.text)
            go_on.set()
        assert turn.result() == "end_turn"
        assert editor.text.count("left has sent nothing for") == 1
        assert editor.text.endswith("\ndone")


@pytest.mark.parametrize("word", ["hello", "fail"])
@aio
async def test_a_notice_at_the_end_of_a_turn_is_sent_before_its_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    def report(self: BrokerNotes) -> None:
        self._on_notice("a question was declined")

    monkeypatch.setattr(BrokerNotes, "report", report)
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        with nullcontext() if word == "hello" else pytest.raises(RemoteError, match="it broke"):
            await editor.prompt(session, word)
        # The connection keeps the order, so what was sent before the response is here now.
        assert editor.text.endswith("a question was declined\n")
        await editor.prompt(session, "/peers")
        assert "declined" not in editor.text


@aio
async def test_notices_that_no_turn_has_sent_are_logged_when_the_session_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def busy(*_: object) -> None:
        raise StoreBusy("sessions.db", "another process holds it")

    async with house(tmp_path, Peer("left"), Peer("right")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.set(session, "peer", "right")
        with monkeypatch.context() as patch:
            patch.setattr(SessionStore, "thread_record", busy)
            await editor.set(session, "peer", "left")
        notice = "left starts a new session: the stored one cannot be read: "
        assert not any(text.startswith(notice) for text in caplog.messages)
        await editor.call("session/close", sessionId=session)
        assert [text.startswith(notice) for text in caplog.messages].count(True) == 1


@aio
async def test_a_cancel_reaches_the_peer(tmp_path: Path) -> None:
    left = Peer("left")
    async with house(tmp_path, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(editor.prompt(session, "wait"))
            await left.waiting.wait()
            await editor.connection.notify("session/cancel", {"sessionId": session})
        assert turn.result() == "cancelled"
        assert left.cancelled.is_set()
        assert await editor.prompt(session, "hello") == "end_turn"


@aio
async def test_a_turn_that_fails_at_the_peer_fails_at_the_client(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        with pytest.raises(RemoteError, match="it broke"):
            await editor.prompt(session, "fail")
        assert await editor.prompt(session, "refuse") == "refusal"


@aio
async def test_a_peer_that_dies_in_its_turn_is_there_again_for_the_next(tmp_path: Path) -> None:
    left = Peer("left")
    async with house(tmp_path, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "hello")
        with pytest.raises(RemoteError):
            await editor.prompt(session, "die")
        await editor.prompt(session, "again")
        assert editor.text == "left heard again"
        # The prompt that may have run was not sent a second time.
        assert left.prompts == ["hello", "die", "again"]
        assert [word.partition(" ")[0] for word in left.sessions] == ["new", "resumed"]


@aio
async def test_a_client_that_disconnects_in_a_turn_leaves_no_peer_working(tmp_path: Path) -> None:
    left = Peer("left")
    async with house(tmp_path, left) as home:
        async with home.editor() as editor:
            await editor.hello()
            session = await editor.open(home.work, peer="left")
            editor.connection.begin(
                "session/prompt",
                {"sessionId": session, "prompt": [{"type": "text", "text": "wait"}]},
                settle=lambda result, error: None,
            )
            await left.waiting.wait()
        async with asyncio.timeout(10):
            await left.cancelled.wait()


@aio
async def test_another_peer_cannot_be_chosen_while_a_turn_runs(tmp_path: Path) -> None:
    left, right = Peer("left"), Peer("right")
    async with house(tmp_path, left, right) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        async with asyncio.TaskGroup() as group:
            group.create_task(editor.prompt(session, "wait"))
            await left.waiting.wait()
            with pytest.raises(RemoteError, match="a turn is running"):
                await editor.set(session, "peer", "right")
            await editor.connection.notify("session/cancel", {"sessionId": session})


@aio
async def test_a_peer_that_is_not_there_leaves_the_choice_as_it_was(tmp_path: Path) -> None:
    left, right = Peer("left"), Peer("right")
    async with house(tmp_path, left, right) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        (tmp_path / "right.sock").unlink()
        with pytest.raises(RemoteError):
            await editor.set(session, "peer", "right")
        await editor.prompt(session, "hello")
        assert editor.text == "left heard hello"
        assert (await editor.set(session, "role", "review"))["peer"] == "left"


@aio
async def test_a_later_choice_holds_although_the_earlier_one_fails_meanwhile(
    tmp_path: Path,
) -> None:
    called, hang_up = asyncio.Event(), asyncio.Event()

    async def fail_late(stream: Stream) -> None:
        called.set()
        await hang_up.wait()

    left, right = Peer("left"), Peer("right")
    async with house(tmp_path, left, right) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        (tmp_path / "right.sock").unlink()
        listener = await listen_unix(tmp_path / "right.sock", fail_late)
        async with listener, asyncio.TaskGroup() as group, asyncio.timeout(WAIT_TIMEOUT):
            earlier = group.create_task(_refusal(editor.set(session, "peer", "right")))
            await called.wait()
            later = group.create_task(editor.set(session, "peer", "left"))
            prompt = group.create_task(editor.prompt(session, "hello"))
            # Its response says that the server has the other requests too.
            await editor.call("session/list")
            hang_up.set()
        assert "right" in earlier.result()
        assert later.result()["peer"] == "left"
        assert prompt.result() == "end_turn" and editor.text == "left heard hello"


@aio
async def test_a_choice_of_auto_holds_although_a_peer_was_still_starting(tmp_path: Path) -> None:
    class Slow(Peer):
        async def _new(self, session: Session) -> None:
            called.set()
            await answer.wait()

    called, answer = asyncio.Event(), asyncio.Event()
    async with house(tmp_path, Slow("left")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        async with asyncio.TaskGroup() as group, asyncio.timeout(WAIT_TIMEOUT):
            group.create_task(editor.set(session, "peer", "left"))
            await called.wait()
            later = group.create_task(editor.set(session, "peer", "auto"))
            await editor.call("session/list")
            answer.set()
        assert later.result() == {"peer": "auto", "role": "execute"}
        chosen = await editor.set(session, "role", "review")
        assert chosen == {"peer": "auto", "role": "review"}, "the options of a peer are gone"


@aio
async def test_a_peer_that_starts_too_late_for_a_closed_session_is_left_again(
    tmp_path: Path,
) -> None:
    class Slow(Peer):
        async def _new(self, session: Session) -> None:
            called.set()
            await answer.wait()

        async def close(self, session: Session) -> None:
            closed.set()

    called, answer, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    slow = Slow("left")
    slow.agent.close_session(slow.close)
    async with house(tmp_path, slow) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        async with asyncio.TaskGroup() as group, asyncio.timeout(WAIT_TIMEOUT):
            choice = group.create_task(_refusal(editor.set(session, "peer", "left")))
            await called.wait()
            await editor.call("session/close", sessionId=session)
            answer.set()
            await closed.wait()
        assert "the session was closed while left started" in choice.result()


async def _refusal(choice: Awaitable[object]) -> str:
    with pytest.raises(RemoteError) as caught:
        await choice
    return str(caught.value)


@aio
async def test_commands_of_the_peer_go_to_the_peer_and_ours_do_not(tmp_path: Path) -> None:
    left = Peer("left")
    async with house(tmp_path, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.until(
            lambda it: any(
                [one["name"] for one in update["availableCommands"]][-1] == "dance"
                for update in it.told("available_commands_update")
            )
        )
        await editor.prompt(session, "/dance")
        assert editor.text == "left danced"
        assert await editor.prompt(session, "/peers") == "end_turn"
        assert "| left | yes | installed |" in editor.text
        assert await editor.prompt(session, "/delegate") == "refusal"
        assert "the roles are" in editor.text
        assert left.prompts == []


@aio
async def test_in_auto_the_router_chooses_and_says_why_in_a_tool_call(tmp_path: Path) -> None:
    left = Peer("left")
    async with house(tmp_path, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        await editor.set(session, "role", "review")
        assert await editor.prompt(session, "look at it") == "end_turn"
        assert editor.text.strip() == "left heard look at it"
        (call,) = editor.told("tool_call")
        assert (call["title"], call["status"]) == ("Delegate review", "in_progress")
        last = editor.told("tool_call_update")[-1]
        assert (last["title"], last["status"]) == ("Delegate review → left", "completed")
        shown = last["content"][0]["content"]["text"]
        assert re.fullmatch(r"1\. left \(small\): ok after .* \[it claims review.*\]", shown)
        assert last["rawOutput"]["answered"] == "left"
        assert "heard" not in str(editor.told("tool_call_update")), "the answer is told once"
        # The next one is told what was said before it.
        await editor.prompt(session, "and again")
        assert "User: look at it" in left.prompts[-1]


@aio
async def test_a_delegation_is_known_to_the_peer_that_works(tmp_path: Path) -> None:
    left, right = Peer("left"), Peer("right")
    async with house(tmp_path, right, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "/delegate review judge this")
        assert editor.text.strip() == "right heard judge this"
        await editor.prompt(session, "thanks")
        assert "User: judge this\na delegate for review: right heard judge this" in left.prompts[0]


@aio
async def test_a_cancel_reaches_the_peer_that_work_was_delegated_to(tmp_path: Path) -> None:
    left = Peer("left")
    async with house(tmp_path, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(editor.prompt(session, "/delegate review wait here"))
            await editor.until(lambda it: it.told("tool_call"))
            async with asyncio.timeout(10):
                await left.waiting.wait()
            await editor.connection.notify("session/cancel", {"sessionId": session})
        assert turn.result() == "cancelled"
        assert left.cancelled.is_set()


@aio
async def test_two_sessions_work_at_once(tmp_path: Path) -> None:
    left, right = Peer("left"), Peer("right")
    async with house(tmp_path, left, right) as home, home.editor() as editor:
        await editor.hello()
        one = await editor.open(home.work, peer="left")
        other = await editor.open(home.work, peer="right")
        async with asyncio.TaskGroup() as group:
            group.create_task(editor.prompt(one, "wait"))
            await editor.until(lambda it: it.text == "waiting")
            assert await editor.prompt(other, "hello") == "end_turn"
            said = {update["session"] for update in editor.told("agent_message_chunk")}
            assert said == {other}
            await editor.connection.notify("session/cancel", {"sessionId": one})


@aio
async def test_a_delegation_says_once_that_it_works_in_one_folder(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        (other := tmp_path / "other").mkdir()
        session = await editor.open(home.work, other)
        await editor.set(session, "role", "review")
        assert await editor.prompt(session, "look at it") == "end_turn"
        assert f"uses only {home.work}, not {other};" in str(editor.updates)
        assert await editor.prompt(session, "again") == "end_turn"
        assert "uses only" not in str(editor.updates)
