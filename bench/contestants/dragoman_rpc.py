"""dragoman at the level of `dragoman.rpc`: a router with handlers, and the bench's own types.

What a program does that speaks a protocol of its own through dragoman. The handlers that wait for
something are `async def`, the others plain functions, as the router's documentation says. The
typed ACP client and agent above it are another contestant.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from bench import messages, script
from bench.messages import AgentMessageChunk, SessionNotification, TextContent
from dragoman.rpc import Connection, End, Router
from dragoman.transports import open_stdio, spawn

if TYPE_CHECKING:
    from bench.works import Reader


def session_of(notification: SessionNotification) -> str:
    return notification.session_id


class Client:
    """The driver of `bench.works`."""

    _connection: Connection

    def __init__(self) -> None:
        self._readers: dict[str, Reader] = {}
        self._decode_mode = msgspec.json.Decoder(messages.SetModeResult).decode
        self._decode_prompt = msgspec.json.Decoder(messages.PromptResult).decode
        self._router = Router()
        self._router.on_notification(
            "session/update", self._updated, SessionNotification, lane_of=session_of
        )
        self._router.on_request(
            "session/request_permission", self._permit, messages.PermissionParams
        )

    async def open(self, agent: Sequence[str]) -> int:
        stream = await spawn(agent, env=os.environ)
        self._connection = Connection(stream, End.CLIENT, self._router)
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
        self._readers[session] = reader
        return session

    async def prompt(self, session_id: str, text: str) -> messages.PromptResult:
        params = messages.PromptParams(session_id, [TextContent(text)])
        lane = self._router.lane(session_id)
        return self._decode_prompt(
            await self._connection.call("session/prompt", params, after=lane)
        )

    async def set_mode(self, session_id: str, mode_id: str) -> messages.SetModeResult:
        params = messages.SetModeParams(session_id, mode_id)
        return self._decode_mode(await self._connection.call("session/set_mode", params))

    async def _updated(self, notification: SessionNotification) -> None:
        reader = self._readers[notification.session_id]
        reader.take(notification.update.content.text)  # type: ignore[union-attr]

    def _permit(self, params: messages.PermissionParams) -> messages.PermissionResult:
        return messages.PermissionResult(messages.Selected(script.ALLOW))

    async def close(self) -> None:
        await self._connection.aclose()


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
        await self.connection.notify("session/update", SessionNotification(session, update))


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
