"""The methods of the protocol, as one table of data.

Defines `Method` (name, direction, kind, types and gate), when a gate is open, and every method. The
stable methods are `METHODS`; `method_table` adds the legacy and, on demand, the unstable ones.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1 import (
    codec,
    content,
    handshake,
    services,
    session,
    updates,
)
from dragoman.dialects.acp.v1.shape import Wire
from dragoman.wire.messages import Id

P = TypeVar("P")
R = TypeVar("R")

Side: TypeAlias = Literal["client", "agent"]
Direction: TypeAlias = Literal["client_to_agent", "agent_to_client", "both"]
Kind: TypeAlias = Literal["request", "notification"]
Stability: TypeAlias = Literal["stable", "unstable", "legacy"]
Body: TypeAlias = bytes | bytearray | memoryview | Raw


class Gate(Struct, frozen=True):
    """The capability a method requires, advertised by `side` at any one of `paths`.

    A path is dotted and in wire spelling, within `agentCapabilities` or `clientCapabilities`.
    """

    side: Side
    paths: tuple[str, ...]

    def is_open(self, capabilities: Wire) -> bool:
        """Return whether these capabilities of `side` advertise one of `paths`, as true or as an
        object."""
        return any(_announced(capabilities, path) for path in self.paths)


def _announced(capabilities: Wire, path: str) -> bool:
    value: Any = capabilities
    for name in path.split("."):
        if isinstance(value, Wire):
            attribute = _wire_names(type(value)).get(name)
            if attribute is not None:
                value = getattr(value, attribute)
            else:
                # A capability that only the unstable types define is still in `extra`.
                value = (value.extra or {}).get(name)
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value is True or isinstance(value, Wire | dict)


@functools.cache
def _wire_names(struct: type[Wire]) -> dict[str, str]:
    return {info.encode_name: info.name for info in msgspec.structs.fields(struct)}


class Method(Struct, Generic[P, R], frozen=True):
    """One method. A notification has no result."""

    name: str
    direction: Direction
    kind: Kind
    params: Any
    result: Any = None
    gate: Gate | None = None
    stability: Stability = "stable"

    def decode_params(self, data: Body) -> P:
        """Decode the parameters; absent ones count as an empty object. Raises
        `msgspec.ValidationError`."""
        params: P = codec.decode(data, self.params)
        return params

    def decode_result(self, data: Body) -> R:
        """Decode the result; null counts as an empty object. Raises `msgspec.ValidationError`."""
        result: R = codec.decode(data, self.result)
        return result


class MethodTable:
    """Methods by name. One name may be both a request and a notification."""

    def __init__(self, methods: Iterable[Method[Any, Any]]) -> None:
        self._methods = {(method.kind, method.name): method for method in methods}

    def __iter__(self) -> Iterator[Method[Any, Any]]:
        return iter(self._methods.values())

    def __len__(self) -> int:
        return len(self._methods)

    def request(self, name: str) -> Method[Any, Any] | None:
        """Return the request with this name, or None."""
        return self._methods.get(("request", name))

    def notification(self, name: str) -> Method[Any, Any] | None:
        """Return the notification with this name, or None."""
        return self._methods.get(("notification", name))


def _agent(*paths: str) -> Gate:
    return Gate("agent", paths)


def _client(*paths: str) -> Gate:
    return Gate("client", paths)


def _asks_agent(name: str, params: Any, result: Any, gate: Gate | None = None) -> Method[Any, Any]:
    return Method(name, "client_to_agent", "request", params, result, gate)


def _asks_client(name: str, params: Any, result: Any, gate: Gate | None = None) -> Method[Any, Any]:
    return Method(name, "agent_to_client", "request", params, result, gate)


SESSION_FORK_NAME: Final = "session/fork"
"""The name of a draft method, which is in `unstable.methods`."""

INITIALIZE: Final[Method[handshake.InitializeRequest, handshake.InitializeResponse]] = _asks_agent(
    "initialize", handshake.InitializeRequest, handshake.InitializeResponse
)
AUTHENTICATE: Final[Method[handshake.AuthenticateRequest, handshake.AuthenticateResponse]] = (
    _asks_agent("authenticate", handshake.AuthenticateRequest, handshake.AuthenticateResponse)
)
LOGOUT: Final[Method[handshake.LogoutRequest, handshake.LogoutResponse]] = _asks_agent(
    "logout", handshake.LogoutRequest, handshake.LogoutResponse, _agent("auth.logout")
)
SESSION_NEW: Final[Method[session.NewSessionRequest, session.NewSessionResponse]] = _asks_agent(
    "session/new", session.NewSessionRequest, session.NewSessionResponse
)
SESSION_LOAD: Final[Method[session.LoadSessionRequest, session.LoadSessionResponse]] = _asks_agent(
    "session/load", session.LoadSessionRequest, session.LoadSessionResponse, _agent("loadSession")
)
SESSION_RESUME: Final[Method[session.ResumeSessionRequest, session.ResumeSessionResponse]] = (
    _asks_agent(
        "session/resume",
        session.ResumeSessionRequest,
        session.ResumeSessionResponse,
        _agent("sessionCapabilities.resume"),
    )
)
SESSION_LIST: Final[Method[session.ListSessionsRequest, session.ListSessionsResponse]] = (
    _asks_agent(
        "session/list",
        session.ListSessionsRequest,
        session.ListSessionsResponse,
        _agent("sessionCapabilities.list"),
    )
)
SESSION_CLOSE: Final[Method[session.CloseSessionRequest, session.CloseSessionResponse]] = (
    _asks_agent(
        "session/close",
        session.CloseSessionRequest,
        session.CloseSessionResponse,
        _agent("sessionCapabilities.close"),
    )
)
SESSION_DELETE: Final[Method[session.DeleteSessionRequest, session.DeleteSessionResponse]] = (
    _asks_agent(
        "session/delete",
        session.DeleteSessionRequest,
        session.DeleteSessionResponse,
        _agent("sessionCapabilities.delete"),
    )
)
SESSION_SET_MODE: Final[Method[session.SetSessionModeRequest, session.SetSessionModeResponse]] = (
    _asks_agent("session/set_mode", session.SetSessionModeRequest, session.SetSessionModeResponse)
)
SESSION_SET_CONFIG_OPTION: Final[
    Method[session.SetSessionConfigOptionRequest, session.SetSessionConfigOptionResponse]
] = _asks_agent(
    "session/set_config_option",
    session.SetSessionConfigOptionRequest,
    session.SetSessionConfigOptionResponse,
)
SESSION_PROMPT: Final[Method[session.PromptRequest, session.PromptResponse]] = _asks_agent(
    "session/prompt", session.PromptRequest, session.PromptResponse
)
SESSION_CANCEL: Final[Method[session.CancelNotification, None]] = Method(
    "session/cancel", "client_to_agent", "notification", session.CancelNotification
)
SESSION_UPDATE: Final[Method[updates.SessionNotification, None]] = Method(
    "session/update", "agent_to_client", "notification", updates.SessionNotification
)
SESSION_REQUEST_PERMISSION: Final[
    Method[content.RequestPermissionRequest, content.RequestPermissionResponse]
] = _asks_client(
    "session/request_permission",
    content.RequestPermissionRequest,
    content.RequestPermissionResponse,
)
FS_READ_TEXT_FILE: Final[Method[services.ReadTextFileRequest, services.ReadTextFileResponse]] = (
    _asks_client(
        "fs/read_text_file",
        services.ReadTextFileRequest,
        services.ReadTextFileResponse,
        _client("fs.readTextFile"),
    )
)
FS_WRITE_TEXT_FILE: Final[Method[services.WriteTextFileRequest, services.WriteTextFileResponse]] = (
    _asks_client(
        "fs/write_text_file",
        services.WriteTextFileRequest,
        services.WriteTextFileResponse,
        _client("fs.writeTextFile"),
    )
)
TERMINAL_CREATE: Final[Method[services.CreateTerminalRequest, services.CreateTerminalResponse]] = (
    _asks_client(
        "terminal/create",
        services.CreateTerminalRequest,
        services.CreateTerminalResponse,
        _client("terminal"),
    )
)
TERMINAL_OUTPUT: Final[Method[services.TerminalOutputRequest, services.TerminalOutputResponse]] = (
    _asks_client(
        "terminal/output",
        services.TerminalOutputRequest,
        services.TerminalOutputResponse,
        _client("terminal"),
    )
)
TERMINAL_WAIT_FOR_EXIT: Final[
    Method[services.WaitForTerminalExitRequest, services.WaitForTerminalExitResponse]
] = _asks_client(
    "terminal/wait_for_exit",
    services.WaitForTerminalExitRequest,
    services.WaitForTerminalExitResponse,
    _client("terminal"),
)
TERMINAL_KILL: Final[Method[services.KillTerminalRequest, services.KillTerminalResponse]] = (
    _asks_client(
        "terminal/kill",
        services.KillTerminalRequest,
        services.KillTerminalResponse,
        _client("terminal"),
    )
)
TERMINAL_RELEASE: Final[
    Method[services.ReleaseTerminalRequest, services.ReleaseTerminalResponse]
] = _asks_client(
    "terminal/release",
    services.ReleaseTerminalRequest,
    services.ReleaseTerminalResponse,
    _client("terminal"),
)
ELICITATION_CREATE: Final[
    Method[services.CreateElicitationRequest, services.CreateElicitationResponse]
] = _asks_client(
    "elicitation/create",
    services.CreateElicitationRequest,
    services.CreateElicitationResponse,
    _client("elicitation.form", "elicitation.url"),
)
ELICITATION_COMPLETE: Final[Method[services.CompleteElicitationNotification, None]] = Method(
    "elicitation/complete",
    "agent_to_client",
    "notification",
    services.CompleteElicitationNotification,
    gate=_client("elicitation.url"),
)
CANCEL_REQUEST: Final[Method[session.CancelRequestNotification, None]] = Method(
    "$/cancel_request", "both", "notification", session.CancelRequestNotification
)


def cancel_notice(id: Id) -> tuple[str, session.CancelRequestNotification]:
    """Return the notification that cancels a request, for `ConnectionSettings.cancel_notice`."""
    return CANCEL_REQUEST.name, session.CancelRequestNotification(request_id=id)


METHODS: Final[tuple[Method[Any, Any], ...]] = (
    INITIALIZE,
    AUTHENTICATE,
    LOGOUT,
    SESSION_NEW,
    SESSION_LOAD,
    SESSION_RESUME,
    SESSION_LIST,
    SESSION_CLOSE,
    SESSION_DELETE,
    SESSION_SET_MODE,
    SESSION_SET_CONFIG_OPTION,
    SESSION_PROMPT,
    SESSION_CANCEL,
    SESSION_UPDATE,
    SESSION_REQUEST_PERMISSION,
    FS_READ_TEXT_FILE,
    FS_WRITE_TEXT_FILE,
    TERMINAL_CREATE,
    TERMINAL_OUTPUT,
    TERMINAL_WAIT_FOR_EXIT,
    TERMINAL_KILL,
    TERMINAL_RELEASE,
    ELICITATION_CREATE,
    ELICITATION_COMPLETE,
    CANCEL_REQUEST,
)
"""The stable methods."""

SESSION_SET_MODEL: Final[
    Method[session.SetSessionModelRequest, session.SetSessionModelResponse]
] = Method(
    "session/set_model",
    "client_to_agent",
    "request",
    session.SetSessionModelRequest,
    session.SetSessionModelResponse,
    stability="legacy",
)


@functools.cache
def method_table(*, unstable: bool = False) -> MethodTable:
    """Return the table of stable and legacy methods.

    `unstable` adds the unstable ones, and wider types for some stable ones.
    """
    methods = (*METHODS, SESSION_SET_MODEL)
    if unstable:
        from dragoman.dialects.acp.v1.unstable.methods import UNSTABLE_METHODS

        methods = (*methods, *UNSTABLE_METHODS)
    return MethodTable(methods)


analyse(__name__)
