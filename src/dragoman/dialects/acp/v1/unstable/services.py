"""Methods outside sessions that are not stable yet.

Defines model providers, the login status, MCP messages through this connection, and the proxies of
a chain. Working with an agent requires none of them.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from msgspec import UNSET

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1.shape import FORGIVING, STRICT, Wire


class LlmProtocol(StrEnum):
    """The known protocols of model providers; other values may come."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    AZURE = "azure"
    VERTEX = "vertex"
    BEDROCK = "bedrock"


class ProviderCurrentConfig(Wire, frozen=True, kw_only=True):
    """How the agent currently reaches a model provider."""

    api_type: str
    base_url: str


class ProviderInfo(Wire, frozen=True, kw_only=True):
    """A model provider that the client may configure."""

    provider_id: str
    supported: Annotated[Sequence[str], FORGIVING]
    required: bool
    current: Annotated[ProviderCurrentConfig | None, STRICT] = None


class ListProvidersRequest(Wire, frozen=True, kw_only=True):
    """`providers/list`: list the model providers that the client may configure."""


class ListProvidersResponse(Wire, frozen=True, kw_only=True):
    """All model providers that the client may configure."""

    providers: Sequence[ProviderInfo]


class SetProviderRequest(Wire, frozen=True, kw_only=True):
    """`providers/set`: set how to reach a model provider from now on."""

    provider_id: str
    api_type: str
    base_url: str
    headers: Annotated[Mapping[str, str], STRICT] = {}


class SetProviderResponse(Wire, frozen=True, kw_only=True):
    """The provider is set."""


class DisableProviderRequest(Wire, frozen=True, kw_only=True):
    """`providers/disable`: stop using a model provider."""

    provider_id: str


class DisableProviderResponse(Wire, frozen=True, kw_only=True):
    """The provider is no longer used."""


class AuthState(StrEnum):
    """The known states of a login; other values may come."""

    AUTHENTICATED = "authenticated"
    UNAUTHENTICATED = "unauthenticated"
    NOT_REQUIRED = "not_required"
    UNKNOWN = "unknown"


class AuthAccount(Wire, frozen=True, kw_only=True):
    """An account that is logged in."""

    label: str
    active: bool | None = None
    name: str | None = None
    email: str | None = None
    organization: str | None = None


class AuthStatusRequest(Wire, frozen=True, kw_only=True):
    """`auth/status`: ask whether the agent is logged in."""


class AuthStatusResponse(Wire, frozen=True, kw_only=True):
    """Whether the agent is logged in, and to which account."""

    state: str
    accounts: Sequence[AuthAccount] = []


class AuthStatusUpdateNotification(Wire, frozen=True, kw_only=True):
    """`auth/status_update`: the login status changed."""

    state: str
    accounts: Sequence[AuthAccount] = []


class MessageMcpRequest(Wire, frozen=True, kw_only=True):
    """`mcp/message` as a request: the agent sends an MCP request to a server of the client."""

    server_id: str
    request_id: str
    method: str
    params: Annotated[dict[str, Any] | None, STRICT] = None


class McpError(Wire, frozen=True, kw_only=True):
    """The error in an MCP server's response."""

    code: int
    message: str
    data: Any = None


class MessageMcpResponse(Wire, frozen=True, kw_only=True):
    """The MCP server's response: a result, which may be None but not UNSET, or an error."""

    result: Any = UNSET
    error: Annotated[McpError | None, STRICT] = None

    def __post_init__(self) -> None:
        if self.result is UNSET and self.error is None:
            raise ValueError("an MCP response needs a `result` or an `error`")


class MessageMcpNotification(Wire, frozen=True, kw_only=True):
    """`mcp/message` as a notification: the server reports something about an open request."""

    server_id: str
    request_id: str
    method: str
    params: Annotated[dict[str, Any] | None, STRICT] = None


class ProxySuccessorRequest(Wire, frozen=True, kw_only=True):
    """`proxy/successor` as a request: a request passed along a chain; the response is passed
    back unchanged."""

    method: str
    params: Any = None


class ProxySuccessorNotification(Wire, frozen=True, kw_only=True):
    """`proxy/successor` as a notification: a notification passed along a chain."""

    method: str
    params: Any = None


analyse(__name__)
