"""Report scout's progress in a turn: the plan and its steps, tool calls, search results.

Every access to the repository is shown as a tool call with its kind, locations and findings.
`answers` decides what to look up.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dragoman.agent import ToolCall, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.rpc.tasks import in_thread
from dragoman.scout.file_reader import FileReader
from dragoman.scout.hits import Hit, is_text_path
from dragoman.scout.markdown import bullet, count
from dragoman.scout.search import Found, find_files_with, lines_with

T = TypeVar("T")

MAX_LOCATIONS: Final = 50
"""Maximum number of places in a tool call: an editor follows them one by one."""

MAX_REPORTED: Final = 20
"""Maximum number of lines shown in a tool call."""

MAX_HITS: Final = 100_000
"""Maximum number of lines examined in one search: about a second's work."""


@dataclass(frozen=True, slots=True)
class ScoutAnswer:
    """The answer at the end of a turn."""

    text: str
    answered: bool = True
    """Whether the question was answered. If not, the turn does not end as a success."""
    symbol: str = ""
    path: str = ""
    """The subjects of the answer, to which "it" in a later question refers; empty to leave them as
    they were."""


class TurnContext:
    """The context in which an answer is found."""

    def __init__(self, turn: Turn, reader: FileReader) -> None:
        self.turn = turn
        self.reader = reader
        self.root = reader.root
        self._steps: tuple[str, ...] = ()
        self._done = 0

    # -- the plan

    async def plan(self, *steps: str) -> None:
        """Report the plan and begin its first step."""
        self._steps, self._done = steps, -1
        await self.step()

    async def step(self, *, last: bool = False) -> None:
        """Mark the current step of the plan as done and begin the next one. With `last`, mark all
        steps as done."""
        if self._done >= len(self._steps):
            return
        self._done = len(self._steps) if last else self._done + 1
        states = ["completed"] * self._done + ["in_progress"] + ["pending"] * len(self._steps)
        await self.turn.plan(
            [
                acp.PlanEntry(content=step, priority="medium", status=status)
                for step, status in zip(self._steps, states, strict=False)
            ]
        )

    # -- tool calls

    @asynccontextmanager
    async def tool(
        self, title: str, kind: str, name: str, raw_input: Any = None, path: str | None = None
    ) -> AsyncIterator[ToolCall]:
        """Context manager: report what the block does with the repository as a tool call."""
        where = None if path is None else self._locations([Hit(path, 0, "")])
        async with self.turn.tool(
            title, kind=kind, name=name, raw_input=raw_input, locations=where
        ) as call:
            yield call

    def _locations(self, hits: Sequence[Hit]) -> list[acp.ToolCallLocation]:
        """Return the places that a client can open: absolute paths, and lines counted from 1."""
        return [
            acp.ToolCallLocation(path=os.path.join(self.root, hit.path), line=hit.line or None)
            for hit in hits[:MAX_LOCATIONS]
            if is_text_path(hit.path)
        ]

    async def report(self, call: ToolCall, hits: Sequence[Hit], text: str, raw: Any = None) -> None:
        """Complete a tool call with its result."""
        lines = [bullet(hit) for hit in hits[:MAX_REPORTED]]
        if len(hits) > MAX_REPORTED:
            lines.append(f"… and {len(hits) - MAX_REPORTED:,} more")
        await call.update(
            status="completed",
            content=[acp.Content(content=acp.TextContent(text="\n".join([text, *lines])))],
            locations=self._locations(hits),
            raw_output=raw,
        )

    async def report_search(self, call: ToolCall, hits: Sequence[Hit], found: Found) -> None:
        """Report the result of a search."""
        text = f"{count(len(hits), 'place')} ({found.engine})"
        raw = {"engine": found.engine, "places": len(hits)}
        await self.report(call, hits, text, {**raw, "complete": not found.cut})

    # -- searching

    async def in_thread(self, work: Callable[[threading.Event], T]) -> T:
        """Call a blocking function in a thread and return its result. The event passed to the
        function is set if the turn is cancelled."""
        return await in_thread(self.root, work)

    async def search(
        self,
        title: str,
        patterns: dict[str, str],
        take: Callable[[Hit], None],
        shown: Callable[[], Sequence[Hit]],
        under: str = "",
    ) -> Found:
        """Search the files below the directory `under`, and call `take`, in a thread, for each line
        that matches a pattern, up to `MAX_HITS`. `shown` returns the lines to show in the tool
        call."""
        raw = {"terms": list(patterns), **({"folder": under} if under else {})}
        async with self.tool(title, "search", "search", raw, path=under) as call:
            any_of = "|".join(f"(?:{pattern})" for pattern in patterns.values())
            found = await find_files_with(self.root, any_of, under)

            def scan(stop: threading.Event) -> None:
                for number, hit in enumerate(lines_with(self.root, any_of, found, stop)):
                    if number >= MAX_HITS:
                        found.cut = True
                        break
                    take(hit)

            await self.in_thread(scan)
            await self.report_search(call, shown(), found)
        return found


def reservations(found: Found) -> str:
    """Describe what a search may have missed; an empty string if it was complete."""
    reasons = []
    if found.cut:
        reasons.append("the search stopped early, so there may be more")
    if found.unreadable:
        number = count(found.unreadable, "file or directory", "files or directories")
        reasons.append(f"{number} could not be read or exceeded 32 MiB")
    return f"Incomplete: {'; '.join(reasons)}." if reasons else ""
