"""Find, open, resume, load or replace a stored session, and submit prompts to a broker.

Invariant: there is at most one open session per peer, project and name. Works the same with a
broker and with a direct child. `catalogue.open` and `broker.client` connect to the peer, `store`
keeps the records.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct, field, structs

from dragoman.client.conversation import Conversation, Opening, Peer, SessionSummary
from dragoman.client.results import Result, explain
from dragoman.dialects.discovery import ACP
from dragoman.errors import (
    BrokerError,
    BrokerUnavailable,
    CallTimeout,
    ConnectionClosed,
    ConnectionLost,
    DragomanError,
    InvalidAnswer,
    RemoteError,
    SessionLost,
    StoreCorrupt,
    UnknownSession,
    Unsupported,
    UsageError,
)
from dragoman.events.parts import Failure
from dragoman.events.words import ErrorKind
from dragoman.rpc.tasks import in_thread

if TYPE_CHECKING:
    from dragoman.client.budgets import Budgets
    from dragoman.events.parts import Block
    from dragoman.paths import Paths
    from dragoman.policy import Policy
    from dragoman.store import SessionRecord, Store

log: Final = logging.getLogger(__name__)

SUBMIT_TIMEOUT: Final = 10.0
"""Timeout in seconds for a broker to accept a submitted prompt. It queues the prompt and answers;
the peer is not involved. Ten seconds allow for a machine that swaps."""

DISCARD_TIMEOUT: Final = 5.0
"""Timeout in seconds for a peer to close a session in which no prompt was sent."""

LAST: Final = "last"
"""The word for the newest job, or for the session used last, wherever an id is expected."""

KEY: Final = "s-"
"""Prefix of our own session keys."""

NEW: Final = "new"
"""The session was started by this call."""
LIVE: Final = "live"
"""The peer has had the session open all the time."""
RESTORED: Final = "restored"
"""The peer has reopened the session with its context."""
FRESH: Final = "fresh"
"""The peer has lost the session, and a new one has taken its place."""


ANSWER_SIZE: Final = 8 * 1024 * 1024
"""Maximum number of characters of an answer, from its beginning, that a command or the ACP server
keeps in memory and returns. A longer answer is in the store and is reported as truncated."""


# -- lookup


def find_session(
    store: Store, word: str, *, root: Path, peer: str | None = None, last_open: bool = False
) -> SessionRecord:
    """Return the stored session that `word` means: its key or a prefix of it, its name in the
    project `root`, the peer's own id, or `LAST`. With `last_open`, `LAST` means the open session
    used last.

    If several have the same name, the open one is used, or else the latest. Raises
    `UnknownSession`, and `UsageError` if sessions of several peers match.
    """
    found = store.session(word)
    if found is not None:
        return found
    if word == LAST:
        for record in store.sessions(
            peer=peer, root=str(root), include_closed=not last_open, limit=1
        ):
            return record
    here = [
        record
        for record in store.sessions(peer=peer, root=str(root))
        if word in (record.name, record.peer_session_id)
    ]
    if not here:
        here = [record for record in store.sessions(peer=peer) if record.peer_session_id == word]
    if not here and word.startswith(KEY) and len(word) > len(KEY):
        here = [record for record in store.sessions(peer=peer) if record.key.startswith(word)]
        if len(here) > 1:
            some = ", ".join(record.key for record in here[:3])
            raise UnknownSession(f"{len(here)} sessions begin with {word!r}, such as {some}")
    if not here:
        of = f" of {peer}" if peer is not None else ""
        raise UnknownSession(
            f"there is no session {word!r}{of} in {root}{_near(store, word, root, peer)}"
        )
    peers = sorted({record.peer for record in here})
    if len(peers) > 1:
        of = " and of ".join(peers)
        raise UsageError(f"{word!r} is a session of {of}: add `--peer {peers[0]}`")
    return max(here, key=lambda record: (record.closed_at is None, record.updated_at))


def _near(store: Store, word: str, root: Path, peer: str | None) -> str:
    """Return the end of a message about a session name that was not found, which suggests the
    nearest name; empty if none is near."""
    from dragoman.errors.usage import nearest

    names = [record.name for record in store.sessions(peer=peer, root=str(root)) if record.name]
    near = nearest(word, names)
    return f"; did you mean {near[0]!r}?" if near else ""


class ListedSession(Struct, frozen=True, kw_only=True):
    """A session that is stored here, in the peer's own list, or both."""

    peer: str
    peer_session_id: str
    record: SessionRecord | None = None
    cwd: str | None = None
    title: str | None = None
    updated: str | None = None
    """When it was last used, according to the peer."""
    created: str | None = None
    """When it began, according to the peer."""
    status: str | None = None
    """The peer's own word for its state."""
    at_peer: bool | None = None
    """Whether the peer lists it; None if the peer was not asked."""


