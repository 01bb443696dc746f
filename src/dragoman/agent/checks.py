"""Validate an author's arguments before they are sent, so that errors are raised in the author's
code.

Checks updates, blocks, plans and enumerated values. Streamed text is not checked here: `turn`
checks only its type.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PureWindowsPath
from typing import Any, Final, cast, get_args

import msgspec

from dragoman.decoders import typed_decoder
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import convert
from dragoman.dialects.acp.v1.shape import EXTRA, Unknown
from dragoman.errors import UsageError
from dragoman.wire.messages import UNDECODABLE

_UPDATES: Final[tuple[type, ...]] = get_args(acp.SessionUpdate)
_BLOCKS: Final[tuple[type, ...]] = get_args(acp.ContentBlock)
_OPTION: Final = acp.PermissionOption
_CHUNKS: Final = (acp.AgentMessageChunk, acp.AgentThoughtChunk, acp.UserMessageChunk)
KINDS: Final = frozenset(map(str, acp.ToolKind))
STATUSES: Final = frozenset(map(str, acp.ToolCallStatus))
_STOP_REASONS: Final = frozenset(map(str, acp.StopReason))
_MARKS: Final = (
    ("priority", frozenset(map(str, acp.PlanEntryPriority))),
    ("status", frozenset(map(str, acp.PlanEntryStatus))),
)
"""The enumerated fields of a plan entry and their values."""

_encode: Final = msgspec.json.Encoder().encode
_decoders: Final[dict[type, Any]] = {}


def block(content: object, method: str) -> acp.ContentBlock:
    """Return the content of a message chunk as a block; text becomes a text block. Raises
    `TypeError` for anything else."""
    if isinstance(content, str):
        return acp.TextContent(text=str(content))
    if isinstance(content, _BLOCKS):
        _require(content)
        return content  # type: ignore[return-value]
    raise TypeError(f"turn.{method}() takes text or a content block, not {_named(content)}")


def update(value: object) -> None:
    """Raise `TypeError` for a value that is not a complete, valid update of the protocol, and
    `UsageError` for a negative number of tokens."""
    if not isinstance(value, _UPDATES):
        hint = ": text is sent with turn.say()" if isinstance(value, str) else ""
        raise TypeError(f"turn.update() takes an ACP update, not {_named(value)}{hint}")
    if isinstance(value, _CHUNKS):
        text = value.content
        if type(text) is acp.TextContent and type(text.text) is str and text.annotations is None:
            return
    _require(value)
    # Values that this version does not know are allowed: a later version may define them.
    if isinstance(value, acp.UsageUpdate) and min(value.used, value.size) < 0:
        raise UsageError(f"the number of tokens cannot be negative: {value.used} of {value.size}")


def plan(entries: object) -> list[acp.PlanEntry]:
    """Return the entries of a plan; text becomes a pending entry. Raises `TypeError` for anything
    else, and `UsageError` for an unknown priority or status."""
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        raise TypeError(f"turn.plan() takes a list of entries, not {_named(entries)}")
    made: list[acp.PlanEntry] = []
    for entry in entries:
        if isinstance(entry, str):
            entry = acp.PlanEntry(content=entry, priority="medium", status="pending")
        elif not isinstance(entry, acp.PlanEntry):
            raise TypeError(f"a plan entry must be text or a PlanEntry, not {_named(entry)}")
        else:
            _marked(entry)
        made.append(entry)
    return made


def _marked(entry: acp.PlanEntry) -> None:
    for name, known in _MARKS:
        value = getattr(entry, name)
        if value not in known:
            there_are = ", ".join(sorted(known))
            raise UsageError(
                f"a plan entry cannot have the {name} {value!r}; use one of {there_are}"
            )


def tool(*, title: object = None, kind: object = None, status: object = None) -> None:
    """Raise `TypeError` for a title, kind or status of a tool call that is not text, and
    `UsageError` for a kind or status that the protocol does not have."""
    if title is not None and not isinstance(title, str):
        raise TypeError(f"the title of a tool call must be text, not {_named(title)}")
    for value, known, what in ((kind, KINDS, "kind"), (status, STATUSES, "status")):
        if value is None:
            continue
        if not isinstance(value, str):
            raise TypeError(f"the {what} of a tool call must be text, not {_named(value)}")
        if value not in known:
            there_are = ", ".join(sorted(known))
            raise UsageError(
                f"a tool call cannot have the {what} {value!r}; use one of {there_are}"
            )


def permission(tool_call: object, options: object) -> None:
    """Raise `TypeError` for invalid arguments of a permission request."""
    if not isinstance(tool_call, acp.ToolCallUpdate):
        raise TypeError(
            "ask for permission with a title, a tool call or a ToolCallUpdate, "
            f"not {_named(tool_call)}"
        )
    if type(options) is not list:
        listed(options, "the options of a permission")
    for option in options:  # type: ignore[attr-defined]
        if type(option) is not _OPTION and not isinstance(option, _OPTION):
            raise TypeError(f"an option must be a PermissionOption, not {_named(option)}")
    kind: object = tool_call.kind
    if (
        type(tool_call.tool_call_id) is type(tool_call.title) is str
        and (kind is None or isinstance(kind, str))
        and tool_call.content is None
        and tool_call.locations is None
        and tool_call.raw_input is None
        and tool_call.raw_output is None
        and tool_call.name is None
        and tool_call.status is None
        and tool_call.meta is None
        and tool_call.extra is None
    ):
        # Most questions have nothing else that could be invalid. This saves a tenth of the agent's
        # time for a question.
        return
    _require(tool_call)


def text(value: object, what: str) -> None:
    """Raise `TypeError` for a value that is not text. `what` names the value in the message."""
    if not isinstance(value, str):
        hint = ": use str()" if isinstance(value, os.PathLike) else ""
        raise TypeError(f"{what} must be text, not {_named(value)}{hint}")


def tokens(input: object, output: object) -> tuple[int, int]:
    """Return both token counts unchanged. Raises `TypeError` if one is not an integer, and
    `ValueError` if one is negative."""
    for value in (input, output):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"the tokens of a turn must be whole numbers, not {_named(value)}")
        if value < 0:
            raise ValueError(f"the tokens of a turn cannot be negative: {value}")
    return cast("tuple[int, int]", (input, output))


def file_path(value: object) -> None:
    """Raise `TypeError` for a path that is not text, and `UsageError` for one that is absolute
    neither on POSIX nor on Windows."""
    text(value, "the path of a file")
    path = str(value)
    if not path.startswith("/") and not PureWindowsPath(path).is_absolute():
        raise UsageError(
            f"the path of a file must be absolute, not {path!r}: "
            f"write str(turn.session.cwd / {path!r})"
        )


_NO_YIELD: Final = "a handler must not `yield`: send each piece with `await turn.say(piece)`"


def handler(value: object, name: str, *arguments: str) -> None:
    """Raise `UsageError` for a value that cannot be called with these arguments, and for a
    generator function whose first argument is a turn. `name` is the decorator, for the message."""
    if not callable(value):
        raise UsageError(
            f"a handler must be a function, not {_named(value)}: decorate one with @{name}"
        )
    called = getattr(value, "__name__", "handler")
    if arguments[:1] == ("turn",) and (
        inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value)
    ):
        raise UsageError(f"{called} cannot be the handler of @{name}: {_NO_YIELD}")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return  # Some built-in functions have no signature.
    try:
        signature.bind(*arguments)
    except TypeError as error:
        wanted = ", ".join(arguments)
        raise UsageError(
            f"{called}{signature} cannot be the handler of @{name}: {error}; "
            f"write `async def {called}({wanted}):`"
        ) from None


def listed(values: object, what: str) -> None:
    """Raise `TypeError` for a value that is not a sequence, and for text, which would be split into
    letters."""
    if type(values) is list or type(values) is tuple:
        return
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise TypeError(f"{what} must be a list, not {_named(values)}")


def end(answer: Any) -> acp.PromptResponse:
    """Return a prompt handler's return value as the response to the prompt. Raises `UsageError` if
    it is not a response with a valid stop reason, a stop reason or None."""
    if type(answer) is acp.PromptResponse and answer.stop_reason in _STOP_REASONS:
        return answer
    if answer is not None and not (isinstance(answer, str) and answer in _STOP_REASONS):
        raise _not_an_end(answer)
    return acp.PromptResponse(stop_reason=answer or acp.StopReason.END_TURN)


def _not_an_end(answer: object) -> UsageError:
    """Return the error for an invalid return value of a prompt handler."""
    known = ", ".join(sorted(_STOP_REASONS))
    if isinstance(answer, acp.PromptResponse):
        return UsageError(
            f"a prompt handler returned the stop reason {answer.stop_reason!r}, but the protocol "
            f"has only {known}"
        )
    if isinstance(answer, str):
        # Most likely the text of the answer.
        hint = "text is sent with `await turn.say(text)`"
    elif inspect.isawaitable(answer):
        hint = "`await` is missing"
    elif inspect.isasyncgen(answer) or inspect.isgenerator(answer):
        hint = _NO_YIELD
    else:
        hint = "send output for the user with the methods of the turn"
    return UsageError(
        f"a prompt handler must return None or a stop reason ({known}), not {answer!r:.80}: {hint}"
    )


def _require(value: Any) -> None:
    """Raise `TypeError` unless a client could decode this value or it has unknown fields."""
    if isinstance(value, Unknown):
        return
    kind = type(value)
    decode = _decoders.get(kind)
    if decode is None:
        # A decoder for each type in use: one for all types takes tens of milliseconds to build.
        decode = _decoders[kind] = typed_decoder(kind, dec_hook=_read)
    try:
        data = _encode(value)
        if EXTRA.encode() not in data:
            # A value with unknown fields is not checked: its type does not define them.
            decode(data)
    except (*UNDECODABLE, TypeError, ValueError) as error:
        raise TypeError(f"this {kind.__name__} cannot be sent: {error}") from error


def _read(hint: type, value: Any) -> Any:
    return convert(value, hint)


def _named(value: object) -> str:
    return f"{type(value).__name__} ({value!r:.60})" if value is not None else "None"
