"""A stream to an agent that may speak the keyed dialect although its handshake looks like ACP.

All capabilities of the keyed dialect are optional, so an agent that has none responds to
`initialize` just as an ACP agent might. A prompt to such an agent has the fields of both dialects,
and the agent's messages decide: an ACP update ends the translation, while a keyed update and
everything after it are translated to ACP. Streams to other agents are not changed after the
handshake.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.legacy.keyed import shapes
from dragoman.errors import ConnectionLost
from dragoman.transports.base import Receiver, Stream
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE, Framer
from dragoman.wire.messages import UNDECODABLE

_OPENINGS: Final = frozenset({shapes.NEW, shapes.LOAD})
_OPTIONS: Final = [
    {"optionId": "once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]

_UNTRANSLATABLE: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What translating a message raises if its fields have types that the dialect does not allow, or
values that cannot be encoded again."""

_encode: Final = msgspec.json.Encoder().encode


class KeyedStream(Stream):
    """A stream that wraps `inner`, the stream to the agent, and translates the messages of both
    directions until the agent turns out to speak ACP."""

    def __init__(self, inner: Stream, max_line_size: int | None = None) -> None:
        self._inner = inner
        self._limit = max_line_size or DEFAULT_MAX_LINE_SIZE
        self._receiver: Receiver | None = None
        self._translation: KeyedTranslation | None = KeyedTranslation()
        # Without a limit of its own: a line over the limit is passed on, and the connection reports
        # it.
        self._framer = Framer(sys.maxsize)
        self._unfinished_size = 0

    @property
    def carrier(self) -> Stream:
        return self._inner.carrier

    # -- what the agent sends

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._inner.start(self)

    def data_received(self, data: bytes) -> None:
        if self._translation is None:
            assert self._receiver is not None
            self._receiver.data_received(data)
            return
        lines = self._framer.feed(data)
        if lines:
            self._unfinished_size = len(data) - data.rfind(b"\n") - 1
            self._take_lines(lines)
            return
        self._unfinished_size += len(data)
        if self._unfinished_size > self._limit:
            # Too long for a message: the connection reports it.
            self._leave([])

    def _take_lines(self, lines: list[bytes]) -> None:
        assert self._receiver is not None and self._translation is not None
        passed: list[bytes] = []
        for index, line in enumerate(lines):
            try:
                passed += self._translation.from_agent(line)
            except _UNTRANSLATABLE:
                # An exception would lose every line of this read. The client handles invalid
                # messages itself.
                passed.append(line)
            if self._translation.over:
                self._leave([*passed, *lines[index + 1 :]])
                return
        if passed:
            self._receiver.data_received(_joined(passed))

    def _leave(self, lines: list[bytes]) -> None:
        """Stop translating. These lines and everything after them are passed on unchanged."""
        assert self._receiver is not None
        self._translation = None
        if data := _joined(lines) + (self._framer.end() or b""):
            self._receiver.data_received(data)

    def stream_ended(self, failure: ConnectionLost) -> None:
        assert self._receiver is not None
        if self._translation is not None:
            self._leave([])
        self._receiver.stream_ended(failure)

    # -- what the client sends

    def write(self, data: bytes) -> None:
        if self._translation is not None:
            lines = data.split(b"\n")[:-1]
            data = _joined([self._translation.from_client(line) for line in lines])
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


