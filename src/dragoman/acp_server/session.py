"""One session of an ACP client: chosen peer, prompts, slash commands, delegation.

A prompt is one of our commands, a delegation (peer `auto`) or a turn of the chosen peer. A peer
that has not seen the whole conversation first gets a brief (`runs.brief`). The connection to the
peer is in `acp_server.peer_session`, the updates to the client are in `acp_server.updates`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dragoman.acp_server import commands
from dragoman.acp_server.choices import AUTO, ServerChoices, theirs
from dragoman.acp_server.client_requests import ClientRequests
from dragoman.acp_server.peer_session import PeerSession
from dragoman.acp_server.session_store import SessionStore, StoredConversation, title_of
from dragoman.acp_server.updates import UpdateSender
from dragoman.agent import Turn
from dragoman.agent.client_side import ClientSide
from dragoman.agent.commands import parse
from dragoman.agent.server import Server
from dragoman.agent.session import Session
from dragoman.broker.error_codec import blame_of
from dragoman.catalogue.enforcement import violated
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.errors import (
    ConnectionLost,
    DragomanError,
    FileFailed,
    RemoteError,
    StoreError,
    UsageError,
)
from dragoman.events import model
from dragoman.events.model import EventEnvelope as Envelope
from dragoman.events.parts import Block, Capabilities, Text
from dragoman.events.words import Outcome
from dragoman.gateway import prompt_responses
from dragoman.gateway.choices import Choices
from dragoman.rpc.tasks import finish, in_thread
from dragoman.runs.brief import brief_for
from dragoman.runs.conversation_summary import ConversationSummary
from dragoman.runs.session_lock import begun_once
from dragoman.runs.sessions import RESTORED
from dragoman.store.history import events_of
from dragoman.store.records import new_job_id
from dragoman.wire import codes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dragoman.client.conversation import ConversationTurn
    from dragoman.delegation.result import Delegation
    from dragoman.runs.context import RunContext
    from dragoman.store.records import SessionRecord

log: Final = logging.getLogger("dragoman.acp_server")

MAX_NOTICES: Final = 20
"""Maximum number of notices to queue until a turn can send them. Further ones are only logged, and
the turn says how many."""


class EditorSession:
    """A session that an ACP client has open."""

    def __init__(
        self,
        server: Server,
        session: Session,
        place: RunContext,
        store: SessionStore,
        *,
        peer: str,
        role: str,
    ) -> None:
        self.session = session
        self.choices = ServerChoices(place, peer=peer, role=role)
        self.memory = ConversationSummary()
        self.titled = False
        self._server = server
        self._place = place
        self._store = store
        side = ClientSide(
            server.connection,
            session.id,
            session.client.client_capabilities,
            speech=server.speech,
        )
        self.updates = UpdateSender(server, session, side, self._commands)
        self._asking = ClientRequests(session.id, side, self.updates.caught_up)
        self._threads: dict[str, str] = {}
        self._worker: PeerSession | None = None
        self._lock = asyncio.Lock()
        self._choosing = asyncio.Lock()
        """Held while the peer or the role changes."""
        self._notices: list[str] = []
        self._more_notices = 0
        """Number of notices that did not fit into the queue."""
        self._tell_soon: Callable[[], None] | None = None
        """While a turn of the peer is running: starts to send the queued notices."""
        self._told_folders = False
        self._closed = False
        self._known = False
        """Whether a client has received the session's id. Then other clients may open it too."""
        session.choose_from(self.choices)

    @property
    def peer(self) -> str:
        return self.choices.peer

    # -- start and end

    async def restore(self, kept: StoredConversation, *, replay: Turn | None = None) -> None:
        """Take over the choices and the history of a stored session, and try to connect to its
        peer; a failure is only logged. With `replay`, the history is also sent to the client."""
        self._known = True
        self._threads = dict(kept.threads)
        self.titled = kept.record.title is not None
        self.choices.peer = kept.peer or self.choices.peer
        self.choices.role = kept.role or self.choices.role
        for turned in kept.turns:
            self.memory.began(turned.prompt, turned.peer)
            if replay is not None and turned.prompt:
                await replay.echo(turned.prompt)
            envelope = Envelope(model.Source("acp", "stored"), itertools.count(1), self.session.id)
            for line in turned.lines:
                events = list(events_of(line, envelope))
                for event in events:
                    self.memory.event(event)
                if replay is not None:
                    await self.updates.replay(line, events)
            if turned.said:
                self.memory.said(turned.said)
                if replay is not None:
                    await replay.say(turned.said)
        if self.peer != AUTO:
            try:
                await self.worker()
            except DragomanError as error:
                # The session is still usable, and the next prompt tries again.
                log.warning("cannot connect to %s yet: %s", self.peer, error)

    async def aclose(self, *, close_session: bool = False) -> None:
        """Disconnect from the peer. One that is still starting is disconnected as soon as it has
        started. With `close_session`, also close the peer's session. Logs the notices that no turn
        has sent."""
        self._closed = True
        try:
            await self.disconnect(close_session=close_session)
        finally:
            for text in self._notices:
                log.warning("%s", text)

    async def disconnect(self, *, close_session: bool = False) -> None:
        """Disconnect from the peer, if there is one. The next prompt connects again."""
        worker, self._worker = self._worker, None
        self.updates.follow(None)
        self.choices.show(None)
        if worker is not None:
            await worker.aclose(close_session=close_session)

    def announce(self) -> None:
        """Send the list of slash commands, after the response that opens the session."""
        self._known = True
        self.updates.soon(self.updates.commands)

    # -- choosing

    async def choose_peer(self, name: str) -> None:
        """Switch to another peer, or to `auto`. If that fails, raise the error and keep the current
        peer. Raises `RemoteError` while a turn is running, unless `name` is the current peer."""
        # Checked before the lock is taken: a prompt that arrives later waits for this choice.
        if self.session.turn is not None and name != self.peer:
            raise RemoteError(
                codes.INVALID_REQUEST, "a turn is running; choose another peer when it has ended"
            )
        # The client may choose again while a peer starts. If that peer then fails, its failure must
        # not undo the later choice.
        async with self._choosing:
            before = self.peer
            if name == before and (name == AUTO or self._worker is not None):
                return
            self.choices.peer = name
            try:
                if name != AUTO:
                    await self.worker()
            except BaseException:
                self.choices.peer = before
                raise
            if name == AUTO:
                await self.disconnect()
            self._chosen()

    async def choose_role(self, role: str) -> None:
        async with self._choosing:
            self.choices.role = role
            self._chosen()

    def _chosen(self) -> None:
        self._store.choose(self.session.id, peer=self.choices.peer, role=self.choices.role)
        self.session.mode = self.choices.first_mode
        self.updates.soon(self.updates.commands)

    async def set_mode(self, mode_id: str) -> None:
        await (await self.worker()).set_mode(mode_id)

    async def set_option(self, option_id: str, value: str | bool) -> None:
        worker = await self.worker()
        await worker.set_option(theirs(option_id), value)
        self._remember(worker)

    async def worker(self) -> PeerSession:
        """Return the session with the chosen peer; connect to it if needed. Raises `UsageError` if
        the peer is `auto` or the session is closed meanwhile, and the error if the peer cannot be
        reached."""
        async with self._lock:
            name = self.peer
            if name == AUTO:
                raise UsageError("modes and options are those of a peer: choose a peer first")
            worker = self._worker
            if worker is not None and worker.name == name and worker.alive:
                # Only an adapter uses the role.
                if not worker.adapted or worker.role == self.choices.role:
                    return worker
            if worker is not None and not worker.alive:
                # Pending writes must be stored before the peer's session is looked up.
                await self.disconnect()
            record, problem = await self._record(name)
            if record is not None or not self._known:
                return await self._open(name, record, problem)
            # Another client may have this session open and choose the same peer.
            paths, folder = self._place.paths, self.session.cwd
            async with begun_once(self.session.id, peer=name, folder=folder, paths=paths):
                await self._read_threads()
                return await self._open(name, *await self._record(name))

    async def _open(self, name: str, record: SessionRecord | None, problem: str) -> PeerSession:
        if problem:
            self._notice(f"{name} starts a new session: the stored one cannot be read: {problem}")
        worker = PeerSession(
            name,
            place=self._place,
            role=self.choices.role,
            cwd=self.session.cwd,
            record=record,
            mcp_servers=self.session.mcp_servers,
            folders=self.session.additional_directories,
            asking=self._asking,
            tasks=self._server.connection.tasks,
            on_event=self._happened,
            on_notice=self._notice,
        )
        await worker.start()
        if self._closed:
            # The client may have loaded this session again, and continue a restored one.
            is_new = worker.opened.context != RESTORED
            await finish(worker.aclose(close_session=is_new))
            raise UsageError(f"the session was closed while {name} started")
        try:
            await self.disconnect()
        except BaseException:
            # Without this, a cancellation would leave the new connection open.
            await finish(worker.aclose())
            raise
        self._worker = worker
        opened = worker.opened
        if opened.context != RESTORED:
            # The peer has a new session, which is still empty.
            self.memory.forgot(name)
        self._remember(worker)
        # The adapter controls the settings of the session that it opens for a prompt.
        offered = None if worker.adapted else Choices(opened.conversation, worker.view)
        self.choices.show(offered)
        self.session.mode = self.choices.first_mode
        self.updates.follow(opened.conversation)
        return worker

    def _remember(self, worker: PeerSession) -> None:
        """Store that this session continues in the peer's open session, unless prompts cannot be
        sent there yet."""
        name, key = worker.name, worker.opened.key
        if worker.usable and self._threads.get(name) != key:
            self._threads[name] = key
            self._store.thread(self.session.id, peer=name, key=key)

    async def _read_threads(self) -> None:
        try:
            self._threads |= await self._store.threads(self.session.id)
        except (StoreError, FileFailed) as error:
            log.warning("cannot read the stored session: %s", error)

    async def _record(self, name: str) -> tuple[SessionRecord | None, str]:
        """Return the peer's stored session (None if there is none or it cannot be read), and why it
        cannot be read (otherwise empty)."""
        key = self._threads.get(name)
        try:
            return (None if key is None else await self._store.thread_record(key)), ""
        except (StoreError, FileFailed) as error:
            return None, str(error)

    def _commands(self) -> list[acp.AvailableCommand]:
        return commands.available(() if self._worker is None else self._worker.view.commands)

    def _happened(self, event: model.Event) -> None:
        worker = self._worker
        if worker is None or event.session != worker.conversation.id:
            # A session is being opened. The client gets its whole state afterwards.
            return
        if isinstance(event, model.SessionChanged) and isinstance(event.title, str):
            self.titled = True
            self._store.title(self.session.id, event.title)
        if isinstance(event, model.InputAnswered):
            self.updates.soon(lambda: self._asking.page_done(event))
        self.updates.happened(event)

    def _notice(self, text: str) -> None:
        if self._closed:
            log.warning("%s", text)
        elif len(self._notices) < MAX_NOTICES:
            self._notices.append(text)
            if self._tell_soon is not None:
                self._tell_soon()
        else:
            self._more_notices += 1
            log.warning("too many notices to send this one to the client: %s", text)

    # -- prompts

    async def prompt(self, turn: Turn) -> Any:
        """Handle a prompt: run a command, delegate it, or send it to the chosen peer."""
        async with self._choosing:
            # A choice that came before the prompt is complete now.
            pass
        command = parse(turn.prompt)
        blocks = [translate.block(block) for block in turn.prompt]
        try:
            if command is not None and command.name in commands.COMMANDS:
                return await self._command(turn, command.name, command.input)
            if self.peer == AUTO:
                return await self._delegate(turn, self.choices.role, turn.text, blocks)
        except UsageError as error:
            # No peer was prompted: the answer must not look like a success.
            await turn.say(f"{error}\n")
            return acp.StopReason.REFUSAL
        return await self._turn(turn, blocks, is_command=command is not None)

    async def _command(self, turn: Turn, name: str, text: str) -> Any:
        place, where = self._place, str(self.session.cwd)
        if name == commands.DELEGATE:
            role, work = commands.role_and_work(text, place.role_catalogue().roles)
            return await self._delegate(turn, role, work, [translate.block(b) for b in turn.prompt])
        if name == commands.PEERS:
            # Off the loop: it searches for programs along the whole PATH.
            told = await in_thread(where, lambda _: commands.peers_text(place))
        elif name == commands.EXPLAIN:
            told = await in_thread(
                where, lambda _: commands.explain_text(place, text, self.session.cwd)
            )
        else:
            told = await in_thread(where, lambda _: commands.stats_text(place))
        await turn.say(f"{told}\n")
        return None

    async def _turn(
        self, turn: Turn, blocks: Sequence[Block], *, is_command: bool
    ) -> acp.PromptResponse:
        before = self._worker
        worker = await self.worker()
        if worker is not before:
            self.updates.soon(self.updates.choices, self.updates.commands)
        if worker.adapted:
            self.memory.forgot(worker.name)
        brief = brief_for(worker.name, self.memory)
        sent = list(blocks)
        if brief is not None:
            # A command, or the prefix that an adapter adds for a role, must be at the start.
            behind = 1 if is_command or worker.adapted else 0
            sent.insert(behind, brief.block(worker.peer.capabilities))
        job, title = new_job_id(), ""
        ended: model.TurnEnded | None = None
        outcome: Outcome | None = None

        def begin() -> None:
            nonlocal title
            self.memory.began(turn.text, worker.name)
            title = self._keep(turn.text, job=job, by=worker.name) or ""

        async def follow(running: ConversationTurn) -> None:
            nonlocal ended, outcome
            ours: deque[Callable[[], Awaitable[None]]] = deque()
            if brief is not None and not worker.adapted:
                ours.append(partial(turn.notice, f"{worker.name} takes over with a brief: {brief}"))
            if title:
                ours.append(partial(turn.title, title))

            async def first() -> None:
                await self._tell_notices(turn)
                while ours:
                    await ours[0]()
                    ours.popleft()
                self._tell_soon = partial(self.updates.soon, tell_notices)

            ended = await self.updates.turn(
                gateway_session, running, taken=self.memory.event, first=first
            )
            outcome = running.result.outcome

        with self.updates.prompted(turn) as gateway_session:
            tell_notices = partial(gateway_session.tell_ours, partial(self._tell_notices, turn))
            try:
                seen = await worker.prompt(sent, job=job, on_begin=begin, follow=follow)
            finally:
                self._tell_soon = None
                # The response waits for this. What cannot be sent is logged at the end.
                with suppress(ConnectionLost):
                    await tell_notices()
            if seen.violations:
                await turn.notice(violated(seen.violations), severity="warning")
        result = seen.result
        assert result is not None
        if result.outcome is not outcome:
            # The peer's own stop reason does not say what happened.
            ended = None
        return prompt_responses.response(result, ended)

    async def _delegate(
        self, turn: Turn, role: str, text: str, blocks: Sequence[Block]
    ) -> acp.StopReason | None:
        """Delegate one prompt to the peer that routing chooses. Raises `RemoteError` if no peer
        completed the task."""
        from dragoman.acp_server.delegation_view import DelegationView
        from dragoman.delegation import DelegationRequest

        brief = brief_for(None, self.memory)
        others = [block for block in blocks if not isinstance(block, Text)]

        def attach(workspace: Path, can: Capabilities) -> Sequence[Block]:
            return others if brief is None else [*others, brief.block(can)]

        request = DelegationRequest(
            role=role,
            prompt=text,
            workspace=self.session.cwd,
            files=len(others),
            attach=attach,
        )
        self._tell_folders()
        await self._tell_notices(turn)
        jobs: list[str] = []
        view = DelegationView(turn, self._server.connection.tasks, on_job=jobs.append)
        by = f"a delegate for {role}"
        self.memory.began(text, by)
        said = ""
        try:
            done = await view.run(request, self._place, self._asking.permit)
            self.memory.touched(*(change.path for one in done.attempts for change in one.files))
            said = done.text if done.ok else "\n".join(done.lines())
        except DragomanError as error:
            said = str(error)
            raise
        finally:
            self.memory.said(said)
            job = jobs[0] if jobs else new_job_id()
            self._keep(text, job=job, by=by)
            self._store.answer(self.session.id, job=job, said=said or "(cancelled)")
        if not done.ok:
            raise RemoteError(
                codes.INTERNAL_ERROR,
                f"no peer completed the task: {said}",
                _failure_data(done),
            )
        await turn.say(f"{said}\n")
        return None

    def _tell_folders(self) -> None:
        """Queue a notice, once, that a delegation does not use the session's additional
        directories."""
        others = self.session.additional_directories
        if others and not self._told_folders:
            self._told_folders = True
            self._notice(
                f"delegated work uses only {self.session.cwd}, not "
                f"{', '.join(map(str, others))}; to use these as well, choose a peer"
            )

    async def _tell_notices(self, turn: Turn) -> None:
        """Send the queued notices. If the turn is over, they stay for the next one."""
        while self._notices and not turn.over:
            # If a cancellation interrupts this, the notice was not sent.
            await turn.notice(self._notices[0], severity="warning")
            self._notices.pop(0)
        if (more := self._more_notices) > 0 and not turn.over:
            what = "1 more notice is" if more == 1 else f"{more} more notices are"
            await turn.notice(f"{what} in the log of dragoman", severity="warning")
            self._more_notices -= more

    def _keep(self, text: str, *, job: str, by: str) -> str | None:
        """Store the start of a turn, and a title if the session has none yet. Returns that title,
        or None if none was set."""
        title = None if self.titled else title_of(text) or None
        self.titled = self.titled or title is not None
        self._store.turn(self.session.id, job=job, peer=by, prompt=text, title=title)
        return title


def _failure_data(done: Delegation) -> dict[str, Any]:
    """Return the error data for a failed delegation. The cause is that of the last attempt;
    `mayHaveRun` covers all attempts."""
    final = done.final
    return {
        "outcome": done.outcome.value,
        "job": done.job,
        "errorClass": final.error_class or "turn_failed",
        "blame": blame_of(final.error_class),
        "retryable": final.failure is not None and final.failure.retryable,
        "mayHaveRun": any(one.may_have_run for one in done.attempts),
    }
