"""Shared state of the rungs of one verification: processes, sessions, turns, permissions, facts.

A rung gets a connected peer or a session from here, and a new one if the last has died or hung.
There are up to three processes: the first for most rungs, a second that must find the session of
the first, and a separate one for requests that may crash a peer.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.descriptor import Platform
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.open import options_of
from dragoman.client.connect import PlannedHandshake, opener_of
from dragoman.client.conversation import (
    Conversation,
    ConversationTurn,
    Opening,
    Peer,
)
from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import READING, Answer, Permit, Question, deny_all
from dragoman.client.programs import launch_of, program_at, program_of
from dragoman.client.results import Result
from dragoman.dialects import discovery
from dragoman.dialects.discovery import Cache, MemoryCache, Program
from dragoman.errors import DragomanError
from dragoman.events import model
from dragoman.rpc.tasks import finish
from dragoman.transports.process import windows
from dragoman.verify.canary_prompts import Canaries
from dragoman.verify.environment import PeerEnvironment
from dragoman.verify.peer_process import ExitBehaviour, PeerProcess, reach, start
from dragoman.verify.time_limits import LadderLimits
from dragoman.verify.traffic import EventBuffer, TrafficCounts


@dataclass(slots=True)
class ConnectedPeer:
    """A peer after its handshake, and its process."""

    peer: Peer
    running: PeerProcess
    seconds: float
    """Seconds from the start of the process or connection to the end of the handshake."""
    exit: ExitBehaviour | None = None

    @property
    def alive(self) -> bool:
        return self.peer.client.connection.failure is None


@dataclass(frozen=True, slots=True)
class TurnObservation:
    """A turn with the events during it and shortly after it."""

    result: Result
    events: list[model.Event]
    after: list[model.Event]
    """Updates of the session that came after the end of the turn."""


@dataclass
class Verification:
    """The shared state of the rungs of one verification."""

    way: LaunchSpec
    surroundings: PeerEnvironment
    limits: LadderLimits
    canaries: Canaries
    platform: Platform
    turns: bool
    careful: bool
    cache: Cache = field(default_factory=MemoryCache)
    """Stores what is discovered about the program, for its other processes and its next use."""
    files: windows.FileLookup = field(default_factory=windows.RealFiles)
    """File lookup for programs on Windows."""
    witness: TrafficCounts = field(default_factory=TrafficCounts)
    facts: dict[str, Any] = field(default_factory=dict)
    verdicts: dict[str, RungVerdict] = field(default_factory=dict)
    dialect: str | None = None
    """The dialect, known after the handshake."""
    greeting: DragomanError | None = None
    """The error of a handshake that was answered but failed."""
    tried: tuple[str, ...] = ()
    """The dialects in which the handshake failed."""
    refusal: DragomanError | None = None
    """Why no session could be opened."""
    first: ConnectedPeer | None = None
    second: ConnectedPeer | None = None
    session_id: str | None = None
    """The session that a second process must find."""
    session_began: datetime | None = None
    """When that session was opened."""
    spoken: bool = False
    """Whether that session had a turn."""
    settings: list[model.Event] = field(default_factory=list)
    """The events that came while that session was opened."""
    told: TurnObservation | None = None
    """The turn of the rung `echo`, whose events other rungs judge too."""
    wrote: bool = False
    """Whether the peer wrote the file after permission was granted."""
    wrote_through_us: bool = False
    asked: list[Question] = field(default_factory=list)
    """The permission requests since `decide_with`."""
    _policy: Permit = deny_all
    _conversation: Conversation | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Verification:
        return self

    async def __aexit__(self, *error: object) -> None:
        await finish(self._stack.aclose())

    @property
    def shown(self) -> str:
        """The command line or address, as text."""
        command = self.way.command
        return f"`{shlex.join(command)}`" if command else str(self.way.address)

    def held(self, rung: str) -> bool:
        """Return whether a rung passed or warned."""
        return self.verdicts.get(rung) in (RungVerdict.PASS, RungVerdict.WARN)

    # -- permissions

    def decide_with(self, policy: Permit) -> None:
        """Let `policy` answer permission requests from now on, and clear `asked`."""
        self._policy = policy
        self.asked.clear()

    def _decide(self, question: Question) -> Any:
        self.asked.append(question)
        return self._policy(question)

    def _guard(self, question: Question) -> Any:
        """Decide on file access of a peer that always writes through the client: a write counts as
        a permission request, a read is always allowed."""
        return Answer.ALLOW_ONCE if question.kind in READING else self._decide(question)

    # -- processes

    async def connect(
        self, dialect: str, *, proving: bool = False, timeout: float | None = None
    ) -> ConnectedPeer:
        """Start the peer, or connect to it, and do the handshake. `timeout` can only shorten the
        limit for the response. The caller must close the peer (see `keep`). With `proving`, a
        dialect without a handshake is proven by a request."""
        loop = asyncio.get_running_loop()
        way, where = self.way, self.surroundings
        descriptor = way.descriptor
        budgets = self.limits.budgets(descriptor.handshake_timeout if descriptor else None)
        if timeout is not None:
            budgets = structs.replace(budgets, initialize=min(timeout, budgets.initialize))
        plan = PlannedHandshake(
            dialect=dialect,
            workspace=where.workspace,
            options=ConnectOptions(
                dialect=way.protocol,
                permit=self._decide,
                guard=self._guard if descriptor and descriptor.enforcement.files else None,
                budgets=budgets,
                on_event=self.witness.hear,
                terminals=True,
                max_line_size=descriptor.max_line_size if descriptor else None,
                details=options_of(way, dialect),
                cache=self.cache,
            ),
            launch=way.command or (),
            folder=str(where.workspace),
            program=self._program,
            proving=proving,
        )
        opener = opener_of(dialect)(plan)
        started_at = loop.time()
        if way.command is not None:
            running = start(
                way.command,
                cwd=where.workspace,
                env=where.env,
                inherit=where.inherit,
                times=self.limits.shutdown,
            )
        else:
            running = await reach(str(way.address), codex=dialect == discovery.CODEX)
        peer = await opener(running.stream)
        running.proved()
        return ConnectedPeer(peer, running, loop.time() - started_at)

    @property
    def _program(self) -> Program | None:
        command = self.way.command
        return program_of(command) if command else program_at(str(self.way.address))

    def remember_dialect(self, dialect: str) -> None:
        """Store the peer's dialect for its next use, because its command line does not show it."""
        program = self._program
        if program is not None:
            launch = launch_of(self.way.command or (), self.surroundings.workspace)
            self.cache.put(program, discovery.dialect_concept(launch), dialect)

    def keep(self, connected: ConnectedPeer) -> ConnectedPeer:
        """Register a peer to be closed at the end of the verification, and return it."""
        self._stack.push_async_callback(connected.peer.aclose)
        return connected

    async def _start(self) -> ConnectedPeer:
        assert self.dialect is not None
        return self.keep(await self.connect(self.dialect))

    async def peer(self) -> Peer:
        """Return the peer of the first process; start a new one if it has died."""
        if self.first is None or not self.first.alive:
            if self.first is not None:
                await self.first.peer.aclose()
            self._conversation = None
            self.first = await self._start()
        return self.first.peer

    async def successor(self) -> ConnectedPeer:
        """Return the second process, which must find the session of the first. If there is none, or
        it has died, close the first process and start one."""
        if self.second is None or not self.second.alive:
            if self.first is not None:
                await self.first.peer.aclose()
                self.first = None
                self._conversation = None
            self.second = await self._start()
        return self.second

    @asynccontextmanager
    async def victim(self) -> AsyncIterator[Peer]:
        """Context manager: a separate process for requests that may crash the peer."""
        assert self.dialect is not None
        connected = await self.connect(self.dialect)
        try:
            yield connected.peer
        finally:
            await connected.peer.aclose()

    # -- sessions and turns

    async def conversation(self) -> Conversation:
        """Return the session that the rungs share, in the first process; open it if there is none.
        If it is unusable, replace its process too, because what blocks it may block the next
        session."""
        if self.first is not None and is_given_up(self._conversation):
            await self.first.peer.aclose()
        peer = await self.peer()
        here = self._conversation
        if here is None:
            with self.witness.listening() as heard:
                self._conversation = here = await self.open(peer)
            self.settings = list(heard)
            if not self.spoken:
                self.session_id = here.id
                self.session_began = datetime.now(UTC)
        return here

    async def open(self, peer: Peer, **options: Any) -> Conversation:
        """Open a session. It is not closed before its process: an agent may forget a closed one."""
        return await peer.open(Opening(cwd=self.surroundings.workspace, **options))

    @asynccontextmanager
    async def turning(
        self, conversation: Conversation, prompt: str
    ) -> AsyncIterator[ConversationTurn]:
        """Context manager: run a turn. If the verification is cancelled in the meantime, end its
        processes instead of waiting for the end of the turn."""
        async with conversation.prompt(prompt) as turn:
            try:
                yield turn
            except asyncio.CancelledError:
                # A peer that ignores the cancel would block the caller.
                await finish(self._stack.aclose())
                raise

    async def take_turn(self, conversation: Conversation, prompt: str) -> TurnObservation:
        """Send a prompt, wait for the end of the turn and then for late updates, and return what
        came. Does not wait for late updates if the turn ended with an error."""
        events = EventBuffer()
        with self.witness.listening() as heard:
            async with self.turning(conversation, prompt) as turn:
                async for event in turn:
                    events.take(event)
                result = turn.result
            if result.error is None:
                await self.quiet(heard)
        here = [event for event in heard if event.session == conversation.id]
        # Late updates may arrive together with the end, before this task runs again.
        ends = [at for at, event in enumerate(here) if isinstance(event, model.TurnEnded)]
        after = [event for event in here[ends[-1] + 1 :] if event.raw is not None] if ends else []
        return TurnObservation(result, events, after)

    async def quiet(self, heard: EventBuffer) -> None:
        """Wait until no event has come for `limits.tail`, at most for ten times as long."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + 10 * self.limits.tail
        seen = -1
        while seen != heard.total and loop.time() < give_up_at:
            seen = heard.total
            await asyncio.sleep(self.limits.tail)


def is_given_up(conversation: Conversation | None) -> bool:
    """Return whether a session is unusable, for example because a cancelled turn of it did not
    end."""
    return bool(getattr(conversation, "unusable", False))


def allow(question: Question) -> Answer:
    """Permit function: allow every request, once."""
    return Answer.ALLOW_ONCE
