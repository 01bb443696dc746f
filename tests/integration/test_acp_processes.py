"""Our client and our agents in processes of their own: how they begin, talk, and come to an end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.acp import ClientOptions, open_agent, use_agent
from dragoman.client.budgets import Budgets
from dragoman.client.permissions import approve_all
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import (
    CallTimeout,
    ProcessExited,
    ProtocolMismatch,
    SessionUnusable,
)
from dragoman.testing.scripted import (
    Exit,
    Expect,
    ExpectAnswer,
    FloodStderr,
    GoSilent,
    IgnoreTerminate,
    Notify,
    Reply,
    Send,
    command,
)
from dragoman.transports import spawn
from tests.aio import aio
from tests.integration.acp_programs import ENVIRONMENT, TIMEOUT, Child, program, running, scripted
from tests.integration.children import QUICK, Inbox

ECHO = """
    from dragoman.agent import Agent, Turn
    agent = Agent("echo", version="1.0")
    @agent.prompt
    async def answer(turn: Turn) -> None:
        await turn.say("You said: " + turn.text)
    agent.run()
"""


def chunk(text: str) -> dict[str, Any]:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return {"sessionId": "s1", "update": update}


# -- the beginning


@aio
async def test_an_agent_of_the_size_of_a_readme_works() -> None:
    async with open_agent(program(ECHO), env=ENVIRONMENT) as client:
        session = await client.new_session(Path.cwd())
        assert (await session.ask("hello")).text == "You said: hello"
        assert client.agent.agent_info == acp.Implementation(name="echo", version="1.0")


@pytest.mark.parametrize(
    "argv",
    [
        command(Expect("initialize"), Reply({"protocolVersion": 0})),
        # This one has to be killed.
        command(IgnoreTerminate(), Expect("initialize"), Reply({"protocolVersion": 2}), GoSilent()),
    ],
    ids=["polite", "stubborn"],
)
@aio
async def test_an_agent_of_another_version_is_gone(argv: list[str]) -> None:
    stream = await spawn(argv, times=QUICK)
    with pytest.raises(ProtocolMismatch):
        async with use_agent(stream):
            pytest.fail("the client must not be usable")
    assert not Child(stream.pid).is_running


@aio
async def test_a_program_that_is_not_an_agent_says_so_and_is_gone() -> None:
    hello = {"userAgent": "x/1", "codexHome": "/h", "platformFamily": "unix", "platformOs": "linux"}
    argv = command(Expect("initialize"), Reply(hello))
    with pytest.raises(ProtocolMismatch):
        async with open_agent(argv):
            pytest.fail("the client must not be usable")
    with pytest.raises(ProcessExited) as caught:
        async with open_agent(command(FloodStderr(200), Exit(41))):
            pytest.fail("the client must not be usable")
    assert caught.value.exit_code == 41
    assert "complaint" in caught.value.stderr_tail


@aio
async def test_a_program_that_says_nothing_uses_up_the_budget_of_the_handshake() -> None:
    options = ClientOptions(budgets=Budgets(initialize=0.2))
    with pytest.raises(CallTimeout, match="initialize"):
        async with open_agent(command(GoSilent()), options=options):
            pytest.fail("the client must not be usable")


# -- the end of an agent


@aio
async def test_an_agent_that_dies_in_a_turn_is_heard_to_the_end() -> None:
    argv = scripted(
        Expect("session/prompt"),
        *(Notify("session/update", chunk(str(number))) for number in range(50)),
        FloodStderr(100_000),
        Exit(3),
    )
    async with asyncio.timeout(TIMEOUT), running(argv) as (client, _):
        session = await client.new_session(Path.cwd())
        async with session.prompt("hello") as turn:
            # Nothing is read before the agent is dead.
            await client.connection.wait_ended()
            said: list[str] = []
            async for update in turn:
                assert isinstance(update, acp.AgentMessageChunk)
                assert isinstance(update.content, acp.TextContent)
                said.append(update.content.text)
        assert said == [str(number) for number in range(50)]
        error = turn.result.error
        assert isinstance(error, ProcessExited)
        assert error.exit_code == 3
        assert error.may_have_run
        assert "complaint" in error.stderr_tail
        with pytest.raises(ProcessExited):
            await client.new_session(Path.cwd())


@aio
async def test_an_agent_that_ignores_a_cancel_is_left_behind_and_then_ended() -> None:
    argv = scripted(Expect("session/prompt"), GoSilent())
    options = ClientOptions(budgets=Budgets(cancel_grace=0.1))
    async with asyncio.timeout(TIMEOUT), running(argv, options, times=QUICK) as (client, child):
        session = await client.new_session(Path.cwd())
        async with session.prompt("hello") as turn:
            turn.cancel()
            assert (await turn.wait()).stop == "cancelled without an answer"
        with pytest.raises(SessionUnusable):
            async with session.prompt("again"):
                pytest.fail("the turn must not begin")
        assert child.is_running
    assert not child.is_running


@aio
async def test_a_permission_and_a_cancel_of_a_real_agent_that_waits_for_the_answer() -> None:
    # Three real agents answer a cancelled prompt only after their question was answered.
    permission = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "session/request_permission",
        "params": {
            "sessionId": "s1",
            "toolCall": {"toolCallId": "c1", "title": "x"},
            "options": [{"optionId": "o", "name": "Yes", "kind": "allow_once"}],
        },
    }
    argv = scripted(
        Expect("session/prompt"),
        Send(permission),
        Expect("session/cancel"),
        ExpectAnswer(0),
        Reply({"stopReason": "cancelled"}, to="session/prompt"),
    )

    async def permit(question: Any) -> Any:
        await asyncio.Event().wait()

    async with asyncio.timeout(TIMEOUT), running(argv, ClientOptions(permit=permit)) as (client, _):
        session = await client.new_session(Path.cwd())
        async with session.prompt("hello") as turn:
            await anext(turn)
            turn.cancel()
            result = await turn.wait()
        assert result.stop == "cancelled"


# -- the agent's side


@aio
async def test_stray_prints_do_not_get_between_messages() -> None:
    noisy = """
        import logging, os, subprocess, sys
        print("imported")
        from dragoman.agent import Agent, BlockingTurn
        agent = Agent("noisy")
        @agent.prompt
        def answer(turn: BlockingTurn) -> None:
            print("a stray line")
            sys.stdout.write("half a line")
            os.write(1, b"straight to the descriptor\\n")
            os.system("echo from a shell")
            subprocess.run(["echo", "from a child"])
            logging.warning("logged")
            turn.say("clean")
            sys.stdout.flush()
        agent.run()
    """
    noises: list[Any] = []
    options = ClientOptions(on_noise=noises.append)
    async with asyncio.timeout(TIMEOUT), running(program(noisy), options) as (client, _):
        session = await client.new_session(Path.cwd())
        assert (await session.ask("hello")).text == "clean"
        assert (await session.ask("again")).text == "clean"
    assert noises == []


@aio
async def test_a_tight_loop_lets_cancels_and_other_sessions_in() -> None:
    talker = """
        from dragoman.agent import Agent, BlockingTurn, Turn
        agent = Agent("talker")
        @agent.prompt
        async def answer(turn: Turn) -> None:
            if turn.text == "talk":
                while True:
                    await turn.say("x" * 100)
            await turn.say(turn.text)
        agent.run()
    """
    async with asyncio.timeout(TIMEOUT), running(program(talker)) as (client, _):
        one, two = await client.new_session(Path.cwd()), await client.new_session(Path.cwd())
        async with one.prompt("talk") as turn:
            await anext(turn)
            # While the first talks without pause, the second is served.
            assert (await two.ask("quick")).text == "quick"
            turn.cancel()
            assert (await turn.wait()).stop == "cancelled"


@aio
async def test_a_client_that_vanishes_cancels_the_handlers_and_the_agent_ends(
    tmp_path: Path,
) -> None:
    slow = """
        import asyncio, pathlib, sys
        from dragoman.agent import Agent, Turn
        agent = Agent("slow")
        @agent.prompt
        async def answer(turn: Turn) -> None:
            await turn.say("begun")
            try:
                await asyncio.Event().wait()
            finally:
                pathlib.Path(sys.argv[1], "cleaned").touch()
        agent.run()
    """
    stream = await spawn([*program(slow), str(tmp_path)], env=ENVIRONMENT)
    inbox = Inbox()
    stream.start(inbox)

    def say(id: int, method: str, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        stream.write(json.dumps(message).encode() + b"\n")

    say(1, "initialize", protocolVersion=1)
    say(2, "session/new", cwd=str(tmp_path), mcpServers=[])
    session = json.loads(await inbox.line(1))["result"]["sessionId"]
    say(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
    assert "begun" in await inbox.line(2)
    # In the middle of a turn, and without a word.
    await stream.aclose()
    failure = await inbox.end()
    assert (tmp_path / "cleaned").exists(), failure
    assert not Child(stream.pid).is_running


@aio
async def test_threads_of_an_agent_do_not_keep_it_alive() -> None:
    stuck = """
        import threading
        from dragoman.agent import Agent, BlockingTurn
        agent = Agent("stuck")
        @agent.prompt
        def answer(turn: BlockingTurn) -> None:
            turn.say("begun")
            threading.Event().wait()
        agent.run()
    """
    async with asyncio.timeout(TIMEOUT), running(program(stuck)) as (client, child):
        session = await client.new_session(Path.cwd())
        turn = session.prompt("hello")
        await turn.begin()
        await anext(turn)
        await client.aclose()
        assert not child.is_running


@aio
async def test_an_agent_asks_for_permission_from_a_thread() -> None:
    careful = """
        from dragoman.agent import Agent, BlockingTurn
        agent = Agent("careful")
        @agent.prompt
        def answer(turn: BlockingTurn) -> None:
            with turn.tool("Delete", kind="delete", status="pending") as tool:
                allowed = turn.ask_permission(tool)
            turn.say(f"allowed: {allowed}")
        agent.run()
    """
    for permit, said in ((approve_all, "allowed: True"), (None, "allowed: False")):
        options = ClientOptions(permit=permit) if permit else ClientOptions()
        async with asyncio.timeout(TIMEOUT), running(program(careful), options) as (client, _):
            session = await client.new_session(Path.cwd())
            assert (await session.ask("hello")).text == said


@aio
async def test_commands_that_run_for_an_agent_end_with_its_client(tmp_path: Path) -> None:
    waiting = """
        from dragoman.agent import Agent, Turn
        agent = Agent("waiting")
        @agent.prompt
        async def answer(turn: Turn) -> None:
            terminal = await turn.terminal("/bin/sh", ["-c", "echo $$ > pid; exec sleep 60"])
            while not (await terminal.output()).exit_status:
                await turn.say("x")
        agent.run()
    """
    options = ClientOptions(terminals=True)
    pid = tmp_path / "pid"
    async with asyncio.timeout(TIMEOUT), running(program(waiting), options) as (client, _):
        session = await client.new_session(tmp_path)
        turn = session.prompt("hello")
        await turn.begin()
        while not pid.exists() or not pid.read_text():
            await anext(turn)
        assert Child(int(pid.read_text())).is_running
        # Neither the turn nor the session is ended before the client is.
        await client.aclose()
        assert not Child(int(pid.read_text())).is_running
