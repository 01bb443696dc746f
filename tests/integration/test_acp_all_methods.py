"""Every stable method and every kind of update, from our client to our agent through real pipes.

The scenes below say which methods they are about, and the wire is recorded: a method counts as
tried only if it was seen on the wire in the right direction. A method or an update that is added
to the protocol's tables and to no scene fails here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import typing
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.client.acp import AcpClient, ClientOptions, Session, use_agent
from dragoman.client.permissions import Answer, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.methods import Method
from dragoman.errors import AuthRequired, CallTimeout, ConnectionLost, RemoteError
from dragoman.transports import spawn
from dragoman.transports.base import Receiver, Stream
from tests.aio import aio
from tests.integration import acp_rich_agent

TIMEOUT = 30.0
"""Seconds until a wait is a failure; the machine may be busy with other tests."""

ROOT = Path(__file__).resolve().parents[2]

PATHS = os.pathsep.join([str(Path(dragoman.__file__).parents[1]), str(ROOT)])
"""Where a child finds dragoman and these tests, installed or not."""


class Recorded(Stream):
    """A stream that notes every message that passes, with its direction."""

    def __init__(self, inner: Stream) -> None:
        self._inner = inner
        self._receiver: Receiver | None = None
        self._parts = {"client_to_agent": b"", "agent_to_client": b""}
        self.messages: list[tuple[str, Any]] = []

    def _note(self, direction: str, data: bytes) -> None:
        *lines, self._parts[direction] = (self._parts[direction] + data).split(b"\n")
        self.messages += [(direction, json.loads(line)) for line in lines]

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._inner.start(self)

    def data_received(self, data: bytes) -> None:
        assert self._receiver is not None
        self._note("agent_to_client", data)
        self._receiver.data_received(data)

    def stream_ended(self, failure: ConnectionLost) -> None:
        assert self._receiver is not None
        self._receiver.stream_ended(failure)

    def write(self, data: bytes) -> None:
        self._note("client_to_agent", data)
        self._inner.write(data)

    @property
    def unsent_size(self) -> int:
        return self._inner.unsent_size

    async def drain(self) -> None:
        await self._inner.drain()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def saw(self, direction: str, method: Method[Any, Any]) -> bool:
        """Whether the method went that way, and its answer came back if it is a request."""
        ids = [
            message.get("id")
            for way, message in self.messages
            if way == direction and message.get("method") == method.name
        ]
        if method.kind == "notification":
            return ids != [] and ids == [None] * len(ids)
        answers = [
            message["id"]
            for way, message in self.messages
            if way != direction and "method" not in message
        ]
        return ids != [] and set(ids) <= set(answers)


class Stage:
    """A client with everything switched on, the agent as its child, and the wire between them."""

    def __init__(self, client: AcpClient, wire: Recorded, folder: Path) -> None:
        self.client = client
        self.wire = wire
        self.folder = folder
        self.done: list[str] = []

    async def ask(self, prompt: Any) -> str:
        session = await self.client.new_session(self.folder)
        return (await session.ask(prompt)).text


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    done: list[str] = []

    async def permit(question: Question) -> Answer:
        if question.title == "May I?":
            await asyncio.Event().wait()
        return Answer.ALLOW_ONCE

    async def elicit(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        if isinstance(request, acp.ElicitationForm):
            return acp.ElicitationAccepted(content={"name": "dragoman"})
        return acp.ElicitationAccepted()

    options = ClientOptions(
        permit=permit,
        elicit=elicit,
        visits=True,
        on_url_done=done.append,
        terminals=True,
        terminal_login=True,
    )
    # By the path and not as a module: a child does not know where the tests are.
    argv = [sys.executable, acp_rich_agent.__file__]
    wire = Recorded(await spawn(argv, env={"PYTHONPATH": PATHS}))
    async with asyncio.timeout(TIMEOUT), use_agent(wire, options=options) as client:
        stage = Stage(client, wire, folder)
        stage.done = done
        yield stage


Scene = Callable[[Stage], Awaitable[None]]

SCENES: dict[Scene, tuple[Method[Any, Any], ...]] = {}
"""What is played, and which methods it is about."""


def scene(*methods: Method[Any, Any]) -> Callable[[Scene], Scene]:
    def register(play: Scene) -> Scene:
        SCENES[play] = methods
        return play

    return register


@scene(acp.INITIALIZE, acp.AUTHENTICATE, acp.LOGOUT)
async def logging_in_and_out(stage: Stage) -> None:
    client = stage.client
    assert client.agent.agent_info == acp.Implementation(name="rich", version="1.0.0", title="Rich")
    assert [method.id for method in client.agent.auth_methods] == ["door", "tty"]
    await client.logout()
    with pytest.raises(AuthRequired, match="login"):
        await client.new_session(stage.folder)
    await client.authenticate("door")
    await client.new_session(stage.folder)


@scene(acp.SESSION_NEW, acp.SESSION_SET_MODE, acp.SESSION_SET_CONFIG_OPTION, acp.SESSION_PROMPT)
async def opening_and_settling(stage: Stage) -> None:
    client = stage.client
    session = await client.new_session(
        stage.folder,
        additional_directories=[stage.folder.parent],
        mcp_servers=[
            acp.McpServerStdio(name="a", command="/bin/a", args=["x"], env=[]),
            acp.McpServerHttp(name="b", url="https://example.org/", headers=[]),
            acp.McpServerSse(name="c", url="https://example.org/", headers=[]),
        ],
        mode="plan",
    )
    assert (await session.ask("settings")).text == "plan flat False"
    await session.set_option("depth", "deep")
    await session.set_option("loud", True)
    request = acp.SetSessionModeRequest(session_id=session.id, mode_id="code")
    await client.ask(acp.SESSION_SET_MODE, request)
    assert (await session.ask("settings")).text == "code deep True"
    assert session.modes is not None and session.modes.current_mode_id == "plan"
    values = [option.current_value for option in session.config_options or ()]  # type: ignore[union-attr]
    assert values == ["code", "deep", True]
    with pytest.raises(RemoteError) as caught:
        await client.ask(
            acp.SESSION_SET_MODE, acp.SetSessionModeRequest(session_id=session.id, mode_id="x")
        )
    assert caught.value.code == -32602
    blocks: list[acp.ContentBlock] = [
        acp.TextContent(text="blocks"),
        acp.ImageContent(data="AA==", mime_type="image/png"),
        acp.AudioContent(data="AA==", mime_type="audio/wav"),
        acp.ResourceLink(uri="file:///x", name="x"),
        acp.EmbeddedResource(resource=acp.TextResourceContents(uri="file:///x", text="x")),
        acp.EmbeddedResource(resource=acp.BlobResourceContents(uri="file:///x", blob="AA==")),
    ]
    assert (await session.ask(blocks)).text == ",".join(type(block).__name__ for block in blocks)
    async with session.prompt("anything") as turn:
        assert (await turn.wait()).stop == "max_tokens"
    assert (await session.ask("/go far away")).text == "went to far away"


@scene(
    acp.SESSION_LIST,
    acp.SESSION_LOAD,
    acp.SESSION_RESUME,
    acp.SESSION_CLOSE,
    acp.SESSION_DELETE,
)
async def keeping_sessions(stage: Stage) -> None:
    client = stage.client
    assert [info.session_id async for info in client.list_sessions()] == ["old", "older"]
    loaded = await client.load_session("old", stage.folder)
    assert [type(update) for update in loaded.replayed[:2]] == [
        acp.UserMessageChunk,
        acp.AgentMessageChunk,
    ]
    assert (await loaded.ask("hello")).text == "hello"
    resumed = await client.resume_session("older", stage.folder)
    assert (await resumed.ask("hello")).text == "hello"
    new = await client.new_session(stage.folder)
    await new.close()
    await client.delete_session("older")
    await client.delete_session("older")
    found = [info.session_id async for info in client.list_sessions(stage.folder)]
    assert found == sorted([new.id, "old"])
    with pytest.raises(RemoteError) as caught:
        await client.load_session("nobody", stage.folder)
    assert caught.value.code == -32002


@scene(acp.SESSION_UPDATE)
async def telling_everything(stage: Stage) -> None:
    session = await stage.client.new_session(stage.folder)
    async with session.prompt("updates") as turn:
        seen = [update async for update in turn]
    # The greeting of the agent may come in the turn as well as before it.
    sent = acp_rich_agent.UPDATES
    assert seen[-len(sent) :] == sent
    assert session.commands[0].name == "go"
    assert session.info is not None and session.info.updated_at is None
    assert session.usage is not None and session.usage.used == 7


@scene(acp.SESSION_REQUEST_PERMISSION)
async def asking_for_permission(stage: Stage) -> None:
    assert await stage.ask("permission") == "allowed: True"


@scene(acp.FS_READ_TEXT_FILE, acp.FS_WRITE_TEXT_FILE)
async def using_files(stage: Stage) -> None:
    path = stage.folder / "poem.txt"
    path.write_text("one\ntwo\n")
    assert await stage.ask(f"files {path}") == "two\n"
    assert path.read_text() == "TWO\n"


@scene(
    acp.TERMINAL_CREATE,
    acp.TERMINAL_OUTPUT,
    acp.TERMINAL_WAIT_FOR_EXIT,
    acp.TERMINAL_KILL,
    acp.TERMINAL_RELEASE,
)
async def using_terminals(stage: Stage) -> None:
    assert await stage.ask("terminal") == "0 hi\nSIGTERM"


@scene(acp.ELICITATION_CREATE, acp.ELICITATION_COMPLETE)
async def asking_people(stage: Stage) -> None:
    assert await stage.ask("elicit") == "dragoman ElicitationAccepted"
    assert stage.done == ["e1"]


@scene(acp.SESSION_CANCEL)
async def cancelling(stage: Stage) -> None:
    session: Session = await stage.client.new_session(stage.folder)
    async with session.prompt("hang") as turn:
        async for update in turn:
            if isinstance(update, acp.AgentMessageChunk):
                turn.cancel()
        assert turn.result.stop == "cancelled"
        assert turn.response is not None


@scene(acp.CANCEL_REQUEST)
async def calling_requests_off(stage: Stage) -> None:
    # The agent thinks better of a question, and the client of another.
    assert await stage.ask("withdraw") == "never mind"
    with pytest.raises(CallTimeout):
        await stage.client.call_extension("_rich/slow", {}, timeout=0.05)
    assert await stage.client.call_extension("_rich/called_off", {}) == "slow"


@pytest.mark.parametrize("play", SCENES, ids=lambda play: play.__name__)
@aio
async def test_a_scene_is_played_and_its_methods_are_seen_on_the_wire(
    play: Scene, tmp_path: Path
) -> None:
    folder = tmp_path / "workspace"
    folder.mkdir()
    async with staged(folder) as stage:
        await play(stage)
        for method in SCENES[play]:
            ways = ("client_to_agent", "agent_to_client")
            for way in ways if method.direction == "both" else (method.direction,):
                assert stage.wire.saw(way, method), f"{method.name} was not seen {way}"


def test_every_stable_method_has_a_scene() -> None:
    tried = {method.name for methods in SCENES.values() for method in methods}
    assert tried == {method.name for method in acp.METHODS}


def test_every_kind_of_update_is_reported() -> None:
    told = {type(update) for update in acp_rich_agent.UPDATES}
    assert told == set(typing.get_args(acp.SessionUpdate))
    assert len(acp_rich_agent.UPDATES) == len(told)