def merge(
    records: Iterable[SessionRecord],
    told: Sequence[SessionSummary] | None = None,
    *,
    peer: str = "",
) -> list[ListedSession]:
    """Return the stored sessions, followed by those that only `peer` lists. `told` is the peer's
    list."""
    known = {summary.id: summary for summary in told or ()}
    merged = []
    for record in records:
        asked = told is not None and record.peer == peer
        summary = known.pop(record.peer_session_id, None) if asked else None
        merged.append(
            ListedSession(
                peer=record.peer,
                peer_session_id=record.peer_session_id,
                record=record,
                cwd=record.cwd,
                title=record.title or (summary.title if summary else None),
                updated=summary.updated_at if summary else None,
                created=summary.created_at if summary else None,
                status=summary.status if summary else None,
                at_peer=summary is not None if asked else None,
            )
        )
    return merged + [
        ListedSession(
            peer=peer,
            peer_session_id=summary.id,
            cwd=summary.cwd,
            title=summary.title,
            updated=summary.updated_at,
            created=summary.created_at,
            status=summary.status,
            at_peer=True,
        )
        for summary in known.values()
    ]


# -- opening


def broker_of(peer: Peer) -> str | None:
    """Return the name of the broker between us and the agent, or None without one."""
    client = peer.client
    if getattr(client, "greeting", None) is None:
        return None
    endpoint: str = client.endpoint
    return endpoint


class WantedSession(Struct, frozen=True, kw_only=True):
    """Which session to open, and how."""

    key: str
    """Its key in the store, if it is new."""
    workspace: Path
    name: str | None = None
    record: SessionRecord | None = None
    """The stored session to continue; None starts one."""
    once: bool = False
    """Whether a new session is closed when its turns have ended, including submitted ones."""
    fresh: bool = False
    """Whether a new session may take the place of the stored one if the peer has lost that."""
    mode: str | None = None
    model: str | None = None
    """The initial model. `model_choice.use_model` checks that it is used."""
    mcp_servers: Sequence[Any] = ()
    additional_directories: Sequence[Path] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """`_meta` for the request that starts a new session."""
    on_notice: Callable[[str], None] | None = None
    """Called with a message for the user that gives the reason for a long wait."""
    paths: Paths | None = None


class OpenedSession(Struct, frozen=True, kw_only=True):
    """An open session: its conversation, its key in the store, and the state of the peer's
    context."""

    conversation: Conversation
    key: str
    context: str
    """`NEW`, `RESTORED` or `FRESH`; only a broker knows whether it was `LIVE` all the time."""


async def open_session(peer: Peer, wanted: WantedSession) -> OpenedSession:
    """Start a session, or continue a stored one.

    Raises `SessionLost` if the peer can no longer open it, unless a fresh one may take its place,
    and `BrokerUnavailable` if the broker itself ends or hangs in the meantime.
    """
    try:
        return await _open_session(peer, wanted)
    except ConnectionLost as error:
        failure = peer.client.connection.failure
        if broker_of(peer) is None or failure is None or isinstance(failure, ConnectionClosed):
            raise
        raise BrokerUnavailable(
            f"the broker was lost before a prompt was sent: {error}; try again"
        ) from error


