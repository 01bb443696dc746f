"""A conversation that can send anything and records everything it receives.

One stream to the program under test: it sends and receives raw lines, and records which message
rules each line violates. It does not use `dragoman.rpc`, which neither sends invalid messages nor
shows those it receives. The checks decide what is right and wrong for an agent or a client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec

from dragoman.errors import ConnectionLost, LineTooLong
from dragoman.testing.conformance.report import shortened
from dragoman.transports.base import Stream
from dragoman.wire import codes
from dragoman.wire.framing import Framer

T = TypeVar("T")

MAX_LINE_SIZE = 64 * 1024 * 1024
"""Maximum length of a line; a longer one ends the conversation. Four times dragoman's default
limit."""

FENCE = "_dragoman/fence"
"""A method that no program has. The program must refuse it, so the response shows that it has read
and survived everything sent before."""

Message: TypeAlias = dict[str, Any]

Respond: TypeAlias = Callable[[Message], Message | None]
"""Creates the response to a request from the other side, as the members ``result`` or ``error``;
None leaves it unanswered."""


class Violation(Exception):
    """The program under test violated a rule."""

    def __init__(self, reason: str, evidence: object = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.evidence = shortened(evidence)


class Silence(Violation):
    """The program under test did not respond in time."""


class Gone(Violation):
    """The program under test ended the conversation, or exited."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A received line that is not a valid message. `kind` is for the checks, `reason` for the
    report."""

    kind: str
    reason: str
    line: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request. `position` counts the messages received before it."""

    message: Message
    position: int

    @property
    def error(self) -> Message | None:
        error = self.message.get("error")
        return error if isinstance(error, dict) else None

    @property
    def code(self) -> object:
        """The error code; None without an error."""
        return None if self.error is None else self.error.get("code")

    def result(self) -> Any:
        """Return the result. Raises `Violation` if the request was refused."""
        if "result" not in self.message:
            raise Violation("the request was refused", self.message)
        return self.message["result"]

    def fields(self) -> Message:
        """Return the result, which must be an object; null counts as an empty one. Raises
        `Violation` if it is something else, or the request was refused."""
        result = self.result()
        if result is None:
            return {}
        if not isinstance(result, dict):
            raise Violation("the result is not an object", self.message)
        return result


