"""One caller's connection to a broker: dispatch its requests, forward the rest to the peer.

Opens sessions through `sessions` and queues prompts in `turns`. Other ACP and extension requests go
to the peer unchanged except for the session id. Open requests per caller are limited, and a slow
caller does not delay the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.broker import error_codec, protocol
from dragoman.broker.protocol import PromptMeta
from dragoman.broker.server.event_reader import renamed
from dragoman.broker.server.jobs import Job
from dragoman.broker.server.peer_sessions import CLOSE, LOAD, NEW, RESUME
from dragoman.broker.server.turns import PROMPT
from dragoman.client.options import plain_of
from dragoman.dialects import discovery
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.handshake import version_note
from dragoman.dialects.acp.v1.methods import SESSION_FORK_NAME, cancel_notice
from dragoman.errors import BudgetExceeded, DragomanError, RemoteError
from dragoman.rpc import LATER, Call, Connection, ConnectionSettings, End, boundary
from dragoman.store.records import new_job_id
from dragoman.wire import codes
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.messages import UNDECODABLE, Id, Notification, Request
from dragoman.wire.peer import Noise, Stray

if TYPE_CHECKING:
    from dragoman.broker.server.broker import Broker
    from dragoman.broker.server.live_session import LiveSession
    from dragoman.broker.server.peer import PeerLink
    from dragoman.rpc.calls import Settle
    from dragoman.rpc.responder import Handlers
    from dragoman.transports.base import Stream

log: Final = logging.getLogger("dragoman.broker")

MAX_FORWARDED: Final = 100
"""Maximum number of requests of one caller, besides prompts, that are open at the peer or wait for
it."""

MAX_PROMPTS: Final = 256
"""How many prompts of a caller are kept by id before finished ones are forgotten."""

ADDED_SIZE: Final = 4096
"""How many bytes a line from the peer may grow on its way to a caller, through another session id
or the broker's additions to a response."""

LEGACY: Final = frozenset(discovery.DIALECTS) - {discovery.ACP, discovery.CODEX}

FORK: Final = SESSION_FORK_NAME
PERMISSION: Final = acp.SESSION_REQUEST_PERMISSION.name


