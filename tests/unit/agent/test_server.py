"""The protocol's side of an agent: the handshake, sessions, turns, cancelling, errors."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.agent import Agent, BlockingTurn, Turn, server
from dragoman.agent.session import Session
from dragoman.agent.settings import Settings
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired, RemoteError
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.wire import codes
from tests.aio import aio
from tests.unit.agent.client_end import ClientEnd, in_session, served, simple_agent
from tests.unit.agent.test_settings import DEPTH, LOUD, MODES
from tests.unit.rpc.other_side import soon, turns, until

NEW: dict[str, Any] = {"cwd": "/workspace", "mcpServers": []}
OLD: dict[str, Any] = {"sessionId": "old", "cwd": "/workspace", "mcpServers": []}
CANCELLED = {"stopReason": "cancelled"}


def agent_with(handler: Callable[..., Any], **options: Any) -> Agent:
    agent = Agent("test", **options)
    agent.prompt(handler)
    return agent


class Hanging:
    """A prompt handler that waits for ever, and what became of it."""

    def __init__(self, then: Callable[[Turn], Any] | None = None) -> None:
        self.states: list[str] = []
        self.then = then

    async def __call__(self, turn: Turn) -> Any:
        await turn.say("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.states.append("cancelled")
            if self.then is None:
                raise
            return await self.then(turn)
        finally:
            self.states.append("ended")


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
async def test_a_method_that_there_is_not_is_not_found() -> None:
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


# -- commands


def commanding() -> Agent:
    agent = simple_agent()

    @agent.command("review", "Review it", hint="a file")
    async def review(turn: Turn, text: str) -> str:
        await turn.say(f"reviewing {text!r}")
        return "refusal"

    @agent.command("help", "Help")
    async def help(turn: Turn, text: str) -> None:
        await turn.say("no help")

    return agent


@aio
async def test_commands_are_told_right_after_the_session_is_there() -> None:
    agent = commanding()

    @agent.load_session
    async def load(session: Session, replay: Turn) -> None: ...

    @agent.resume_session
    async def resume(session: Session) -> None: ...

    async with served(agent) as client:
        await client.shake_hands()
        for method in ("session/new", "session/load", "session/resume"):
            client.heard.clear()
            await client.answer_to(client.send(method, OLD))
            update = await client.update()
            assert client.heard[0].get("id") is not None
            assert update == {
                "sessionUpdate": "available_commands_update",
                "availableCommands": [
                    {"name": "review", "description": "Review it", "input": {"hint": "a file"}},
                    {"name": "help", "description": "Help"},
                ],
            }


@aio
async def test_commands_do_not_overtake_the_answer_to_a_client_that_does_not_read() -> None:
    agent = commanding()
    full = asyncio.Event()

    @agent.new_session
    async def new(session: Session) -> None:
        await full.wait()

    @agent.extension("_x/fill")
    async def fill(params: Any) -> str:
        return "x" * 2 * HIGH_WATER_SIZE

    async with served(agent) as client:
        await client.shake_hands()
        client.stream.pause_reading()
        id = client.send("session/new", NEW)
        client.send("_x/fill", {})
        await turns(50)
        # Now the answer waits behind more than the client takes.
        full.set()
        await turns(50)
        client.stream.resume_reading()
        await client.update()
        kinds = [m.get("method") for m in client.heard if m.get("id") in (id, None)]
        assert kinds == [None, "session/update"]


@pytest.mark.parametrize(
    ("typed", "said", "stop_reason"),
    [
        ("/review a.py", "reviewing 'a.py'", "refusal"),
        ("/help", "no help", "end_turn"),
        ("/usr/bin/env", "/usr/bin/env", "end_turn"),
        ("help", "help", "end_turn"),
    ],
)
@aio
async def test_a_command_goes_to_its_handler_and_other_texts_to_the_prompt(
    typed: str, said: str, stop_reason: str
) -> None:
    async with in_session(commanding()) as (client, session):
        assert await client.ask(session, typed) == stop_reason
        assert client.texts() == [said]


@aio
async def test_an_unknown_command_is_answered_with_those_that_there_are() -> None:
    async with in_session(commanding()) as (client, session):
        assert await client.ask(session, "/revue it") == "end_turn"
        (said,) = client.texts()
        assert "/revue" in said and "/review" in said and "/help" in said


@aio
async def test_an_agent_without_commands_takes_every_slash_for_text() -> None:
    async with in_session(simple_agent()) as (client, session):
        await client.ask(session, "/help")
        assert client.texts() == ["/help"]


# -- modes and options


def choosing() -> tuple[Agent, list[Any]]:
    agent = simple_agent(modes=MODES, options=[DEPTH, LOUD])
    heard: list[Any] = []

    @agent.set_mode
    async def set_mode(session: Session, mode_id: str) -> None:
        heard.append((session.mode, mode_id))

    @agent.set_option
    async def set_option(session: Session, option_id: str, value: Any) -> None:
        if value == "deep":
            raise RemoteError(codes.INVALID_PARAMS, "not today")
        heard.append((option_id, value))

    return agent, heard


def values(options: list[Any]) -> dict[str, Any]:
    return {option["id"]: option["currentValue"] for option in options}


@aio
async def test_modes_are_offered_in_both_ways_and_stay_in_step() -> None:
    agent, heard = choosing()
    async with served(agent) as client:
        await client.shake_hands()
        new = await client.call("session/new", NEW)
        session = new["sessionId"]
        assert new["modes"]["currentModeId"] == "code"
        assert [mode["id"] for mode in new["modes"]["availableModes"]] == ["code", "plan"]
        assert values(new["configOptions"]) == {"mode": "code", "depth": "flat", "loud": False}

        assert await client.call("session/set_mode", {"sessionId": session, "modeId": "plan"}) == {}
        update = client.updates()[-1]
        assert update["sessionUpdate"] == "config_option_update"
        assert values(update["configOptions"])["mode"] == "plan"

        change = {"sessionId": session, "configId": "mode", "value": "code"}
        answer = await client.call("session/set_config_option", change)
        assert values(answer["configOptions"]) == {"mode": "code", "depth": "flat", "loud": False}
        assert client.updates()[-1] == {
            "sessionUpdate": "current_mode_update",
            "currentModeId": "code",
        }
        told = len(client.updates())
        await client.call("session/set_mode", {"sessionId": session, "modeId": "code"})
        await client.call("session/set_config_option", change)
        assert len(client.updates()) == told, "what did not change is not told"
    assert heard == [("code", "plan"), ("plan", "code"), ("code", "code"), ("code", "code")]


@aio
async def test_options_are_set_and_all_of_them_answered() -> None:
    agent, heard = choosing()
    async with in_session(agent) as (client, session):
        change = {"sessionId": session, "configId": "loud", "value": True, "type": "boolean"}
        answer = await client.call("session/set_config_option", change)
        assert values(answer["configOptions"]) == {"mode": "code", "depth": "flat", "loud": True}
    assert heard == [("loud", True)]


@aio
async def test_a_session_with_choices_of_its_own_is_held_to_those() -> None:
    agent = simple_agent(modes=MODES)

    @agent.new_session
    async def prepare(session: Session) -> None:
        session.choose_from(Settings([acp.SessionMode(id="own", name="Own")], [LOUD]))

    async with served(agent) as client:
        await client.shake_hands()
        session = await client.new_session()
        own = {"sessionId": session, "modeId": "own"}
        assert await client.call("session/set_mode", own) == {}
        loud = {"sessionId": session, "configId": LOUD.id, "value": True, "type": "boolean"}
        await client.call("session/set_config_option", loud)
        theirs = {"sessionId": session, "modeId": MODES[1].id}
        assert (await client.refused("session/set_mode", theirs))["code"] == codes.INVALID_PARAMS


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("session/set_mode", {"modeId": "yolo"}),
        ("session/set_mode", {}),
        ("session/set_config_option", {"configId": "mode", "value": "yolo"}),
        ("session/set_config_option", {"configId": "mode", "value": True}),
        ("session/set_config_option", {"configId": "depth", "value": "bottomless"}),
        ("session/set_config_option", {"configId": "depth", "value": "deep"}),
        ("session/set_config_option", {"configId": "loud", "value": "yes"}),
        ("session/set_config_option", {"configId": "colour", "value": "red"}),
        ("session/set_config_option", {"configId": "depth"}),
    ],
)
@aio
async def test_a_choice_that_is_not_offered_or_is_refused_changes_nothing(
    method: str, change: dict[str, Any]
) -> None:
    agent, heard = choosing()
    async with in_session(agent) as (client, session):
        assert (await client.refused(method, {"sessionId": session, **change}))["code"] == -32602
        proof = {"sessionId": session, "configId": "loud", "value": False}
        answer = await client.call("session/set_config_option", proof)
        assert values(answer["configOptions"]) == {"mode": "code", "depth": "flat", "loud": False}
    assert heard == [("loud", False)]


@aio
async def test_a_client_that_takes_no_booleans_sees_none() -> None:
    agent, _ = choosing()
    async with served(agent) as client:
        await client.shake_hands({})
        new = await client.call("session/new", NEW)
        assert values(new["configOptions"]) == {"mode": "code", "depth": "flat"}


@aio
async def test_an_agent_without_choices_does_not_speak_of_them() -> None:
    async with served(simple_agent()) as client:
        await client.shake_hands()
        assert set(await client.call("session/new", NEW)) == {"sessionId"}


# -- turns


@pytest.mark.parametrize(
    "reason", ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]
)
@aio
async def test_a_handler_may_say_why_it_stopped(reason: str) -> None:
    async def handler(turn: Turn) -> str:
        return reason

    async with in_session(agent_with(handler)) as (client, session):
        assert await client.ask(session) == reason


@aio
async def test_a_handler_may_answer_in_full() -> None:
    async def handler(turn: Turn) -> acp.PromptResponse:
        return acp.PromptResponse(stop_reason="end_turn", meta={"k": 1})

    async with in_session(agent_with(handler)) as (client, session):
        answer = await client.call("session/prompt", ClientEnd.prompt_of(session, "x"))
        assert answer == {"stopReason": "end_turn", "_meta": {"k": 1}}


@pytest.mark.parametrize("nonsense", ["Here is your answer", "", 7])
@aio
async def test_a_text_that_is_returned_is_not_sent_as_a_stop_reason(
    nonsense: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(turn: Turn) -> Any:
        return nonsense

    async with in_session(agent_with(handler)) as (client, session):
        error = await client.refused("session/prompt", ClientEnd.prompt_of(session, "x"))
        assert error["code"] == -32603
        assert "returns None or a stop reason" in caplog.text


@aio
async def test_an_error_raised_on_purpose_travels_as_it_is_and_is_no_incident(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(turn: Turn, text: str = "") -> None:
        raise RemoteError(-32099, "out of ink", {"colour": "blue"})

    agent = agent_with(handler)
    agent.command("go")(handler)
    async with in_session(agent) as (client, session):
        for text in ("hello", "/go"):
            error = await client.refused("session/prompt", ClientEnd.prompt_of(session, text))
            assert error == {"code": -32099, "message": "out of ink", "data": {"colour": "blue"}}
    assert caplog.records == []


@aio
async def test_the_text_of_an_accident_does_not_travel(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(turn: Turn) -> None:
        raise RuntimeError("the password is swordfish")

    async with in_session(agent_with(handler)) as (client, session):
        error = await client.refused("session/prompt", ClientEnd.prompt_of(session, "x"))
        assert (error["code"], error["message"]) == (-32603, "Internal error")
        assert error["data"]["incident"] in caplog.text
        assert "swordfish" in caplog.text
        assert "swordfish" not in json.dumps(client.heard)
        # The session survives it.
        await client.refused("session/prompt", ClientEnd.prompt_of(session, "x"))


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("code", [-32000, -32002, -32601, -32800])
@aio
async def test_what_the_client_answered_is_no_answer_to_the_client(
    code: int, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(turn: Turn) -> None:
        await turn.read_file("/x")

    def plain_handler(turn: BlockingTurn) -> None:
        turn.read_file("/x")

    async def again(turn: Turn, text: str) -> None:
        try:
            await turn.client.call_extension("_x/ask", {})
        except RemoteError as error:
            if text:
                raise RemoteError(-32099, "on purpose") from error
            raise

    agent = agent_with(handler if is_async else plain_handler)
    agent.command("again")(again)

    @agent.load_session
    async def load(session: Session, replay: Turn) -> None:
        await replay.client.call_extension("_x/ask", {})

    async with in_session(agent) as (client, session):

        async def prompted(method: str, params: Any, asked: str) -> Any:
            id = client.send(method, params)
            refused = await client.asked(asked)
            error = {"code": code, "message": "not here"}
            client.say({"jsonrpc": "2.0", "id": refused["id"], "error": error})
            return (await client.answer_to(id))["error"]

        prompt = functools.partial(prompted, "session/prompt")
        for error in (
            await prompt(ClientEnd.prompt_of(session, "x"), "fs/read_text_file"),
            await prompt(ClientEnd.prompt_of(session, "/again"), "_x/ask"),
            await prompted("session/load", OLD, "_x/ask"),
        ):
            assert (error["code"], error["message"]) == (-32603, "Internal error")
            assert error["data"]["incident"] in caplog.text
        error = await prompt(ClientEnd.prompt_of(session, "/again and again"), "_x/ask")
        assert error == {"code": -32099, "message": "on purpose"}


@aio
async def test_a_second_prompt_is_refused_while_one_runs() -> None:
    async with in_session(agent_with(Hanging())) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        error = await client.refused("session/prompt", ClientEnd.prompt_of(session, "x"))
        assert error["code"] == -32600
        client.cancel(session)
        assert (await client.answer_to(prompt))["result"] == CANCELLED


@aio
async def test_of_two_prompts_in_one_piece_the_second_is_refused() -> None:
    async with in_session(agent_with(Hanging())) as (client, session):
        first = client.asking("session/prompt", ClientEnd.prompt_of(session, "one"))
        second = client.asking("session/prompt", ClientEnd.prompt_of(session, "two"))
        client.say(first, second)
        assert (await client.answer_to(second["id"]))["error"]["code"] == -32600
        client.cancel(session)
        assert (await client.answer_to(first["id"]))["result"] == CANCELLED


@pytest.mark.parametrize("params", [None, {}, {"prompt": "hello"}, {"prompt": [{"type": "text"}]}])
@aio
async def test_a_malformed_prompt_is_refused_and_does_not_block_the_session(params: Any) -> None:
    async with in_session(simple_agent()) as (client, session):
        damaged = None if params is None else {"sessionId": session, **params}
        assert (await client.refused("session/prompt", damaged))["code"] == -32602
        assert await client.ask(session) == "end_turn"


@aio
async def test_other_sessions_are_served_while_a_prompt_runs() -> None:
    async def handler(turn: Turn) -> None:
        if turn.text == "hang":
            await asyncio.Event().wait()
        await turn.say(turn.text)

    async with in_session(agent_with(handler, modes=MODES)) as (client, one):
        prompt = client.prompt(one, "hang")
        two = await client.new_session()
        assert await client.ask(two, "quick") == "end_turn"
        await client.call("session/set_mode", {"sessionId": one, "modeId": "plan"})
        client.cancel(two)
        await client.call("session/set_mode", {"sessionId": two, "modeId": "plan"})
        client.cancel(one)
        assert (await client.answer_to(prompt))["result"] == CANCELLED


@pytest.mark.parametrize("kind", ["object", "partial", "method"])
@aio
async def test_a_handler_may_be_anything_that_is_called_like_an_async_function(kind: str) -> None:
    class Handler:
        async def __call__(self, turn: Turn) -> None:
            await self.answer(turn)

        async def answer(self, turn: Turn, word: str = "hello") -> None:
            assert isinstance(turn, Turn)
            await turn.say(word)

    handler = Handler()
    handlers: dict[str, Callable[..., Any]] = {
        "object": handler,
        "partial": functools.partial(handler.answer, word="hello"),
        "method": handler.answer,
    }
    async with in_session(agent_with(handlers[kind])) as (client, session):
        assert await client.ask(session) == "end_turn"
        assert client.texts() == ["hello"]


# -- cancelling


async def _swallow(turn: Turn) -> str:
    await turn.say("so what")
    return "end_turn"


async def _raise(turn: Turn) -> None:
    raise RuntimeError("in my clean-up")


async def _refuse(turn: Turn) -> None:
    raise RemoteError(-32000, "log in")


@pytest.mark.parametrize("then", [None, _swallow, _raise, _refuse])
@aio
async def test_a_cancel_becomes_cancelled_whatever_the_handler_does_then(then: Any) -> None:
    hanging = Hanging(then)
    async with in_session(agent_with(hanging)) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.cancel(session)
        answer = await client.answer_to(prompt)
        assert answer["result"] == CANCELLED
        assert hanging.states == ["cancelled", "ended"]
        assert client.heard[-1] is answer
        assert ("so what" in client.texts()) is (then is _swallow)


@aio
async def test_a_handler_that_does_not_end_is_answered_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "CANCEL_GRACE", 0.02)

    async def hang_on(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turn.say("nobody hears this")

    hanging = Hanging(hang_on)
    async with in_session(agent_with(hanging)) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.cancel(session)
        assert (await client.answer_to(prompt))["result"] == CANCELLED
        # It was cancelled a second time, and then it did end.
        await until(lambda: hanging.states == ["cancelled", "ended"])
        assert client.texts() == ["begun"]
        prompt = client.prompt(session)
        await client.update(lambda update: len(client.texts()) == 2)
        client.cancel(session)
        await client.answer_to(prompt)
    assert "does not end" in caplog.text


@aio
async def test_a_cancel_in_one_piece_with_its_prompt_is_not_lost() -> None:
    begun: list[str] = []

    async def handler(turn: Turn) -> None:
        begun.append(turn.text)
        await asyncio.Event().wait()

    async with in_session(agent_with(handler)) as (client, session):
        prompt = client.asking("session/prompt", ClientEnd.prompt_of(session, "x"))
        client.say(prompt, client.noting("session/cancel", {"sessionId": session}))
        assert (await client.answer_to(prompt["id"]))["result"] == CANCELLED
        assert begun == []


@aio
async def test_a_cancel_of_an_idle_or_unknown_session_does_nothing() -> None:
    async with in_session(simple_agent()) as (client, session):
        client.cancel(session)
        client.cancel("nobody")
        assert await client.ask(session) == "end_turn"
        client.cancel(session)
        prompt = client.asking("session/prompt", ClientEnd.prompt_of(session, "x"))
        client.say(client.noting("session/cancel", {"sessionId": session}), prompt)
        assert (await client.answer_to(prompt["id"]))["result"] == {"stopReason": "end_turn"}


@aio
async def test_two_cancels_cancel_once() -> None:
    cancels = 0

    async def handler(turn: Turn) -> None:
        nonlocal cancels
        await turn.say("begun")
        for _ in range(2):
            try:
                await asyncio.sleep(0.02 if cancels else 60.0)
            except asyncio.CancelledError:
                cancels += 1

    async with in_session(agent_with(handler)) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.cancel(session)
        client.cancel(session)
        assert (await client.answer_to(prompt))["result"] == CANCELLED
    assert cancels == 1


@aio
async def test_a_prompt_that_is_called_off_as_a_request_is_answered_as_cancelled() -> None:
    hanging = Hanging()
    async with in_session(agent_with(hanging)) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.tell("$/cancel_request", {"requestId": prompt})
        assert (await client.answer_to(prompt))["error"]["code"] == -32800
        await until(lambda: hanging.states == ["cancelled", "ended"])
        next_prompt = client.prompt(session)
        client.cancel(session)
        assert (await client.answer_to(next_prompt))["result"] == CANCELLED


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
@aio
async def test_closing_and_deleting_cancel_the_turn_first(method: str) -> None:
    hanging = Hanging()
    agent = agent_with(hanging)

    @agent.close_session
    async def close(session: Session) -> None:
        hanging.states.append("closed")

    @agent.delete_session
    async def delete(session_id: str) -> None:
        hanging.states.append("deleted")

    async with in_session(agent) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        assert await client.call(method, {"sessionId": session}) == {}
        assert (await client.answer_to(prompt))["result"] == CANCELLED
        answers = [m["id"] for m in client.heard if "method" not in m]
        assert answers[-2] == prompt, "the turn ends before the session does"
        assert hanging.states[:2] == ["cancelled", "ended"]
        assert hanging.states[2:] == (["closed"] if method == "session/close" else ["deleted"])
        error = await client.refused("session/prompt", ClientEnd.prompt_of(session, "x"))
        assert error["code"] == -32002


@aio
async def test_deleting_a_session_that_is_not_open_is_the_authors_business() -> None:
    agent = simple_agent()
    deleted: list[str] = []

    @agent.delete_session
    async def delete(session_id: str) -> None:
        deleted.append(session_id)

    async with served(agent) as client:
        await client.shake_hands()
        assert await client.call("session/delete", {"sessionId": "x"}) == {}
        assert await client.call("session/delete", {"sessionId": "x"}) == {}
    assert deleted == ["x", "x"]


@aio
async def test_closing_needs_no_handler() -> None:
    async with in_session(simple_agent()) as (client, session):
        assert await client.call("session/close", {"sessionId": session}) == {}
        assert (await client.refused("session/close", {"sessionId": session}))["code"] == -32002


@aio
async def test_a_client_that_goes_away_cancels_every_handler() -> None:
    hangings = [Hanging() for _ in range(3)]
    waiting = iter(hangings)

    async def handler(turn: Turn) -> None:
        await next(waiting)(turn)

    async with in_session(agent_with(handler)) as (client, first):
        for session in (first, await client.new_session(), await client.new_session()):
            client.prompt(session)
        await until(lambda: len(client.texts()) == 3)
    for hanging in hangings:
        assert hanging.states == ["cancelled", "ended"]


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
async def test_lines_that_are_no_messages_are_answered_and_noted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "dragoman.agent")
    async with in_session(simple_agent()) as (client, session):
        client.raw(b"garbage\n[]\n7\n\n")
        assert await client.ask(session) == "end_turn"
        answers = [m["error"]["code"] for m in client.heard if "error" in m]
        assert answers == [-32700, -32600, -32600]
    assert any("garbage" in record.getMessage() for record in caplog.records)