class Conversation:
    """One stream to the program under test, from the first byte on."""

    def __init__(self, stream: Stream, *, timeout: float, respond: Respond) -> None:
        self.stream = stream
        self.timeout = timeout
        self.respond = respond
        self.messages: list[Message] = []
        """Every message received, in order."""
        self.breaches: list[Breach] = []
        self.failure: ConnectionLost | None = None
        self.offers_services = False
        """Whether we offered files, terminals or elicitation to the other side."""
        self._answers: dict[tuple[str, object], list[Answer]] = {}
        self._framer = Framer(MAX_LINE_SIZE)
        self._next_id = 1
        self._news = asyncio.Event()
        stream.start(self)

    # -- called by the stream

    def data_received(self, data: bytes) -> None:
        for line in self._framer.feed(data):
            self._take(line)
        if self._framer.overflowed and self.failure is None:
            self.failure = LineTooLong(MAX_LINE_SIZE)
        self._news.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        rest = self._framer.end()
        if rest is not None:
            self._take(rest)
        self.failure = self.failure or failure
        self._news.set()

    # -- sending

    def say_bytes(self, data: bytes) -> None:
        """Send these bytes; the caller adds the newline. If the other side no longer reads, they
        are dropped, and the next wait raises `Gone`."""
        if self.failure is None:
            with contextlib.suppress(ConnectionLost):
                self.stream.write(data)

    def say(self, value: object) -> None:
        """Send any JSON value as a line."""
        self.say_bytes(msgspec.json.encode(value) + b"\n")

    def tell(self, method: str, params: object) -> None:
        """Send a notification."""
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method: str, params: object, *, id: int | str | None = None) -> int | str:
        """Send a request and return its id."""
        if id is None:
            id, self._next_id = self._next_id, self._next_id + 1
        self.say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    async def ask(
        self,
        method: str,
        params: object,
        *,
        id: int | str | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send a request and wait for its response, for at most `timeout` seconds. Raises as
        `until` does."""
        return await self.answer(self.begin(method, params, id=id), method, timeout=timeout)

    # -- receiving

    async def answer(
        self, id: int | str, what: str = "the request", *, timeout: float | None = None
    ) -> Answer:
        """Wait for the response to the request with this id, which was already sent. `what` names
        the request in an error. Raises as `until` does."""
        answers = self._answers.setdefault(_key(id), [])
        return await self.until(
            lambda: answers[0] if answers else None, f"an answer to {what}", timeout=timeout
        )

    def answers(self, id: int | str) -> list[Answer]:
        """Return the responses to a request so far. More than one violates the protocol."""
        return list(self._answers.get(_key(id), ()))

    async def fence(self, what: str) -> Answer:
        """Check that the other side still reads and responds after `what`, and return its response.
        Raises `Silence` or `Gone` otherwise."""
        try:
            return await self.ask(FENCE, {})
        except Silence as error:
            raise Silence(f"it no longer responds after {what}") from error
        except Gone as error:
            raise Gone(f"after {what}: {error.reason}", error.evidence) from error

    async def until(
        self, ready: Callable[[], T | None], what: str, *, timeout: float | None = None
    ) -> T:
        """Wait until `ready` returns something other than None, and return it. `what` names in an
        error what was expected. Raises `Silence` after the timeout, and `Gone` if the conversation
        has ended."""
        limit = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                while True:
                    self._news.clear()
                    value = ready()
                    if value is not None:
                        return value
                    if self.failure is not None:
                        raise Gone(f"it ended instead of sending {what}", str(self.failure))
                    await self._news.wait()
        except TimeoutError:
            raise Silence(f"it did not send {what} within {limit:g} s") from None

    def heard(self, method: str) -> list[Message]:
        """Return the requests and notifications with one method."""
        return [message for message in self.messages if message.get("method") == method]

    async def aclose(self) -> None:
        await self.stream.aclose()

    # -- internals

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        message = self._read(line)
        if message is None:
            return
        position = len(self.messages)
        self.messages.append(message)
        if isinstance(message.get("method"), str):
            if "id" in message:
                self._request(message)
        elif "id" in message:
            key = _key(message["id"])
            self._answers.setdefault(key, []).append(Answer(message, position))

    def _request(self, message: Message) -> None:
        body = self.respond(message)
        if body is not None:
            self.say({"jsonrpc": "2.0", "id": message["id"], **body})

    def _read(self, line: bytes) -> Message | None:
        """Return the JSON object in a line, or None if there is none. Records in `breaches` what is
        wrong with the line."""

        def breach(kind: str, reason: str) -> None:
            self.breaches.append(Breach(kind, reason, line))

        try:
            line.decode()
        except UnicodeDecodeError as error:
            breach("encoding", f"a line is not UTF-8: {error}")
            return None
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            breach("noise", f"a line is not JSON: {error}")
            return None
        if not isinstance(message, dict):
            kind = "batch" if isinstance(message, list) else "noise"
            breach(kind, "a line is JSON but not an object")
            return None
        if message.get("jsonrpc") != "2.0":
            breach("version", 'a message has no "jsonrpc": "2.0"')
        if "method" in message:
            if not isinstance(message["method"], str):
                breach("shape", "the method of a message is not a string")
            elif "result" in message or "error" in message:
                breach("shape", "a message is a request and a response at once")
        elif ("result" in message) == ("error" in message):
            breach("shape", "a response must have exactly one of result and error")
        elif "error" in message:
            if problem := _error_problem(message["error"]):
                breach("shape", problem)
        elif "id" not in message:
            breach("shape", "a response has no id")
        if not _proper_id(message):
            breach("id", "the id of a message is not a string, an integer or null")
        return message


def _proper_id(message: Message) -> bool:
    id = message.get("id")
    return id is None or isinstance(id, str) or type(id) is int


def _error_problem(error: object) -> str:
    if not isinstance(error, dict):
        return "the error of a response is not an object"
    if type(error.get("code")) is not int:
        return "the code of an error is not an integer"
    if not isinstance(error.get("message"), str):
        return "an error has no message"
    return ""


def _key(id: object) -> tuple[str, object]:
    # The type counts: `true` and 1.0 must not answer request 1.
    if isinstance(id, list | dict):
        return type(id).__name__, repr(id)
    return type(id).__name__, id


def refuse(code: int = codes.METHOD_NOT_FOUND, message: str = "Method not found") -> Message:
    """Return the members of a response that refuses a request."""
    return {"error": {"code": code, "message": message}}