class KeyedTranslation:
    """Translates the messages of one connection until it is `over`."""

    def __init__(self) -> None:
        self.over = False
        """Whether nothing more is translated, because the handshake left no doubt about the dialect
        or the agent has sent an ACP update."""
        self._greeted = False
        self._keyed = False
        self._opening: set[Any] = set()
        """The ids of requests that open a session."""
        self._answers: dict[Any, Callable[[Any], Any]] = {}
        """Functions that convert our results to the keyed dialect, by the id of the agent's
        request."""
        self._tools: set[str] = set()

    # -- from the agent

    def from_agent(self, line: bytes) -> list[bytes]:
        message = _decode(line)
        if message is None:
            return [line]
        params = message.get("params")
        if "method" not in message:
            return [self._answered(message, line)]
        if not isinstance(params, dict):
            return [line]
        match message["method"]:
            case shapes.UPDATE if "update" in params:
                self.over = not self._keyed
            case shapes.UPDATE:
                return [_encode({**message, "params": each}) for each in self._updates(params)]
            case shapes.PERMISSION if "options" not in params:
                self._keyed = True
                self._answers[message.get("id")] = _decision
                return [_encode({**message, "params": _question(params)})]
            case shapes.TERMINAL_CREATE:
                return [_encode({**message, "params": _terminal(params)})]
            case shapes.TERMINAL_OUTPUT if self._keyed:
                self._answers[message.get("id")] = _output
            case shapes.WRITE if self._keyed:
                self._answers[message.get("id")] = lambda result: None
        return [line]

    def _answered(self, message: dict[str, Any], line: bytes) -> bytes:
        result = message.get("result")
        if not self._greeted and isinstance(result, dict):
            self._greeted = True
            self.over = not shows_nothing(result)
        elif message.get("id") in self._opening and isinstance(result, dict):
            self._opening.discard(message.get("id"))
            modes, current = result.get("modes"), result.get("currentModeId")
            if isinstance(modes, list) or isinstance(current, str):
                self._keyed = True
                state = {"availableModes": modes or [], "currentModeId": current or ""}
                return _encode({**message, "result": {**result, "modes": state}})
        return line

    def _updates(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        updates: list[dict[str, Any]] = []
        if isinstance(chunk := params.get("contentChunk"), dict):
            text = {"type": "text", "text": chunk.get("delta", "")}
            said = {"sessionUpdate": "agent_message_chunk", "content": text}
            updates.append({**said, "messageId": chunk["id"]} if chunk.get("id") else said)
        if isinstance(call := params.get("toolCall"), dict):
            updates.append(self._tool(call))
        if isinstance(plan := params.get("plan"), dict):
            entries = [
                {"content": step.get("title"), "status": step.get("status"), "priority": "medium"}
                for step in plan.get("steps", ())
            ]
            updates.append({"sessionUpdate": "plan", "entries": entries})
        if isinstance(mode := params.get("currentModeId"), str):
            updates.append({"sessionUpdate": "current_mode_update", "currentModeId": mode})
        self._keyed = self._keyed or bool(updates)
        told = {"sessionId": params.get("sessionId")}
        # An update without any of the keys is passed on unchanged: the client handles it.
        return [{**told, "update": update} for update in updates] or [params]

    def _tool(self, call: dict[str, Any]) -> dict[str, Any]:
        content = [_shown(block) for block in call.get("content") or ()]
        if isinstance(diff := call.get("diff"), dict):
            texts = {"oldText": diff.get("oldContent"), "newText": diff.get("newContent") or ""}
            content.append({"type": "diff", "path": diff.get("path"), **texts})
        update = {key: value for key, value in call.items() if key not in ("content", "diff")}
        if content:
            update["content"] = content
        tool_id = str(call.get("toolCallId"))
        if tool_id in self._tools:
            return {"sessionUpdate": "tool_call_update", **update}
        self._tools.add(tool_id)
        return {"sessionUpdate": "tool_call", "title": tool_id, **update}

    # -- from the client

    def from_client(self, line: bytes) -> bytes:
        if not self._greeted:
            return line
        message = _decode(line)
        if message is None:
            return line
        method, params = message.get("method"), message.get("params")
        if method is None:
            spell = self._answers.pop(message.get("id"), None)
            if spell is None or "result" not in message:
                return line
            return _encode({**message, "result": spell(message["result"])})
        if method in _OPENINGS:
            self._opening.add(message.get("id"))
        if method == acp.SESSION_PROMPT.name and isinstance(params, dict):
            content = [_asked(block) for block in params.get("prompt") or ()]
            return _encode({**message, "params": {**params, "content": content}})
        return line


def _joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _decode(line: bytes) -> dict[str, Any] | None:
    try:
        message = msgspec.json.decode(line)
    except UNDECODABLE:
        return None
    return message if isinstance(message, dict) else None


def shows_nothing(hello: Mapping[str, Any]) -> bool:
    """Return whether a handshake response leaves open whether the agent speaks ACP or the keyed
    dialect."""
    version = hello.get("protocolVersion")
    return (
        type(version) is int
        and version == acp.PROTOCOL_VERSION
        and not hello.get("agentCapabilities")
        and not hello.get("authMethods")
    )


def _question(params: dict[str, Any]) -> dict[str, Any]:
    call = {
        "toolCallId": params.get("toolCallId") or params.get("permissionId"),
        "title": params.get("title"),
        "kind": params.get("kind"),
    }
    if isinstance(content := params.get("content"), list):
        call["content"] = [_shown(block) for block in content]
    return {"sessionId": params.get("sessionId"), "toolCall": call, "options": _OPTIONS}


def _decision(result: Any) -> dict[str, Any]:
    outcome = result.get("outcome") if isinstance(result, dict) else None
    chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
    return {"decision": chosen} if chosen else {"decision": "reject", "cancelled": True}


def _terminal(params: dict[str, Any]) -> dict[str, Any]:
    made = dict(params)
    if isinstance(env := params.get("env"), dict):
        made["env"] = [{"name": name, "value": value} for name, value in env.items()]
    if "outputBytesLimit" in params:
        made["outputByteLimit"] = made.pop("outputBytesLimit")
    return made


def _output(result: Any) -> Any:
    ended = result.get("exitStatus") or {}
    return {"output": result.get("output", ""), **{k: v for k, v in ended.items() if v is not None}}


def _shown(block: Any) -> dict[str, Any]:
    """Convert a keyed block to the content of an ACP tool call."""
    if isinstance(block, dict) and block.get("type") == "embedded_resource":
        resource = {key: value for key, value in block.items() if key != "type"}
        block = {"type": "resource", "resource": resource}
    return {"type": "content", "content": block}


def _asked(block: Any) -> Any:
    """Convert a block of an ACP prompt to the keyed dialect."""
    if isinstance(block, dict) and block.get("type") == "resource":
        return {"type": "embedded_resource", **block.get("resource", {})}
    return block
