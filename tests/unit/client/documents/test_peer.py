"""Sessions and turns in every dialect of the documents, against agents that speak its examples.

Above all: a prompt is sent once, whatever goes wrong with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Opening
from dragoman.client.documents import DIALECTS, DocumentOptions, KeyedPeer
from dragoman.client.permissions import approve_all
from dragoman.errors import (
    RemoteError,
    SessionUnusable,
    TurnInProgress,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.events.parts import Audio, Image
from dragoman.events.words import ErrorKind, Outcome, Role, ToolStatus
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.client.documents.far_end import (
    PROMPT_NAMES,
    QUICK,
    SESSIONS,
    SILENCE,
    FarAgent,
    examples,
    garbage,
    hanging_up,
    meet,
    refusing,
)
from tests.unit.rpc.other_side import until

Talk = Callable[[FarAgent, Any], None]

ANSWERS: dict[str, Any] = {
    "oneshot": examples("oneshot")["answer"],
    "threads": examples("threads")["complete"],
    "tagged": {"stopReason": "endTurn"},
    "keyed": {"stopReason": "end_turn"},
    "chained": {"turnId": "turn-uuid-789", "status": "processing"},
}


def finish(dialect: str, agent: FarAgent, request: Any) -> None:
    """End a turn well, in the dialect's own way."""
    agent.answer(request, ANSWERS[dialect])
    if dialect == "chained":
        agent.tell("message/delta", {"sessionId": SESSIONS[dialect], "delta": "hi"})
        agent.tell("turn/status", {"sessionId": SESSIONS[dialect], "status": "completed"})


def saying(dialect: str, *names: str) -> Talk:
    """Say examples of the document, then end the turn."""
    known = load(dialect)

    def talk(agent: FarAgent, request: Any) -> None:
        for name in names:
            message = dict(known[name].message)
            params = dict(message["params"])
            if "sessionId" in params:
                params["sessionId"] = SESSIONS[dialect]
            agent.tell(message["method"], params)
        if names and names[-1] in ("status", "error"):
            return
        finish(dialect, agent, request)

    return talk


# -- turns


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_prompt_becomes_events_and_a_result(dialect: str) -> None:
    examples_of = {
        "oneshot": ("chunk", "tool", "file"),
        "threads": (),
        "tagged": ("processing", "tool_running", "tool_completed", "final_chunk"),
        "keyed": ("chunk", "tool", "plan"),
        "chained": ("delta", "tool_start", "tool_result", "reasoning", "status"),
    }

    @aio
    async def run() -> None:
        talk = saying(dialect, *examples_of[dialect])
        async with (
            meet(dialect, {PROMPT_NAMES[dialect]: talk}) as (peer, agent),
            peer.session() as session,
        ):
            watched: list[model.Event] = []
            peer.on_event = watched.append
            async with session.prompt("hello") as turn:
                events = [event async for event in turn]
            assert isinstance(events[0], model.TurnStarted)
            assert isinstance(events[-1], model.TurnEnded)
            assert sum(isinstance(event, model.TurnEnded) for event in events) == 1
            assert turn.result.outcome is Outcome.OK
            assert [event.seq for event in events] == sorted(event.seq for event in events)
            assert watched == events
            assert all(event.session == session.id for event in events)
            assert agent.prompts == 1
            assert session.turn is None

    run()


@aio
async def test_what_a_oneshot_agent_leaves_open_is_closed_before_the_end() -> None:
    talk = saying("oneshot", "tool", "chunk")
    async with meet("oneshot", {"prompt": talk}) as (peer, _), peer.session() as session:
        async with session.prompt("x") as turn:
            events = [event async for event in turn]
        tools = [event for event in events if isinstance(event, model.ToolChanged)]
        assert [tool.status for tool in tools] == [ToolStatus.RUNNING, ToolStatus.OTHER]
        assert tools[0].tool_id == tools[1].tool_id
        assert events.index(tools[1]) == len(events) - 2


