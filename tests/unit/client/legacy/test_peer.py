"""Sessions in every dialect of the documents, against agents that speak its examples."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Opening
from dragoman.client.legacy import DIALECTS, DocumentOptions, KeyedPeer
from dragoman.client.permissions import approve_all
from dragoman.errors import (
    InvalidAnswer,
    RemoteError,
    SessionUnusable,
    TurnInProgress,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.events.parts import Audio, Image
from dragoman.events.words import Outcome
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.client.legacy.far_end import QUICK, SILENCE, HostAgent, examples, meet, refusing
from tests.unit.rpc.other_side import soon, turns, until

# -- sessions


@pytest.mark.parametrize("dialect", ["threads", "keyed", "tagged"])
@aio
async def test_a_closed_session_takes_no_prompt(dialect: str) -> None:
    async with meet(dialect) as (peer, _):
        async with peer.session() as session:
            pass
        with pytest.raises(SessionUnusable, match="closed"):
            await session.ask("x")


@aio
async def test_a_thread_is_loaded_with_its_history() -> None:
    async with meet("threads") as (peer, agent):
        async with peer.session(load="thread-abc123") as session:
            texts = [e.text for e in session.replayed if isinstance(e, model.MessageDelta)]
            assert texts == ["Does it build?", "It builds.", "Done."]
        async with peer.session(resume="thread-abc123") as session:
            assert list(session.replayed) == []
        assert agent.methods == ["threadResume", "threadResume"]


@pytest.mark.parametrize("method", ["session/new", "session/load"])
@aio
async def test_a_caller_that_is_cancelled_around_the_response_leaves_no_conversation(
    method: str,
) -> None:
    given_up = 0
    for moments in range(10):
        async with meet("keyed", {method: SILENCE}) as (peer, agent):
            known = None if method == "session/new" else "ses_1"
            how = "new" if known is None else "load"
            opening = Opening(cwd=Path("/project"), how=how, session_id=known)
            task = asyncio.get_running_loop().create_task(peer.open(opening))
            await until(lambda: method in agent.methods)
            body = examples("keyed")["opened" if known is None else "loaded"]
            agent.answer(agent.heard[-1], body)
            await turns(moments)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                given_up += 1
                await turns()
                assert not peer.client.conversations
            else:
                assert len(peer.client.conversations) == 1
    assert 0 < given_up < 10


@aio
async def test_an_observer_that_cancels_the_caller_leaves_no_conversation_and_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with meet("keyed", {"session/new": SILENCE}) as (peer, agent):
        opening = Opening(cwd=Path("/project"))
        task = asyncio.get_running_loop().create_task(peer.open(opening))
        await until(lambda: "session/new" in agent.methods)
        peer.on_event = lambda event: (task.cancel(), None)[1]
        agent.answer(agent.heard[-1], examples("keyed")["opened"])
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not peer.client.conversations
    assert "failed" not in caplog.text


@aio
async def test_a_keyed_session_is_loaded_with_a_replay_that_ends_with_the_answer() -> None:
    def load_session(agent: HostAgent, request: Any) -> None:
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


def pages(agent: HostAgent, request: Any) -> None:
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
        # The dialect does not tell the folder of a session, so that all of them are listed.
        assert [summary async for summary in peer.list_sessions("/project")] == listed
        assert {summary.cwd for summary in listed} == {None}
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
async def test_a_list_that_goes_round_in_circles_is_an_invalid_answer() -> None:
    async with meet("chained", {"session/list": examples("chained")["page"]}) as (peer, agent):
        with pytest.raises(InvalidAnswer, match="does not end"):
            _ = [summary async for summary in peer.list_sessions()]
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
async def test_a_second_prompt_does_not_wait() -> None:
    async with meet("keyed", {"session/prompt": SILENCE}) as (peer, agent):
        async with peer.session() as session, session.prompt("x"):
            with pytest.raises(TurnInProgress):
                async with session.prompt("y"):
                    pass
            await until(lambda: agent.prompts == 1)
            agent.answer(agent.heard[-1], {"stopReason": "end_turn"})


@aio
async def test_two_sessions_on_one_connection_keep_their_events() -> None:
    def new(agent: HostAgent, request: Any) -> None:
        number = agent.methods.count("session/new")
        agent.answer(request, {"session": {"id": f"session-{number}"}})

    def talk(agent: HostAgent, request: Any) -> None:
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


@aio
async def test_sessions_of_a_dialect_without_session_ids_have_ids_of_their_own() -> None:
    async with meet("oneshot") as (peer, agent):
        opened: list[model.Event] = []
        peer.on_event = opened.append
        async with peer.session() as one, peer.session() as two:
            assert one.implicit and two.implicit
            assert set(peer.client.conversations) == {one.id, two.id}
            assert [(event.session, event.how) for event in map(as_opened, opened)] == [
                (one.id, "implicit"),
                (two.id, "implicit"),
            ]
        assert agent.methods == ["initialize"]
    async with meet("oneshot") as (peer, _), peer.session() as later:
        assert later.id not in (one.id, two.id)
    async with meet("tagged") as (peer, _), peer.session() as named:
        assert (named.id, named.implicit) == ("session-1", False)


def as_opened(event: model.Event) -> model.SessionOpened:
    assert isinstance(event, model.SessionOpened)
    return event


@aio
async def test_an_agent_that_returns_the_id_of_an_open_session_changes_nothing_of_it() -> None:
    replies = {"session/prompt": SILENCE}
    async with meet("tagged", replies) as (peer, agent), peer.session() as session:
        async with session.prompt("x") as turn:
            await until(lambda: agent.prompts == 1)
            prompt = agent.heard[-1]
            with pytest.raises(InvalidAnswer, match="'session-1', the id of an open session"):
                async with peer.session():
                    pass
            update = {"type": "messageChunk", "role": "assistant", "chunk": "mine"}
            agent.tell("session/update", {"sessionId": session.id, "update": update})
            agent.answer(prompt, {"stopReason": "endTurn"})
            assert (await turn.wait()).text == "mine"
    async with meet("tagged") as (peer, _):
        for _ in range(2):
            async with peer.session() as again:
                assert again.id == "session-1"


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
        kinds = [type(event) for event in events]
        assert kinds == [model.Answered, model.LoginChanged] * 3
        agent.replies["authenticate"] = refusing(-32000, "not open sesame")
        with pytest.raises(RemoteError):
            await peer.authenticate("password", password="open sesame")
        assert b"not ***" in (events[-1].raw or b"")
        assert "sesame" not in repr(events)
        with pytest.raises(UsageError):
            await peer.authenticate("retina", token="x")
        assert len(agent.heard) == 5


@aio
async def test_a_login_that_is_asked_for_is_an_outcome() -> None:
    replies = {"session/prompt": refusing(-32000, "Authentication required")}
    async with meet("keyed", replies) as (peer, _), peer.session() as session:
        assert (await session.ask("x")).outcome is Outcome.AUTH_REQUIRED


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


@aio
async def test_a_session_that_does_not_load_ends_its_commands(tmp_path: Path) -> None:
    options = DocumentOptions(budgets=QUICK, terminals=True)
    replies = {"session/load": SILENCE}
    tasks = TaskOwner("test")
    async with meet("keyed", replies, options=options) as (peer, agent):
        opening = Opening(cwd=tmp_path, how="load", session_id="ses_1")
        loading = tasks.start(peer.open(opening), "load")
        await until(lambda: "session/load" in agent.methods)
        terminals = cast("Any", peer.client.conversations["ses_1"]).terminals()
        agent.refuse(agent.heard[-1], -32603)
        with pytest.raises(RemoteError):
            await soon(loading)
        with pytest.raises(UsageError, match="terminals of this session are closed"):
            await terminals.create("true")
        assert peer.client.conversations == {}


@pytest.mark.parametrize("dialect", ["threads", "keyed", "chained"])
@aio
async def test_an_open_session_cannot_be_opened_again(dialect: str) -> None:
    replies: dict[str, Any] = {}
    if dialect == "chained":
        created = {**examples("chained")["created"], "sessionId": "session-uuid-123"}
        replies = {"session/list": pages, "session/create": created}
    async with meet(dialect, replies) as (peer, _), peer.session() as session:
        with pytest.raises(UsageError, match="already open on this connection"):
            async with peer.session(load=session.id):
                pass
        assert peer.client.conversations == {session.id: session}


@aio
async def test_of_two_callers_that_load_a_session_at_once_one_gets_it() -> None:
    async with meet("chained", {"session/list": pages}) as (peer, _):
        opening = Opening(cwd=Path("/project"), how="load", session_id="session-uuid-123")
        opened = await asyncio.gather(
            peer.open(opening), peer.open(opening), return_exceptions=True
        )
        (conversation,) = peer.client.conversations.values()
        (failure,) = [each for each in opened if each is not conversation]
        assert isinstance(failure, UsageError)
