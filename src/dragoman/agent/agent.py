"""Write an agent: name it, give it handlers, run it.

Holds the author's handlers and derives the agent's capabilities from them. The protocol is in
`Server`, one for each connection.

A handler is ``async def``, or plain ``def``, which then runs in a thread and gets a `BlockingTurn`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import Struct, field

from dragoman.agent import checks, commands
from dragoman.agent.server import Server
from dragoman.agent.settings import Option, SessionSettings
from dragoman.agent.speech import served_dialect
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import RESERVED
from dragoman.dialects.acp.v1.methods import cancel_notice
from dragoman.errors import ConnectionLost, UsageError
from dragoman.rpc import Connection, ConnectionSettings, End
from dragoman.transports import open_stdio
from dragoman.transports.base import Stream
from dragoman.transports.listener import Listener
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE, require_line_size

F = TypeVar("F", bound=Callable[..., Any])


class CommandSpec(Struct, frozen=True):
    """A slash command and its handler."""

    name: str
    description: str
    hint: str | None
    handler: Callable[..., Any]


class AgentHandlers(Struct):
    """An agent's handlers by purpose; None or empty where the author registered none."""

    prompt: Callable[..., Any] | None = None
    new_session: Callable[..., Any] | None = None
    load_session: Callable[..., Any] | None = None
    resume_session: Callable[..., Any] | None = None
    list_sessions: Callable[..., Any] | None = None
    close_session: Callable[..., Any] | None = None
    delete_session: Callable[..., Any] | None = None
    set_mode: Callable[..., Any] | None = None
    set_option: Callable[..., Any] | None = None
    authenticate: Callable[..., Any] | None = None
    logout: Callable[..., Any] | None = None
    commands: dict[str, CommandSpec] = field(default_factory=dict)
    extensions: dict[str, Callable[..., Any]] = field(default_factory=dict)
    extension_notifications: dict[str, Callable[..., Any]] = field(default_factory=dict)


