"""Summary of a conversation in memory, across peers: last messages, open plan, changed files.

Built from live or stored events. Tracks which turns each peer has seen; `runs.brief` turns the rest
into a handover.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from msgspec import UnsetType

from dragoman.events import model
from dragoman.events.parts import PlanEntry, Text
from dragoman.events.words import PlanStatus, Role, ToolKind

MAX_TURNS: Final = 64
"""Maximum number of turns remembered; a brief contains far fewer."""

MAX_TEXT_SIZE: Final = 16 * 1024
"""Maximum number of characters of one message to remember: its end, where the result is."""

MAX_FILES: Final = 256
"""Maximum number of files remembered: those touched last."""

_TOUCHING: Final = frozenset({ToolKind.EDIT, ToolKind.DELETE, ToolKind.MOVE})
_OVER: Final = frozenset({PlanStatus.COMPLETED, PlanStatus.CANCELLED})


@dataclass(slots=True)
class SummaryTurn:
    """One turn: prompt, peer and answer."""

    prompt: str
    by: str
    _pieces: list[str] = field(default_factory=list)
    _size: int = 0

    @property
    def text(self) -> str:
        """The end of the answer, at most `MAX_TEXT_SIZE` characters."""
        return "".join(self._pieces)[-MAX_TEXT_SIZE:]

    def add(self, text: str) -> None:
        """Add a piece of the answer."""
        self._pieces.append(text)
        self._size += len(text)
        if self._size > 2 * MAX_TEXT_SIZE:
            # Not for every piece: joining them costs more than the piece itself.
            self._pieces = [self.text]
            self._size = MAX_TEXT_SIZE


class ConversationSummary:
    """What to remember of one conversation (messages, plan, files), updated as its turns run."""

    def __init__(self) -> None:
        self.turns: list[SummaryTurn] = []
        self.count = 0
        """Number of turns so far, including forgotten ones."""
        self.plan: tuple[PlanEntry, ...] = ()
        self._files: dict[str, None] = {}
        self._kinds: dict[str, ToolKind] = {}
        self._known: dict[str, int] = {}

    # -- input

    def began(self, prompt: str, by: str) -> None:
        """Record the start of a turn. The prompted peer has now seen everything before it."""
        self.turns.append(SummaryTurn(prompt[-MAX_TEXT_SIZE:], by))
        del self.turns[:-MAX_TURNS]
        self.count += 1
        self._kinds.clear()
        self._known[by] = self.count

    def said(self, text: str) -> None:
        """Record text from the prompted peer."""
        if self.turns:
            self.turns[-1].add(text)

    def event(self, event: model.Event) -> None:
        """Record an event of the turn."""
        match event:
            case model.MessageDelta(role=Role.AGENT, text=text):
                self.said(text)
            case model.MessageSet(role=Role.AGENT, blocks=tuple() as blocks):
                if self.turns and not self.turns[-1].text:
                    self.said("".join(one.text for one in blocks if isinstance(one, Text)))
            case model.PlanSet(entries=entries):
                self.plan = entries
            case model.PlanRemoved():
                self.plan = ()
            case model.FilesChanged(changes=changes):
                self.touched(*(change.path for change in changes))
            case model.ToolChanged():
                self._tool(event)

    def _tool(self, event: model.ToolChanged) -> None:
        if not isinstance(event.kind, UnsetType):
            self._kinds[event.tool_id] = event.kind
        if self._kinds.get(event.tool_id) in _TOUCHING and not isinstance(
            event.locations, UnsetType
        ):
            self.touched(*(place.path for place in event.locations or ()))

    def touched(self, *paths: str) -> None:
        """Record files that were changed, or were about to be."""
        for path in paths:
            if path:
                self._files.pop(path, None)
                self._files[path] = None
        while len(self._files) > MAX_FILES:
            del self._files[next(iter(self._files))]

    def forgot(self, peer: str) -> None:
        """Record that a peer has lost its context."""
        self._known.pop(peer, None)

    # -- output

    @property
    def files(self) -> tuple[str, ...]:
        """The files touched, the latest last."""
        return tuple(self._files)

    @property
    def open_plan(self) -> tuple[PlanEntry, ...]:
        """The entries of the plan that are neither completed nor cancelled."""
        return tuple(entry for entry in self.plan if entry.status not in _OVER)

    def unknown_to(self, peer: str | None) -> list[SummaryTurn]:
        """Return the remembered turns that a peer has not seen; all of them if `peer` is None."""
        known = 0 if peer is None else self._known.get(peer, 0)
        missing = self.count - known
        return self.turns[-missing:] if missing else []
