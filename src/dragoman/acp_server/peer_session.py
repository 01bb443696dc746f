"""Keep a run with the chosen peer open for one ACP session; the client serves the peer's requests.

Builds the request for `runs.run`, which connects, opens, prompts and records. One task enters and
leaves the run, so that `start` and `aclose` may be called from different tasks.
`acp_server.session` prepares the prompts; `acp_server.updates` sends the updates to the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from dragoman.catalogue.enforcement import NOT_ENFORCED
from dragoman.catalogue.mcp_servers import taken
from dragoman.client.conversation import Conversation, ConversationTurn, Peer
from dragoman.client.file_guard import decided, reading, require, running, writing
from dragoman.client.permissions import Answer, Decision, Denial, Question
from dragoman.client.results import with_stderr
from dragoman.delegation.peer_request import attended_terms, peer_request
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.discovery import ACP
from dragoman.errors import (
    DragomanError,
    NotPermitted,
    ProtocolMismatch,
    RemoteError,
    Unsupported,
)
from dragoman.events.model import Event
from dragoman.events.parts import Block, Resource, Text
from dragoman.events.view import View
from dragoman.gateway import prompt_responses
from dragoman.gateway.choices import MODEL_OPTION, stands_for_models
from dragoman.runs.adapter_run import adapter_work
from dragoman.runs.context import redacted_stderr
from dragoman.runs.model_choice import model_in_use, switch_model
from dragoman.runs.run import Run
from dragoman.runs.run_values import CancelHandle, RunListener, RunResult
from dragoman.runs.sessions import OpenedSession, broker_ended, broker_lost, leave
from dragoman.store.peer_recovery import note_success

if TYPE_CHECKING:
    from dragoman.acp_server.client_requests import ClientRequests
    from dragoman.rpc.tasks import TaskOwner
    from dragoman.runs.context import RunContext
    from dragoman.store.records import SessionRecord

log: Final = logging.getLogger("dragoman.acp_server")

CLOSE_TIMEOUT: Final = 5.0
"""Maximum seconds to disconnect from a peer: enough to end a child process of ours. With a broker
it takes no time."""

TURN_TIMEOUT: Final = 2.0
"""Seconds for a turn without a broker to end after it was cancelled. Editors do not wait longer."""

SESSION_TIMEOUT: Final = 2.0
"""Seconds to wait for a peer to close a session. Its response is not needed."""


class PeerSession(RunListener):
    """A run with one peer for a client's session. Creating it raises `NotInstalled` or
    `PolicyNotEnforced` if the peer cannot be used. Call `start` once, and always call `aclose`."""

    def __init__(
        self,
        name: str,
        *,
        place: RunContext,
        role: str = "",
        cwd: Path,
        record: SessionRecord | None,
        mcp_servers: Sequence[Any],
        folders: Sequence[Path] = (),
        asking: ClientRequests,
        tasks: TaskOwner,
        on_event: Callable[[Event], None],
        on_notice: Callable[[str], None],
    ) -> None:
        self.name = name
        self._place = place
        self._asking = asking
        self._tasks = tasks
        self._on_event = on_event
        self._on_notice = on_notice
        settings = place.config.settings
        # Raises `NotInstalled` or `PolicyNotEnforced` before anything is started.
        terms = attended_terms(name, place)
        handed = taken(terms.launch, mcp_servers, workspace=cwd, card=place.cards().latest(name))
        self._unused_servers = handed.notice
        self.role = role
        self._work = adapter_work(name, place, prefer=role)
        request = peer_request(
            handed.way,
            place=place,
            workspace=cwd,
            policy=terms.policy,
            # If a delegation started us, the peer gets the delegation depth in its environment.
            lineage=terms.lineage,
            adapter=self._work,
            warm=settings.warm,
            caller=asking.permit,
        )
        self._request = structs.replace(
            request,
            record=record,
            # If the peer has lost the session, a new one is opened: the caller sends a brief with
            # the next prompt.
            fresh=True,
            keep_open=True,
            mcp_servers=mcp_servers,
            mcp_strict=False,
            additional_directories=folders,
            # The session is open without the model, so that the user can choose another one. Until
            # then no prompt is sent.
            model_strict=False,
            restored_as_is=True,
            options=structs.replace(
                request.options,
                inquire=asking.inquire if asking.inquires else None,
                visits=asking.visits,
                terminals=asking.side.can("terminal"),
            ),
        )
        self._run = Run(self._request, listener=self, cancel=CancelHandle(one_turn=True))
        self._refused: DragomanError | None = None
        self._gap = ""
        self._follow: Callable[[ConversationTurn], Awaitable[None]]
        self._began: Callable[[], None]
        self._leaving = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing_session = False
        self._holding: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None]

    @property
    def peer(self) -> Peer:
        return self._run.peer

    @property
    def opened(self) -> OpenedSession:
        return self._run.opened

    @property
    def conversation(self) -> Conversation:
        return self._run.opened.conversation

    @property
    def view(self) -> View:
        """The current settings and commands of the session."""
        return self._run.seen.view

    @property
    def usable(self) -> bool:
        """Whether prompts can be sent. They are refused while the peer uses a model that was not
        chosen."""
        return self._refused is None

    @property
    def adapted(self) -> bool:
        """Whether the peer's Python adapter runs the prompts, each in a new session."""
        return self._work is not None

    @property
    def warm(self) -> bool:
        """Whether a broker is between this process and the peer."""
        return self._run.warm

    @property
    def alive(self) -> bool:
        """Whether the connection is open."""
        return self.peer.client.connection.failure is None

    # -- start and end

    async def start(self) -> None:
        """Connect to the peer and open the session. Raises the errors of either step."""
        self._ready = asyncio.get_running_loop().create_future()
        self._holding = self._tasks.start(self._hold(self._ready), f"hold {self.name}")
        try:
            await self._ready
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self, *, close_session: bool = False) -> None:
        """Cancel the running turn, if there is one, and disconnect, in at most `CLOSE_TIMEOUT`.
        Closes the peer's session if `close_session` is set, or if there is no broker and the peer
        can neither load nor resume sessions. A session that is not `usable` is deleted instead, if
        no prompt was sent in it."""
        # A client that disconnects does not need the turn any more, and a broker would continue it.
        self._run.cancel_turn()
        self._closing_session = close_session
        self._leaving.set()
        task = self._holding
        if task is None or task.done():
            return
        if not self._ready.done() or self._ready.cancelled():
            # The run is still starting, and its caller was cancelled.
            task.cancel()
        await asyncio.wait([task], timeout=CLOSE_TIMEOUT)
        task.cancel()

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        try:
            async with self._run as run:
                if self._work is not None and self._work.role != self.role:
                    self.notice(
                        f"{self.name} works as {self._work.role}: its adapter does not claim the "
                        f"role {self.role}"
                    )
                if self._unused_servers:
                    self.notice(self._unused_servers)
                self._refused = run.seen.model_error
                self._tell_gap()
                if not ready.done():
                    ready.set_result(None)
                await self._leaving.wait()
                if not run.warm:
                    # This process records the turn. A broker does so itself.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(TURN_TIMEOUT):
                            await self._idle.wait()
                if self._refused is not None:
                    await run.discard_unused()
                elif self._closing_session or not (run.warm or self._can_return()):
                    await leave(self.conversation, timeout=SESSION_TIMEOUT)
        except DragomanError as error:
            if not ready.done():
                self._attach_stderr(error)
                ready.set_exception(error)
            else:
                log.warning("the session with %s did not end properly: %s", self.name, error)
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
            raise
        finally:
            if not ready.done():
                ready.cancel()

    def _can_return(self) -> bool:
        can = self.peer.capabilities
        return can.load is not False or can.resume is not False

    def _tell_gap(self) -> None:
        """Report why the policy is not enforced by the peer, if that is known, unless the same
        problem was reported last."""
        gap = self._run.seen.unenforced
        if gap and gap != self._gap:
            self.notice(f"{NOT_ENFORCED}: {self.name}: {gap}")
        self._gap = gap

    # -- called by the run

    def connected(self, peer: Peer) -> None:
        request = self._request
        folders = request.additional_directories
        if folders and peer.capabilities.additional_directories is False:
            others = ", ".join(map(str, folders))
            raise Unsupported(
                f"{self.name} works in one directory and cannot use {others}: choose another peer, "
                f"or open {request.workspace} alone"
            )
        if peer.dialect == ACP:
            peer.client.serve_with(self._serve)

    def began(self, job: str, key: str) -> None:
        self._tell_gap()
        self._began()

    async def follow(self, turn: ConversationTurn) -> None:
        await self._follow(turn)

    def event(self, event: Event) -> None:
        self._on_event(event)

    def notice(self, text: str) -> None:
        self._on_notice(text)

    # -- settings

    async def set_mode(self, mode: str) -> None:
        """Set a mode that the client's user has chosen. Raises `PolicyNotEnforced` if the policy
        would not be enforced in it."""
        self._request.enforced.check_mode(mode)
        switch = getattr(self.conversation, "switch_mode", self.conversation.set_mode)
        with self._broker_named():
            await switch(mode)

    async def set_option(self, name: str, value: str | bool) -> None:
        """Set an option that the client's user has chosen. Raises `PolicyNotEnforced` if the policy
        would not be enforced with it, and `ProtocolMismatch` for a model that the peer does not
        accept."""
        self._request.enforced.check_option(name, value)
        kinds = {one.id: one.category for one in self.view.options}
        kind = kinds.get(name) or name
        with self._broker_named():
            if kind == MODEL_OPTION and isinstance(value, str):
                await self._set_model(name, value)
                return
            if kind == "mode" and isinstance(value, str):
                self._request.enforced.check_mode(value)
            await self.conversation.set_option(name, value)

    async def _set_model(self, name: str, wanted: str) -> None:
        conversation = self.conversation

        async def switch(model: str) -> None:
            if stands_for_models(conversation, name):
                await conversation.set_model(model)
            else:
                await conversation.set_option(name, model)

        before = model_in_use(self.view)
        try:
            await switch_model(self.view, wanted, peer=self.name, switch=switch)
        except ProtocolMismatch as error:
            if model_in_use(self.view) != before:
                self._refused = error
            raise
        self._refused = None

    @contextmanager
    def _broker_named(self) -> Iterator[None]:
        """Context manager: report the loss of the broker as a failure of the broker, not of the
        peer."""
        try:
            yield
        except DragomanError as error:
            if not (self.warm and broker_ended(error)):
                raise
            raise broker_lost("the connection to the broker was lost", error) from error

    # -- services of the client

    def _serve(self, name: str, params: Any) -> Coroutine[Any, Any, Any] | None:
        """Return a coroutine in which the client serves a file or terminal if the policy allows it,
        or None if the client does not offer that service."""
        served = self._asking.serve(name, params)
        question = None if served is None else _question(name, params)
        if served is None or question is None:
            return served
        return self._guarded(served, question)

    async def _guarded(self, served: Coroutine[Any, Any, Any], question: Question) -> Any:
        answer: Decision = Answer.CANCEL
        try:
            answer = await decided(self._request.approver.guard, question)
            require(question, answer)
            if (turn := self.conversation.turn) is not None and question.kind != "read":
                turn.approvals += 1
            return await served
        except NotPermitted as error:
            if (turn := self.conversation.turn) is not None and answer is not Answer.CANCEL:
                turn.denied(Denial("", question.title, question.kind))
            raise prompt_responses.refusal(error) from error
        finally:
            # Needed only if the request was refused: then the coroutine was never awaited.
            served.close()

    # -- turns

    async def prompt(
        self,
        blocks: Sequence[Block],
        *,
        job: str,
        on_begin: Callable[[], None],
        follow: Callable[[ConversationTurn], Awaitable[None]],
    ) -> RunResult:
        """Run one turn and return its result. `on_begin` is called before the prompt is sent;
        `follow` is called with the turn, to read its events. Raises an error if the prompt could
        not be sent: for example `PolicyNotEnforced`, or the error with which the peer rejected the
        model."""
        if self._refused is not None:
            raise self._refused.fresh()
        request = self._request
        self._began, self._follow = on_begin, follow
        self._idle.clear()
        try:
            seen = await self._run.prompt([self._taken(block) for block in blocks], job=job)
        finally:
            self._idle.set()
        if seen.result is not None and seen.result.error is not None:
            self._attach_stderr(seen.result.error)
        if seen.result is not None and seen.result.ok:
            await note_success(
                self.name,
                request.enforced.way.descriptor,
                paths=request.paths,
                env=request.options.inherit,
                environ=self._place.environ,
            )
        return seen

    def _attach_stderr(self, error: DragomanError) -> None:
        """Add the end of the peer's stderr to the data of its error, so that the client gets it."""
        if isinstance(error, RemoteError):
            tail = redacted_stderr(
                error, peer=self.name, place=self._place, workspace=self._request.workspace
            )
            error.data = with_stderr(error.data, tail)

    def _taken(self, block: Block) -> Block:
        """Return a prompt block in a form that the peer accepts: an embedded text resource becomes
        plain text if the peer does not accept embedded resources."""
        if isinstance(block, Resource) and block.text is not None:
            if self.peer.capabilities.embedded is False:
                return Text(f"{block.uri}:\n{block.text}")
        return block


def _question(name: str, params: Any) -> Question | None:
    """Return the permission question for a service request, or None if the request needs no
    permission of its own."""
    if name == acp.FS_READ_TEXT_FILE.name:
        return reading(params.session_id, params.path)
    if name == acp.FS_WRITE_TEXT_FILE.name:
        return writing(params.session_id, params.path, params.content)
    if name == acp.TERMINAL_CREATE.name:
        return running(
            params.session_id, params.command, params.args, cwd=params.cwd, env=params.env
        )
    return None
