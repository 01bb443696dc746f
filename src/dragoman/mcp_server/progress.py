"""Turn the events of a running peer into short, rate-limited progress lines.

A line that is replaced before it was sent is dropped; a heartbeat is due when nothing happens.
`tool_handlers` sends the lines, the store keeps the events.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from dragoman.delegation import DelegationListener
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.routing import Candidate
from dragoman.events import model
from dragoman.events.words import Role, ToolStatus

MIN_INTERVAL: Final = 0.5
"""Seconds between two lines: people read them, and they may fill a model's context."""

BEAT_INTERVAL: Final = 10.0
"""Seconds without a new line after which a heartbeat is sent: hosts time out on a silent call."""

SHOWN_SIZE: Final = 200
"""Maximum length of a line in characters, without the time that a heartbeat adds."""


class Progress(DelegationListener):
    """Turns what happens in one piece of work into its current progress line."""

    def __init__(self, peer: str = "") -> None:
        self.peer = peer
        self.line = ""
        """The current line, about the last thing that happened."""
        self.count = 0
        """The number of lines and heartbeats so far; it only grows, as the protocol requires."""
        self.job_known = asyncio.Event()
        self.job_id: str | None = None
        self.notices: list[str] = []
        self._changed = asyncio.Event()
        self._began_at = time.monotonic()
        self._said = 0

    # -- called by the work

    def job(self, job: str) -> None:
        self.job_id = job
        self.job_known.set()

    def attempt(self, number: int, candidate: Candidate, reason: str) -> None:
        self.peer = candidate.peer
        self.tell(f"prompting {candidate.peer} (attempt {number}): {reason}")

    def reported(self, number: int, report: AttemptReport) -> None:
        if not report.ok:
            self.tell(f"{report.peer}: {report.outcome.value.replace('_', ' ')}")

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def event(self, event: model.Event) -> None:
        if event.replay:
            return
        match event:
            case model.MessageDelta(role=Role.AGENT, text=text):
                self._said += len(text)
                self.tell(f"{self.peer} is answering ({self._said} characters)")
            case model.ToolChanged(
                status=ToolStatus.RUNNING | ToolStatus.PENDING, title=str(title)
            ):
                self.tell(f"{self.peer}: {title}")
            case model.PermissionAsked(title=title):
                self.tell(f"{self.peer} asks for permission: {title}")
            case model.PlanSet(entries=entries) if entries:
                done = sum(str(entry.status) == "completed" for entry in entries)
                self.tell(f"{self.peer}: {done} of {len(entries)} steps of its plan are done")

    def tell(self, line: str) -> None:
        """Set the current line to a text without its line breaks, cut to `SHOWN_SIZE`."""
        line = " ".join(line.split())
        self.line = line if len(line) <= SHOWN_SIZE else line[: SHOWN_SIZE - 1] + "…"
        self.count += 1
        self._changed.set()

    # -- called by the sender

    async def next(self) -> str:
        """Wait for the next line to send: the current line once it has changed, or after
        `BEAT_INTERVAL` a heartbeat, which is the current line with the elapsed time."""
        try:
            async with asyncio.timeout(BEAT_INTERVAL):
                await self._changed.wait()
        except TimeoutError:
            seconds = time.monotonic() - self._began_at
            self.count += 1
            return f"{self.line or 'waiting'} ({seconds:.0f} s)"
        self._changed.clear()
        return self.line

    async def pause(self) -> None:
        """Wait `MIN_INTERVAL`, so that newer lines can replace older ones."""
        await asyncio.sleep(MIN_INTERVAL)
