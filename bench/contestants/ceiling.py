"""The ceiling for Python: a bare asyncio loop with msgspec, without any library.

As the yardstick, it does as little as the workload allows, and uses only public interfaces of
asyncio: one split per chunk, an envelope with raw params and a typed decoder per method, an ordered
deque per session with one consumer, writes collected and sent once per iteration of the loop,
futures by id. It has no validation, error handling, cancellation or orderly shutdown. Do not copy
it into a program.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from bench import messages, script
from bench.messages import AgentMessageChunk, SessionNotification, TextContent

if TYPE_CHECKING:
    from bench.works import Reader

READ_SIZE = 64 * 1024
"""The same read size as dragoman's. With asyncio's default of 256 KiB, every read maps and unmaps
its buffer."""
PIPE_SIZE = 256 * 1024
"""The size to which dragoman enlarges a pipe that was full."""
FLUSH_SIZE = 64 * 1024
"""Collected data that fills a pipe is written before the end of the loop iteration. Otherwise the
other process would be idle until the end of a long iteration."""


class Envelope(Struct, gc=False):
    method: str | None = None
    id: int | None = None
    params: Raw = Raw(b"")
    result: Raw = Raw(b"")


class Request(Struct):
    id: int
    method: str
    params: Any
    jsonrpc: str = "2.0"


class Notification(Struct):
    method: str
    params: Any
    jsonrpc: str = "2.0"


class Response(Struct):
    id: int | None
    result: Any
    jsonrpc: str = "2.0"


encode_into = msgspec.json.Encoder().encode_into
decode_envelope = msgspec.json.Decoder(Envelope).decode


def decoder(kind: type[Struct]) -> Callable[[Raw], Any]:
    return msgspec.json.Decoder(kind).decode


class Wire(asyncio.Protocol):
    """Both ends of the connection: lines in, lines out, futures by id."""

    _source: Any
    """A read pipe transport. Untyped, because the type stubs lack its `max_size`."""
    _output: asyncio.WriteTransport

    def __init__(self) -> None:
        self.loop: Any = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.writable: asyncio.Future[None] | None = None
        self.handlers: dict[str, Callable[[Envelope], None]] = {}
        self._pending: dict[int | None, tuple[asyncio.Future[Any], Callable[[Raw], Any]]] = {}
        self._serial = 0
        self._partial: list[bytes] = []
        self._out = bytearray()
        self._will_flush = False

    async def attach(self, read_fd: int, write_fd: int) -> None:
        self._output, _ = await self.loop.connect_write_pipe(
            lambda: Flow(self), os.fdopen(write_fd, "wb", buffering=0)
        )
        self._source, _ = await self.loop.connect_read_pipe(
            lambda: self, os.fdopen(read_fd, "rb", buffering=0)
        )
        self._source.max_size = READ_SIZE

    def close(self) -> None:
        self._output.close()

    def data_received(self, data: bytes) -> None:
        lines = data.split(b"\n")
        rest = lines.pop()
        partial = self._partial
        if partial:
            if not lines:
                partial.append(rest)
                return
            partial.append(lines[0])
            lines[0] = b"".join(partial)
            partial.clear()
        if rest:
            partial.append(rest)
        handlers = self.handlers
        pending = self._pending
        self._will_flush = True
        for line in lines:
            message = decode_envelope(line)
            method = message.method
            if method is None:
                future, decode = pending.pop(message.id)
                future.set_result(decode(message.result))
            else:
                handlers[method](message)
        self.flush()

    def eof_received(self) -> None:
        self.ended.set_result(None)

    def send(self, message: Struct) -> None:
        out = self._out
        encode_into(message, out, -1)
        out += b"\n"
        if len(out) >= FLUSH_SIZE:
            self.flush()
        elif not self._will_flush:
            self._will_flush = True
            self.loop.call_soon(self.flush)

    def flush(self) -> None:
        self._will_flush = False
        if self._out:
            self._output.write(self._out)
            self._out = bytearray()

    def request(
        self, method: str, params: Struct, decode: Callable[[Raw], Any]
    ) -> asyncio.Future[Any]:
        self._serial = serial = self._serial + 1
        future: asyncio.Future[Any] = self.loop.create_future()
        self._pending[serial] = future, decode
        self.send(Request(serial, method, params))
        return future


class Flow(asyncio.BaseProtocol):
    """Tells a sender when the pipe is full and when it is writable again."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def pause_writing(self) -> None:
        self._wire.writable = self._wire.loop.create_future()

    def resume_writing(self) -> None:
        waiting, self._wire.writable = self._wire.writable, None
        if waiting is not None:
            waiting.set_result(None)


