"""Session methods that are not stable yet, and the wider forms of stable ones.

Defines forking, archiving, titles, status, system prompts, MCP servers behind this connection, and
the token usage of a turn. The protocol does not say whether the usage covers the turn or the
session so far; agents differ.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1 import session
from dragoman.dialects.acp.v1.content import ContentBlock
from dragoman.dialects.acp.v1.session import (
    SessionConfigOption,
    SessionModelState,
    SessionModeState,
)
from dragoman.dialects.acp.v1.shape import FORGIVING, NULL_IS_EMPTY, STRICT, Unknown, Wire


class McpServerFamily(session.McpServerFamily):
    """The kinds of MCP servers: the stable ones and one more."""

    __slots__ = ()

    @staticmethod
    def member(raw: dict[str, Any]) -> type[Wire] | type[Unknown]:
        return McpServerAcp if raw.get("type") == "acp" else session.McpServerFamily.member(raw)


class McpServerAcp(Wire, McpServerFamily, frozen=True, kw_only=True, tag_field="type", tag="acp"):
    """A server that the client runs and the agent reaches with `mcp/message`."""

    name: str
    server_id: str


if TYPE_CHECKING:
    McpServer: TypeAlias = session.McpServer | McpServerAcp
else:
    McpServer = McpServerFamily


class SystemPromptMode(StrEnum):
    """The known ways of using a system prompt; other values may come."""

    APPEND = "append"
    OVERRIDE = "override"


class SystemPrompt(Wire, frozen=True, kw_only=True):
    """Instructions for the whole session."""

    mode: str
    content: Sequence[ContentBlock]


# The requests below accept more than their stable forms, which a type checker does not allow in a
# subclass; a handler for the stable form still handles every server it knows.


class NewSessionRequest(session.NewSessionRequest, frozen=True, kw_only=True):
    """`session/new`, with a system prompt and MCP servers that the client runs."""

    mcp_servers: Annotated[Sequence[McpServer], NULL_IS_EMPTY]  # type: ignore[assignment]
    system_prompt: Annotated[SystemPrompt | None, STRICT] = None


class LoadSessionRequest(session.LoadSessionRequest, frozen=True, kw_only=True):
    """`session/load`, with a system prompt and MCP servers that the client runs."""

    mcp_servers: Annotated[Sequence[McpServer], NULL_IS_EMPTY]  # type: ignore[assignment]
    system_prompt: Annotated[SystemPrompt | None, STRICT] = None


class ResumeSessionRequest(session.ResumeSessionRequest, frozen=True, kw_only=True):
    """`session/resume`, with a system prompt and MCP servers that the client runs."""

    mcp_servers: Annotated[Sequence[McpServer], STRICT] = []  # type: ignore[assignment]
    system_prompt: Annotated[SystemPrompt | None, STRICT] = None


class ForkSessionRequest(Wire, frozen=True, kw_only=True):
    """`session/fork`: a new session that begins with the history of another."""

    session_id: str
    cwd: str
    mcp_servers: Annotated[Sequence[McpServer], STRICT] = []
    additional_directories: Annotated[Sequence[str], STRICT] = []
    system_prompt: Annotated[SystemPrompt | None, STRICT] = None


class ForkSessionResponse(Wire, frozen=True, kw_only=True):
    """The new session."""

    session_id: str
    modes: SessionModeState | None = None
    config_options: Sequence[SessionConfigOption] | None = None
    models: SessionModelState | None = None


class SessionArchiveFilter(StrEnum):
    """The known ways to treat archived sessions in a list; other values may come."""

    EXCLUDE = "exclude"
    INCLUDE = "include"
    ONLY = "only"


class ListSessionsRequest(session.ListSessionsRequest, frozen=True, kw_only=True):
    """`session/list`, with a filter for archived sessions."""

    archived: Annotated[str | None, STRICT] = None


class SessionInfo(session.SessionInfo, frozen=True, kw_only=True):
    """A session in the list, and whether it is archived."""

    archived: bool | None = None


class ListSessionsResponse(session.ListSessionsResponse, frozen=True, kw_only=True):
    """A page of sessions, which may include archived ones."""

    sessions: Annotated[Sequence[SessionInfo], FORGIVING]


class ArchiveSessionRequest(Wire, frozen=True, kw_only=True):
    """`session/archive`: keep a session, but hide it from the default list."""

    session_id: str


class ArchiveSessionResponse(Wire, frozen=True, kw_only=True):
    """The session is archived."""


class UnarchiveSessionRequest(Wire, frozen=True, kw_only=True):
    """`session/unarchive`: return a session to the default list."""

    session_id: str


class UnarchiveSessionResponse(Wire, frozen=True, kw_only=True):
    """The session is in the default list."""


class SessionStatus(StrEnum):
    """The known states of a session stored by the agent; other values may come."""

    OPEN = "open"
    SAVED = "saved"


class SessionStatusRequest(Wire, frozen=True, kw_only=True):
    """`session/status`: ask whether a session is open."""

    session_id: str


class SessionStatusResponse(Wire, frozen=True, kw_only=True):
    """Whether the session is open or only saved."""

    status: str


class SetSessionTitleRequest(Wire, frozen=True, kw_only=True):
    """`session/set_title`: change the title of a session."""

    session_id: str
    title: str


class SetSessionTitleResponse(Wire, frozen=True, kw_only=True):
    """The title as the agent stored it."""

    title: str


class Usage(Wire, frozen=True, kw_only=True):
    """Numbers of tokens used, in the turn or in the session so far: agents differ."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    thought_tokens: int | None = None
    cached_read_tokens: int | None = None
    cached_write_tokens: int | None = None


class PromptResponse(session.PromptResponse, frozen=True, kw_only=True):
    """The response to `session/prompt`: why the turn ended, and the tokens used."""

    usage: Usage | None = None


analyse(__name__)
