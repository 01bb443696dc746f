"""Whether what an author hands over can be sent: else the call raises, in the author's own code.

Owns the checks of updates, blocks, plans and words before anything is sent. Streamed text has none
of them: `turn` looks at its type and nothing else. What a client makes of an update is not known
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, get_args

import msgspec

from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import UNDECODABLE, convert
from dragoman.dialects.acp.v1.shape import EXTRA, Unknown
from dragoman.errors import UsageError

_UPDATES: Final[tuple[type, ...]] = get_args(acp.SessionUpdate)
_BLOCKS: Final[tuple[type, ...]] = get_args(acp.ContentBlock)
_CHUNKS: Final = (acp.AgentMessageChunk, acp.AgentThoughtChunk, acp.UserMessageChunk)
KINDS: Final = frozenset(map(str, acp.ToolKind))
STATUSES: Final = frozenset(map(str, acp.ToolCallStatus))

_encode: Final = msgspec.json.Encoder().encode
_decoders: Final[dict[type, Any]] = {}


def block(content: object, method: str) -> acp.ContentBlock:
    """What a piece of a message is made of, if it is not plain text. Raises `TypeError`."""
    if isinstance(content, str):
        return acp.TextContent(text=str(content))
    if isinstance(content, _BLOCKS):
        _require(content)
        return content  # type: ignore[return-value]
    raise TypeError(f"turn.{method}() takes text or a content block, not {_named(content)}")


def update(value: object) -> None:
    """Raise `TypeError` for what is not an update of the protocol, whole and of the right types."""
    if not isinstance(value, _UPDATES):
        hint = ""
        if isinstance(value, acp.ToolCallUpdate):
            hint = ": a change of a tool call is a ToolCallProgress"
        elif isinstance(value, str):
            hint = ": text is sent with turn.say()"
        raise TypeError(f"turn.update() takes an update of ACP, not {_named(value)}{hint}")
    if isinstance(value, _CHUNKS):
        text = value.content
        if type(text) is acp.TextContent and type(text.text) is str and text.annotations is None:
            return
    _require(value)


def plan(entries: object) -> list[acp.PlanEntry]:
    """The entries of a plan. Raises `TypeError`."""
    if isinstance(entries, str | bytes) or not isinstance(entries, Iterable):
        raise TypeError(f"turn.plan() takes a list of entries, not {_named(entries)}")
    made: list[acp.PlanEntry] = []
    for entry in entries:
        if isinstance(entry, str):
            entry = acp.PlanEntry(content=entry, priority="medium", status="pending")
        elif not isinstance(entry, acp.PlanEntry):
            raise TypeError(f"an entry of a plan is text or a PlanEntry, not {_named(entry)}")
        made.append(entry)
    return made


def tool(*, title: object = None, kind: object = None, status: object = None) -> None:
    """Raise for words about a tool call that the protocol does not have."""
    if title is not None and not isinstance(title, str):
        raise TypeError(f"the title of a tool call is text, not {_named(title)}")
    for value, known, what in ((kind, KINDS, "kind"), (status, STATUSES, "status")):
        if value is None:
            continue
        if not isinstance(value, str):
            raise TypeError(f"the {what} of a tool call is text, not {_named(value)}")
        if value not in known:
            there_are = ", ".join(sorted(known))
            raise UsageError(f"there is no {what} {value!r} of a tool call; there are {there_are}")


def listed(values: object, what: str) -> None:
    """Raise `TypeError` for text where a list is wanted: it would be taken apart into letters."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise TypeError(f"{what} are a list, not {_named(values)}")


def _require(value: Any) -> None:
    """Raise `TypeError` unless a client could read what this is sent as."""
    if isinstance(value, Unknown):
        return
    kind = type(value)
    decode = _decoders.get(kind)
    if decode is None:
        # One for each type that is used: one for all of them takes tens of milliseconds to make.
        decode = _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=_read).decode
    try:
        data = _encode(value)
        if EXTRA.encode() not in data:
            # What carries fields that nobody knows cannot be judged by its type.
            decode(data)
    except (*UNDECODABLE, TypeError, ValueError) as error:
        raise TypeError(f"this {kind.__name__} cannot be sent: {error}") from error


def _read(hint: type, value: Any) -> Any:
    return convert(value, hint)


def _named(value: object) -> str:
    return f"{type(value).__name__} ({value!r:.60})" if value is not None else "None"