class Agent:
    """An agent: register handlers, then run it.

    `name`, `version` and `title` are reported to the client. `modes` and `options` are the choices
    that the agent offers in each session, and `auth_methods` are its ways to log in.

    The switches say what a prompt may contain besides text and links (`image`, `audio`,
    `embedded_context`), which MCP servers the agent can reach besides those on stdio (`mcp_http`,
    `mcp_sse`), and whether a session may have `additional_directories`. All other capabilities
    follow from the handlers.

    `dialect` names the dialect that clients speak: ``acp``, ``oneshot``, ``threads``, ``tagged``,
    ``keyed`` or ``chained``. Without it, the dialect is detected from a client's first request.
    `versions` are the protocol versions that a ``tagged`` client may request; empty means any.
    `max_line_size` is the maximum size of a message in bytes; the default is 16 MiB.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        modes: Sequence[acp.SessionMode] = (),
        options: Sequence[Option] = (),
        auth_methods: Sequence[acp.AuthMethod] = (),
        image: bool = False,
        audio: bool = False,
        embedded_context: bool = False,
        mcp_http: bool = False,
        mcp_sse: bool = False,
        additional_directories: bool = False,
        dialect: str | None = None,
        versions: Sequence[str] = (),
        max_line_size: int | None = None,
    ) -> None:
        checks.text(name, "the name of an agent")
        checks.text(version, "the version of an agent")
        checks.listed(versions, "the versions of an agent")
        require_line_size(max_line_size)
        self.info = acp.Implementation(name=name, version=version, title=title)
        self.dialect: str | None = None if dialect is None else served_dialect(dialect)
        """The clients' dialect; None to detect it from their first request."""
        self.versions: tuple[str, ...] = tuple(versions)
        """The protocol versions that a `tagged` client may request; empty means any."""
        self.choices = SessionSettings(modes, options)
        """The modes and config options of the agent's sessions."""
        self.auth_methods: tuple[acp.AuthMethod, ...] = tuple(auth_methods)
        """The login methods that the agent offers."""
        self.secret_methods: tuple[acp.AuthMethod, ...] = ()
        """Login methods that take a secret; only a `keyed` client can send one."""
        self._prompt_capabilities = acp.PromptCapabilities(
            image=image, audio=audio, embedded_context=embedded_context
        )
        self._mcp_capabilities = acp.McpCapabilities(http=mcp_http, sse=mcp_sse)
        self._additional_directories = additional_directories
        self._settings = ConnectionSettings(
            max_line_size=max_line_size or DEFAULT_MAX_LINE_SIZE,
            cancel_notice=cancel_notice,
            reserved=RESERVED,
        )
        self.handlers = AgentHandlers()

    def __repr__(self) -> str:
        return f"<Agent {self.info.name!r} {self.info.version}>"

    @property
    def capabilities(self) -> acp.AgentCapabilities:
        """The capabilities that this agent advertises."""
        handlers = self.handlers

        def mark(handler: object) -> acp.Supported | None:
            return acp.Supported() if handler else None

        return acp.AgentCapabilities(
            load_session=handlers.load_session is not None,
            prompt_capabilities=self._prompt_capabilities,
            mcp_capabilities=self._mcp_capabilities,
            session_capabilities=acp.SessionCapabilities(
                list=mark(handlers.list_sessions),
                delete=mark(handlers.delete_session),
                resume=mark(handlers.resume_session),
                # Closing needs no handler: the session is cancelled and forgotten.
                close=acp.Supported(),
                additional_directories=mark(self._additional_directories),
            ),
            auth=acp.AgentAuthCapabilities(logout=mark(handlers.logout)),
        )

    # -- handlers

    def _register(self, slot: str, handler: F, *arguments: str) -> F:
        checks.handler(handler, f"agent.{slot}", *arguments)
        if getattr(self.handlers, slot) is not None:
            raise UsageError(f"the agent already has a handler for {slot}")
        setattr(self.handlers, slot, handler)
        return handler

    def prompt(self, handler: F) -> F:
        """Register ``handler(turn)``, which answers a prompt.

        It may return a stop reason or a whole `PromptResponse`; None means ``end_turn``.
        """
        return self._register("prompt", handler, "turn")

    def new_session(self, handler: F) -> F:
        """Register ``handler(session)``, which prepares a new session.

        Raise `AuthRequired` to ask for a login.
        """
        return self._register("new_session", handler, "session")

    def load_session(self, handler: F) -> F:
        """Register ``handler(session, replay)``, which restores a session and replays its history;
        `replay` has the methods of a turn.

        Raise `RemoteError` with NOT_FOUND if the session does not exist.
        """
        return self._register("load_session", handler, "session", "replay")

    def resume_session(self, handler: F) -> F:
        """Register ``handler(session)``, which restores a session without a replay."""
        return self._register("resume_session", handler, "session")

    def list_sessions(self, handler: F) -> F:
        """Register ``handler(request)``, which answers a `ListSessionsRequest` with `SessionInfo`
        values or a whole `ListSessionsResponse`."""
        return self._register("list_sessions", handler, "request")

    def close_session(self, handler: F) -> F:
        """Register ``handler(session)``, which frees the resources of a closed session. A
        running turn is cancelled first."""
        return self._register("close_session", handler, "session")

    def delete_session(self, handler: F) -> F:
        """Register ``handler(session_id)``, which deletes a session. A running turn is cancelled
        first. The handler should not raise an error if the session does not exist."""
        return self._register("delete_session", handler, "session_id")

    def set_mode(self, handler: F) -> F:
        """Register ``handler(session, mode_id)``, called when the client chooses one of the
        session's modes, before the mode changes."""
        return self._register("set_mode", handler, "session", "mode_id")

    def set_option(self, handler: F) -> F:
        """Register ``handler(session, option_id, value)``, called when the client chooses a valid
        value for an option, before the option changes."""
        return self._register("set_option", handler, "session", "option_id", "value")

    def authenticate(self, handler: F) -> F:
        """Register ``handler(method_id)``, which logs in with one of the agent's login methods. It
        is not called for those that run in a terminal."""
        return self._register("authenticate", handler, "method_id")

    def logout(self, handler: F) -> F:
        """Register ``handler()``, which logs out."""
        return self._register("logout", handler)

    def command(
        self, name: str, description: str = "", *, hint: str | None = None
    ) -> Callable[[F], F]:
        """Register ``handler(turn, input)``, which runs the slash command ``/name input``.

        The client shows the description, by default the handler's docstring or else the name, and
        `hint`, which says what the input is.
        """

        _require_name(name, '@agent.command("name")')
        if not commands.is_name(name):
            raise UsageError(
                f"/{name} is not a valid command name: a name is a letter, then letters, digits "
                "or any of _ . : -"
            )

        def register(handler: F) -> F:
            checks.handler(handler, "agent.command(…)", "turn", "input")
            if name in self.handlers.commands:
                raise UsageError(f"the agent already has a command /{name}")
            self.handlers.commands[name] = CommandSpec(
                name, description or (handler.__doc__ or name).strip(), hint, handler
            )
            return handler

        return register

    def extension(self, method: str) -> Callable[[F], F]:
        """Register ``handler(params)``, which answers requests for the extension method `method`.
        The name begins with an underscore, such as ``_name/verb``."""
        return self._extension(self.handlers.extensions, method)

    def extension_notification(self, method: str) -> Callable[[F], F]:
        """Register ``handler(params)``, which receives the extension notification `method` from the
        client; the name begins with an underscore.

        Calls are serial, in the order of arrival.
        """
        return self._extension(self.handlers.extension_notifications, method)

    def _extension(self, table: dict[str, Callable[..., Any]], method: str) -> Callable[[F], F]:
        _require_name(method, '@agent.extension("_name")')
        if not method.startswith("_"):
            raise UsageError(f"an extension method must begin with an underscore: {method!r}")

        def register(handler: F) -> F:
            checks.handler(handler, "agent.extension(…)", "params")
            if method in table:
                raise UsageError(f"the agent already has a handler for {method}")
            table[method] = handler
            return handler

        return register

    # -- running

    def run(self) -> None:
        """Serve one client on standard input and output until it disconnects."""
        try:
            asyncio.run(self.serve_stdio())
        except KeyboardInterrupt:
            pass

    async def serve_stdio(self) -> None:
        """Serve one client on standard input and output. Stray prints go to standard error."""
        await self.serve(await open_stdio())

    async def serve(self, stream: Stream) -> ConnectionLost:
        """Serve one client on a stream until the stream ends. Returns why it ended."""
        try:
            self._require_prompt()
            connection = Connection(stream, End.AGENT, Server(self), settings=self._settings)
        except BaseException:
            await stream.aclose()
            raise
        async with connection:
            return await connection.wait_ended()

    async def serve_unix(self, path: str | os.PathLike[str]) -> Listener:
        """Serve clients on a Unix socket. To stop, close the returned listener."""
        self._require_prompt()
        # Most agents are served on standard input and output, and start-up time matters.
        from dragoman.transports import listen_unix

        return await listen_unix(path, self._serve_one)

    async def serve_websocket(self, host: str, port: int, **options: Any) -> Listener:
        """Serve clients on a WebSocket. To stop, close the returned listener. The options are those
        of `dragoman.transports.listen_websocket`."""
        self._require_prompt()
        from dragoman.transports import listen_websocket

        return await listen_websocket(host, port, self._serve_one, **options)

    def _require_prompt(self) -> None:
        if self.handlers.prompt is None:
            raise UsageError("the agent has no prompt handler: decorate one with @agent.prompt")

    async def _serve_one(self, stream: Stream) -> None:
        await self.serve(stream)


def _require_name(name: object, use: str) -> None:
    """Raise `UsageError` if a decorator was used without its name argument."""
    if not isinstance(name, str):
        raise UsageError(f"the name is missing: write {use}")
