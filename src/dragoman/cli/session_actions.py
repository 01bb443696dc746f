"""Subcommands of `dragoman sessions` that contact a peer: list its own, new, ensure, resume, close.

No prompt is sent. `cli.prompt_session` connects to the peer, `runs.sessions` opens the session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from dragoman.broker.client.sessions import close_at_peer
from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.output import session_pages
from dragoman.cli.output.jsonl import write_json
from dragoman.cli.output.renderer import show_as
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.prompt_session import PromptSession
from dragoman.cli.run_plan import RunOptions, RunPlan, plan_of
from dragoman.cli.shared_options import ListFormat
from dragoman.client.conversation import SessionSummary
from dragoman.errors import UnknownSession
from dragoman.paths import find_paths
from dragoman.runs.sessions import adopted, find_session, place_of, recall, retire
from dragoman.store import root_of
from dragoman.store.open import open_store, open_told

if TYPE_CHECKING:
    from dragoman.store import SessionRecord, Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionAction:
    """The peer to contact, its workspace, and whether to use a broker."""

    peer: str
    cwd: Path | None = None
    cold: bool = False
    model: str | None = None
    mode: str | None = None

    def plan(self, session: str | None = None) -> RunPlan:
        options = RunOptions(
            peer=self.peer,
            command=None,
            cwd=self.cwd,
            cold=self.cold,
            model=self.model,
            mode=self.mode,
            session=session,
            deny_all=True,
            # Nothing is prompted, so there is nothing to ask about.
            allow_unenforced=True,
        )
        return replace(plan_of(options), keep_open=True)


def ask_for_sessions(
    peer: str, *, cwd: Path | None, cold: bool, everywhere: bool
) -> list[SessionSummary] | None:
    """The sessions that a peer itself remembers; None if it does not tell."""
    plan = SessionAction(peer, cwd, cold).plan()

    async def ask(session: PromptSession) -> list[SessionSummary] | None:
        if session.peer.capabilities.list is False:
            return None
        folder = None if everywhere else plan.workspace
        return [summary async for summary in session.peer.list_sessions(folder)]

    return _visit(plan, ask, open_session=False)


def begin(action: SessionAction, name: str | None, format: ListFormat, *, anew: bool) -> None:
    """Begin a session and tell its key; unless `anew`, one that is there will do."""
    plan = action.plan(name)
    if name is not None:
        record = recall(name, peer=plan.name, folder=plan.workspace)
        if record is not None and not anew:
            tell(record.key, format)
            return
        if record is not None:
            retire(record)
    tell(_visit(plan, _key, once=not anew), format)


def resume(action: SessionAction, word: str, name: str | None, format: ListFormat) -> None:
    """Let a peer open a session again, and tell its key."""
    plan = action.plan(name)
    root = root_of(plan.workspace)
    with open_told(lambda notice: put_err(f"dragoman: {notice}\n")) as store:
        try:
            record = find_session(store, word, root=root, peer=plan.name)
        except UnknownSession:
            # It is not stored here, but the peer may know it.
            record = adopted(word, peer=plan.name, root=root, cwd=plan.workspace, name=name)
        else:
            fields = {} if name is None else {"name": name}
            if record.closed_at is not None or fields:
                store.update_session(record.key, closed_at=None, **fields)
    plan = replace(plan, workspace=place_of(record, plan.workspace))
    tell(_visit(plan, _key, record=record), format)


def close(store: Store, record: SessionRecord) -> None:
    """Close a session, at its peer if a broker has it open."""
    trouble = asyncio.run(close_at_peer(record, find_paths()))
    store.update_session(record.key, closed_at=time.time())
    if trouble is not None:
        put_err(f"dragoman: it is closed here; {record.peer} says: {trouble}\n")


def tell(key: str, format: ListFormat) -> None:
    """Print what a session is stored under."""
    if format is ListFormat.JSON:
        with open_store(read_only=True) as store:
            record = store.session(key)
        if record is not None:
            write_json(session_pages.record_as_json(record))
            return
    put_out(f"{key}\n")


async def _key(session: PromptSession) -> str:
    await session.keep()
    return session.opened.key


def _visit(
    plan: RunPlan,
    do: Callable[[PromptSession], Awaitable[T]],
    *,
    record: SessionRecord | None = None,
    open_session: bool = True,
    once: bool = False,
) -> T:
    """Reach the peer of a plan, open its session, and do something. With `once` a session that
    somebody else begins at this moment under its name is that session."""
    live = CommandLoop()
    done: list[T] = []

    async def work() -> int:
        show = show_as("quiet")
        session = PromptSession(plan, live, show)
        live.listen(session.interrupted)
        try:
            async with AsyncExitStack() as stack:
                if once:
                    await session.open(stack, plan.way)
                    done.append(await do(session))
                    return 0
                await session.reach(stack, plan.way)
                if open_session:
                    await session.open_session(stack, record)
                done.append(await do(session))
        finally:
            await session.aclose()
        return 0

    from dragoman.cli.command_start import perform

    code = perform(live, work)
    if not done:
        raise SystemExit(code)
    return done[0]