class Life(asyncio.SubprocessProtocol):
    """Tells when the agent has exited."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def process_exited(self) -> None:
        self.over.set()


class Inbox:
    """The updates of one session, in order, for its one consumer."""

    __slots__ = ("task", "updates", "waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop, reader: Reader) -> None:
        self.updates: deque[AgentMessageChunk] = deque()
        self.waiter: asyncio.Future[None] | None = None
        self.task = loop.create_task(self._consume(loop, reader))

    async def _consume(self, loop: asyncio.AbstractEventLoop, reader: Reader) -> None:
        updates = self.updates
        take = reader.take
        while True:
            while updates:
                take(updates.popleft().content.text)  # type: ignore[union-attr]
            self.waiter = waiter = loop.create_future()
            await waiter


class Client:
    """The driver of `bench.works`."""

    def __init__(self) -> None:
        self._inboxes: dict[str, Inbox] = {}
        self._decode_update = decoder(SessionNotification)
        self._decode_question = decoder(messages.PermissionParams)
        self._decode_prompt = decoder(messages.PromptResult)
        self._decode_mode = decoder(messages.SetModeResult)

    async def open(self, agent: Sequence[str]) -> int:
        self._wire = wire = Wire()
        wire.handlers["session/update"] = self._updated
        wire.handlers["session/request_permission"] = self._permit
        child_in, our_out = os.pipe()
        our_in, child_out = os.pipe()
        self._process, self._life = await wire.loop.subprocess_exec(
            Life, *agent, stdin=child_in, stdout=child_out, stderr=None
        )
        for end in (child_in, child_out):
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
            os.close(end)
        await wire.attach(our_in, our_out)
        await wire.request(
            "initialize",
            messages.InitializeParams(script.PROTOCOL_VERSION),
            decoder(messages.InitializeResult),
        )
        pid: int = self._process.get_pid()
        return pid

    async def new_session(self, reader: Reader) -> str:
        result: messages.NewSessionResult = await self._wire.request(
            "session/new",
            messages.NewSessionParams("/workspace", []),
            decoder(messages.NewSessionResult),
        )
        self._inboxes[result.session_id] = Inbox(self._wire.loop, reader)
        return result.session_id

    def prompt(self, session_id: str, text: str) -> asyncio.Future[messages.PromptResult]:
        params = messages.PromptParams(session_id, [TextContent(text)])
        return self._wire.request("session/prompt", params, self._decode_prompt)

    def set_mode(self, session_id: str, mode_id: str) -> asyncio.Future[messages.SetModeResult]:
        params = messages.SetModeParams(session_id, mode_id)
        return self._wire.request("session/set_mode", params, self._decode_mode)

    def _updated(self, message: Envelope) -> None:
        notification: SessionNotification = self._decode_update(message.params)
        inbox = self._inboxes[notification.session_id]
        inbox.updates.append(notification.update)  # type: ignore[arg-type]
        waiter = inbox.waiter
        if waiter is not None:
            inbox.waiter = None
            waiter.set_result(None)

    def _permit(self, message: Envelope) -> None:
        self._decode_question(message.params)
        self._wire.send(
            Response(message.id, messages.PermissionResult(messages.Selected(script.ALLOW)))
        )

    async def close(self) -> None:
        for inbox in self._inboxes.values():
            inbox.task.cancel()
        self._wire.close()
        await self._wire.ended
        await self._life.over.wait()
        self._process.close()


class Agent:
    """The agent of `bench.script`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._turns: set[asyncio.Task[None]] = set()
        self._sessions = 0
        self._together: list[str] = []
        self._all_sent = wire.loop.create_future()
        self._decode_mode = decoder(messages.SetModeParams)
        self._decode_prompt = decoder(messages.PromptParams)
        self._decode_permission = decoder(messages.PermissionResult)
        wire.handlers |= {
            "initialize": self._initialize,
            "session/new": self._new_session,
            "session/set_mode": self._set_mode,
            "session/prompt": self._prompt,
        }

    def _answer(self, message: Envelope, result: Struct) -> None:
        self._wire.send(Response(message.id, result))

    def _initialize(self, message: Envelope) -> None:
        params = decoder(messages.InitializeParams)(message.params)
        self._answer(message, messages.InitializeResult(params.protocol_version))

    def _new_session(self, message: Envelope) -> None:
        decoder(messages.NewSessionParams)(message.params)
        self._sessions += 1
        self._answer(message, messages.NewSessionResult(script.session_name(self._sessions)))

    def _set_mode(self, message: Envelope) -> None:
        if self._decode_mode(message.params).mode_id == script.COLLECT:
            gc.collect()
        self._answer(message, messages.SetModeResult())

    def _prompt(self, message: Envelope) -> None:
        task = self._wire.loop.create_task(self._turn(message))
        self._turns.add(task)
        task.add_done_callback(self._turns.discard)

    async def _turn(self, message: Envelope) -> None:
        params: messages.PromptParams = self._decode_prompt(message.params)
        session = params.session_id
        text = params.prompt[0].text  # type: ignore[union-attr]
        if text.startswith("stream "):
            for part in script.update_texts(int(text[7:])):
                self._update(session, part)
                if (writable := self._wire.writable) is not None:
                    await writable
        elif text.startswith("ask "):
            for _ in range(int(text[4:])):
                await self._wire.request(
                    "session/request_permission",
                    messages.permission(session),
                    self._decode_permission,
                )
        elif text.startswith("together "):
            await self._turn_together(session, *map(int, text[9:].split()))
        else:
            self._update(session, text)
        self._answer(message, messages.PromptResult("end_turn"))

    async def _turn_together(self, session: str, sessions: int, updates: int) -> None:
        self._together.append(session)
        if len(self._together) < sessions:
            await self._all_sent
            return
        for part in script.update_texts(updates):
            for member in self._together:
                self._update(member, part)
            if (writable := self._wire.writable) is not None:
                await writable
        self._together = []
        self._all_sent.set_result(None)
        self._all_sent = self._wire.loop.create_future()

    def _update(self, session: str, text: str) -> None:
        update = AgentMessageChunk(TextContent(text))
        self._wire.send(Notification("session/update", SessionNotification(session, update)))


async def agent() -> None:
    wire = Wire()
    Agent(wire)
    await wire.attach(sys.stdin.fileno(), sys.stdout.fileno())
    await wire.ended


def main() -> None:
    if sys.argv[1] == "agent":
        asyncio.run(agent())
    else:
        from bench.works import client

        client(Client, sys.argv[2:])


if __name__ == "__main__":
    main()