async def _open_session(peer: Peer, wanted: WantedSession) -> OpenedSession:
    can = peer.capabilities
    if wanted.mode is not None:
        peer.require(can.set_mode, "switch its mode")
    if wanted.model is not None and peer.dialect != ACP:
        peer.require(can.set_model, "switch its model")
    record = wanted.record
    if record is None:
        return OpenedSession(
            conversation=await peer.open(_beginning(peer, wanted)), key=wanted.key, context=NEW
        )
    await _take_over(peer, record)
    try:
        conversation = await _go_on(peer, record, wanted)
    except (Unsupported, UnknownSession) as error:
        if not wanted.fresh:
            named = record.name or record.key
            raise SessionLost(
                f"{record.peer} cannot continue the session {named}: {error}; the conversation "
                "is stored. Add --brief to start a new session with a summary of it, or --fresh "
                "to start without one"
            ) from error
        await in_thread(
            _state(wanted.paths), lambda _: retire(record, paths=wanted.paths), changes_disk=True
        )
        return OpenedSession(
            conversation=await peer.open(_beginning(peer, wanted)), key=wanted.key, context=FRESH
        )
    return OpenedSession(conversation=conversation, key=record.key, context=RESTORED)


def adopted(
    peer_session_id: str, *, peer: str, root: Path, cwd: Path, name: str | None = None
) -> SessionRecord:
    """Return a record for a session that only its peer lists, as it would be stored here."""
    from dragoman.store.records import SessionRecord, new_session_key

    now = time.time()
    return SessionRecord(
        key=new_session_key(),
        peer=peer,
        root=str(root),
        name=name,
        peer_session_id=peer_session_id,
        cwd=str(cwd),
        created_at=now,
        updated_at=now,
    )


def retire(record: SessionRecord, *, paths: Paths | None = None) -> None:
    """Close a stored session, so that another one may have its name. Its messages are kept."""
    from dragoman.store.open import open_store

    with suppress(UnknownSession), open_store(paths=paths) as store:
        store.update_session(record.key, closed_at=time.time())


async def discard(
    opened: OpenedSession, *, timeout: float = DISCARD_TIMEOUT, paths: Paths | None = None
) -> None:
    """Delete a session that has just started and in which no prompt was sent, so that its name is
    free again. A continued session is left as it is. If the session cannot be deleted, the reason
    is logged."""
    if opened.context == RESTORED:
        return
    from dragoman.store.open import open_store

    await leave(opened.conversation, timeout=timeout)

    def delete(_: object) -> None:
        with open_store(paths=paths) as store:
            record = store.session(opened.key)
            # An open session is still written to.
            if record is not None and record.closed_at is not None:
                store.delete_session(opened.key)

    try:
        await in_thread(_state(paths), delete, changes_disk=True)
    except DragomanError as error:
        log.info("the unused session %s stays stored: %s", opened.key, error)


async def leave(conversation: Conversation, *, timeout: float) -> None:
    """Close a session that is no longer needed. If that fails, the reason is logged."""
    try:
        async with asyncio.timeout(timeout):
            await conversation.close()
    except (DragomanError, TimeoutError) as error:
        why = error if isinstance(error, DragomanError) else f"no answer within {timeout:g} s"
        log.info("session %s is not closed: %s", conversation.id, why)


def _beginning(peer: Peer, wanted: WantedSession) -> Opening:
    return Opening(
        cwd=wanted.workspace,
        mode=wanted.mode,
        # In ACP the models are known once the session is open; then `model_choice` sets one.
        model=wanted.model if peer.dialect != ACP else None,
        mcp_servers=wanted.mcp_servers,
        additional_directories=wanted.additional_directories,
        metadata={
            **wanted.metadata,
            **_names(peer, wanted.key, wanted.name, once=wanted.once, model=wanted.model),
        },
    )