@aio
async def test_it_is_closed_too_when_the_agent_dies() -> None:
    def die(agent: FarAgent, request: Any) -> None:
        agent.tell("tool_call", {"tool": "x"})
        hanging_up(agent, request)

    async with meet("oneshot", {"prompt": die}) as (peer, _), peer.session() as session:
        async with session.prompt("x") as turn:
            events = [event async for event in turn]
        assert turn.result.outcome is Outcome.CRASHED
        assert [e.status for e in events if isinstance(e, model.ToolChanged)] == [
            ToolStatus.RUNNING,
            ToolStatus.OTHER,
        ]
        assert isinstance(events[-1], model.TurnEnded)


@aio
async def test_a_failed_turn_of_a_thread_resolves() -> None:
    async with meet("threads", {"turn": examples("threads")["error"]}) as (peer, _):
        async with peer.session() as session:
            result = await session.ask("x")
    assert result.outcome is Outcome.QUOTA
    assert result.failure is not None and result.failure.kind is ErrorKind.RATE_LIMITED
    assert result.error is None


@aio
async def test_progress_of_a_thread_is_kept_as_unknown_events() -> None:
    def talk(agent: FarAgent, request: Any) -> None:
        agent.tell("some/progress", {"threadId": "thread-abc123", "n": 1})
        agent.tell("other", {"n": 2})
        agent.answer(request, examples("threads")["complete"])

    async with meet("threads", {"turn": talk}) as (peer, _), peer.session() as session:
        async with session.prompt("x") as turn:
            unknown = [e.native async for e in turn if isinstance(e, model.Unknown)]
        assert unknown == ["some/progress", "other"]


@aio
async def test_a_tool_error_is_a_failure() -> None:
    replies = {"session/prompt": {"stopReason": "tool_error"}}
    async with meet("keyed", replies) as (peer, _), peer.session() as session:
        assert (await session.ask("x")).outcome is Outcome.FAILED


@pytest.mark.parametrize("ack", ["sent", "sent_request", "sent_message", None])
def test_a_chained_prompt_may_be_acknowledged_or_never_answered(ack: str | None) -> None:
    known = examples("chained")

    def talk(agent: FarAgent, request: Any) -> None:
        if ack is not None:
            agent.answer(request, known[ack])
        for name, method in (("delta", "stream/chunk"), ("status", "message/status")):
            agent.tell(method, {**known[name], "sessionId": SESSIONS["chained"]})

    @aio
    async def run() -> None:
        async with meet("chained", {"prompt/send": talk}) as (peer, agent):
            async with peer.session() as session:
                for _ in range(2):
                    # The same turn id twice would be taken for a late word about the first.
                    known["delta"] = {**known["delta"], "turnId": "t2"}
                    result = await session.ask("x")
                    assert (result.outcome, result.text) == (Outcome.OK, "Paris")
                    known["status"] = {**known["status"], "turnId": "t2"}
                    if ack is not None:
                        known[ack] = {"turnId": "t2", "status": "processing"}
            assert agent.prompts == 2

    run()


@aio
async def test_an_error_notification_ends_a_chained_turn_and_its_late_status_harms_nobody() -> None:
    def talk(agent: FarAgent, request: Any) -> None:
        body = {**examples("chained")["error"], "sessionId": SESSIONS["chained"]}
        agent.tell("error", body)
        agent.tell("turn/status", {**body, "status": "error"})

    async with meet("chained", {"prompt/send": talk}) as (peer, agent):
        async with peer.session() as session:
            first = await session.ask("x")
            assert first.outcome is Outcome.QUOTA
            late = {"sessionId": session.id, "turnId": "turn-uuid-789", "status": "completed"}

            def second(agent: FarAgent, request: Any) -> None:
                agent.tell("turn/status", late)
                agent.tell("message/delta", {"sessionId": session.id, "turnId": "t2", "delta": "b"})
                agent.tell("turn/status", {**late, "turnId": "t2"})

            agent.replies["prompt/send"] = second
            assert (await session.ask("y")).text == "b"


# -- a prompt is sent once


