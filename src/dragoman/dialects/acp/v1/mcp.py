"""The MCP servers that a client hands to an agent.

Owns the descriptors only. It does not know how a server is started or reached: that is the
agent's business.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from dragoman.dialects.acp.v1.shape import NULL_IS_EMPTY, Family, Unknown, Wire


class EnvVariable(Wire, frozen=True, kw_only=True):
    """An environment variable."""

    name: str
    value: str


class HttpHeader(Wire, frozen=True, kw_only=True):
    """A header of every request to a server."""

    name: str
    value: str


class McpServerFamily(Family):
    """The kinds of MCP servers, told apart by `type`; without one it is a program to start.

    A server of an unknown type is never taken for a program, whatever fields it has.
    """

    __slots__ = ()

    @staticmethod
    def member(raw: dict[str, Any]) -> type[Wire] | type[Unknown]:
        kind = raw.get("type", "stdio")
        if kind == "http":
            return McpServerHttp
        if kind == "sse":
            return McpServerSse
        return McpServerStdio if kind == "stdio" else UnknownMcpServer


class McpServerStdio(Wire, McpServerFamily, frozen=True, kw_only=True):
    """A program to start. It has no `type` on the wire; every agent supports it."""

    name: str
    command: str
    args: Annotated[Sequence[str], NULL_IS_EMPTY]
    env: Annotated[Sequence[EnvVariable], NULL_IS_EMPTY]


class McpServerHttp(Wire, McpServerFamily, frozen=True, kw_only=True, tag_field="type", tag="http"):
    """A server behind HTTP; needs `mcpCapabilities.http`."""

    name: str
    url: str
    headers: Annotated[Sequence[HttpHeader], NULL_IS_EMPTY]


class McpServerSse(Wire, McpServerFamily, frozen=True, kw_only=True, tag_field="type", tag="sse"):
    """A server behind server-sent events; needs `mcpCapabilities.sse`."""

    name: str
    url: str
    headers: Annotated[Sequence[HttpHeader], NULL_IS_EMPTY]


class UnknownMcpServer(Unknown, McpServerFamily, frozen=True):
    """A server of a type this version does not know."""


if TYPE_CHECKING:
    McpServer: TypeAlias = McpServerStdio | McpServerHttp | McpServerSse | UnknownMcpServer
else:
    McpServer = McpServerFamily
