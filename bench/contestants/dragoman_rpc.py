"""dragoman at the level of `dragoman.rpc`: a connection with handlers, and our own message types.

The layer that dragoman's own clients and agents are built on, without ACP: the client implements
`Handlers` and puts updates into the lane of their session; the agent uses a `Router`. The typed ACP
client and agent kit above it are another contestant, `dragoman_acp`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bench import messages, script
from bench.messages import AgentMessageChunk, SessionNotification, TextContent
from dragoman.errors import ConnectionLost
from dragoman.rpc import Connection, End, Lane, Router
from dragoman.transports import open_stdio, spawn

if TYPE_CHECKING:
    from bench.works import Reader
    from dragoman.wire.messages import Notification, Request
    from dragoman.wire.peer import Noise, Stray

decode_update = msgspec.json.Decoder(SessionNotification).decode
decode_question = msgspec.json.Decoder(messages.PermissionParams).decode
decode_mode = msgspec.json.Decoder(messages.SetModeResult).decode
decode_prompt = msgspec.json.Decoder(messages.PromptResult).decode


async def consume(lane: Lane[Any], reader: Reader) -> None:
    """The one consumer of a session's updates."""
    try:
        while True:
            # Like dragoman's own turns: no coroutine for items that are already there.
            update = lane.take() if lane.items else await lane.get()
            reader.take(update.content.text)
    except ConnectionLost:
        pass


class Client:
    """The driver of `bench.works`, and the handlers of its connection."""

    _connection: Connection

    def __init__(self) -> None:
        self._lanes: dict[str, Lane[Any]] = {}

    async def open(self, agent: Sequence[str]) -> int:
        stream = await spawn(agent, env=os.environ)
        self._connection = Connection(stream, End.CLIENT, self)
        self._connection.start()
        result = await self._connection.call(
            "initialize", messages.InitializeParams(script.PROTOCOL_VERSION)
        )
        msgspec.json.decode(result, type=messages.InitializeResult)
        return stream.pid

    async def new_session(self, reader: Reader) -> str:
        result = await self._connection.call(
            "session/new", messages.NewSessionParams("/workspace", [])
        )
        session = msgspec.json.decode(result, type=messages.NewSessionResult).session_id
        self._lanes[session] = lane = Lane[Any](self._connection.flow)
        self._connection.tasks.start(consume(lane, reader), "consume updates")
        return session

    async def prompt(self, session_id: str, text: str) -> messages.PromptResult:
        params = messages.PromptParams(session_id, [TextContent(text)])
        return decode_prompt(await self._connection.call("session/prompt", params))

    async def set_mode(self, session_id: str, mode_id: str) -> messages.SetModeResult:
        params = messages.SetModeParams(session_id, mode_id)
        return decode_mode(await self._connection.call("session/set_mode", params))

    async def close(self) -> None:
        await self._connection.aclose()

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        pass

    def notification(self, notification: Notification) -> None:
        message = decode_update(notification.params)
        self._lanes[message.session_id].put(message.update, len(notification.line))

    def request(self, request: Request) -> messages.PermissionResult:
        decode_question(request.params)
        return messages.PermissionResult(messages.Selected(script.ALLOW))

    def noise(self, noise: Noise | Stray) -> None:
        raise RuntimeError(f"noise on the wire: {noise}")


class Agent:
    """The agent of `bench.script`."""

    connection: Connection

    def __init__(self, router: Router) -> None:
        self._sessions = 0
        self._together: list[str] = []
        self._all_sent = asyncio.Event()
        self._decode_permission = msgspec.json.Decoder(messages.PermissionResult).decode
        router.on_request("initialize", self._initialize, messages.InitializeParams)
        router.on_request("session/new", self._new_session, messages.NewSessionParams)
        router.on_request("session/set_mode", self._set_mode, messages.SetModeParams)
        router.on_request("session/prompt", self._prompt, messages.PromptParams)

    def _initialize(self, params: messages.InitializeParams) -> messages.InitializeResult:
        return messages.InitializeResult(params.protocol_version)

    def _new_session(self, params: messages.NewSessionParams) -> messages.NewSessionResult:
        self._sessions += 1
        return messages.NewSessionResult(script.session_name(self._sessions))

    def _set_mode(self, params: messages.SetModeParams) -> messages.SetModeResult:
        if params.mode_id == script.COLLECT:
            gc.collect()
        return messages.SetModeResult()

    async def _prompt(self, params: messages.PromptParams) -> messages.PromptResult:
        session = params.session_id
        text = params.prompt[0].text  # type: ignore[union-attr]
        if text.startswith("stream "):
            for part in script.update_texts(int(text[7:])):
                await self._update(session, part)
        elif text.startswith("ask "):
            for _ in range(int(text[4:])):
                request = messages.permission(session)
                self._decode_permission(
                    await self.connection.call("session/request_permission", request)
                )
        elif text.startswith("together "):
            await self._turn_together(session, *map(int, text[9:].split()))
        else:
            await self._update(session, text)
        return messages.PromptResult("end_turn")

    async def _turn_together(self, session: str, sessions: int, updates: int) -> None:
        self._together.append(session)
        if len(self._together) < sessions:
            await self._all_sent.wait()
            return
        for part in script.update_texts(updates):
            for member in self._together:
                await self._update(member, part)
        self._together = []
        self._all_sent.set()
        self._all_sent = asyncio.Event()

    async def _update(self, session: str, text: str) -> None:
        update = AgentMessageChunk(TextContent(text))
        connection = self.connection
        # Like dragoman's own agents: `notify`, but with one coroutine less.
        if connection.is_full:
            await connection.drain()
        connection.post("session/update", SessionNotification(session, update))


async def agent() -> None:
    router = Router()
    served = Agent(router)
    async with Connection(await open_stdio(), End.AGENT, router) as served.connection:
        await served.connection.wait_ended()


def main() -> None:
    if sys.argv[1] == "agent":
        asyncio.run(agent())
    else:
        from bench.works import client

        client(Client, sys.argv[2:])


if __name__ == "__main__":
    main()
