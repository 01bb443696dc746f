"""The protocol's side of an agent: the handshake, logins, sessions, extensions.

Turns are in tests/faults/test_acp_agent_turns.py, and what a client may choose in
tests/integration/test_acp_agent_choices.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import msgspec
import pytest

from dragoman.agent import Turn, server
from dragoman.agent.session import Session
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired, RemoteError
from dragoman.rpc import Limits
from dragoman.wire import codes
from tests.aio import aio
from tests.unit.agent.client_end import (
    CANCELLED,
    NEW,
    OLD,
    Hanging,
    agent_with,
    in_session,
    served,
    simple_agent,
)
from tests.unit.agent.test_settings import MODES
from tests.unit.rpc.other_side import WAIT_TIMEOUT, soon, until

# -- the handshake


@aio
async def test_the_smallest_agent_shakes_hands_and_answers() -> None:
    async with served(simple_agent(version="1.2", title="Echo")) as client:
        assert await client.shake_hands() == {
            "protocolVersion": 1,
            "agentInfo": {"name": "echo", "version": "1.2", "title": "Echo"},
            "agentCapabilities": {
                "promptCapabilities": {},
                "mcpCapabilities": {},
                "sessionCapabilities": {"close": {}},
                "auth": {},
            },
        }
        session = await client.new_session()
        assert await client.ask(session, "hello there") == "end_turn"
        assert client.texts() == ["hello there"]


@pytest.mark.parametrize("version", [0, 1, 2, 99])
@aio
async def test_whatever_version_is_asked_for_version_one_is_offered(version: int) -> None:
    async with served(simple_agent()) as client:
        answer = await client.call("initialize", {"protocolVersion": version})
        assert answer["protocolVersion"] == 1


@pytest.mark.parametrize(
    "params", [None, {}, [], {"protocolVersion": 1.5}, {"protocolVersion": True}]
)
@aio
async def test_a_handshake_without_a_version_is_refused_and_may_be_tried_again(params: Any) -> None:
    async with served(simple_agent()) as client:
        assert (await client.refused("initialize", params))["code"] == -32602
        assert (await client.refused("session/new", NEW))["code"] == -32600
        await client.shake_hands()
        await client.new_session()


@aio
async def test_a_second_handshake_is_answered_like_the_first_and_changes_nothing() -> None:
    agent = simple_agent(
        auth_methods=[
            acp.AuthMethodAgent(id="a", name="A"),
            acp.AuthMethodTerminal(id="t", name="T", args=["login"]),
        ]
    )
    async with served(agent) as client:
        first = await client.shake_hands()
        assert [method["id"] for method in first["authMethods"]] == ["a", "t"]
        session = await client.new_session()
        assert await client.shake_hands({}) == first
        assert await client.ask(session) == "end_turn"


@aio
async def test_terminal_logins_are_offered_only_to_clients_that_can_show_them() -> None:
    methods = [acp.AuthMethodTerminal(id="t", name="T"), acp.AuthMethodAgent(id="a", name="A")]
    async with served(simple_agent(auth_methods=methods)) as client:
        answer = await client.shake_hands({})
        assert [method["id"] for method in answer["authMethods"]] == ["a"]


@pytest.mark.parametrize(
    "method", ["session/new", "session/prompt", "session/close", "session/set_mode", "_x/ask"]
)
@aio
async def test_nothing_is_done_before_the_handshake(method: str) -> None:
    agent = simple_agent()
    ran: list[str] = []

    @agent.new_session
    async def new(session: Session) -> None:
        ran.append("new")

    @agent.extension("_x/ask")
    async def extension(params: Any) -> None:
        ran.append("extension")

    async with served(agent) as client:
        client.cancel("nobody")
        error = await client.refused(method, NEW)
        assert (error["code"], ran) == (-32600, [])


@aio
async def test_a_method_that_there_is_not_is_not_found(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(simple_agent()) as client:
        await client.shake_hands()
        for method in (
            "session/load",
            "session/resume",
            "session/list",
            "session/delete",
            "session/fork",
            "authenticate",
            "logout",
            "fs/read_text_file",
            "_x/unknown",
            "nonsense",
        ):
            error = await client.refused(method, OLD)
            assert error["code"] == -32601, method
            assert error["data"] == {"method": method}
        client.tell("nonsense", {})
        client.tell("session/cancel", {})
        client.tell("session/cancel", None)
        client.tell("$/cancel_request", {"requestId": []})
        client.tell("$/cancel_request", {"requestId": 99})
        client.tell("$/cancel_request", {"requestId": None})
        await client.new_session()
    unread = [
        record.message for record in caplog.records if "could not be decoded" in record.message
    ]
    assert len(unread) == 3


# -- authentication


@aio
async def test_logging_in_and_out_reach_their_handlers() -> None:
    agent = simple_agent(
        auth_methods=[
            acp.AuthMethodAgent(id="door", name="Door"),
            acp.AuthMethodTerminal(id="tty", name="Terminal"),
        ]
    )
    state: list[str] = []

    @agent.authenticate
    async def log_in(method_id: str) -> None:
        state.append(method_id)

    @agent.logout
    async def log_out() -> None:
        state.append("out")

    @agent.new_session
    async def new(session: Session) -> None:
        if not state:
            raise AuthRequired("Authentication required")

    async with served(agent) as client:
        await client.shake_hands()
        error = await client.refused("session/new", NEW)
        assert error == {"code": -32000, "message": "Authentication required"}
        for method_id in ("tty", "window"):
            error = await client.refused("authenticate", {"methodId": method_id})
            assert error["code"] == -32602
        assert await client.call("authenticate", {"methodId": "door"}) == {}
        await client.new_session()
        assert await client.call("logout", {}) == {}
    assert state == ["door", "out"]


# -- sessions


@aio
async def test_a_new_session_is_handed_to_its_author_with_all_it_was_opened_with() -> None:
    agent = simple_agent(additional_directories=True, mcp_http=True)
    sessions: list[Session] = []

    @agent.new_session
    async def new(session: Session) -> None:
        sessions.append(session)

    async with served(agent) as client:
        await client.shake_hands()
        params = {
            "cwd": "/workspace",
            "additionalDirectories": ["/more"],
            "mcpServers": [{"name": "m", "command": "/bin/m", "args": [], "env": []}],
            "_meta": {"k": 1},
        }
        first = await client.call("session/new", params)
        second = await client.call("session/new", params)
        assert first["sessionId"] != second["sessionId"]
        assert [session.id for session in sessions] == [first["sessionId"], second["sessionId"]]
    session = sessions[0]
    assert [str(root) for root in session.roots] == ["/workspace", "/more"]
    assert [server.name for server in session.mcp_servers] == ["m"]  # type: ignore[union-attr]
    assert session.meta == {"k": 1}
    assert session.client.client_info == acp.Implementation(name="test", version="1")


@pytest.mark.parametrize(
    "damage",
    [
        {"cwd": "relative"},
        {"cwd": ""},
        {"cwd": "."},
        {"cwd": None},
        {"cwd": 7},
        {"mcpServers": 7},
        {"additionalDirectories": ["/fine", "relative"]},
        {"additionalDirectories": "x"},
    ],
)
@aio
async def test_malformed_params_of_a_session_are_refused(damage: dict[str, Any]) -> None:
    agent = simple_agent(additional_directories=True)

    @agent.load_session
    async def load(session: Session, replay: Turn) -> None:
        pytest.fail("the handler must not be called")

    async with served(agent) as client:
        await client.shake_hands()
        for method in ("session/new", "session/load"):
            assert (await client.refused(method, {**OLD, **damage}))["code"] == -32602
        assert (await client.refused("session/new", None))["code"] == -32602


@aio
async def test_a_folder_of_another_system_is_absolute_too() -> None:
    async with served(simple_agent()) as client:
        await client.shake_hands()
        await client.new_session("C:\\work")


@aio
async def test_an_error_of_an_author_refuses_the_session() -> None:
    agent = simple_agent()

    @agent.new_session
    async def new(session: Session) -> None:
        raise RemoteError(codes.INVALID_PARAMS, "not in this folder", {"folder": "it"})

    async with served(agent) as client:
        await client.shake_hands()
        error = await client.refused("session/new", NEW)
        assert error == {"code": -32602, "message": "not in this folder", "data": {"folder": "it"}}


@pytest.mark.parametrize(
    "method", ["session/prompt", "session/close", "session/set_mode", "session/set_config_option"]
)
@aio
async def test_an_unknown_session_is_not_found(method: str) -> None:
    async with served(simple_agent(modes=MODES)) as client:
        await client.shake_hands()
        params = {"sessionId": "x", "prompt": [], "modeId": "plan", "configId": "a", "value": "b"}
        error = await client.refused(method, params)
        assert (error["code"], error["data"]) == (-32002, {"sessionId": "x"})


@aio
async def test_a_load_is_answered_after_its_replay() -> None:
    agent = simple_agent(modes=MODES)

    @agent.load_session
    async def load(session: Session, replay: Turn) -> None:
        if session.id == "gone":
            raise RemoteError(codes.NOT_FOUND, "there is no such session")
        for number in range(300):
            await replay.echo(f"q{number}")
            await replay.say(f"a{number}")
        session.switch_mode("plan")

    async with served(agent) as client:
        await client.shake_hands()
        id = client.send("session/load", OLD)
        answer = await client.answer_to(id)
        assert client.heard[-1] is answer
        assert len(client.updates("old")) == 600
        assert answer["result"]["modes"]["currentModeId"] == "plan"
        assert await client.ask("old") == "end_turn"
        error = await client.refused("session/load", {**OLD, "sessionId": "gone"})
        assert error["code"] == -32002
        assert (await client.refused("session/close", {"sessionId": "gone"}))["code"] == -32002


@aio
async def test_the_failure_of_a_prompt_handler_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def failing(turn: Turn) -> None:
        raise ValueError("a detail")

    agent = agent_with(failing)
    async with in_session(agent) as (client, session):
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}
        error = await client.refused("session/prompt", params)
    assert error["code"] == codes.INTERNAL_ERROR
    (record,) = [record for record in caplog.records if record.exc_info]
    assert error["data"]["incident"] in record.getMessage()


@aio
async def test_a_prompt_handler_that_fails_because_it_is_cancelled_is_logged_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting = asyncio.Event()

    async def failing(turn: Turn) -> None:
        try:
            waiting.set()
            await asyncio.Event().wait()
        finally:
            raise ValueError("a detail")

    async with in_session(agent_with(failing)) as (client, session):
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}
        id = client.send("session/prompt", params)
        async with asyncio.timeout(WAIT_TIMEOUT):
            await waiting.wait()
        client.tell("session/cancel", {"sessionId": session})
        assert (await client.answer_to(id))["result"] == CANCELLED
    assert [str(r.exc_info[1]) for r in caplog.records if r.exc_info] == ["a detail"]


@aio
async def test_a_session_is_closed_although_the_handler_of_its_turn_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "CANCEL_GRACE", 0.01)
    loop = asyncio.get_running_loop()
    waiting, released = asyncio.Event(), threading.Event()

    def deaf(turn: Any) -> None:
        loop.call_soon_threadsafe(waiting.set)
        released.wait(WAIT_TIMEOUT)

    try:
        async with in_session(agent_with(deaf)) as (client, session):
            params = {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}
            id = client.send("session/prompt", params)
            async with asyncio.timeout(WAIT_TIMEOUT):
                await waiting.wait()
            assert await client.call("session/close", {"sessionId": session}) == {}
            assert (await client.answer_to(id))["result"] == CANCELLED
    finally:
        released.set()


@aio
async def test_a_close_that_is_cancelled_leaves_the_session_open() -> None:
    waiting, released = asyncio.Event(), asyncio.Event()
    closed: list[str] = []

    async def slow(turn: Any) -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            await released.wait()

    agent = agent_with(slow)

    @agent.close_session
    async def close(session: Session) -> None:
        closed.append(session.id)

    async with in_session(agent) as (client, session):
        prompt = client.prompt(session)
        await soon(waiting.wait())
        id = client.send("session/close", {"sessionId": session})
        client.tell("$/cancel_request", {"requestId": id})
        assert (await client.answer_to(id))["error"]["code"] == -32800
        released.set()
        assert (await client.answer_to(prompt))["result"] == CANCELLED
        assert closed == []
        assert await client.call("session/close", {"sessionId": session}) == {}
        assert closed == [session]


@aio
async def test_a_prompt_that_is_cancelled_as_a_request_keeps_its_session_until_it_ends() -> None:
    waiting, stopping, released = asyncio.Event(), asyncio.Event(), asyncio.Event()
    states: list[str] = []

    async def slow(turn: Turn) -> None:
        states.append(f"{turn.text} begins")
        if turn.text == "two":
            return
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await released.wait()
            states.append("one ends")

    async with in_session(agent_with(slow)) as (client, session):
        one = client.prompt(session, "one")
        await soon(waiting.wait())
        client.tell("$/cancel_request", {"requestId": one})
        await soon(stopping.wait())
        refused = await client.refused("session/prompt", client.prompt_of(session, "two"))
        assert "still running" in refused["message"]
        released.set()
        assert (await client.answer_to(one))["error"]["code"] == -32800
        assert await client.ask(session, "two") == "end_turn"
    assert states == ["one begins", "one ends", "two begins"]


@aio
async def test_a_resumed_session_is_not_replayed() -> None:
    agent = simple_agent()

    @agent.resume_session
    async def resume(session: Session) -> None:
        session.state.resumed = True

    async with served(agent) as client:
        await client.shake_hands()
        assert await client.call("session/resume", {"sessionId": "old", "cwd": "/w"}) == {}
        assert client.updates() == []
        assert await client.ask("old") == "end_turn"


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
@aio
async def test_a_session_with_a_running_turn_is_not_taken_up_anew(method: str) -> None:
    hanging = Hanging()
    agent = agent_with(hanging)

    @agent.load_session
    async def load(session: Session, replay: Turn) -> None: ...

    @agent.resume_session
    async def resume(session: Session) -> None: ...

    async with served(agent) as client:
        await client.shake_hands()
        await client.call(method, OLD)
        prompt = client.prompt("old")
        await client.update()
        assert (await client.refused(method, OLD))["code"] == -32600
        # The turn is still the one that a cancel finds.
        client.cancel("old")
        assert (await client.answer_to(prompt))["result"] == CANCELLED
        await client.call(method, OLD)


@aio
async def test_a_turn_that_begins_during_a_load_is_not_lost_by_it() -> None:
    hanging = Hanging()
    agent = agent_with(hanging)
    loading, go_on = asyncio.Event(), asyncio.Event()

    @agent.load_session
    async def load(session: Session, replay: Turn) -> None:
        loading.set()
        await go_on.wait()

    @agent.resume_session
    async def resume(session: Session) -> None: ...

    async with served(agent) as client:
        await client.shake_hands()
        await client.call("session/resume", OLD)
        id = client.send("session/load", OLD)
        await soon(loading.wait())
        prompt = client.prompt("old")
        await client.update()
        go_on.set()
        assert (await client.answer_to(id))["error"]["code"] == -32600
        client.cancel("old")
        assert (await client.answer_to(prompt))["result"] == CANCELLED


@aio
async def test_a_load_that_is_called_off_stops_its_replay() -> None:
    agent = simple_agent()
    states: list[Any] = []

    @agent.load_session
    async def load(session: Session, replay: Turn) -> None:
        await replay.echo("begun")
        try:
            await asyncio.Event().wait()
        finally:
            states.append(replay)

    async with served(agent) as client:
        await client.shake_hands()
        id = client.send("session/load", OLD)
        await client.update()
        client.tell("$/cancel_request", {"requestId": id})
        assert (await client.answer_to(id))["error"]["code"] == -32800
        (replay,) = states
        assert replay.over
        assert (await client.refused("session/close", {"sessionId": "old"}))["code"] == -32002


@aio
async def test_a_list_may_be_values_or_a_whole_page() -> None:
    agent = simple_agent()
    info = acp.SessionInfo(session_id="s", cwd="/w", title="T")

    @agent.list_sessions
    async def listing(request: acp.ListSessionsRequest) -> Any:
        if request.cursor is None:
            return (info for _ in range(2))
        return acp.ListSessionsResponse(sessions=[info], next_cursor="end")

    async with served(agent) as client:
        await client.shake_hands()
        wire = {"sessionId": "s", "cwd": "/w", "title": "T"}
        assert await client.call("session/list", {}) == {"sessions": [wire, wire]}
        page = await client.call("session/list", {"cwd": "/w", "cursor": "2"})
        assert page == {"sessions": [wire], "nextCursor": "end"}
        assert (await client.refused("session/list", {"cwd": "relative"}))["code"] == -32602


# -- extensions


@aio
async def test_extensions_are_answered_and_heard() -> None:
    agent = simple_agent()
    heard: list[Any] = []

    @agent.extension("_x/ask")
    async def ask(params: Any) -> Any:
        if params is None:
            raise ZeroDivisionError("swordfish")
        return {"asked": params}

    @agent.extension_notification("_x/tell")
    async def tell(params: Any) -> None:
        heard.append(params)
        if params == 1:
            raise ZeroDivisionError

    async with served(agent) as client:
        await client.shake_hands()
        assert await client.call("_x/ask", [1]) == {"asked": [1]}
        error = await client.refused("_x/ask", None)
        assert error["code"] == -32603 and "swordfish" not in str(error)
        for params in (1, {"a": 2}):
            client.tell("_x/tell", params)
        await until(lambda: heard == [1, {"a": 2}])


@aio
async def test_lost_notifications_are_logged_and_later_ones_are_heard_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = simple_agent()
    limits = Limits(1000, 2000, stall_interval=0.001, overflow_timeout=0.001)
    agent._settings = msgspec.structs.replace(agent._settings, limits=limits)
    heard: list[Any] = []
    gate = asyncio.Event()

    @agent.extension_notification("_x/tell")
    async def tell(params: Any) -> None:
        await gate.wait()
        heard.append(params)

    async with served(agent) as client:
        await client.shake_hands()
        for n in range(10):
            client.tell("_x/tell", n)
        await until(lambda: "dropping its further messages" in caplog.text)
        client.tell("_x/tell", "lost")
        # The answer comes after the notification was read.
        await client.new_session()
        gate.set()
        await until(lambda: "notifications from the client were dropped" in caplog.text)
        client.tell("_x/tell", "heard")
        await until(lambda: "heard" in heard)
    assert "lost" not in heard


@aio
async def test_lines_that_are_not_messages_are_answered_and_noted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "dragoman.agent")
    async with in_session(simple_agent()) as (client, session):
        client.raw(b"garbage\n[]\n7\n\n")
        assert await client.ask(session) == "end_turn"
        answers = [m["error"]["code"] for m in client.heard if "error" in m]
        assert answers == [-32700, -32600, -32600]
    assert any("garbage" in record.getMessage() for record in caplog.records)
