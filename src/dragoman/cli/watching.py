"""Watching what happens in a session that another command, or a broker, runs.

Owns the show of it and what Ctrl-C does: it leaves, and what is watched goes on. Where the events
come from is decided in `dragoman.runs.job_events`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from dragoman.broker.client.sessions import broker_with
from dragoman.cli.exits import Exit, of_outcome
from dragoman.cli.history import show_for
from dragoman.cli.options import Format
from dragoman.cli.output import job_pages
from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.past import Past
from dragoman.cli.output.showing import Show
from dragoman.cli.output.terminal import put_err
from dragoman.cli.setting import perform
from dragoman.cli.stage import Stage
from dragoman.events.model import Source
from dragoman.events.place import Place
from dragoman.paths import find_paths
from dragoman.runs.job_events import follow_session, follow_sessions
from dragoman.runs.jobs import find_job
from dragoman.store.history import events_of

if TYPE_CHECKING:
    from dragoman.store import SessionRecord


def watch_session(record: SessionRecord, *, start: int | None, format: Format) -> int:
    """Show what happens in a session until its broker ends, or Ctrl-C."""
    paths = find_paths()
    show = show_for(format)

    async def work() -> int:
        broker = await broker_with(record, paths)
        if broker is None:
            put_err(f"dragoman: nothing has {record.key} open now; this is what there was\n")
        lines = follow_session(record, broker, start=start, paths=paths)
        await _show(lines, record, show)
        return Exit.OK

    return _perform(work, show)


def watch_job(id: str, *, format: Format) -> int:
    """Show a job from its beginning to its end; the exit code of the job."""
    paths = find_paths()
    show = show_for(format)

    async def work() -> int:
        job = await find_job(id, paths=paths)
        if isinstance(show, Past):
            show.asked(job.prompt)
        # Work that is delegated goes on in another session where one peer has failed.
        async for record, lines in follow_sessions(job, paths=paths):
            await _show(lines, record, show)
            if show.broken:
                break
        job = await find_job(id, paths=paths)
        if isinstance(show, JsonLines):
            show.line(job_pages.as_json(job))
        elif isinstance(show, Past):
            took = job_pages.took(job, time.time())
            failure = (job.failure or {}).get("message")
            told = f"{job_pages.state_of(job)}, {took}" if took else job_pages.state_of(job)
            show.over(f"{told}: {failure}" if failure else told)
        show.flush()
        return of_outcome(job.outcome or "unknown")

    return _perform(work, show)


async def _show(lines: AsyncIterator[tuple[int, bytes]], record: SessionRecord, show: Show) -> None:
    place = Place(Source("acp", "watched"), itertools.count(1), record.peer_session_id)
    async for _, line in lines:
        for event in events_of(line, place):
            show.event(event)
        if show.broken:
            return


def _perform(work: Callable[[], Coroutine[Any, Any, int]], show: Show) -> int:
    stage = Stage()

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None

        def leave(count: int) -> None:
            task.cancel()

        stage.listen(leave)
        try:
            return await work()
        finally:
            show.flush()

    return perform(stage, main)