def _names(
    peer: Peer, key: str, name: str | None, *, once: bool = False, model: str | None = None
) -> dict[str, Any]:
    """Return the metadata that tells a broker how to store a session, and its initial model for
    dialects that take it when the session opens.

    Empty without a broker: an agent has no use for it.
    """
    if broker_of(peer) is None:
        return {}
    told: dict[str, Any] = {"key": key}
    if name is not None:
        told["name"] = name
    if once:
        told["once"] = True
    if model is not None:
        told["model"] = model
    return {"dragoman": told}


async def _take_over(peer: Peer, record: SessionRecord) -> None:
    """Ensure that no other process has the session open."""
    from dragoman.broker.client.sessions import take_over
    from dragoman.paths import find_paths

    broker = broker_of(peer)
    pid = os.getpid() if broker is None else peer.client.greeting.pid
    await take_over(record, broker=broker, pid=pid, paths=find_paths())


async def _go_on(peer: Peer, record: SessionRecord, wanted: WantedSession) -> Conversation:
    can = peer.capabilities
    if can.resume is False and can.load is False:
        raise Unsupported("it can neither resume nor load sessions")
    # Without its history if possible: we have it already.
    how = "resume" if can.resume is not False else "load"
    broker = broker_of(peer)
    if how == "load" or broker is not None:
        from dragoman.runs.wait_before_load import wait_over

        await wait_over(record, broker=broker, on_notice=wanted.on_notice)
    try:
        return await peer.open(
            Opening(
                cwd=Path(record.cwd),
                how=how,
                session_id=record.peer_session_id,
                mode=wanted.mode,
                mcp_servers=wanted.mcp_servers,
                additional_directories=wanted.additional_directories,
                metadata=_names(peer, record.key, record.name),
            )
        )
    except RemoteError as error:
        if explain(error)[1].kind is ErrorKind.NOT_FOUND:
            raise UnknownSession(str(error)) from error
        raise


def _state(paths: Paths | None = None) -> str:
    """Return the directory of the store, which an error names if the disk does not answer."""
    from dragoman.paths import find_paths

    return str((paths or find_paths()).state)


def recall(
    word: str,
    *,
    peer: str,
    folder: Path,
    on_notice: Callable[[str], None] | None = None,
) -> SessionRecord | None:
    """Return the stored session of `peer` that `word` means, or None if `word` is an unused name.

    Raises `UnknownSession` for a key or `LAST` without a session. A closed session is found by its
    key or its id, not by its name, which is free again. With `on_notice`, a damaged store is set
    aside and reported there; the new store has no sessions.
    """
    from dragoman.store.damage import identity_of
    from dragoman.store.open import replace_damaged
    from dragoman.store.store import store_path

    # Known before the file is read: another process may replace it before this one does.
    identity = identity_of(store_path(Path(_state())))
    try:
        return _recall(word, peer=peer, folder=folder)
    except StoreCorrupt as error:
        if on_notice is None or not error.damaged:
            raise
    on_notice(replace_damaged(identity))
    return _recall(word, peer=peer, folder=folder)


async def recall_in_thread(
    word: str, *, peer: str, folder: Path, on_notice: Callable[[str], None]
) -> SessionRecord | None:
    """Call `recall` in a thread: another process may hold the store."""
    told: list[str] = []
    try:
        return await in_thread(
            _state(), lambda _: recall(word, peer=peer, folder=folder, on_notice=told.append)
        )
    finally:
        for notice in told:
            on_notice(notice)


def _recall(word: str, *, peer: str, folder: Path) -> SessionRecord | None:
    from dragoman.store.open import open_store
    from dragoman.store.records import root_of

    root = root_of(folder)
    with open_store(read_only=True) as store:
        record = store.find_session(peer, str(root), word)
        if record is not None:
            return record
        try:
            record = find_session(store, word, root=root, peer=peer, last_open=True)
        except UnknownSession:
            if word == LAST:
                raise UnknownSession(f"there is no open session of {peer} in {root}") from None
            if word.startswith(KEY):
                raise
            return None
    # A closed session of that name is left alone: another one may have the name.
    return None if record.name == word and record.closed_at is not None else record


