"""The handshake: versions, names and capabilities of both sides, and authentication.

Defines `initialize`, `authenticate`, `logout` and every capability object. What a capability
permits is defined by the gates in `methods`. An absent capability is unsupported, and a malformed
one counts as absent, so that no capability can make the handshake fail. An authentication method
without a `type`, or with an unknown one, is carried out by the agent itself, as the protocol says.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from msgspec import field

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1.shape import STRICT, Family, Supported, Wire


class AuthMethodFamily(Family):
    """The kinds of authentication methods, distinguished by `type`."""

    __slots__ = ()

    @staticmethod
    def member(raw: dict[str, Any]) -> type[Wire]:
        kind = raw.get("type")
        if kind == "terminal":
            return AuthMethodTerminal
        return AuthMethodEnvVar if kind == "env_var" else AuthMethodAgent


class AuthMethodAgent(Wire, AuthMethodFamily, frozen=True, kw_only=True):
    """A login that the agent carries out itself when `authenticate` is called."""

    id: str
    name: str
    description: str | None = None


class AuthMethodTerminal(
    Wire, AuthMethodFamily, frozen=True, kw_only=True, tag_field="type", tag="terminal"
):
    """A login in a terminal: the client runs the agent's own program with these arguments and
    variables.

    The method's id is never passed to `authenticate`.
    """

    id: str
    name: str
    description: str | None = None
    args: Annotated[Sequence[str], STRICT] = []
    env: Annotated[Mapping[str, str], STRICT] = {}


class AuthEnvVar(Wire, frozen=True, kw_only=True):
    """An environment variable that the agent reads to log in; unless it is `optional`, it must be
    set before the agent starts."""

    name: str
    label: str | None = None
    secret: bool = True
    optional: bool = False


class AuthMethodEnvVar(
    Wire, AuthMethodFamily, frozen=True, kw_only=True, tag_field="type", tag="env_var"
):
    """A login by environment variables, which must be set before the agent starts.

    It was removed from the schema, but agents still send it.
    """

    id: str
    name: str
    vars: Sequence[AuthEnvVar] = []
    description: str | None = None
    link: str | None = None


if TYPE_CHECKING:
    AuthMethod: TypeAlias = AuthMethodAgent | AuthMethodTerminal | AuthMethodEnvVar
else:
    AuthMethod = AuthMethodFamily


class AuthenticateRequest(Wire, frozen=True, kw_only=True):
    """`authenticate`: log in with one of the methods the agent carries out."""

    method_id: str


class AuthenticateResponse(Wire, frozen=True, kw_only=True):
    """The agent is logged in."""


class LogoutRequest(Wire, frozen=True, kw_only=True):
    """`logout`: forget the login; needs `agentCapabilities.auth.logout`."""


class LogoutResponse(Wire, frozen=True, kw_only=True):
    """The agent is logged out; new sessions need a login again."""


class AgentAuthCapabilities(Wire, frozen=True, kw_only=True):
    """Whether the agent can log out."""

    logout: Supported | None = None


class AuthCapabilities(Wire, frozen=True, kw_only=True):
    """Whether the client can run a login in a terminal."""

    terminal: bool = False


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
    """Which session updates beyond the baseline the client supports."""

    compaction: Supported | None = None
    config_options: SessionConfigOptionsCapabilities | None = None
    notices: Supported | None = None


class ElicitationCapabilities(Wire, frozen=True, kw_only=True):
    """How the client can ask its user. Without `form` and `url` it cannot."""

    form: Supported | None = None
    url: Supported | None = None


class ClientCapabilities(Wire, frozen=True, kw_only=True):
    """The client's capabilities, as it reports them in `initialize`."""

    fs: FileSystemCapabilities = field(default_factory=FileSystemCapabilities)
    terminal: bool = False
    session: ClientSessionCapabilities | None = None
    auth: AuthCapabilities = field(default_factory=AuthCapabilities)
    elicitation: ElicitationCapabilities | None = None


class PromptCapabilities(Wire, frozen=True, kw_only=True):
    """Which content blocks besides text and resource links a prompt may have."""

    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class McpCapabilities(Wire, frozen=True, kw_only=True):
    """How the agent can reach MCP servers, apart from starting them."""

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
    """The agent's capabilities, as it reports them in response to `initialize`."""

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
    """Return the log message for a client that requested a newer version than ours, else None. We
    respond with ours, as the protocol requires, and a client that only speaks its own version then
    disconnects."""
    if client.protocol_version <= PROTOCOL_VERSION:
        return None
    who = client.client_info.name if client.client_info is not None else "the client"
    return (
        f"{who} asked for ACP version {client.protocol_version} and got version "
        f"{PROTOCOL_VERSION}, the one that dragoman speaks; a client that speaks only the newer "
        "one needs a newer dragoman"
    )


class InitializeResponse(Wire, frozen=True, kw_only=True):
    """The response to `initialize`.

    `protocol_version` is the client's if the agent supports it, else the agent's newest.
    """

    protocol_version: int
    agent_capabilities: AgentCapabilities = field(default_factory=AgentCapabilities)
    auth_methods: Sequence[AuthMethod] = []
    agent_info: Implementation | None = None


analyse(__name__)
