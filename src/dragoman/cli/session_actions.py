"""The subcommands of `sessions` and `peers` that contact a peer.

They list its sessions or models, and start, resume or close a session. No prompt is sent.
`runs.run` connects to the peer and opens the session.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from dragoman.broker.client.sessions import close_at_peer
from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.output import session_pages
from dragoman.cli.output.escape import one_line
from dragoman.cli.output.jsonl import write_json
from dragoman.cli.output.renderer import show_as
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.prompt_session import PromptSession, started
from dragoman.cli.run_plan import RunOptions, RunPlan, plan_of
from dragoman.cli.shared_options import ListFormat
from dragoman.client.conversation import SessionSummary
from dragoman.errors import SessionLost, UnknownSession, UsageError
from dragoman.events.parts import Choice
from dragoman.paths import find_paths
from dragoman.runs.model_choice import offered_models
from dragoman.runs.sessions import adopted, find_session, place_of, recall, retire
from dragoman.store import root_of
from dragoman.store.open import open_store, open_told

if TYPE_CHECKING:
    from dragoman.store import SessionRecord, Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionAction:
    """The peer to contact, and the workspace, model and mode of the session; None for the defaults.
    If `cold` is set, no broker is used."""

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
            # No prompt is sent, so no permission is requested.
            allow_unenforced=True,
        )
        return replace(plan_of(options), keep_open=True)


def ask_for_sessions(
    peer: str, *, cwd: Path | None, cold: bool, everywhere: bool
) -> list[SessionSummary] | None:
    """Return the sessions that a peer itself remembers, those of all directories with `everywhere`.
    None if it cannot list them."""
    plan = SessionAction(peer, cwd, cold).plan()

    folder = None if everywhere else plan.workspace
    return _perform(plan, lambda session: session.run.list_sessions(folder))


def ask_for_models(
    peer: str, *, cwd: Path | None, cold: bool
) -> tuple[Sequence[Choice], str | None]:
    """Return the models that a peer offers, and the one that a new session uses. The latter is None
    if the peer does not report it."""
    plan = replace(SessionAction(peer, cwd, cold).plan(), keep_open=False, model=None)

    async def ask(session: PromptSession) -> tuple[Sequence[Choice], str | None]:
        # No prompt is sent, so the session is not kept.
        async with session.run as run:
            found = await offered_models(run.peer, run.opened.conversation, run.seen.view)
            await run.discard()
            return found

    return _perform(plan, ask)


def begin(action: SessionAction, name: str | None, format: ListFormat, *, anew: bool) -> None:
    """Start a session and print its key. With a name, use the open session of that name if there is
    one, or replace it if `anew` is set."""
    plan = action.plan(name)
    record = None if name is None else recall(name, peer=plan.name, folder=plan.workspace)
    if record is None:
        key = _begun(plan)
    elif anew:
        key = _begun_instead(plan, record)
    else:
        key = record.key
    tell(key, format)


def _begun_instead(plan: RunPlan, record: SessionRecord) -> str:
    """Close a stored session and start a new one of the same name. If that fails, reopen the stored
    one, unless its name has been taken."""
    retire(record)
    try:
        return _begun(plan)
    except BaseException:
        with open_store() as store:
            if record.name is None or _holder(store, record, record.name) is None:
                store.update_session(record.key, closed_at=None)
        raise


def resume(action: SessionAction, word: str, name: str | None, format: ListFormat) -> None:
    """Let a peer reopen a session, which may be known only to the peer, and print its key. `word`
    identifies the session; `name`, if given, becomes its name. Raises `UsageError` if another open
    session has that name."""
    plan = action.plan(name)
    root = root_of(plan.workspace)
    is_stored = True
    with open_told(lambda notice: put_err(f"dragoman: {notice}\n")) as store:
        try:
            record = find_session(store, word, root=root, peer=plan.name)
        except UnknownSession:
            # The session is not stored here, but the peer may know it.
            record = adopted(word, peer=plan.name, root=root, cwd=plan.workspace, name=name)
            is_stored = False
        wanted = record.name if name is None else name
        if wanted is not None and (other := _holder(store, record, wanted)) is not None:
            raise UsageError(
                f"the name {wanted!r} is taken by the session {other.key}",
                remedy="choose another name with -s NAME, or close that session with "
                f"`dragoman sessions close {other.key}`",
            )
    # The session keeps its model.
    plan = replace(plan, workspace=place_of(record, plan.workspace), model=None)
    key = _begun(plan, record)
    if is_stored and (record.closed_at is not None or wanted != record.name):
        # Only now: a session that its peer cannot reopen stays closed, under its old name.
        with open_store() as store:
            store.update_session(key, closed_at=None, name=wanted)
    tell(key, format)


def _holder(store: Store, record: SessionRecord, name: str) -> SessionRecord | None:
    """Return the other open session of the same peer and project that has this name; None if there
    is none."""
    other = store.find_session(record.peer, record.root, name)
    return None if other is None or other.key == record.key else other


def close(store: Store, record: SessionRecord) -> None:
    """Close a stored session, also at its peer if a broker has it open. An error that the peer
    reports is shown, and the session is closed here nevertheless."""
    trouble = asyncio.run(close_at_peer(record, find_paths()))
    store.update_session(record.key, closed_at=time.time())
    if trouble is not None:
        put_err(f"dragoman: closed here, but {record.peer} reported: {trouble}\n")
        return
    named = f"{one_line(record.name)} ({record.key})" if record.name else record.key
    put_err(f"The session {named} of {record.peer} is closed.\n")


def tell(key: str, format: ListFormat) -> None:
    """Print the key of a session; as JSON, its whole record."""
    if format is ListFormat.JSON:
        with open_store(read_only=True) as store:
            record = store.session(key)
        if record is not None:
            write_json(session_pages.record_as_json(record))
            return
    put_out(f"{key}\n")


def _begun(plan: RunPlan, record: SessionRecord | None = None) -> str:
    """Start the session of a plan, or open a stored one. Returns its key."""

    async def keep(session: PromptSession) -> str:
        try:
            async with session.run as run:
                await run.keep()
                return run.opened.key
        except SessionLost as error:
            # Its text names options for a prompt.
            id = record.peer_session_id if record is not None else None
            raise UnknownSession(
                f"{plan.name} cannot continue the session {id}: {error.__cause__}",
                remedy=f"`dragoman sessions list {plan.name}` lists the sessions that it remembers",
            ) from error

    return _perform(plan, keep, record)


def _perform(
    plan: RunPlan,
    work: Callable[[PromptSession], Awaitable[T]],
    record: SessionRecord | None = None,
) -> T:
    """Call `work` with a session for the plan, which is not connected yet, and return what `work`
    returns. `work` connects to the peer by entering `session.run`. Raises `SystemExit` if the user
    interrupts it."""
    live = CommandLoop()
    done: list[T] = []

    async def perform_work() -> int:
        async with started(plan, live, show_as("quiet"), record=record) as session:
            done.append(await work(session))
        return 0

    from dragoman.cli.command_loop import perform

    code = perform(live, perform_work)
    if not done:
        raise SystemExit(code)
    return done[0]
