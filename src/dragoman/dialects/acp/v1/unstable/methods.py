"""The methods that are not stable yet, and the stable ones with wider types.

`dragoman.dialects.acp.v1.methods.method_table(unstable=True)` overlays this table on the stable
one; nothing else uses it.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.dialects.acp.v1.methods import (
    INITIALIZE,
    SESSION_LIST,
    SESSION_LOAD,
    SESSION_NEW,
    SESSION_PROMPT,
    SESSION_RESUME,
    SESSION_UPDATE,
    Direction,
    Gate,
    Kind,
    Method,
)
from dragoman.dialects.acp.v1.unstable import handshake, services, sessions, updates


def _wider(stable: Method[Any, Any], params: Any, result: Any) -> Method[Any, Any]:
    """Return a stable method with wider types."""
    return Method(stable.name, stable.direction, stable.kind, params, result, stable.gate)


def _new(
    name: str,
    params: Any,
    result: Any,
    gate: str | None,
    *,
    direction: Direction = "client_to_agent",
    kind: Kind = "request",
) -> Method[Any, Any]:
    """Return a method that the stable protocol does not have. Its gate, if any, is a capability of
    the agent."""
    opened_by = None if gate is None else Gate("agent", (gate,))
    return Method(name, direction, kind, params, result, opened_by, "unstable")


UNSTABLE_METHODS: Final[tuple[Method[Any, Any], ...]] = (
    _wider(INITIALIZE, handshake.InitializeRequest, handshake.InitializeResponse),
    _wider(SESSION_NEW, sessions.NewSessionRequest, SESSION_NEW.result),
    _wider(SESSION_LOAD, sessions.LoadSessionRequest, SESSION_LOAD.result),
    _wider(SESSION_RESUME, sessions.ResumeSessionRequest, SESSION_RESUME.result),
    _wider(SESSION_LIST, sessions.ListSessionsRequest, sessions.ListSessionsResponse),
    _wider(SESSION_PROMPT, SESSION_PROMPT.params, sessions.PromptResponse),
    _wider(SESSION_UPDATE, updates.SessionNotification, None),
    _new(
        "session/fork",
        sessions.ForkSessionRequest,
        sessions.ForkSessionResponse,
        "sessionCapabilities.fork",
    ),
    _new(
        "session/archive",
        sessions.ArchiveSessionRequest,
        sessions.ArchiveSessionResponse,
        "sessionCapabilities.archive",
    ),
    _new(
        "session/unarchive",
        sessions.UnarchiveSessionRequest,
        sessions.UnarchiveSessionResponse,
        "sessionCapabilities.archive",
    ),
    _new(
        "session/status",
        sessions.SessionStatusRequest,
        sessions.SessionStatusResponse,
        "sessionCapabilities.status",
    ),
    _new(
        "session/set_title",
        sessions.SetSessionTitleRequest,
        sessions.SetSessionTitleResponse,
        "sessionCapabilities.title",
    ),
    _new(
        "providers/list",
        services.ListProvidersRequest,
        services.ListProvidersResponse,
        "providers",
    ),
    _new("providers/set", services.SetProviderRequest, services.SetProviderResponse, "providers"),
    _new(
        "providers/disable",
        services.DisableProviderRequest,
        services.DisableProviderResponse,
        "providers",
    ),
    _new("auth/status", services.AuthStatusRequest, services.AuthStatusResponse, "auth.status"),
    _new(
        "auth/status_update",
        services.AuthStatusUpdateNotification,
        None,
        "auth.status",
        direction="agent_to_client",
        kind="notification",
    ),
    _new(
        "mcp/message",
        services.MessageMcpRequest,
        services.MessageMcpResponse,
        "mcpCapabilities.acp",
        direction="agent_to_client",
    ),
    _new(
        "mcp/message",
        services.MessageMcpNotification,
        None,
        "mcpCapabilities.acp",
        kind="notification",
    ),
    _new("proxy/initialize", handshake.InitializeRequest, handshake.InitializeResponse, None),
    _new("proxy/successor", services.ProxySuccessorRequest, Any, None, direction="both"),
    _new(
        "proxy/successor",
        services.ProxySuccessorNotification,
        None,
        None,
        direction="both",
        kind="notification",
    ),
)
"""The unstable methods, and the stable ones with wider types. The agent serves or sends each of
them."""