FAILURES: dict[str, Any] = {
    "internal error": refusing(-32603, "Internal error"),
    "invalid params": refusing(-32602, "Invalid params"),
    "server error": refusing(-32000, "Authentication required"),
    "invalid request": refusing(-32600, "Invalid request"),
    "garbage": garbage,
    "end of stream": hanging_up,
    "timeout": SILENCE,
    "cancel": SILENCE,
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_prompt_is_never_sent_twice(dialect: str, failure: str) -> None:
    @aio
    async def run() -> None:
        budgets = QUICK
        if failure == "timeout":
            budgets = replace(QUICK, first_event=0.1, cancel_grace=0.1)
        options = DocumentOptions(budgets=budgets)
        replies = {PROMPT_NAMES[dialect]: FAILURES[failure], "session/cancel": {}}
        async with meet(dialect, replies, options=options) as (peer, agent):
            async with peer.session() as session:
                async with session.prompt("x") as turn:
                    if failure == "cancel":
                        await until(lambda: agent.prompts == 1)
                        turn.cancel()
                    result = await turn.wait()
                expected = {
                    "timeout": Outcome.TIMED_OUT,
                    "cancel": Outcome.CANCELLED,
                    "end of stream": Outcome.CRASHED,
                    "garbage": Outcome.PROTOCOL_ERROR,
                }.get(failure)
                assert expected is None or result.outcome is expected
                assert not result.ok
            assert agent.prompts == 1

    run()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_proof_that_nothing_ran_is_the_only_reason_for_another_name(dialect: str) -> None:
    @aio
    async def run() -> None:
        replies = {PROMPT_NAMES[dialect]: refusing(-32601, "Method not found")}
        async with meet(dialect, replies) as (peer, agent), peer.session() as session:
            result = await session.ask("x")
            assert result.outcome is Outcome.UNSUPPORTED
            names = [m for m in agent.methods if m in ("prompt/send", "message/send")]
            assert agent.prompts == (4 if dialect == "chained" else 1)
            assert len(names) == (2 if dialect == "chained" else 0)

    run()


@aio
async def test_a_prompt_that_was_refused_by_name_is_sent_under_the_next_one_once() -> None:
    def talk(agent: FarAgent, request: Any) -> None:
        finish("chained", agent, request)

    async with meet("chained", {"chat/send": talk}) as (peer, agent):
        async with peer.session() as session:
            assert (await session.ask("x")).ok
            assert agent.methods[-3:] == ["prompt/send", "message/send", "chat/send"]
            assert (await session.ask("y")).ok
            assert agent.methods[-1] == "chat/send" and agent.prompts == 4


@aio
async def test_a_name_is_not_tried_after_the_agent_began_to_work() -> None:
    def talk(agent: FarAgent, request: Any) -> None:
        agent.tell("message/delta", {"sessionId": SESSIONS["chained"], "delta": "working"})
        agent.refuse(request, -32601, "Method not found")

    async with meet("chained", {"prompt/send": talk}) as (peer, agent):
        async with peer.session() as session:
            assert not (await session.ask("x")).ok
            assert agent.prompts == 1


@aio
async def test_a_name_is_not_tried_after_a_cancel() -> None:
    async with meet("chained", {"prompt/send": SILENCE}) as (peer, agent):
        async with peer.session() as session:
            async with session.prompt("x") as turn:
                await until(lambda: agent.prompts == 1)
                turn.cancel()
                agent.refuse(agent.heard[-1], -32601)
                assert (await turn.wait()).outcome is Outcome.CANCELLED
            assert agent.prompts == 1


# -- cancelling


@pytest.mark.parametrize("dialect", ["oneshot", "threads", "chained"])
def test_without_a_way_to_cancel_the_connection_ends(dialect: str) -> None:
    @aio
    async def run() -> None:
        async with meet(dialect, {PROMPT_NAMES[dialect]: SILENCE}) as (peer, agent):
            assert peer.capabilities.cancel is False
            async with peer.session() as session:
                async with session.prompt("x") as turn:
                    await until(lambda: agent.prompts == 1)
                    turn.cancel()
                    result = await turn.wait()
                assert result.outcome is Outcome.CANCELLED
            await until(lambda: agent.ended is not None)

    run()


@aio
async def test_a_tagged_cancel_is_a_request_whose_answer_is_ignored() -> None:
    def cancelled(agent: FarAgent, request: Any) -> None:
        agent.answer(request, {})
        prompt = next(m for m in agent.heard if m["method"] == "session/prompt")
        agent.answer(prompt, {"stopReason": "cancelled"})

    replies = {"session/prompt": SILENCE, "session/cancel": cancelled}
    async with meet("tagged", replies) as (peer, agent), peer.session() as session:
        async with session.prompt("x") as turn:
            await until(lambda: agent.prompts == 1)
            turn.cancel()
            assert (await turn.wait()).outcome is Outcome.CANCELLED
        assert agent.params("session/cancel") == {"sessionId": "session-1"}
        agent.replies["session/prompt"] = {"stopReason": "endTurn"}
        assert (await session.ask("y")).stop == "endTurn"


@aio
async def test_a_serial_agent_that_does_not_hear_a_cancel_is_given_up_after_the_grace() -> None:
    replies = {"session/prompt": SILENCE, "session/cancel": SILENCE}
    async with meet("tagged", replies) as (peer, agent), peer.session() as session:
        async with session.prompt("x") as turn:
            await until(lambda: agent.prompts == 1)
            turn.cancel()
            assert (await turn.wait()).outcome is Outcome.CANCELLED
        with pytest.raises(SessionUnusable):
            await session.ask("y")
        assert agent.prompts == 1


@aio
async def test_a_keyed_cancel_is_a_notification() -> None:
    async with meet("keyed", {"session/prompt": SILENCE}) as (peer, agent):
        async with peer.session() as session:
            async with session.prompt("x") as turn:
                await until(lambda: agent.prompts == 1)
                turn.cancel()
                await until(lambda: "session/cancel" in agent.methods)
                assert "id" not in agent.heard[-1]
                agent.answer(agent.heard[-2], {"stopReason": "cancelled"})
                assert (await turn.wait()).outcome is Outcome.CANCELLED


# -- sessions


@aio
async def test_a_thread_is_loaded_with_its_history() -> None:
    async with meet("threads") as (peer, agent):
        async with peer.session(load="thread-abc123") as session:
            texts = [e.text for e in session.replayed if isinstance(e, model.MessageDelta)]
            assert texts == ["Does it build?", "It builds.", "Done."]
        async with peer.session(resume="thread-abc123") as session:
            assert list(session.replayed) == []
        assert agent.methods == ["threadResume", "threadResume"]


@aio
async def test_a_keyed_session_is_loaded_with_a_replay_that_ends_with_the_answer() -> None:
    def load_session(agent: FarAgent, request: Any) -> None:
        agent.tell("session/update", examples("keyed")["chunk"])
        agent.answer(request, examples("keyed")["loaded"])
        agent.tell("session/update", examples("keyed")["mode"])

    async with meet("keyed", {"session/load": load_session}) as (peer, agent):
        seen: list[model.Event] = []
        peer.on_event = seen.append
        async with peer.session(load="ses_1") as session:
            assert [type(e) for e in session.replayed] == [model.MessageDelta]
            assert [e for e in seen if isinstance(e, model.SettingsChanged) and e.replay] == []
            agent.replies["session/prompt"] = {"stopReason": "end_turn"}
            await session.ask("x")
        late = [e for e in seen if e.native == "session/update:currentModeId"]
        assert [e.replay for e in late] == [False]
        assert agent.params("session/load") == {"sessionId": "ses_1", "cwd": "/project"}


@aio
async def test_a_load_that_is_refused_leaves_nothing() -> None:
    async with meet("keyed", {"session/load": refusing(-32002, "no such session")}) as (peer, _):
        with pytest.raises(RemoteError):
            async with peer.session(load="ses_1"):
                pass
        assert peer.client.conversations == {}


def pages(agent: FarAgent, request: Any) -> None:
    name = "page" if request["params"]["offset"] == 0 else "sessions"
    agent.answer(request, examples("chained")[name])


@aio
async def test_a_list_has_pages_and_its_messages_are_a_history() -> None:
    async with meet("chained", {"session/list": pages}) as (peer, agent):
        listed = [summary async for summary in peer.list_sessions()]
        assert [s.id for s in listed] == ["session-uuid-124", "session-uuid-123"]
        assert listed[1].title == "Session title"
        assert listed[1].updated_at == "2024-01-15T10:30:00Z"
        offsets = [m["params"]["offset"] for m in agent.heard]
        assert offsets == [0, 50]
        async with peer.session(load="session-uuid-124") as session:
            texts = [e.text for e in session.replayed if isinstance(e, model.MessageDelta)]
            assert texts == ["What is the capital of France?", "Paris"]
            agent.replies["prompt/send"] = {"status": "completed"}
            assert (await session.ask("x")).stop == "completed"
            assert agent.params("prompt/send")["sessionId"] == "session-uuid-124"
        with pytest.raises(UsageError):
            async with peer.session(load="session-of-nobody"):
                pass


@aio
async def test_a_list_that_goes_round_in_circles_ends() -> None:
    async with meet("chained", {"session/list": examples("chained")["page"]}) as (peer, agent):
        assert len([s async for s in peer.list_sessions()]) == 2
        assert len(agent.methods) == 2


@aio
async def test_a_keyed_session_takes_a_mode_a_model_and_servers_and_can_switch_modes() -> None:
    async with meet("keyed", {"session/set_mode": None}) as (peer, agent):
        servers = examples("keyed")["new"]["mcpServers"]
        async with peer.session(
            mode="plan", model="anthropic/large", mcp_servers=servers
        ) as session:
            assert agent.params("session/new") == examples("keyed")["new"]
            await session.set_mode("code")
            assert agent.params("session/set_mode") == examples("keyed")["set_mode"]
            with pytest.raises(Unsupported):
                await session.set_mode("dance")
            with pytest.raises(Unsupported):
                await session.set_model("x/y")
            with pytest.raises(Unsupported):
                await session.set_option("x", True)


@aio
async def test_metadata_travels_with_a_tagged_session() -> None:
    async with meet("tagged") as (peer, agent):
        opening = Opening(cwd=Path("/project"), metadata={"branch": "feature/new-ui"})
        await peer.open(opening)
        assert agent.params("session/new") == examples("tagged")["new"]


@aio
async def test_a_second_prompt_waits_for_nobody() -> None:
    async with meet("keyed", {"session/prompt": SILENCE}) as (peer, agent):
        async with peer.session() as session, session.prompt("x"):
            with pytest.raises(TurnInProgress):
                async with session.prompt("y"):
                    pass
            await until(lambda: agent.prompts == 1)
            agent.answer(agent.heard[-1], {"stopReason": "end_turn"})


@aio
async def test_two_sessions_on_one_connection_keep_their_events() -> None:
    def new(agent: FarAgent, request: Any) -> None:
        number = agent.methods.count("session/new")
        agent.answer(request, {"session": {"id": f"session-{number}"}})

    def talk(agent: FarAgent, request: Any) -> None:
        id = request["params"]["sessionId"]
        update = {"type": "messageChunk", "role": "assistant", "chunk": f"I am {id}"}
        agent.tell("session/update", {"sessionId": id, "update": update})
        agent.answer(request, {"stopReason": "endTurn"})

    replies = {"session/new": new, "session/prompt": talk}
    async with (
        meet("tagged", replies) as (peer, _),
        peer.session() as one,
        peer.session() as two,
    ):
        results = await asyncio.gather(one.ask("x"), two.ask("x"))
        assert [result.text for result in results] == ["I am session-1", "I am session-2"]


# -- what a dialect cannot do


WISHES: dict[str, dict[str, Any]] = {
    "fork": {"fork": "x"},
    "load": {"load": "x"},
    "resume": {"resume": "x"},
    "mode": {"mode": "x"},
    "model": {"model": "a/b"},
    "mcp": {"mcp_servers": [{"type": "local", "command": "x"}]},
    "folders": {"additional_directories": ["/other"]},
}
POSSIBLE = {
    ("threads", "load"),
    ("threads", "resume"),
    ("keyed", "load"),
    ("keyed", "mode"),
    ("keyed", "model"),
    ("keyed", "mcp"),
    ("chained", "load"),
}


IMPOSSIBLE = [(d, wish) for d in DIALECTS for wish in WISHES if (d, wish) not in POSSIBLE]


@pytest.mark.parametrize(("dialect", "wish"), IMPOSSIBLE)
def test_what_a_dialect_cannot_do_is_refused_before_anything_is_sent(
    dialect: str, wish: str
) -> None:
    @aio
    async def run() -> None:
        async with meet(dialect) as (peer, agent):
            before = len(agent.heard)
            with pytest.raises(Unsupported):
                async with peer.session(**WISHES[wish]):
                    pass
            assert len(agent.heard) == before

    run()


@pytest.mark.parametrize("dialect", ["oneshot", "threads", "tagged", "keyed"])
def test_a_list_that_does_not_exist_is_refused(dialect: str) -> None:
    @aio
    async def run() -> None:
        async with meet(dialect) as (peer, agent):
            before = len(agent.heard)
            with pytest.raises(Unsupported):
                async for _ in peer.list_sessions():
                    pass
            assert len(agent.heard) == before

    run()


@aio
async def test_content_that_cannot_be_sent_is_refused_before_the_turn_begins() -> None:
    async with meet("oneshot") as (peer, agent), peer.session() as session:
        with pytest.raises(Unsupported):
            session.prompt(Image("x", "image/png"))
        assert agent.prompts == 0
    async with meet("tagged") as (peer, _), peer.session() as session:
        session.prompt(Image("x", "image/png"))
        with pytest.raises(Unsupported):
            session.prompt(Audio("x", "audio/wav"))


# -- logging in


@aio
async def test_a_secret_is_sent_only_if_it_is_given_and_is_in_no_event() -> None:
    replies = {"authenticate": None}
    options = DocumentOptions(permit=approve_all, budgets=Budgets())
    async with meet("keyed", replies, options=options) as (peer, agent):
        assert isinstance(peer, KeyedPeer)
        events: list[model.Event] = []
        peer.on_event = events.append
        await peer.authenticate("none")
        assert agent.heard[-1]["params"] == {"method": "none"}
        await peer.authenticate("password", password="open sesame")
        assert agent.heard[-1]["params"] == examples("keyed")["password"]
        await peer.authenticate("oauth", token="a-token")
        assert agent.heard[-1]["params"] == examples("keyed")["oauth"]
        assert all(isinstance(e, model.LoginChanged) and e.raw is None for e in events)
        assert "sesame" not in repr(events)
        with pytest.raises(UsageError):
            await peer.authenticate("retina", token="x")
        assert len(agent.heard) == 4


@aio
async def test_a_login_that_is_asked_for_is_an_outcome() -> None:
    replies = {"session/prompt": refusing(-32000, "Authentication required")}
    async with meet("keyed", replies) as (peer, _), peer.session() as session:
        assert (await session.ask("x")).outcome is Outcome.AUTH_REQUIRED


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ("Rate limit exceeded", Outcome.QUOTA),
        ("the disk is full", Outcome.FAILED),
        ("Authentication required", Outcome.AUTH_REQUIRED),
    ],
)
def test_the_servers_own_errors_are_told_by_their_words(message: str, outcome: Outcome) -> None:
    @aio
    async def run() -> None:
        replies = {"prompt/send": refusing(-32000, message)}
        async with meet("chained", replies) as (peer, _), peer.session() as session:
            result = await session.ask("x")
            assert result.outcome is outcome
            assert isinstance(result.error, RemoteError)
            assert result.failure is not None and result.failure.code == -32000

    run()


@aio
async def test_thoughts_are_not_the_answer() -> None:
    talk = saying("chained", "reasoning", "delta", "status")
    async with meet("chained", {"prompt/send": talk}) as (peer, _), peer.session() as session:
        async with session.prompt("x") as turn:
            roles = [e.role async for e in turn if isinstance(e, model.MessageDelta)]
        assert roles == [Role.THOUGHT, Role.AGENT]
        assert turn.result.text == "Paris"


def test_a_secret_is_masked_in_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "trace.jsonl"
    monkeypatch.setenv("DRAGOMAN_TRACE", str(trace))

    @aio
    async def run() -> None:
        async with meet("keyed", {"authenticate": None}) as (peer, agent):
            assert isinstance(peer, KeyedPeer)
            await peer.authenticate("password", password="open sesame")
            await peer.authenticate("oauth", token="a-token")
            assert agent.methods.count("authenticate") == 2

    run()
    written = trace.read_text()
    assert written.count("authenticate") == 2
    assert "sesame" not in written and "a-token" not in written
