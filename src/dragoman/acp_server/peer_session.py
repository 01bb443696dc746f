"""Connect the peer chosen for one ACP session and hold its conversation open.

Opens or resumes the conversation, through a broker if the settings say so, and applies the policy.
One task opens and closes the connection, so that `start` and `aclose` may be called from different
tasks. Prompts and updates to the client are in `acp_server.session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dragoman.catalogue.enforcement import NOT_ENFORCED, enforce, unapproved
from dragoman.catalogue.launch import way_to
from dragoman.catalogue.mcp_servers import taken
from dragoman.catalogue.open import judge, open_peer
from dragoman.client.acp.client import AcpClient
from dragoman.client.conversation import Conversation, ConversationTurn, Peer
from dragoman.client.file_guard import decided, reading, require, running, writing
from dragoman.client.permissions import Answer, Decision, Denial, Question
from dragoman.client.results import Result
from dragoman.delegation.parked import note_success
from dragoman.delegation.permission_ceiling import (
    environment,
    inherited_ceilings,
    policy_for,
)
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import (
    BrokerUnavailable,
    DragomanError,
    NotPermitted,
    ProtocolMismatch,
    UnknownSession,
    Unsupported,
    UsageError,
)
from dragoman.events import fold
from dragoman.events.model import Event
from dragoman.events.parts import Block, Resource, Text
from dragoman.events.view import View
from dragoman.gateway import prompt_responses
from dragoman.gateway.choices import stands_for_models
from dragoman.policy import Approver, allows_everything, unattended
from dragoman.runs.lineage import inherited
from dragoman.runs.model_choice import use_model
from dragoman.runs.open_by_name import ttl_of
from dragoman.runs.sessions import (
    ANSWER_SIZE,
    RESTORED,
    OpenedSession,
    WantedSession,
    blame,
    broker_of,
    job_terms,
    open_session,
)
from dragoman.store.records import new_session_key

if TYPE_CHECKING:
    from dragoman.acp_server.client_requests import ClientRequests
    from dragoman.rpc.tasks import TaskOwner
    from dragoman.runs.changed_files import ChangeWatch
    from dragoman.runs.context import RunContext
    from dragoman.runs.direct_recorder import DirectRecorder
    from dragoman.store.records import SessionRecord

CLOSE_TIMEOUT: Final = 5.0
"""Seconds to disconnect from a peer. A broker needs none; our own child has ended by then."""

SESSION_TIMEOUT: Final = 2.0
"""Seconds for a peer to close a session. What it says of that changes nothing."""


class PeerSession:
    """The connection and conversation with one peer. Call `start` once, and always `aclose`."""

    peer: Peer
    opened: OpenedSession

    def __init__(
        self,
        name: str,
        *,
        place: RunContext,
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
        self.view = View()
        self._place = place
        self._cwd = cwd
        self._record = record
        self._servers = mcp_servers
        self._folders = folders
        self._asking = asking
        self._tasks = tasks
        self._on_event = on_event
        self._on_notice = on_notice
        settings = place.config.settings
        lineage = inherited(place.environ)
        self.policy = policy_for(
            settings,
            name,
            wished=None,
            attended=True,
            ceilings=inherited_ceilings(lineage, place.environ),
        )
        # If a delegation started us, the peer gets the delegation depth in its environment.
        self._lineage = (
            {**lineage.environment(warm=settings.warm), **environment(self.policy, peer=name)}
            if lineage.depth
            else {}
        )
        # Raises `NotInstalled` or `PolicyNotEnforced` before anything is begun.
        launch = way_to(name, catalogue=place.catalogue, settings=settings, environ=place.environ)
        card = place.cards().latest(name)
        handed = taken(launch, mcp_servers, workspace=cwd, card=card)
        own = settings.for_peer(name)
        self._enforced = enforce(
            handed.way,
            restricts=not allows_everything(self.policy),
            mode=own.mode,
            card=card,
            allow_unenforced=own.allow_unenforced,
        )
        self._launch = self._enforced.way
        self._unused_servers = handed.notice
        self._approver = Approver(
            self.policy,
            name,
            str(cwd),
            caller=asking.permit,
            titled=self._launch.quirks.command_titles,
        )
        self._gap = ""
        self._before: ChangeWatch | None = None
        self._ruled = 0
        self._warm = False
        self._keeper: DirectRecorder | None = None
        self._turn: ConversationTurn | None = None
        self._leaving = asyncio.Event()
        self._closing_session = False
        self._holding: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None]

    @property
    def conversation(self) -> Conversation:
        return self.opened.conversation

    @property
    def alive(self) -> bool:
        """Whether the connection is open."""
        return self.peer.client.connection.failure is None

    # -- life

    async def start(self) -> None:
        """Connect to the peer and open the session. Raises the errors of both."""
        self._ready = asyncio.get_running_loop().create_future()
        self._holding = self._tasks.start(self._hold(self._ready), f"hold {self.name}")
        try:
            await self._ready
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self, *, close_session: bool = False) -> None:
        """Disconnect. A session in a broker stays open unless `close_session` is set."""
        self._closing_session = close_session
        self._leaving.set()
        task = self._holding
        if task is None or task.done():
            return
        if not self._ready.done() or self._ready.cancelled():
            # It is still starting, and its caller has given up.
            task.cancel()
        await asyncio.wait([task], timeout=CLOSE_TIMEOUT)
        task.cancel()

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                await self._open(stack)
                if not ready.done():
                    ready.set_result(None)
                await self._leaving.wait()
                if self._closing_session or not (self._warm or self._can_return()):
                    with suppress(DragomanError, TimeoutError):
                        async with asyncio.timeout(SESSION_TIMEOUT):
                            await self.conversation.close()
        except DragomanError as error:
            if not ready.done():
                ready.set_exception(error)
        finally:
            if not ready.done():
                ready.cancel()

    def _can_return(self) -> bool:
        can = self.peer.capabilities
        return can.load is not False or can.resume is not False

    async def _open(self, stack: AsyncExitStack) -> None:
        self.peer = peer = await stack.enter_async_context(self._connected())
        if self._folders and peer.capabilities.additional_directories is False:
            others = ", ".join(map(str, self._folders))
            raise Unsupported(
                f"{self.name} works in one folder, and cannot use {others}: choose another peer, "
                f"or open {self._cwd} alone"
            )
        self._warm = broker_of(peer) is not None
        if isinstance(peer.client, AcpClient):
            peer.client.serve_with(self._serve)
        own = self._place.config.settings.for_peer(self.name)
        if not self._warm:
            from dragoman.runs.direct_recorder import keeper_for

            self._keeper = keeper_for(
                self.name,
                workspace=self._cwd,
                credentials=self._launch.inherit,
                handed=own.env,
                on_trouble=self._on_notice,
                paths=self._place.paths,
                on_stop=self._stop,
            )
            stack.push_async_callback(self._keeper.aclose)
        if self._unused_servers:
            self._on_notice(self._unused_servers)
        servers = self._servers if peer.capabilities.mcp_stdio is not False else ()
        if self._servers and not servers:
            self._on_notice(f"{self.name} takes no MCP servers; those of the client are left out")
        wanted = WantedSession(
            key=new_session_key(),
            workspace=self._cwd,
            record=self._record,
            # A session that goes on is as its user left it.
            mode=own.mode if self._record is None else None,
            model=own.model if self._record is None else None,
            mcp_servers=servers,
            additional_directories=self._folders,
        )
        try:
            self.opened = await open_session(peer, wanted)
        except UnknownSession:
            if self._record is None:
                raise
            # The peer has forgotten it. The caller sends a brief with the next prompt.
            self._record = None
            self.opened = await open_session(peer, replace(wanted, record=None))
        if own.model is not None and self.opened.context != RESTORED:
            try:
                await use_model(self.conversation, self.view, own.model, peer=self.name)
            except (UsageError, ProtocolMismatch) as error:
                # An editor shows which model is used, and lets its user choose another.
                self._on_notice(str(error))
        await self.hold()
        if self._keeper is not None:
            self._keeper.opened(self.opened, self._record, name=None, keep_open=True)

    async def hold(self) -> None:
        """Make the peer ask for permission as the policy requires. Raises `PolicyNotEnforced`."""
        gap = await self._enforced.hold(self.conversation, self.view)
        if gap and gap != self._gap:
            self._on_notice(f"{NOT_ENFORCED}: {self.name}: {gap}")
        self._gap = gap

    async def set_mode(self, mode: str) -> None:
        """Set a mode that the client's user has chosen. Raises `PolicyNotEnforced`."""
        self._enforced.check_mode(mode)
        switch = getattr(self.conversation, "switch_mode", self.conversation.set_mode)
        await switch(mode)

    async def set_option(self, name: str, value: str | bool) -> None:
        """Set an option that the client's user has chosen. Raises `PolicyNotEnforced`."""
        self._enforced.check_option(name, value)
        kinds = {one.id: one.category for one in self.view.options}
        if isinstance(value, str) and (kinds.get(name) or name) == "mode":
            self._enforced.check_mode(value)
        if isinstance(value, str) and stands_for_models(self.conversation, name):
            await self.conversation.set_model(value)
        else:
            await self.conversation.set_option(name, value)

    def _connected(self) -> AbstractAsyncContextManager[Peer]:
        config = self._place.config
        settings = config.settings
        asking = self._asking
        approver = self._approver
        terms: dict[str, Any] = {
            "workspace": self._cwd,
            "permit": approver,
            "guard": approver.guard,
            "budgets": settings.budgets(self._launch.budgets()),
            "env": settings.for_peer(self.name).env,
            "extra_env": self._lineage,
            "on_event": self._happened,
            "inquire": asking.inquire if asking.inquires else None,
            "visits": asking.visits,
            "terminals": asking.side.can("terminal"),
            "max_line_size": settings.max_line_size,
        }
        if not settings.warm:
            return open_peer(self._launch, **terms)
        from dragoman.broker.client.connect import open_warm

        return open_warm(
            self._launch,
            paths=self._place.paths,
            ttl=ttl_of(config),
            max_idle=settings.max_idle_brokers,
            on_fallback=self._without_broker,
            **terms,
        )

    def _serve(self, name: str, params: Any) -> Coroutine[Any, Any, Any] | None:
        """Let the client serve a file or a terminal, if it offers that and the policy allows it."""
        served = self._asking.serve(name, params)
        question = None if served is None else _question(name, params)
        if served is None or question is None:
            return served
        return self._guarded(served, question)

    async def _guarded(self, served: Coroutine[Any, Any, Any], question: Question) -> Any:
        answer: Decision = Answer.CANCEL
        try:
            answer = await decided(self._approver.guard, question)
            require(question, answer)
            if self._turn is not None and question.kind != "read":
                self._turn.approvals += 1
            return await served
        except NotPermitted as error:
            if self._turn is not None and answer is not Answer.CANCEL:
                self._turn.denied(Denial("", question.title, question.kind))
            raise prompt_responses.refusal(error) from error
        finally:
            # Without effect on what has run.
            served.close()

    def _without_broker(self, error: BrokerUnavailable) -> None:
        self._on_notice(f"{self.name} is started for this session alone: {error}")

    def _happened(self, event: Event) -> None:
        fold.apply_settings(self.view, event)
        if self._keeper is not None:
            self._keeper.event(event)
        self._on_event(event)

    # -- turns

    async def begin(self) -> None:
        """What has to be before a prompt: the peer asks, and its workspace was looked at. Raises
        `PolicyNotEnforced`."""
        await self.hold()
        self._before = None
        if self._enforced.restricts:
            from dragoman.runs.changed_files import ChangeWatch

            self._before = await ChangeWatch.take(self._cwd)
            self._ruled = len(self._approver.rulings)

    async def violations(self) -> tuple[str, ...]:
        """The files that changed in the turn although no request for that was allowed."""
        if self._before is None:
            return ()
        return unapproved(
            await self._before.changed(),
            self._approver.rulings[self._ruled :],
            workspace=self._cwd,
            earlier=self._approver.rulings[: self._ruled],
        )

    def prompt(self, blocks: Sequence[Block], *, job: str) -> ConversationTurn:
        """A turn, which begins when its ``async with`` block is entered."""
        blocks = [self._taken(block) for block in blocks]
        if not self._warm:
            turn = self._turn = self.conversation.prompt(blocks)
            turn.max_text_size = ANSWER_SIZE
            if self._keeper is not None:
                self._keeper.began(job, blocks)
            return turn
        terms = job_terms(job, policy=unattended(self.policy, peer=self.name))
        # If the client disconnects, its window is closed and the turn is not needed any more.
        terms["dragoman"]["stay"] = False
        turn = self._turn = self.conversation.prompt(blocks, meta=terms)  # type: ignore[call-arg]
        turn.max_text_size = ANSWER_SIZE
        return turn

    def _stop(self) -> None:
        """Cancel the running turn: another process cancelled its job."""
        if self._turn is not None:
            self._turn.cancel()

    def judged(self, result: Result) -> Result:
        """Correct the result by the quirks of the peer, and record it."""
        result = judge(blame(result) if self._warm else result, self._launch.quirks)
        if self._keeper is not None:
            self._keeper.ended(result)
        if result.ok:
            place = self._place
            note_success(
                self.name,
                self._launch.descriptor,
                paths=place.paths,
                env=place.config.settings.for_peer(self.name).env,
                environ=place.environ,
            )
        return result

    def _taken(self, block: Block) -> Block:
        """A block as the peer can take it. A text is a text, wherever it is embedded."""
        if isinstance(block, Resource) and block.text is not None:
            if self.peer.capabilities.embedded is False:
                return Text(f"{block.uri}:\n{block.text}")
        return block


def _question(name: str, params: Any) -> Question | None:
    """What a request for a service asks to be allowed; None if that was allowed before."""
    if name == acp.FS_READ_TEXT_FILE.name:
        return reading(params.session_id, params.path)
    if name == acp.FS_WRITE_TEXT_FILE.name:
        return writing(params.session_id, params.path, params.content)
    if name == acp.TERMINAL_CREATE.name:
        return running(
            params.session_id, params.command, params.args, cwd=params.cwd, env=params.env
        )
    return None
