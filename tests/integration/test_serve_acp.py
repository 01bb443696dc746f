"""`dragoman serve acp` as a program, with warm peers, driven by the official Python SDK."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp as sdk
import pytest
from acp import schema

from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions
from dragoman.errors import ConnectError
from dragoman.transports import connect_unix, connect_websocket
from tests.aio import aio
from tests.integration.cli_shell import Cli, warm_cli, with_open_stdin
from tests.integration.test_bridge_official_client import Client

AGENT = Path(__file__).with_name("door_agent.py")
WAIT_TIMEOUT = 30.0

INHERITED = ("LOGNAME", "SHELL", "USER")
"""What the SDK adds to an environment."""


@pytest.fixture
def cli() -> Iterator[Cli]:
    """A user with two peers that are kept warm."""
    with warm_cli() as cli:
        config = cli.home / "config_home"
        (config / "peers").mkdir(parents=True)
        (config / "config.toml").write_text('enabled_peers = ["left", "right"]\n')
        for name in ("left", "right"):
            command = json.dumps([sys.executable, str(AGENT), name, str(cli.home)])
            (config / "peers" / f"{name}.toml").write_text(
                f'name = "{name}"\ntitle = "{name}"\nprotocol = "acp"\nroles = ["review"]\n'
                f"[[launch]]\ncommand = {command}\n"
            )
        yield cli


class Editor(Client):
    """An editor with one agent, and what it hears of each session."""

    agent: sdk.ClientSideConnection

    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[str] = []

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.sessions.append(session_id)
        await super().session_update(session_id, update, **kwargs)

    async def ask(self, session: str, text: str) -> str:
        """What the agent says to a prompt."""
        self.updates.clear()
        answer = await self.agent.prompt(session, [sdk.text_block(text)])
        assert answer.stop_reason == "end_turn"
        return self.text()

    async def hear(self, text: str) -> None:
        """Wait until the agent has said something."""
        while text not in str(self.updates):
            self.heard.clear()
            await self.heard.wait()


@asynccontextmanager
async def editor(cli: Cli, *words: str, timeout: float = WAIT_TIMEOUT) -> AsyncIterator[Editor]:
    client = Editor()
    command, *arguments = cli.argv("serve", "acp", *words)
    async with (
        asyncio.timeout(timeout),
        sdk.spawn_agent_process(
            client,  # type: ignore[arg-type]
            command,
            *arguments,
            env=cli.env,
            cwd=cli.cwd,
        ) as (agent, process),
    ):
        client.agent = agent
        await agent.initialize(1, client_capabilities=schema.ClientCapabilities())
        yield client
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0


def test_the_commands_of_a_session_come_after_the_response_that_opens_it(cli: Cli) -> None:
    count = 12
    with with_open_stdin(cli, "serve", "acp") as served:
        assert served.stdin is not None and served.stdout is not None
        # In one write: while one session waits until it is stored, the others are being opened.
        opening = {"cwd": str(cli.cwd), "mcpServers": []}
        served.stdin.write(request(0, "initialize", {"protocolVersion": 1}))
        served.stdin.writelines(request(1 + n, "session/new", opening) for n in range(count))
        served.stdin.flush()
        known: set[str] = set()
        with_commands: list[str] = []
        while len(with_commands) < count:
            message = json.loads(served.stdout.readline())
            if message.get("id"):
                known.add(message["result"]["sessionId"])
            elif message.get("method") == "session/update":
                assert message["params"]["sessionId"] in known
                with_commands.append(message["params"]["sessionId"])
        assert sorted(with_commands) == sorted(known)


def test_requests_that_are_piped_in_are_all_answered(cli: Cli) -> None:
    opening = {"cwd": str(cli.cwd), "mcpServers": []}
    hello = request(0, "initialize", {"protocolVersion": 1})
    asked = [hello, *(request(n, "session/new", opening) for n in (1, 2, 3))]
    # The last line has no newline.
    done = cli.child("serve", "acp", "--peer", "left", stdin="".join(asked).rstrip())
    answers = by_id(done.out)
    assert set(answers) == {0, 1, 2, 3}, done.err
    session = answers[3]["result"]["sessionId"]

    load = request(1, "session/load", {"sessionId": session, **opening})
    done = cli.child("serve", "acp", stdin=hello + load + request(2, "session/list", {}))
    answers = by_id(done.out)
    assert set(answers) == {0, 1, 2}, done.err
    assert len(answers[2]["result"]["sessions"]) == 3
    assert "configOptions" in answers[1]["result"]


@pytest.mark.parametrize("work", ["write x", "wait"])
def test_a_prompt_that_runs_at_the_end_of_stdin_is_cancelled_and_answered(
    work: str, cli: Cli
) -> None:
    awaited = "session/request_permission" if work == "write x" else "waiting"
    with with_open_stdin(cli, "serve", "acp", "--peer", "left") as served:
        assert served.stdin is not None and served.stdout is not None
        opening = {"cwd": str(cli.cwd), "mcpServers": []}
        served.stdin.write(request(0, "initialize", {"protocolVersion": 1}))
        served.stdin.write(request(1, "session/new", opening))
        served.stdin.flush()
        opened = read_until('"id":1', served.stdout)
        text = [{"type": "text", "text": work}]
        session = by_id(opened)[1]["result"]["sessionId"]
        served.stdin.write(request(2, "session/prompt", {"sessionId": session, "prompt": text}))
        served.stdin.flush()
        read_until(awaited, served.stdout)
        served.stdin.close()
        answer = by_id(read_until('"id":2', served.stdout))[2]
        assert answer["result"]["stopReason"] == "cancelled"
        assert served.wait(WAIT_TIMEOUT) == 0


def read_until(text: str, lines: Iterable[str]) -> str:
    """The first line that contains the text."""
    return next(line for line in lines if text in line)


def by_id(out: str) -> dict[int, Any]:
    """The responses among some messages."""
    messages = [json.loads(line) for line in out.splitlines()]
    return {message["id"]: message for message in messages if "method" not in message}


def request(id: int, method: str, params: dict[str, Any]) -> str:
    call = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return json.dumps(call) + "\n"


@aio
async def test_an_editor_works_with_peers_and_changes_between_them(cli: Cli) -> None:
    async with editor(cli) as it:
        session = (await it.agent.new_session(str(cli.cwd))).session_id
        chosen = await it.agent.set_config_option("peer", session, "left")
        assert [option.id for option in chosen.config_options] == ["peer", "role", "model"]
        assert await it.ask(session, "count 200") == "".join(f"{n} " for n in range(200))
        assert await it.ask(session, "write notes.md") == "written"
        assert it.asked == ["Write it"]
        await it.agent.set_config_option("model", session, "large")
        assert await it.ask(session, "model") == "large"
        await it.agent.set_config_option("peer", session, "right")
        told = await it.ask(session, "brief")
        assert told.startswith("right takes over with a brief: 3 messages")
        assert "User: write notes.md\nleft: written" in told and "- notes.md" in told


@aio
async def test_more_folders_reach_a_warm_peer_and_one_that_is_none_is_refused(cli: Cli) -> None:
    async with editor(cli, "--peer", "left") as it:
        other = cli.home / "other"
        with pytest.raises(sdk.RequestError, match="other is not a directory"):
            await it.agent.new_session(str(cli.cwd), additional_directories=[str(other)])
        with pytest.raises(sdk.RequestError, match="other is not a directory") as refused:
            await it.agent.new_session(str(other))
        assert refused.value.code == -32602
        other.mkdir()
        opened = await it.agent.new_session(str(cli.cwd), additional_directories=[str(other)])
        assert await it.ask(opened.session_id, "folders") == f"{cli.cwd} {other}"
        with pytest.raises(sdk.RequestError, match="right works in one directory"):
            await it.agent.set_config_option("peer", opened.session_id, "right")
        assert await it.ask(opened.session_id, "known") == "folders, known"


@aio
async def test_a_cancel_stops_the_turn_in_the_peer_and_other_sessions_go_on(cli: Cli) -> None:
    async with editor(cli, "--peer", "left") as it:
        one = (await it.agent.new_session(str(cli.cwd))).session_id
        other = (await it.agent.new_session(str(cli.cwd))).session_id
        # Nobody has measured whether the left one can do two things at once, so it does one.
        await it.agent.set_config_option("peer", other, "right")
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(it.agent.prompt(one, [sdk.text_block("wait")]))
            await it.hear("waiting")
            assert await it.ask(other, "hello") == "right heard hello"
            await it.agent.cancel(one)
        assert turn.result().stop_reason == "cancelled"
        assert await it.ask(one, "known") == "wait, known"


@aio
async def test_another_process_resumes_a_session_before_its_first_prompt_and_loads_it_later(
    cli: Cli,
) -> None:
    async with editor(cli) as it:
        session = (await it.agent.new_session(str(cli.cwd))).session_id
    async with editor(cli) as it:
        await it.agent.resume_session(cwd=str(cli.cwd), session_id=session)
        await it.agent.set_config_option("peer", session, "left")
        assert await it.ask(session, "hello") == "left heard hello"
    async with editor(cli) as it:
        (listed,) = (await it.agent.list_sessions(cwd=str(cli.cwd))).sessions
        assert (listed.session_id, listed.title) == (session, "hello")
        await it.agent.load_session(cwd=str(cli.cwd), session_id=session)
        said = [update.content.text for update in it.updates if hasattr(update, "content")]
        assert said == ["hello", "left heard hello"]
        # The peer was kept by its broker, and knows what was said.
        assert await it.ask(session, "known") == "hello, known"


@aio
async def test_a_session_of_the_command_line_goes_on_in_the_editor(cli: Cli) -> None:
    # As from a terminal: a peer that may write, in the environment that the SDK gives its agents.
    # With anything else it would be another process, which knows nothing of the session.
    cli.extra |= {name: os.environ[name] for name in INHERITED if name in os.environ}
    words = ("run", "left", "hello", "-s", "talk", "--approve-all")
    begun = await asyncio.to_thread(cli.child, *words)
    assert begun.code == 0, begun.err
    async with editor(cli) as it:
        (listed,) = (await it.agent.list_sessions(cwd=str(cli.cwd))).sessions
        loaded = await it.agent.load_session(cwd=str(cli.cwd), session_id=listed.session_id)
        assert loaded.config_options is not None
        assert {one.id: one.current_value for one in loaded.config_options}["peer"] == "left"
        said = [update.content.text for update in it.updates if hasattr(update, "content")]
        assert said == ["hello", "left heard hello"]
        assert await it.ask(listed.session_id, "known") == "hello, known"
        await it.agent.set_config_option("peer", listed.session_id, "right")
        assert "User: hello\nleft: left heard hello" in await it.ask(listed.session_id, "brief")


@aio
async def test_a_notice_of_the_broker_about_a_turn_is_sent_with_that_turn(cli: Cli) -> None:
    async with editor(cli, "--peer", "left") as it:
        session = (await it.agent.new_session(str(cli.cwd))).session_id
        said = await it.ask(session, "form")
        assert "the agent's question 'which?' was declined: no terminal to ask on" in said


@aio
async def test_the_tool_call_of_a_cancelled_delegation_ends(cli: Cli) -> None:
    async with editor(cli, "--role", "review") as it:
        session = (await it.agent.new_session(str(cli.cwd))).session_id
        async with asyncio.TaskGroup() as group:
            turn = group.create_task(it.agent.prompt(session, [sdk.text_block("wait")]))
            await it.hear("characters")
            await it.agent.cancel(session)
        assert turn.result().stop_reason == "cancelled"
        calls = [each for each in it.updates if hasattr(each, "tool_call_id")]
        assert calls[-1].status == "failed", calls


@aio
async def test_the_router_delegates_and_shows_it_as_a_tool_call(cli: Cli) -> None:
    async with editor(cli, "--role", "review") as it:
        session = (await it.agent.new_session(str(cli.cwd))).session_id
        it.updates.clear()
        answer = await it.agent.prompt(session, [sdk.text_block("look at it")])
        assert answer.stop_reason == "end_turn"
        calls = [update for update in it.updates if hasattr(update, "tool_call_id")]
        assert (calls[0].title, calls[-1].status) == ("Delegate review", "completed")
        assert calls[-1].raw_output["answered"] in ("left", "right")
        assert it.text().strip().endswith("heard look at it")
        (shown,) = calls[-1].content
        assert len(shown.content.text.splitlines()) == 1, "the choice and its reason"
        assert "it claims review" in shown.content.text
        assert not any("heard look at it" in str(call) for call in calls), "the answer is told once"
        stats = await it.ask(session, "/stats")
        assert "of 1 |" in stats and "| review |" in stats


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
@aio
async def test_a_server_that_is_asked_to_end_ends_its_turn_and_leaves_no_process(
    how: signal.Signals, code: int, cli: Cli
) -> None:
    process = await asyncio.create_subprocess_exec(
        *cli.argv("serve", "acp", "--peer", "left"),
        env=cli.env,
        cwd=cli.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        async with asyncio.timeout(WAIT_TIMEOUT):

            async def call(id: int, method: str, **params: Any) -> None:
                request = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
                assert process.stdin is not None
                process.stdin.write(json.dumps(request).encode() + b"\n")

            async def until(text: bytes) -> bytes:
                assert process.stdout is not None
                while text not in (line := await process.stdout.readline()):
                    assert line
                return line

            await call(1, "initialize", protocolVersion=1)
            await call(2, "session/new", cwd=str(cli.cwd), mcpServers=[])
            opened = json.loads(await until(b'"id":2'))["result"]["sessionId"]
            await call(
                3, "session/prompt", sessionId=opened, prompt=[{"type": "text", "text": "wait"}]
            )
            await until(b"waiting")
            process.send_signal(how)
            assert await process.wait() == code
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    listed = await asyncio.to_thread(cli.child, "jobs", "list", "--format", "json")
    (job,) = [json.loads(line) for line in listed.out.splitlines()]
    # The broker lives on, and so would the turn: it ends because nobody waits for it.
    await asyncio.to_thread(cli.child, "jobs", "watch", job["job"])
    listed = await asyncio.to_thread(cli.child, "jobs", "list", "--format", "json")
    (job,) = [json.loads(line) for line in listed.out.splitlines()]
    assert (job["peer"], job["state"], job["outcome"]) == ("left", "ended", "cancelled")


@asynccontextmanager
async def listening(cli: Cli, *words: str) -> AsyncIterator[tuple[str, list[str]]]:
    """A door with an address; what it said before it."""
    process = await asyncio.create_subprocess_exec(
        *cli.argv("serve", "acp", *words),
        env=cli.env,
        cwd=cli.cwd,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said: list[str] = []
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not (found := re.match(r"listening on (.*)", said[-1] if said else "")):
                said.append((await process.stderr.readline()).decode())
                assert said[-1], said
            yield found[1], said
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 143
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@aio
async def test_the_websocket_of_the_command_wants_the_token_that_it_told(cli: Cli) -> None:
    async with listening(cli, "--websocket", "0") as (address, said):
        token = said[0].split()[-1]
        with pytest.raises(ConnectError) as refused:
            await connect_websocket(address)
        assert refused.value.status == 401
        stream = await connect_websocket(address, headers={"Authorization": f"Bearer {token}"})
        async with AcpClient(stream, ClientOptions()) as client:
            session = await client.new_session(cli.cwd)
            await session.set_option("peer", "left")
            assert (await session.ask("hello")).text == "left heard hello"


@aio
async def test_the_socket_of_the_command_serves_many_and_is_gone_with_it(cli: Cli) -> None:
    path = cli.home / "door.sock"
    async with listening(cli, "--socket", str(path)):
        async with (
            AcpClient(await connect_unix(path), ClientOptions()) as one,
            AcpClient(await connect_unix(path), ClientOptions()) as other,
        ):
            first = await one.new_session(cli.cwd)
            # A session of one client is there for the other.
            await other.resume_session(first.id, cli.cwd)
    assert not path.exists()


def test_a_peer_that_is_not_enabled_is_refused_before_anything_is_served(cli: Cli) -> None:
    done = cli("serve", "acp", "--peer", "gemini")
    assert done.code == 2 and "dragoman peers enable gemini" in done.err and done.out == ""


@aio
async def test_a_notice_is_reported_in_other_words_to_a_client_that_did_not_announce_notices(
    cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    def heard(it: Editor) -> list[str]:
        return [
            update.content.text
            for update in it.updates
            if isinstance(update, schema.AgentThoughtChunk)
            and isinstance(update.content, schema.TextContentBlock)
        ]

    async with editor(cli, "--peer", "left") as it:
        session = (await it.agent.new_session(str(cli.cwd))).session_id
        await it.agent.prompt(session, [sdk.text_block("notice")])
        assert heard(it) == ["Careful: it is hot\n"]
    async with editor(cli, "--peer", "left") as it:
        await it.agent.load_session(str(cli.cwd), session)
        await it.hear("noticed")
        assert heard(it) == ["Careful: it is hot\n"]
    attached = cli.argv("broker", "attach", "left")
    client = Editor()
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        sdk.spawn_agent_process(
            client,  # type: ignore[arg-type]
            attached[0],
            *attached[1:],
            env=cli.env,
            cwd=cli.cwd,
        ) as (agent, _),
    ):
        await agent.initialize(1, client_capabilities=schema.ClientCapabilities())
        session = (await agent.new_session(str(cli.cwd))).session_id
        await agent.prompt(session, [sdk.text_block("notice")])
        assert heard(client) == ["Careful: it is hot\n"]
    # The SDK logs what it cannot decode.
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("warm", ["1", "0"])
@aio
async def test_one_tool_call_is_asked_about_once_and_another_act_under_its_id_again(
    warm: str, cli: Cli
) -> None:
    cli.extra["DRAGOMAN_WARM"] = warm
    async with editor(cli, "--peer", "left") as it:
        session = (await it.agent.new_session(str(cli.cwd))).session_id
        one, other = cli.cwd / "one.txt", cli.cwd / "other.txt"
        assert await it.ask(session, f"kimi {one} {one}") == "written"
        assert it.asked == ["Write"]
        assert await it.ask(session, f"kimi {one} {other}") == "written"
        assert it.asked == ["Write", "Write", f"Write {other}"]
        assert one.read_text() == other.read_text() == "x"


def test_a_client_that_asks_for_a_newer_acp_is_named_on_stderr(cli: Cli) -> None:
    hello = {"protocolVersion": 2, "clientInfo": {"name": "future", "version": "9"}}
    line = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    done = cli.child("serve", "acp", stdin=json.dumps(line) + "\n")
    assert json.loads(done.out)["result"]["protocolVersion"] == 1
    assert "future asked for ACP version 2 and got version 1" in done.err
    assert "needs a newer dragoman" in done.err
