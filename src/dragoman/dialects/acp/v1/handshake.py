"""The handshake: versions, names and capabilities of both sides.

Owns `initialize` and every capability object. It does not know what a capability permits: the
gates in `methods` do. An absent capability is an unsupported one, and a malformed one counts as
absent, so that no capability can make the handshake fail.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import field

from dragoman.dialects.acp.v1.auth import AgentAuthCapabilities, AuthCapabilities, AuthMethod
from dragoman.dialects.acp.v1.shape import Supported, Wire

PROTOCOL_VERSION: Final = 1


class Implementation(Wire, frozen=True, kw_only=True):
    """The name and version of a program; `title` is for people."""

    name: str
    version: str
    title: str | None = None


class FileSystemCapabilities(Wire, frozen=True, kw_only=True):
    """Which of the client's file methods may be called."""

    read_text_file: bool = False
    write_text_file: bool = False


class SessionConfigOptionsCapabilities(Wire, frozen=True, kw_only=True):
    """Which types of configuration options beyond selects the client can show."""

    boolean: Supported | None = None


class ClientSessionCapabilities(Wire, frozen=True, kw_only=True):
    """Which session updates beyond the baseline the client understands."""

    compaction: Supported | None = None
    config_options: SessionConfigOptionsCapabilities | None = None
    notices: Supported | None = None


class ElicitationCapabilities(Wire, frozen=True, kw_only=True):
    """In which ways the client can ask its user; without `form` and `url`, in none."""

    form: Supported | None = None
    url: Supported | None = None


class ClientCapabilities(Wire, frozen=True, kw_only=True):
    """What the client offers."""

    fs: FileSystemCapabilities = field(default_factory=FileSystemCapabilities)
    terminal: bool = False
    session: ClientSessionCapabilities | None = None
    auth: AuthCapabilities = field(default_factory=AuthCapabilities)
    elicitation: ElicitationCapabilities | None = None


class PromptCapabilities(Wire, frozen=True, kw_only=True):
    """Which content blocks beyond text and resource links a prompt may have."""

    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class McpCapabilities(Wire, frozen=True, kw_only=True):
    """How the agent can reach MCP servers, besides starting them."""

    http: bool = False
    sse: bool = False


class SessionCapabilities(Wire, frozen=True, kw_only=True):
    """Which session methods beyond the baseline the agent has."""

    list: Supported | None = None
    delete: Supported | None = None
    additional_directories: Supported | None = None
    resume: Supported | None = None
    close: Supported | None = None


class AgentCapabilities(Wire, frozen=True, kw_only=True):
    """What the agent offers."""

    load_session: bool = False
    prompt_capabilities: PromptCapabilities = field(default_factory=PromptCapabilities)
    mcp_capabilities: McpCapabilities = field(default_factory=McpCapabilities)
    session_capabilities: SessionCapabilities = field(default_factory=SessionCapabilities)
    auth: AgentAuthCapabilities = field(default_factory=AgentAuthCapabilities)


class InitializeRequest(Wire, frozen=True, kw_only=True):
    """`initialize`: the first request, with the newest version the client speaks."""

    protocol_version: int
    client_capabilities: ClientCapabilities = field(default_factory=ClientCapabilities)
    client_info: Implementation | None = None


def version_note(client: InitializeRequest) -> str | None:
    """What to log about a client that asked for a newer version than ours. It is answered with
    ours, as the protocol wants it, and one that speaks no other than its own then goes away."""
    if client.protocol_version <= PROTOCOL_VERSION:
        return None
    who = client.client_info.name if client.client_info is not None else "the client"
    return (
        f"{who} asked for ACP version {client.protocol_version} and got version "
        f"{PROTOCOL_VERSION}, the one that dragoman speaks; a client that speaks only the newer "
        "one needs a newer dragoman"
    )


class InitializeResponse(Wire, frozen=True, kw_only=True):
    """The version both will speak: the client's if the agent has it, else the agent's newest."""

    protocol_version: int
    agent_capabilities: AgentCapabilities = field(default_factory=AgentCapabilities)
    auth_methods: Sequence[AuthMethod] = []
    agent_info: Implementation | None = None
