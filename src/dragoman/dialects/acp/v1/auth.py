"""Authentication: the methods an agent offers, and the requests that use them.

Owns the descriptors and `authenticate` and `logout`. It does not know how a login is carried out.
A method without a `type`, or with one that is not known, is one that the agent carries out itself;
that is the protocol's rule.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from dragoman.dialects.acp.v1.legacy import AuthEnvVar
from dragoman.dialects.acp.v1.shape import STRICT, Family, Supported, Wire


class AuthMethodFamily(Family):
    """The kinds of authentication methods, told apart by `type`."""

    __slots__ = ()

    @staticmethod
    def member(raw: dict[str, Any]) -> type[Wire]:
        kind = raw.get("type")
        if kind == "terminal":
            return AuthMethodTerminal
        return AuthMethodEnvVar if kind == "env_var" else AuthMethodAgent


class AuthMethodAgent(Wire, AuthMethodFamily, frozen=True, kw_only=True):
    """The agent logs in by itself when `authenticate` is called."""

    id: str
    name: str
    description: str | None = None


class AuthMethodTerminal(
    Wire, AuthMethodFamily, frozen=True, kw_only=True, tag_field="type", tag="terminal"
):
    """The client runs the agent's own program in a terminal with these arguments and variables.

    Its id is never passed to `authenticate`.
    """

    id: str
    name: str
    description: str | None = None
    args: Annotated[Sequence[str], STRICT] = []
    env: Annotated[Mapping[str, str], STRICT] = {}


class AuthMethodEnvVar(
    Wire, AuthMethodFamily, frozen=True, kw_only=True, tag_field="type", tag="env_var"
):
    """Variables must be set before the agent starts. No schema has it any more; agents send it."""

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
    """Logged in."""


class LogoutRequest(Wire, frozen=True, kw_only=True):
    """`logout`: forget the login; needs `agentCapabilities.auth.logout`."""


class LogoutResponse(Wire, frozen=True, kw_only=True):
    """Logged out; new sessions need a login again."""


class AgentAuthCapabilities(Wire, frozen=True, kw_only=True):
    """What the agent offers around authentication."""

    logout: Supported | None = None


class AuthCapabilities(Wire, frozen=True, kw_only=True):
    """What the client offers around authentication."""

    terminal: bool = False
