"""Connect to a peer through its broker, or start the peer directly if no broker is available.

Builds the `BrokerSpec` from the caller's options and opens an ACP client on the broker's socket. It
falls back to a direct child only while connecting, never after a prompt was sent. Client-side
quirks are applied here, as `catalogue.open` does for a direct child.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, structs

from dragoman.broker.client.find_or_start import FoundBroker, ensure
from dragoman.broker.client.hello import BrokerHello, watch
from dragoman.broker.protocol import (
    ANSWERED,
    STDERR,
    TERMS,
    TRACE,
    AnsweredElsewhere,
    TracedLine,
)
from dragoman.broker.spec import (
    DEFAULT_MAX_IDLE,
    DEFAULT_TTL,
    START_MARGIN,
    BrokerSpec,
    folders_of,
    identify_files,
    real_workspace,
    search_path_of,
)
from dragoman.catalogue.launch import LaunchSpec, surroundings_of
from dragoman.catalogue.open import dialect_of, line_size_of, open_peer, options_of
from dragoman.client import file_guard
from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions, connection_settings
from dragoman.client.acp.peer import AcpPeer
from dragoman.client.acp.session import Session
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Opening, Peer, absolute
from dragoman.client.options import ConnectOptions, for_dialect, plain_of
from dragoman.decoders import decode_typed
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.shape import META, METADATA
from dragoman.dialects.discovery import ACP, CODEX
from dragoman.errors import (
    BrokerUnavailable,
    BudgetExceeded,
    CallTimeout,
    ConnectionLost,
    DragomanError,
    RemoteError,
)
from dragoman.events.parts import SECRET_KINDS
from dragoman.paths import Paths, find_paths
from dragoman.rpc import Connection
from dragoman.rpc.connection import trace_of_environment
from dragoman.store.records import root_of
from dragoman.transports.process.environment import build_environment
from dragoman.wire.messages import UNDECODABLE

if TYPE_CHECKING:
    from dragoman.rpc.trace import Trace

READ_ONLY: Final = {"writeFiles": False}
"""Terms for a caller that does not allow file writes."""

MAX_ATTEMPTS: Final = 3
"""How many brokers may die during one caller's handshake before it continues without one."""

BROKER_MARGIN: Final = 5.0
"""Extra seconds that a caller waits after the broker's own timeout, so that the broker, which knows
the reason, reports it."""

EXPIRED_MARGIN: Final = 0.5
"""The margin in place of `BROKER_MARGIN` for a turn that timed out. It is short, because the caller
knows the reason itself and has to keep to its time limit."""

log = logging.getLogger(__name__)


class _Stderr(msgspec.Struct):
    text: str