def place_of(record: SessionRecord, here: Path) -> Path:
    """Return the directory from which the peer of a stored session is reached.

    That is the directory where the session began, because it determines the broker. If that
    directory no longer exists, it is `here`.
    """
    began = Path(record.cwd)
    return began if os.path.isdir(began) else here


# -- prompting through a broker


def job_terms(
    job: str,
    *,
    policy: str | Policy,
    asks: bool = False,
    wait: float = 0.0,
    budgets: Budgets | None = None,
) -> dict[str, Any]:
    """Return the broker metadata of a prompt: its job and, for the time after we disconnect, who
    decides, whether a watching person is asked and for how long, and the budgets."""
    terms = {"job": job, "policy": msgspec.to_builtins(policy)}
    if asks:
        terms["asks"] = True
    if wait:
        terms["wait"] = wait
    if budgets is not None:
        terms["budgets"] = {
            "firstEvent": budgets.first_event,
            "silence": budgets.silence,
            "toolSilence": budgets.tool_silence,
            "total": budgets.total,
        }
    return {"dragoman": terms}


def blame(result: Result) -> Result:
    """Return the result of a turn through a broker. If the broker itself was lost, the error is
    changed to a `BrokerError`, so that the agent is not blamed."""
    if result.error is None or not broker_ended(result.error):
        return result
    lost = broker_lost("the broker was lost during the turn", result.error)
    lost.may_have_run = True
    failure = Failure(str(lost), ErrorKind.PEER, lost.error_class, lost.retryable, None)
    return structs.replace(result, error=lost, failure=failure)


def _unconfirmed(job: str, broker: str | None, error: DragomanError) -> BrokerError:
    """Return the error for a submitted prompt that the broker did not confirm."""
    unconfirmed = BrokerError(
        f"the broker {broker} did not confirm the job {job}, which may run anyway: {error}; "
        f"`dragoman jobs result {job}` shows whether the job was accepted, "
        f"`dragoman broker stop {broker}` stops the broker"
    )
    unconfirmed.may_have_run = True
    return unconfirmed


def broker_ended(error: DragomanError) -> bool:
    """Return whether a connection error means that the broker itself is gone."""
    return (
        isinstance(error, ConnectionLost)
        and not isinstance(error, ConnectionClosed)
        # Otherwise the broker is running and reports the agent's failure.
        and not isinstance(error.__cause__, RemoteError)
    )


def broker_lost(what: str, error: DragomanError) -> BrokerError:
    """Return a `BrokerError` for a connection error that `broker_ended` accepts. `what` says what
    was lost."""
    lost = BrokerError(f"{what}: {error}")
    lost.retryable, lost.may_have_run = error.retryable, error.may_have_run
    return lost


async def submit(
    peer: Peer, session_id: str, blocks: Sequence[Block], terms: Mapping[str, Any]
) -> str | None:
    """Submit a prompt to the broker, which runs it unattended. Returns None, or the reason why
    nothing of it is stored. Raises `BrokerError` if the broker does not confirm it in time."""
    from dragoman.broker.protocol import SUBMIT, Submitted, decode_as
    from dragoman.dialects.acp import v1 as acp
    from dragoman.dialects.acp.v1 import translate

    wire = [translate.to_block(block) for block in blocks]
    peer.client.require_content(wire)
    prompt = Raw(acp.encode(wire))
    params = {"sessionId": session_id, "prompt": prompt, **terms["dragoman"]}
    try:
        answer = await peer.client.connection.call(SUBMIT, params, timeout=SUBMIT_TIMEOUT)
        return decode_as(answer, Submitted, f"response to {SUBMIT}").unstored
    except (CallTimeout, ConnectionLost, InvalidAnswer) as error:
        if not error.may_have_run:
            raise BrokerUnavailable(
                f"the broker was lost before the prompt was sent: {error}"
            ) from error
        raise _unconfirmed(params["job"], broker_of(peer), error) from error
    except DragomanError as error:
        # An error in the broker is raised as if it had happened here.
        raise peer.client.explain(error) from error
