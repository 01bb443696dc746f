"""Watch a session or a job that another command or a broker runs.

Ctrl-C only stops watching; the job continues. The events come from `runs.job_events`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from dragoman.broker.client.hello import require_answer
from dragoman.broker.client.sessions import broker_with, silent_brokers
from dragoman.cli.command_loop import CommandLoop, perform
from dragoman.cli.exit_codes import ExitCode, of_outcome
from dragoman.cli.output import job_pages
from dragoman.cli.output.history_view import HistoryView
from dragoman.cli.output.jsonl import JsonLines, of_event
from dragoman.cli.output.renderer import Renderer
from dragoman.cli.output.terminal import put_err
from dragoman.cli.shared_options import ListFormat
from dragoman.cli.stored_sessions import show_for
from dragoman.paths import find_paths
from dragoman.runs.job_events import EventCursor, job_events, session_events
from dragoman.runs.jobs import find_job

if TYPE_CHECKING:
    from dragoman.events.model import Event
    from dragoman.store import SessionRecord
    from dragoman.store.records import JobRecord


def watch_session(
    record: SessionRecord, *, start: int | None, after: str | None = None, format: ListFormat
) -> int:
    """Show a session live until its broker ends or Ctrl-C is pressed: the events from number
    `start` on, those after the cursor `after`, or only new ones. If no broker has the session open,
    show the stored events. Returns the exit code; raises `BrokerError` if a broker that may have it
    open does not answer."""
    paths = find_paths()
    show = show_for(format)
    cursor = None if after is None else EventCursor.parse(after)

    async def work() -> int:
        broker = await broker_with(record, paths)
        silent = await silent_brokers(record.peer, paths) if broker is None else []
        if broker is None and not silent:
            put_err(f"dragoman: {record.key} is not open now; showing what is stored\n")
        await show_events(
            session_events(record, broker, start=start, after=cursor, paths=paths), show
        )
        for hung in silent:
            # Any of these brokers may have the session open.
            await require_answer(hung.address, hung.name)
        return ExitCode.OK

    return _perform(work, show)


def watch_job(id: str, *, after: str | None = None, format: ListFormat) -> int:
    """Show a job from its beginning, or from a cursor, to its end. Returns the exit code of the
    job."""
    paths = find_paths()
    show = show_for(format)
    cursor = None if after is None else EventCursor.parse(after)

    async def work() -> int:
        job = await find_job(id, paths=paths, require_answer=True)
        if isinstance(show, HistoryView) and cursor is None:
            show.asked(job.prompt)
        await show_events(job_events(job, after=cursor, paths=paths), show)
        return show_end(await find_job(id, paths=paths), show)

    return _perform(work, show)


def show_end(job: JobRecord, show: Renderer) -> int:
    """Show how a job ended. Returns the exit code for its outcome."""
    if isinstance(show, JsonLines):
        show.line(job_pages.as_json(job))
    elif isinstance(show, HistoryView):
        took = job_pages.took(job, time.time())
        failure = (job.failure or {}).get("message")
        told = f"{job_pages.state_of(job)}, {took}" if took else job_pages.state_of(job)
        show.over(f"{told}: {failure}" if failure else told)
    show.flush()
    if isinstance(show, HistoryView):
        put_err(job_pages.notices_of(job))
        put_err(job_pages.stderr_of(job))
    return of_outcome(job.outcome or "unknown")


async def show_events(
    events: AsyncGenerator[tuple[EventCursor, Event], None], show: Renderer
) -> None:
    """Show events as they arrive, until they end or the output is closed. In JSON output, each
    event has its cursor."""
    show.doing("waiting for the agent")
    try:
        async for cursor, event in events:
            if isinstance(show, JsonLines):
                show.line({**of_event(event), "cursor": str(cursor)})
            else:
                show.event(event)
            if show.broken:
                return
    finally:
        await events.aclose()


def _perform(work: Callable[[], Coroutine[Any, Any, int]], show: Renderer) -> int:
    live = CommandLoop()

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None

        def leave(count: int) -> None:
            task.cancel()

        live.listen(leave)
        try:
            return await work()
        finally:
            show.flush()

    return perform(live, main)
