"""The state of a session: messages, tools, plans, settings.

The values that a consumer reads. `fold` has the rules that build them from events.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct, field

from dragoman.events.parts import (
    Block,
    Failure,
    FileChange,
    Location,
    PlanEntry,
    SessionOption,
    SlashCommand,
    ToolItem,
    Usage,
)
from dragoman.events.words import ChangeStage, Outcome, Role, ToolKind, ToolStatus

MANY_PIECES: Final = 1024
"""Number of chunks after which they are joined: a short chunk takes many times the memory of its
characters."""

UNJOINED_SIZE: Final = 16 * 1024
"""Number of characters in unjoined chunks after which they are joined as well. A text at its
limit holds at most this many characters beyond the limit, and twice as many while they are
joined."""


class Growing:
    """A text that grows in chunks. The chunks are joined in batches, and when the text is read:
    adding to a string would copy it for every chunk, and an answer has thousands of them. With a
    `limit` only the beginning of the text is kept; `size` counts everything."""

    __slots__ = ("_due", "_kept", "_pieces", "limit", "size")

    def __init__(self, text: str = "", *, limit: int | None = None) -> None:
        self.limit = limit
        self.size = len(text)
        self._pieces = [text] if text else []
        self._kept = ""
        self._due = UNJOINED_SIZE

    def add(self, piece: str) -> None:
        pieces = self._pieces
        pieces.append(piece)
        self.size += len(piece)
        if len(pieces) >= MANY_PIECES or self.size > self._due:
            self._join()

    def set_end(self, start: int, text: str) -> None:
        """Replace everything from `start` on with this text."""
        self._join()
        self.size = start
        room = None if self.limit is None else max(0, self.limit - start)
        # Usually it is the same text again, and then the whole need not be copied.
        if self._kept[start:] != text[:room]:
            self._kept = self._kept[:start]
            self._pieces.append(text)
            self._join()
        self.size += len(text)
        self._due = self.size + UNJOINED_SIZE

    @property
    def truncated(self) -> bool:
        """Whether part of the text was not kept."""
        return self.limit is not None and self.size > self.limit

    def _join(self) -> None:
        block = "".join(self._pieces)
        self._pieces.clear()
        # A local name that is the only reference: CPython then adds to the string in place.
        # A list of blocks would need twice the memory of the text when they are joined.
        kept, self._kept = self._kept, ""
        if self.limit is not None:
            block = block[: max(0, self.limit - len(kept))]
        kept += block
        self._kept = kept
        self._due = self.size + UNJOINED_SIZE

    def __str__(self) -> str:
        if self._pieces:
            self._join()
        return self._kept

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Growing) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(str(self))


class Message(Struct):
    """One message: its text, and its other content in order."""

    role: Role
    message_id: str | None = None
    blocks: list[Block] = field(default_factory=list)
    """Content that is not text."""
    said: Growing = field(default_factory=Growing)

    @property
    def text(self) -> str:
        return str(self.said)


class Tool(Struct):
    """What is known of one tool call."""

    tool_id: str
    title: str = ""
    name: str | None = None
    kind: ToolKind = ToolKind.OTHER
    status: ToolStatus = ToolStatus.PENDING
    input: Any = None
    output: Any = None
    printed: Growing = field(default_factory=Growing)
    content: tuple[ToolItem, ...] = ()
    locations: tuple[Location, ...] = ()
    changes: tuple[FileChange, ...] = ()
    stage: ChangeStage = ChangeStage.UNKNOWN
    exit_code: int | None = None
    error: str | None = None

    @property
    def text(self) -> str:
        """The tool's output so far."""
        return str(self.printed)


class Plan(Struct):
    """One plan: entries, or a text."""

    entries: tuple[PlanEntry, ...] = ()
    written: Growing = field(default_factory=Growing)

    @property
    def text(self) -> str:
        return str(self.written)


class FinishedTurn(Struct):
    """How a turn ended."""

    outcome: Outcome
    stop: str = ""
    failure: Failure | None = None


class View(Struct, eq=False):
    """The current state of a session."""

    title: str | None = None
    cwd: str | None = None
    model: str | None = None
    mode: str | None = None
    messages: list[Message] = field(default_factory=list)
    tools: dict[str, Tool] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    options: tuple[SessionOption, ...] = ()
    modes: tuple[SessionOption, ...] = ()
    commands: tuple[SlashCommand, ...] = ()
    usage: dict[str, Usage] = field(default_factory=dict)
    """The last reported usage by scope: context, turn, session, call, account."""
    changes: tuple[FileChange, ...] = ()
    """Changes in the whole turn, if the dialect reports them that way."""
    turns: list[FinishedTurn] = field(default_factory=list)
    running: bool = False
    waiting: set[str] = field(default_factory=set)
    """The request ids of the peer's open questions to us."""
    notices: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    open: bool = False
    """Whether the next chunk without an id continues the last message."""
    prompt: Message | None = None
    """The prompt of the running turn, until the agent repeats it or sends something."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, View):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _SEEN)

    __hash__ = None  # type: ignore[assignment]

    @property
    def text(self) -> str:
        """The text of the agent's messages since the last user message, joined."""
        parts: list[str] = []
        for message in reversed(self.messages):
            if message.role is Role.USER:
                break
            if message.role is Role.AGENT:
                parts.append(message.text)
        return "".join(reversed(parts))


_SEEN: Final = tuple(name for name in View.__struct_fields__ if name not in ("open", "prompt"))
"""The fields of `View` that are compared: all except those that only affect how the next event is
applied."""