class WarmClient(AcpClient):
    """A client of a peer behind a broker."""

    def __init__(
        self,
        connection: Connection,
        options: ClientOptions,
        *,
        launch: Iterable[str],
        reached: FoundBroker,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> None:
        super().__init__(connection, options, launch=tuple(launch))
        self.greeting: BrokerHello = reached.greeting
        """The broker's response to hello."""
        self.endpoint: str = reached.endpoint.name
        self._address = reached.endpoint.address
        self.started: bool = reached.started
        """Whether the broker was started for this call."""
        self._on_stderr = on_stderr
        self._trace: Trace | None = None
        self._serving.between = self._told

    async def start(self) -> None:
        # Before the handshake: a broker may be stopped right after its hello.
        watch(self.connection, self._address, self.endpoint)
        await super().start()
        # Before any prompt: otherwise the broker would write files in our place, as it does for
        # callers that allow it.
        terms: dict[str, Any] = {"answered": True}
        if not self.options.write_files:
            terms |= READ_ONLY
        if self._on_stderr is not None:
            terms["agentStderr"] = True
        self._trace = trace_of_environment()
        if self._trace is not None:
            terms["trace"] = True
        self.connection.post(TERMS, terms)

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            if self._trace is not None:
                self._trace.close()
                self._trace = None

    def _told(self, method: str, params: Raw) -> bool:
        """Handle a notification from the broker itself: a trace line, an answer given elsewhere, or
        the peer's stderr. Returns whether it was handled."""
        if method == TRACE and self._trace is not None:
            try:
                traced = decode_typed(params, TracedLine)
            except UNDECODABLE as error:
                log.debug("invalid trace line from the broker: %s", error)
            else:
                self._trace.record(self.greeting.peer, traced.dir, traced.line.encode())
            return True
        if method == ANSWERED:
            self._answered_elsewhere(params)
            return True
        if method != STDERR or self._on_stderr is None:
            return False
        try:
            self._on_stderr(decode_typed(params, _Stderr).text.encode())
        except UNDECODABLE as error:
            log.debug("invalid stderr notification from the broker: %s", error)
        return True

    def _answered_elsewhere(self, params: Raw) -> None:
        """Withdraw our approver's open question that was answered elsewhere, for example in a
        console."""
        from dragoman.client.permissions import Answer
        from dragoman.policy.approver import Approver

        permit = self.options.permit
        try:
            told = decode_typed(params, AnsweredElsewhere)
            answer = Answer(told.kind)
        except (*UNDECODABLE, ValueError) as error:
            log.debug("invalid notification of an answer: %s", error)
            return
        if isinstance(permit, Approver):
            permit.answered_elsewhere(told.tool_call_id, answer)

    def cancel_meta(self, why: DragomanError | None) -> dict[str, Any] | None:
        """Return the `_meta` of a cancel: the exceeded budget if that is the reason `why`, because
        the broker records how the turn ended; otherwise None."""
        if not isinstance(why, BudgetExceeded):
            return None
        return {"dragoman": {"expired": {"budget": why.budget, "timeout": why.timeout}}}

    def explain(self, error: DragomanError) -> DragomanError:
        """Return the error to raise: for a response that describes an error in the broker, that
        error, as if it had happened here."""
        if isinstance(error, RemoteError):
            # Imported here: most calls do not fail.
            from dragoman.broker.error_codec import revive

            revived = revive(error.data, error.message)
            if revived is not None:
                revived.__cause__ = error
                return revived
        return super().explain(error)


class WarmPeer(AcpPeer):
    """A peer behind a broker."""

    async def open(self, opening: Opening) -> Session:
        own = {name: value for name, value in opening.metadata.items() if name != META}
        if own:
            # An ACP agent gets the metadata unchanged; a gateway reads it from our part of `_meta`.
            ours = {**opening.metadata.get(META, {}), METADATA: own}
            opening = structs.replace(opening, metadata={**own, META: ours})
        return await super().open(opening)

    async def authenticate(
        self, method_id: str, *, password: str | None = None, token: str | None = None
    ) -> None:
        secrets = {"password": password, "token": token}
        given = {name: secret for name, secret in secrets.items() if secret is not None}
        kinds = {method.id: method.kind for method in self.auth_methods}
        if not given or kinds.get(method_id) not in SECRET_KINDS:
            await super().authenticate(method_id, password=password, token=token)
            return
        # Only the gateway in front of an agent of another dialect says that a method takes a
        # secret.
        request = acp.AuthenticateRequest(method_id=method_id, meta={META: given})
        await self.client.ask(acp.AUTHENTICATE, request, timeout=None)


def spec_of(
    way: LaunchSpec,
    options: ConnectOptions | None = None,
    *,
    workspace: str | os.PathLike[str],
    paths: Paths | None = None,
    ttl: float | None = None,
    max_idle: int | None = None,
) -> BrokerSpec:
    """Return the broker spec for these options; the same options give the same broker.

    Values in `details` that cannot be sent to another process, such as callbacks, are left out for
    an ACP peer. For any other peer they raise `BrokerUnavailable`.
    """
    options = options or ConnectOptions()
    spoken = dialect_of(way, options)
    descriptor = way.descriptor
    inherit = tuple(options.inherit)
    folder = Path(real_workspace(workspace))
    environment = build_environment(
        inherit=(*way.inherit, *inherit), extra={**way.env, **(options.env or {})}
    )
    chosen = {**options_of(way, spoken, options.permit), **(options.details or {})}
    if spoken == ACP:
        # Options that only the caller's own client can use, such as callbacks, are not sent.
        chosen = {name: value for name, value in chosen.items() if _is_plain(value)}
    elif unfit := [name for name, value in chosen.items() if not _is_plain(value)]:
        raise BrokerUnavailable(
            "these options of the peer cannot be sent to a broker, because they are not plain "
            f"data: {', '.join(unfit)}"
        )
    shared = plain_of(options) | {
        "max_line_size": line_size_of(way, options),
        # File writing is offered to the agent; each caller decides whether it is allowed.
        "write_files": options.write_files or spoken == ACP,
    }
    return BrokerSpec(
        **shared,
        peer=way.name,
        title="" if descriptor is None else descriptor.title,
        command=way.command,
        address=way.address,
        protocol=spoken,
        env=environment,
        search_path=search_path_of(environment.get("PATH", "")),
        # A session has its own directory in these dialects, so a whole project shares one process.
        workspace=str(root_of(folder)) if spoken in (ACP, CODEX) else str(folder),
        details=chosen,
        budgets=_for_all(options.budgets, way.budgets()),
        mode_after_open=way.quirks.mode_after_open,
        missing_file_is_empty=way.quirks.missing_file_is_empty,
        loads_next_minute=way.quirks.loads_next_minute,
        error_texts=way.quirks.error_texts,
        notice_texts=way.quirks.notice_texts,
        command_titles=way.quirks.command_titles,
        login_hint="" if descriptor is None else descriptor.credentials.login,
        surroundings=surroundings_of(descriptor, env=inherit),
        identity=identify_files(way.command or ()),
        paths=folders_of(paths or find_paths()),
        ttl=DEFAULT_TTL if ttl is None else ttl,
        max_idle=DEFAULT_MAX_IDLE if max_idle is None else max_idle,
    )


@asynccontextmanager
async def open_warm(
    launch: LaunchSpec,
    options: ConnectOptions | None = None,
    *,
    workspace: str | os.PathLike[str] = ".",
    paths: Paths | None = None,
    ttl: float | None = None,
    max_idle: int | None = None,
    on_fallback: Callable[[BrokerUnavailable], None] | None = None,
) -> AsyncIterator[Peer]:
    """Context manager like `catalogue.open.open_peer`, through a broker, which is started if none
    runs, and keeps running afterwards. `ttl` is its idle timeout in seconds. If no broker is
    available, the peer is started directly and `on_fallback` is called with the reason; without it
    the reason is logged."""
    options = options or ConnectOptions()
    # Iterated twice if the peer is started directly after all.
    options = structs.replace(options, inherit=tuple(options.inherit))
    peer: AcpPeer | None = None
    try:
        spec = spec_of(
            launch, options, workspace=workspace, paths=paths, ttl=ttl, max_idle=max_idle
        )
        peer = await _reach(launch, spec, absolute(Path(workspace)), options, ttl)
    except BrokerUnavailable as error:
        if on_fallback is not None:
            on_fallback(error)
        else:
            log.warning("starting %s without a broker: %s", launch.name, error)
    if peer is not None:
        async with peer:
            yield peer
        return
    async with open_peer(launch, options, workspace=workspace) as direct:
        yield direct


def _near_options(
    launch: LaunchSpec, spec: BrokerSpec, workspace: Path, options: ConnectOptions
) -> ClientOptions:
    """Return the options of the client between this process and the broker. Raises `Unsupported`
    for an option in `details` that the ACP client does not have."""
    usual = launch.budgets()
    budgets = options.budgets or usual
    permit, guard = file_guard.guarded(options.permit, options.guard, workspace)
    details = options_of(launch, ACP, options.permit)
    if spec.protocol == ACP:
        details |= options.details or {}
    return for_dialect(
        ClientOptions,
        structs.replace(options, details=details),
        ACP,
        permit=permit,
        guard=guard,
        budgets=structs.replace(
            budgets,
            # A caller with a short timeout does not wait for the broker's reason.
            initialize=budgets.initialize
            + (0 if budgets.initialize < usual.initialize else START_MARGIN + BROKER_MARGIN),
            session=budgets.session + (0 if budgets.session < usual.session else BROKER_MARGIN),
            cancel_grace=budgets.cancel_grace + BROKER_MARGIN,
            expired_grace=budgets.expired_grace + EXPIRED_MARGIN,
            silent_grace=budgets.silent_grace + BROKER_MARGIN,
        ),
        max_line_size=spec.max_line_size,
    )


async def _reach(
    way: LaunchSpec,
    spec: BrokerSpec,
    workspace: Path,
    options: ConnectOptions,
    ttl: float | None,
) -> AcpPeer:
    """Connect to the broker of a peer, start a broker if none runs, and return the peer after the
    handshake."""
    ours = _near_options(way, spec, workspace, options)

    async def prepare(spec: BrokerSpec) -> BrokerSpec:
        return await complete(way, spec, inherit=options.inherit)

    lost: ConnectionLost | None = None
    for _ in range(MAX_ATTEMPTS):
        reached = await ensure(
            spec, prepare=prepare, ttl=ttl, settings=connection_settings(spec.max_line_size)
        )
        try:
            client = WarmClient(
                reached.connection,
                ours,
                launch=way.command or (),
                reached=reached,
                on_stderr=options.on_stderr,
            )
        except BaseException:
            await reached.connection.aclose()
            raise
        peer = WarmPeer(client, workspace)
        try:
            await client.start()
        except ConnectionLost as error:
            gone = client.connection.failure is not None
            await client.aclose()
            if not gone:
                # The peer ended, and the broker reports it.
                raise
            # The broker ended between its hello and the handshake. No prompt was sent.
            lost = error
        except CallTimeout as error:
            await client.aclose()
            if error.method != acp.INITIALIZE.name:
                raise
            raise _unanswered(way, options) from error
        except BaseException:
            await client.aclose()
            raise
        else:
            return peer
    raise BrokerUnavailable(
        f"the broker {reached.endpoint.name} keeps ending during the handshake: {lost}"
    )


def _unanswered(way: LaunchSpec, options: ConnectOptions) -> DragomanError:
    """Return the error for a peer that did not answer the handshake within the caller's timeout, as
    a direct start would raise it.

    The broker may wait longer, for other callers.
    """
    from dragoman.client import handshake_errors

    late = CallTimeout(acp.INITIALIZE.name, (options.budgets or way.budgets()).initialize)
    named = handshake_errors.shown(way.command) if way.command else str(way.address)
    return handshake_errors.explain(late, named, None, [])


async def complete(way: LaunchSpec, spec: BrokerSpec, *, inherit: Iterable[str]) -> BrokerSpec:
    """Return the spec with the fields that only a start needs: the secret values, and whether the
    peer's card says that it runs sessions in parallel.

    `inherit` names the variables that the caller passes on. Raises `NotInstalled` if the peer
    cannot run here.
    """
    from dragoman.catalogue.card import CARDS, CardStore
    from dragoman.catalogue.node_runtime import check_runtime
    from dragoman.config.secrets import handed_values, secret_values

    await check_runtime(way, spec.env)
    card = CardStore(Path(spec.paths.data) / CARDS).latest(spec.peer)
    parallel = None if card is None else card.facts.parallel_sessions
    credentials = () if way.descriptor is None else way.descriptor.credentials.env
    secrets = {
        *secret_values(spec.env, credentials),
        *handed_values(spec.env, inherit, spec.workspace),
    }
    return structs.replace(spec, parallel=parallel, secret_values=tuple(sorted(secrets)))


def _for_all(budgets: Budgets | None, usual: Budgets) -> Budgets:
    """Return the budgets of a broker: each is the longer of the usual one and the caller's.

    Other callers of the broker must not time out because the first one set a short limit. That
    caller enforces its own limit, and sends the budgets that apply after it disconnects.
    """
    if budgets is None:
        return usual
    longest: dict[str, float | None] = {}
    for name in Budgets.__struct_fields__:
        ours, theirs = getattr(usual, name), getattr(budgets, name)
        longest[name] = None if ours is None or theirs is None else max(ours, theirs)
    return Budgets(**longest)  # type: ignore[arg-type]


def _is_plain(value: Any) -> bool:
    """Return whether a value can be sent to another process."""
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return False
    return True