class Caller:
    """Serves one caller."""

    def __init__(self, broker: Broker, stream: Stream) -> None:
        self._broker = broker
        self.capabilities = acp.ClientCapabilities()
        self.terms = protocol.CallerTerms()
        self.greeted = False
        self.sessions: dict[str, LiveSession] = {}
        """Its open sessions, by the ids it uses."""
        self._translation: asyncio.Future[Handlers] | None = None
        """Handlers for a caller that speaks a legacy dialect."""
        self._forwarded: dict[Id, Call] = {}
        self._delayed = 0
        """Number of requests that will be forwarded once the peer and their session are ready."""
        self._prompts: dict[Id, Job] = {}
        limit = broker.spec.max_line_size
        self.connection = Connection(
            stream,
            End.AGENT,
            self,
            settings=ConnectionSettings(
                max_line_size=(DEFAULT_MAX_LINE_SIZE if limit is None else limit) + ADDED_SIZE,
                cancel_notice=cancel_notice,
            ),
        )
        self._handlers: dict[str, Callable[[Request], Any]] = {
            acp.INITIALIZE.name: self._initialize,
            NEW: self._opens,
            FORK: self._opens,
            LOAD: lambda request: self._guarded(broker.sessions.load(self, request.params)),
            RESUME: lambda request: self._guarded(broker.sessions.resume(self, request.params)),
            CLOSE: lambda request: self._guarded(broker.sessions.close(self, request.params)),
            PROMPT: self._prompt,
            protocol.HELLO: lambda request: broker.hello(request.params),
            protocol.PING: lambda request: {},
            protocol.STATUS: lambda request: broker.status(self),
            protocol.STOP: self._stop,
            protocol.SUBMIT: self._submit,
            protocol.ATTACH: self._attach,
            protocol.DETACH: self._detach,
            protocol.WATCH: self._watch,
            protocol.ANSWER: self._answer_question,
            protocol.RESULT: lambda request: self._guarded(broker.result(request.params)),
            protocol.CANCEL: self._cancel_job,
            protocol.RELEASE: lambda request: self._guarded(
                broker.sessions.release(self, request.params)
            ),
        }

    async def serve(self) -> None:
        """Serve until the caller disconnects."""
        async with self.connection:
            await self.connection.wait_ended()

    def offers(self, method: str) -> bool:
        """Return whether the caller can answer the peer's requests with this method."""
        if not self.greeted or self.connection.failure is not None:
            return False
        if method == PERMISSION:
            return True
        known = acp.method_table(unstable=self._broker.spec.unstable).request(method)
        return (
            known is not None and known.gate is not None and known.gate.is_open(self.capabilities)
        )

    # -- called by the connection

    def attach(self, connection: Connection) -> None:
        pass

    def request(self, request: Request) -> Any:
        try:
            if not self.greeted and (self._translation or _is_legacy(request)):
                return self._translate(request)
            handler = self._handlers.get(request.method)
            if handler is not None:
                return handler(request)
            return self._forward(request)
        except RemoteError:
            raise
        except DragomanError as error:
            raise error_codec.refusal(error) from error

    def notification(self, notification: Notification) -> None:
        if notification.method == acp.SESSION_CANCEL.name:
            self._cancel(notification)
        elif notification.method == acp.CANCEL_REQUEST.name:
            self._call_off(notification)
        elif notification.method == protocol.TERMS:
            try:
                self.terms = protocol.read(notification.params, protocol.CallerTerms)
            except RemoteError as error:
                log.warning("invalid terms from a caller, writes are denied: %s", error)
                self.terms = protocol.CallerTerms(write_files=False)
            self._broker.trace_wanted()
        elif notification.method.startswith("_") and (far := self._broker.far) is not None:
            # Extension notifications pass between the peer and its callers unchanged.
            try:
                far.connection.post(notification.method, notification.params)
            except DragomanError as error:
                log.warning("could not forward %s to the peer: %s", notification.method, error)

    def noise(self, noise: Noise | Stray) -> None:
        log.debug("invalid message from a caller: %.200r", noise.line)

    # -- requests in a dialect other than ACP

    async def _translate(self, request: Request) -> Any:
        """Answer a request in a legacy dialect through a gateway, which the first such request
        starts and which is itself a caller of the broker."""
        if self._translation is None:
            self._translation = asyncio.get_running_loop().create_future()
            serving = serve_legacy(self._broker, self.connection, self._translation)
            # Not a task of the connection, because its sessions are closed after the connection has
            # ended.
            self._broker.tasks.start(serving, "serve a caller of a legacy dialect")
        handlers = await asyncio.shield(self._translation)
        answer = handlers.request(request)
        return await answer if inspect.isawaitable(answer) else answer

    # -- requests to the broker

    def _initialize(self, request: Request) -> Any:
        try:
            asked = acp.INITIALIZE.decode_params(request.params)
        except msgspec.ValidationError as error:
            raise boundary.invalid_params(error) from error
        if not self.greeted:
            self._broker.check_room()
            if (note := version_note(asked)) is not None:
                log.warning("%s", note)
        self.capabilities = asked.client_capabilities
        self.greeted = True
        self._broker.work_changed()
        return self._guarded(self._broker.greet())

    def _opens(self, request: Request) -> Any:
        self._broker.check_work()
        return self._guarded(self._broker.open_session(self, request.method, request.params))

    def _prompt(self, request: Request) -> Any:
        self._broker.check_work()
        body = protocol.members(request.params)
        meta = protocol.our_meta(body, PromptMeta)
        name = protocol.read(request.params, protocol.SessionParams).session_id
        session = self._broker.sessions.require(name)
        job = Job(
            meta.job or new_job_id(),
            session,
            protocol.without_our_meta(body),
            caller=self,
            request=request,
            policy=meta.policy or self.terms.policy,
            asks=meta.asks,
            fresh=meta.fresh,
            budgets=meta.budgets,
        )
        if session not in self.sessions.values():
            # A caller may prompt in a session that another caller opened.
            session.reader(self).session_id = name
        self._broker.turns.put(job)
        if len(self._prompts) >= MAX_PROMPTS:
            self._prompts = {id: each for id, each in self._prompts.items() if not each.ended_at}
        self._prompts[request.id] = job
        return LATER

    def _submit(self, request: Request) -> Any:
        self._broker.check_work()
        asked = protocol.read(request.params, protocol.Submit)
        session = self._broker.sessions.require(asked.session_id)
        params = {"sessionId": protocol.pack(asked.session_id), "prompt": asked.prompt}
        job = Job(
            asked.job,
            session,
            params,
            policy=asked.policy or self.terms.policy,
            asks=asked.asks,
            wait=asked.wait,
            fresh=asked.fresh,
            budgets=asked.budgets,
        )
        self._broker.turns.put(job)
        return self._guarded(self._submitted(job))

    async def _submitted(self, job: Job) -> protocol.Submitted:
        # The caller disconnects next, and the following command looks for the job in the store.
        recording = self._broker.recording
        stored = await recording.flush()
        return protocol.Submitted(job.id, job.state, None if stored else recording.why_unstored)

    def _cancel(self, notification: Notification) -> None:
        try:
            about = protocol.read(notification.params, protocol.SessionParams)
        except RemoteError as error:
            log.warning("invalid cancel from a caller: %s", error)
            return
        session = self._broker.sessions.get(about.session_id)
        if session is None:
            return
        expired: BudgetExceeded | None = None
        # An unknown reason must not prevent the cancel.
        with contextlib.suppress(RemoteError):
            body = protocol.members(notification.params)
            told = protocol.our_meta(body, protocol.CancelMeta).expired
            expired = None if told is None else BudgetExceeded(told.budget, told.timeout)
        self._broker.turns.cancel_for(self, session, expired=expired)

    def _cancel_job(self, request: Request) -> Any:
        asked = protocol.read(request.params, protocol.JobWanted)
        job = self._broker.turns.jobs.get(asked.job)
        return {"cancelled": job is not None and self._broker.turns.cancel(job)}

    def _stop(self, request: Request) -> Any:
        asked = protocol.read(request.params, protocol.Stop)
        return {"stopping": self._broker.asked_to_stop(asked, self)}

    def _attach(self, request: Request) -> Any:
        asked = protocol.read(request.params, protocol.Attach)
        session = self._broker.sessions.require(asked.session_id)
        self.connection.tasks.start(self._attached(request, asked, session), "attach")
        return LATER

    async def _attached(
        self, request: Request, asked: protocol.Attach, session: LiveSession
    ) -> None:
        first = await self._broker.recording.first_event(session)
        if not self._broker.sessions.is_open(session):
            # The session has ended in the meantime: no more events will follow, and the store has
            # them all.
            self.connection.refuse(
                request, codes.NOT_FOUND, f"the session {asked.session_id} is no longer open"
            )
            return
        next = session.log.next
        start = next if asked.start is None else max(asked.start, 0)
        if not first <= start <= next:
            # The caller counts from this number; with any other start its numbers would be wrong.
            gone = f"event {start} is no longer kept; the oldest is {first}"
            to_come = f"there is no event {start} yet; the next is {next}"
            self.connection.refuse(
                request,
                codes.NOT_FOUND,
                gone if start < first else to_come,
                {"first": first, "next": next},
            )
            return
        reader = session.reader(self)
        if session not in self.sessions.values():
            reader.session_id = asked.session_id
        reader.attached = True
        job = session.job
        told = {
            "next": session.log.next,
            "first": first,
            "running": None if job is None else job.id,
        }
        # The events follow the response.
        self.connection.answer(request, told)
        reader.go_back(start)

    def _detach(self, request: Request) -> Any:
        about = protocol.read(request.params, protocol.SessionParams)
        session = self._broker.sessions.require(about.session_id)
        reader = session.readers.get(self)
        if reader is not None:
            reader.attached = False
            mine = session.job is not None and session.job.caller is self
            if not mine and not (reader.opened and session.job is None):
                reader.unwant()
            if not mine and not reader.opened:
                session.close_for(self)
                self._broker.sessions.close_if_done(session)
        return {}

    def _watch(self, request: Request) -> Any:
        asked = protocol.read(request.params, protocol.Watch)
        return {"questions": self._broker.watchers.add(self, asked)}

    def _answer_question(self, request: Request) -> Any:
        answer = protocol.read(request.params, protocol.QuestionAnswer)
        return {"answered": self._broker.watchers.answer(answer)}

    # -- requests to the peer

    def _forward(self, request: Request) -> Any:
        """Forward a request to the peer, with its session id replaced by the peer's."""
        method = request.method
        if method.startswith(protocol.PREFIX) or not (
            method.startswith("_")
            or acp.method_table(unstable=self._broker.spec.unstable).request(method) is not None
        ):
            raise boundary.method_not_found(method)
        if (count := len(self._forwarded) + self._delayed) >= MAX_FORWARDED:
            raise error_codec.busy(count)
        far = self._broker.far
        _, session = self._named_for_peer(request.params)
        if far is None or (
            session is not None
            and (session.far is not far or self._broker.sessions.is_reopening(session))
        ):
            return self._guarded(self._forward_later(request, session))

        def settle(result: Raw | None, error: DragomanError | None) -> None:
            if error is not None:
                refused = error_codec.refusal(error)
                self.connection.refuse(request, refused.code, refused.message, refused.data)
            elif result is not None:
                self.connection.answer(request, result)

        self._forward_to(far, request, session, settle)
        return LATER

    async def _forward_later(self, request: Request, session: LiveSession | None) -> Any:
        """Forward a request once the peer is running and has the session."""
        self._delayed += 1
        try:
            far = await self._broker.ready()
            if session is not None:
                await self._broker.restore(session, far, fresh=False)
        finally:
            self._delayed -= 1
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

        def settle(result: Raw | None, error: DragomanError | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            elif result is not None:
                answer.set_result(result)

        call = self._forward_to(far, request, session, settle)
        try:
            # The call has a timeout, except for a login.
            return await answer
        except asyncio.CancelledError:
            call.give_up(RemoteError(codes.REQUEST_CANCELLED, "the request was cancelled"))
            raise

    def _forward_to(
        self, far: PeerLink, request: Request, session: LiveSession | None, settle: Settle
    ) -> Call:
        """Send a request to the peer. The callback `settle` gets its outcome, once a setting that
        the request changed was recorded and earlier events of the session were sent to the
        caller."""
        method = request.method
        params, _ = self._named_for_peer(request.params)
        timeout = self._broker.timeout_of(method)
        answered = self._broker.liveness.expect(far, method, timeout)

        def settled(result: Raw | None, error: DragomanError | None) -> None:
            answered()
            self._forwarded.pop(request.id, None)
            if error is not None:
                error = far.explain(error)
            elif result is not None and session is not None:
                session.was_set(method, request.params, result)
            reader = None if session is None else session.readers.get(self)
            if reader is None:
                settle(result, error)
            else:
                reader.behind(lambda: settle(result, error))

        call = far.connection.begin(method, params, settle=settled, timeout=timeout)
        self._forwarded[request.id] = call
        return call

    def _named_for_peer(self, params: Raw) -> tuple[Raw, LiveSession | None]:
        """Return the params with the session id replaced by the peer's, and the session, or None if
        they name no open one."""
        try:
            name = protocol.read(params, protocol.SessionParams).session_id
        except RemoteError:
            return params, None
        session = self._broker.sessions.get(name)
        if session is None or session.id == name:
            return params, session
        return renamed(params, session.id), session

    def _call_off(self, notification: Notification) -> None:
        try:
            id = acp.CANCEL_REQUEST.decode_params(notification.params).request_id
        except msgspec.ValidationError as error:
            log.warning("invalid cancel from a caller: %s", error)
            return
        if id is None:
            return
        call = self._forwarded.pop(id, None)
        if call is not None:
            call.give_up(RemoteError(codes.REQUEST_CANCELLED, "the request was cancelled"))
        elif (job := self._prompts.get(id)) is not None:
            self._broker.turns.cancel(job)
        else:
            self.connection.cancel_inbound(id)

    async def _guarded(self, work: Any) -> Any:
        """Await `work`, and translate its errors to protocol errors."""
        try:
            return await work
        except RemoteError:
            raise
        except DragomanError as error:
            raise error_codec.refusal(error) from error


def _is_legacy(request: Request) -> bool:
    """Return whether the first request from a caller is in a legacy dialect."""
    if request.method.startswith("_"):
        return False
    try:
        params = msgspec.json.decode(request.params)
    except UNDECODABLE:
        params = None
    return discovery.of_request(request.method, params) in LEGACY


async def serve_legacy(
    broker: Broker, connection: Connection, taken: asyncio.Future[Handlers]
) -> None:
    """Serve an open connection through a gateway in front of the broker.

    The first request from the caller waits for `taken`, so that future is settled however this
    ends.
    """
    try:
        await _serve_through_gateway(broker, connection, taken)
    except DragomanError as error:
        if taken.done():
            log.debug("a caller of a legacy dialect disconnected: %s", error)
        else:
            taken.set_exception(error)
    except Exception as error:
        if not taken.done():
            taken.set_exception(error)
        raise
    finally:
        taken.cancel()


async def _serve_through_gateway(
    broker: Broker, connection: Connection, taken: asyncio.Future[Handlers]
) -> None:
    # Imported here: callers of legacy dialects are rare.
    from dragoman.client.acp.options import ClientOptions
    from dragoman.client.acp.peer import open_peer
    from dragoman.gateway.gateway import Gateway
    from dragoman.transports.memory import memory_pair

    spec = broker.spec
    near, far = memory_pair()
    broker.tasks.start(broker.serve(far), "serve a gateway")
    options = ClientOptions(**plain_of(spec), budgets=spec.budgets)
    async with await open_peer(near, Path(spec.workspace), options) as peer:
        gateway = Gateway(peer, max_line_size=spec.max_line_size)
        await gateway.serve(connection, on_taken=taken.set_result)
