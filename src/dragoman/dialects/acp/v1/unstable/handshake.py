"""The handshake with the capabilities that are not stable yet.

Defines wider forms of the stable capability objects; each is a subclass of its stable type. The
features they advertise are in the other modules of this package.
"""

from msgspec import field

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1 import handshake
from dragoman.dialects.acp.v1.shape import Supported, Wire


class ClientCapabilities(handshake.ClientCapabilities, frozen=True, kw_only=True):
    """The client's capabilities, including child sessions and several plans."""

    subagents: Supported | None = None
    plan: Supported | None = None


class McpCapabilities(handshake.McpCapabilities, frozen=True, kw_only=True):
    """How the agent can reach MCP servers; `acp` means through this connection."""

    acp: bool = False


class SystemPromptModeCapabilities(Wire, frozen=True, kw_only=True):
    """What may be done to the agent's own system prompt besides appending."""

    override: Supported | None = None


class SystemPromptCapabilities(Wire, frozen=True, kw_only=True):
    """The agent accepts a system prompt from the client."""

    mode: SystemPromptModeCapabilities | None = None


class SessionCapabilities(handshake.SessionCapabilities, frozen=True, kw_only=True):
    """Which session methods beyond the baseline the agent has, including unstable ones."""

    system_prompt: SystemPromptCapabilities | None = None
    fork: Supported | None = None
    archive: Supported | None = None
    status: Supported | None = None
    title: Supported | None = None


class AgentAuthCapabilities(handshake.AgentAuthCapabilities, frozen=True, kw_only=True):
    """Whether the agent can log out, and report the login status."""

    status: Supported | None = None


class AgentCapabilities(handshake.AgentCapabilities, frozen=True, kw_only=True):
    """The agent's capabilities, including the configuration of model providers."""

    mcp_capabilities: McpCapabilities = field(default_factory=McpCapabilities)
    session_capabilities: SessionCapabilities = field(default_factory=SessionCapabilities)
    auth: AgentAuthCapabilities = field(default_factory=AgentAuthCapabilities)
    providers: Supported | None = None


class InitializeRequest(handshake.InitializeRequest, frozen=True, kw_only=True):
    """`initialize`, and `proxy/initialize`, which has the same params."""

    client_capabilities: ClientCapabilities = field(default_factory=ClientCapabilities)


class InitializeResponse(handshake.InitializeResponse, frozen=True, kw_only=True):
    """The response to `initialize`, with the agent's wider capabilities."""

    agent_capabilities: AgentCapabilities = field(default_factory=AgentCapabilities)


analyse(__name__)
