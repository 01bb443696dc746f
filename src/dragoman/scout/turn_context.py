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
from dragoman.client.services.worker_thread import in_thread
from dragoman.dialects.acp import v1 as acp
from dragoman.scout import search as scout_search
from dragoman.scout.file_reader import FileReader
from dragoman.scout.hits import Hit, Query, is_text_path
from dragoman.scout.markdown import bullet, count

T = TypeVar("T")

MAX_LOCATIONS: Final = 50
"""Places that a tool call names: an editor follows them one by one."""

MAX_REPORTED: Final = 20
"""Lines that a tool call shows."""


@dataclass(frozen=True, slots=True)
class ScoutAnswer:
    """What is said at the end of a turn."""

    text: str
    answered: bool = True
    """Whether the question was answered. If not, the turn does not end as a success."""
    symbol: str = ""
    path: str = ""
    """What it was about, for a question that says "it"."""


class TurnContext:
    """What an answer is worked out with."""

    def __init__(self, turn: Turn, reader: FileReader) -> None:
        self.turn = turn
        self.reader = reader
        self.root = reader.root
        self._steps: list[str] = []
        self._done = 0

    # -- the plan

    async def plan(self, *steps: str) -> None:
        """Say what is going to be done; the first step begins."""
        self._steps = list(steps)
        self._done = 0
        await self._tell()

    async def step(self) -> None:
        """The step at hand is done; the next one begins."""
        if self._done < len(self._steps):
            self._done += 1
            await self._tell()

    async def finish(self) -> None:
        """All is done."""
        if self._done < len(self._steps):
            self._done = len(self._steps)
            await self._tell()

    async def _tell(self) -> None:
        def status(number: int) -> str:
            if number < self._done:
                return "completed"
            return "in_progress" if number == self._done else "pending"

        await self.turn.plan(
            [
                acp.PlanEntry(content=step, priority="medium", status=status(number))
                for number, step in enumerate(self._steps)
            ]
        )

    # -- tool calls

    @asynccontextmanager
    async def tool(
        self, title: str, kind: str, name: str, raw_input: Any = None, path: str | None = None
    ) -> AsyncIterator[ToolCall]:
        """Report a look at something."""
        where = None if path is None else self.locations([Hit(path, 0, "")])
        async with self.turn.tool(
            title, kind=kind, name=name, raw_input=raw_input, locations=where
        ) as call:
            yield call

    def locations(self, hits: Sequence[Hit]) -> list[acp.ToolCallLocation]:
        """Places as a client can open them: absolute, and lines from 1 on."""
        return [
            acp.ToolCallLocation(path=os.path.join(self.root, hit.path), line=hit.line or None)
            for hit in hits[:MAX_LOCATIONS]
            if is_text_path(hit.path)
        ]

    async def report(self, call: ToolCall, hits: Sequence[Hit], text: str, raw: Any = None) -> None:
        """Say what a call found."""
        lines = [bullet(hit) for hit in hits[:MAX_REPORTED]]
        if len(hits) > MAX_REPORTED:
            lines.append(f"… and {len(hits) - MAX_REPORTED:,} more")
        await call.update(
            status="completed",
            content=[acp.Content(content=acp.TextContent(text="\n".join([text, *lines])))],
            locations=self.locations(hits),
            raw_output=raw,
        )

    # -- looking

    async def in_thread(self, work: Callable[[threading.Event], T]) -> T:
        """Do something that blocks, until it is done or the turn is cancelled."""
        return await in_thread(self.root, work)

    async def search(
        self,
        title: str,
        query: Query,
        sink: scout_search.Sink,
        found: Callable[[], Sequence[Hit]],
    ) -> scout_search.Searched:
        """Search as a tool call; `found` gives what is worth showing, when it is over."""
        raw: dict[str, Any] = {"terms": list(query.terms), "words": query.words}
        if query.under:
            raw["folder"] = query.under
        async with self.tool(title, "search", "search", raw, path=query.under) as call:
            searched = await scout_search.search(self.root, query, sink)
            hits = found()
            files = "all" if searched.files is None else f"{searched.files:,}"
            text = f"{count(len(hits), 'place')} in {files} files ({searched.engine})"
            output = {
                "engine": searched.engine,
                "files": searched.files,
                "places": len(hits),
                "complete": not searched.cut,
            }
            await self.report(call, hits, text, output)
        return searched


def reservations(searched: scout_search.Searched) -> str:
    """What a search may have missed, as a sentence; nothing if it was complete."""
    reasons = []
    if searched.cut:
        reasons.append("the search was ended early, so there may be more")
    if searched.unreadable:
        reasons.append(
            f"{count(searched.unreadable, 'file or folder', 'files or folders')} could not be read"
        )
    if searched.large:
        reasons.append(
            f"{count(searched.large, 'file')} of more than 32 MiB was not searched"
            if searched.large == 1
            else f"{searched.large:,} files of more than 32 MiB were not searched"
        )
    return f"Not complete: {'; '.join(reasons)}." if reasons else ""
