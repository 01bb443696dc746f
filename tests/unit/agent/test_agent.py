"""The table of an author's handlers, what it says about the agent, and where an agent serves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.agent import Agent, Turn
from dragoman.agent import agent as agent_module
from dragoman.client.acp import use_agent
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionEnded, ConnectionLost, UsageError
from dragoman.transports import connect_unix, connect_websocket
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.agent.client_end import ClientEnd, served, simple_agent
from tests.unit.rpc.other_side import soon, until

HANDLERS = [
    "prompt",
    "new_session",
    "load_session",
    "resume_session",
    "list_sessions",
    "close_session",
    "delete_session",
    "set_mode",
    "set_option",
    "authenticate",
    "logout",
]


async def nothing(*args: Any) -> None:
    """Does nothing."""


# -- capabilities


def wire(agent: Agent) -> Any:
    return acp.decode(acp.encode(agent.capabilities), acp.AgentCapabilities)


def test_an_agent_can_what_it_has_handlers_for() -> None:
    agent = Agent("a")
    can = agent.capabilities
    assert can.load_session is False
    session = can.session_capabilities
    assert (session.list, session.delete, session.resume) == (None, None, None)
    assert session.additional_directories is None
    # Closing needs no help of the author.
    assert session.close == acp.Supported()
    assert can.auth.logout is None
    for name in ("load_session", "resume_session", "list_sessions", "delete_session", "logout"):
        getattr(agent, name)(nothing)
    can = agent.capabilities
    assert can.load_session is True
    session = can.session_capabilities
    assert (session.list, session.delete, session.resume) == (acp.Supported(),) * 3
    assert can.auth.logout == acp.Supported()
    assert wire(agent) == can


def test_switches_say_what_cannot_be_seen_from_handlers() -> None:
    plain = Agent("a").capabilities
    assert plain.prompt_capabilities == acp.PromptCapabilities()
    assert plain.mcp_capabilities == acp.McpCapabilities()
    rich = Agent(
        "a",
        image=True,
        audio=True,
        embedded_context=True,
        mcp_http=True,
        mcp_sse=True,
        additional_directories=True,
    ).capabilities
    assert rich.prompt_capabilities == acp.PromptCapabilities(
        image=True, audio=True, embedded_context=True
    )
    assert rich.mcp_capabilities == acp.McpCapabilities(http=True, sse=True)
    assert rich.session_capabilities.additional_directories == acp.Supported()


# -- registering


@pytest.mark.parametrize("name", HANDLERS)
def test_a_handler_is_registered_once_and_stays_what_it_is(name: str) -> None:
    agent = Agent("a")
    assert getattr(agent, name)(nothing) is nothing
    assert getattr(agent.handlers, name) is nothing
    with pytest.raises(UsageError, match=name):
        getattr(agent, name)(nothing)


def test_a_command_has_a_description_and_a_name_that_can_be_typed() -> None:
    agent = Agent("a")

    @agent.command("review", hint="what to review")
    async def review(turn: Turn, text: str) -> None:
        """Review a change."""

    @agent.command("plain")
    async def plain(turn: Turn, text: str) -> None: ...

    agent.command("said", "Said so")(nothing)
    commands = agent.handlers.commands
    assert [(c.name, c.description, c.hint) for c in commands.values()] == [
        ("review", "Review a change.", "what to review"),
        ("plain", "plain", None),
        ("said", "Said so", None),
    ]
    with pytest.raises(UsageError, match="/review"):
        agent.command("review")(nothing)
    with pytest.raises(UsageError, match="/two words"):
        agent.command("two words")


def test_extensions_begin_with_an_underscore() -> None:
    agent = Agent("a")
    for decorate in (agent.extension, agent.extension_notification):
        with pytest.raises(UsageError, match="underscore"):
            decorate("session/prompt")
        decorate("_x/y")(nothing)
        with pytest.raises(UsageError, match="_x/y"):
            decorate("_x/y")(nothing)


def test_a_misspelt_argument_is_an_error() -> None:
    with pytest.raises(TypeError):
        Agent("a", imgae=True)  # type: ignore[call-arg]


# -- serving


@pytest.mark.parametrize("size", [0, -1, 4095, True, "big"])
def test_a_line_limit_that_cannot_work_is_an_error_at_once(size: Any) -> None:
    with pytest.raises(UsageError, match="max_line_size="):
        Agent("a", max_line_size=size)


@aio
async def test_an_agent_without_a_prompt_handler_cannot_serve(tmp_path: Path) -> None:
    agent = Agent("a")
    ours, theirs = memory_pair()
    with pytest.raises(UsageError, match=r"@agent\.prompt"):
        await agent.serve(theirs)
    with pytest.raises(ConnectionLost):
        theirs.write(b"x\n")
    await ours.aclose()
    with pytest.raises(UsageError):
        await agent.serve_unix(tmp_path / "a")
    with pytest.raises(UsageError):
        await agent.serve_websocket("127.0.0.1", 0)


@aio
async def test_serving_ends_with_the_stream_and_says_why() -> None:
    async with served(simple_agent()) as client:
        await client.shake_hands()
        await client.stream.aclose()
        assert client.served is not None
        assert isinstance(await soon(client.served), ConnectionEnded)


@aio
async def test_one_agent_serves_many_clients_on_a_socket_and_they_do_not_meet(
    tmp_path: Path,
) -> None:
    agent = simple_agent()
    path = tmp_path / "agent.sock"
    async with await agent.serve_unix(path):
        async with (
            use_agent(await connect_unix(path)) as one,
            use_agent(await connect_unix(path)) as two,
        ):
            first, second = await one.new_session("/w"), await two.new_session("/w")
            assert first.id != second.id
            answers = await soon(asyncio.gather(first.ask("one"), second.ask("two")))
            assert [answer.text for answer in answers] == ["one", "two"]
            # A session belongs to the connection that opened it.
            ours = await connect_unix(path)
            client = ClientEnd(ours)
            ours.start(client)
            await client.shake_hands()
            refused = await client.refused(
                "session/prompt", ClientEnd.prompt_of(first.id, "whose?")
            )
            assert refused["code"] == -32002
            await ours.aclose()
    assert not path.exists()


@aio
async def test_closing_a_listener_cancels_the_turns_of_its_clients(tmp_path: Path) -> None:
    agent = Agent("slow")
    states: list[str] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        states.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            states.append("ended")

    listener = await agent.serve_unix(tmp_path / "agent.sock")
    async with use_agent(await connect_unix(tmp_path / "agent.sock")) as client:
        session = await client.new_session("/w")
        async with session.prompt("hello") as turn:
            await until(lambda: states == ["begun"])
            await soon(listener.aclose())
            assert states == ["begun", "ended"]
            with pytest.raises(ConnectionLost):
                (await turn.wait()).require_ok()


@aio
async def test_an_agent_serves_on_a_websocket() -> None:
    agent = simple_agent()
    async with await agent.serve_websocket("127.0.0.1", 0) as listener:
        async with use_agent(await connect_websocket(listener.address)) as client:
            session = await client.new_session("/w")
            assert (await soon(session.ask("over the web"))).text == "over the web"


def test_running_serves_standard_input_and_output_and_an_interrupt_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []

    async def open_nothing() -> Any:
        opened.append("stdio")
        ours, theirs = memory_pair()
        await ours.aclose()
        return theirs

    async def interrupt() -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(agent_module, "open_stdio", open_nothing)
    simple_agent().run()
    assert opened == ["stdio"]
    monkeypatch.setattr(agent_module, "open_stdio", interrupt)
    simple_agent().run()
