"""What an agent offers to choose from: slash commands, modes and config options."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.agent import Agent, Turn
from dragoman.agent.session import Session
from dragoman.agent.settings import SessionSettings
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.wire import codes
from tests.aio import aio
from tests.unit.agent.client_end import (
    NEW,
    OLD,
    in_session,
    served,
    simple_agent,
)
from tests.unit.agent.test_settings import DEPTH, LOUD, MODES
from tests.unit.rpc.other_side import turns

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
async def test_commands_are_reported_right_after_the_session_is_there() -> None:
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
        ("/etc is broken", "/etc is broken", "end_turn"),
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
async def test_an_unknown_command_is_refused_with_those_that_there_are() -> None:
    async with in_session(commanding()) as (client, session):
        assert await client.ask(session, "/revue it") == "refusal"
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
        session.choose_from(SessionSettings([acp.SessionMode(id="own", name="Own")], [LOUD]))

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
