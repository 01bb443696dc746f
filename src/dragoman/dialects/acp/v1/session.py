"""Sessions: made, loaded, resumed, listed, closed, deleted, prompted and cancelled.

Owns the bodies of the `session/…` methods that clients call, except those that change modes and
options (`config`). What the agent reports meanwhile is in `updates`, what it asks in
`permissions`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from dragoman.dialects.acp.v1.config import SessionConfigOption, SessionModeState
from dragoman.dialects.acp.v1.content import ContentBlock
from dragoman.dialects.acp.v1.legacy import SessionModelState
from dragoman.dialects.acp.v1.mcp import McpServer
from dragoman.dialects.acp.v1.shape import FORGIVING, NULL_IS_EMPTY, STRICT, Wire


class NewSessionRequest(Wire, frozen=True, kw_only=True):
    """`session/new`. Paths are absolute; `mcp_servers` is required, empty or not."""

    cwd: str
    mcp_servers: Annotated[Sequence[McpServer], NULL_IS_EMPTY]
    additional_directories: Annotated[Sequence[str], STRICT] = []


class NewSessionResponse(Wire, frozen=True, kw_only=True):
    """A session with its choices. `models` is read from older agents only."""

    session_id: str
    modes: SessionModeState | None = None
    config_options: Sequence[SessionConfigOption] | None = None
    models: SessionModelState | None = None


class LoadSessionRequest(Wire, frozen=True, kw_only=True):
    """`session/load`: take up a session; its history is replayed as updates."""

    session_id: str
    cwd: str
    mcp_servers: Annotated[Sequence[McpServer], NULL_IS_EMPTY]
    additional_directories: Annotated[Sequence[str], STRICT] = []


class LoadSessionResponse(Wire, frozen=True, kw_only=True):
    """The session is loaded. `models` is read from older agents only."""

    modes: SessionModeState | None = None
    config_options: Sequence[SessionConfigOption] | None = None
    models: SessionModelState | None = None


class ResumeSessionRequest(Wire, frozen=True, kw_only=True):
    """`session/resume`: take up a session without a replay."""

    session_id: str
    cwd: str
    mcp_servers: Annotated[Sequence[McpServer], STRICT] = []
    additional_directories: Annotated[Sequence[str], STRICT] = []


class ResumeSessionResponse(Wire, frozen=True, kw_only=True):
    """The session is resumed. `models` is read from older agents only."""

    modes: SessionModeState | None = None
    config_options: Sequence[SessionConfigOption] | None = None
    models: SessionModelState | None = None


class ListSessionsRequest(Wire, frozen=True, kw_only=True):
    """`session/list`: one page; `cursor` is the previous page's `next_cursor`."""

    cwd: Annotated[str | None, STRICT] = None
    cursor: Annotated[str | None, STRICT] = None


class SessionInfo(Wire, frozen=True, kw_only=True):
    """A session in the list; `updated_at` is an ISO 8601 time."""

    session_id: str
    cwd: str
    additional_directories: Sequence[str] = []
    title: str | None = None
    updated_at: str | None = None


class ListSessionsResponse(Wire, frozen=True, kw_only=True):
    """A page of sessions; without a `next_cursor` it is the last one."""

    sessions: Annotated[Sequence[SessionInfo], FORGIVING]
    next_cursor: str | None = None


class CloseSessionRequest(Wire, frozen=True, kw_only=True):
    """`session/close`: stop its work and free what it holds."""

    session_id: str


class CloseSessionResponse(Wire, frozen=True, kw_only=True):
    """The session is closed."""


class DeleteSessionRequest(Wire, frozen=True, kw_only=True):
    """`session/delete`: take it out of the list for good."""

    session_id: str


class DeleteSessionResponse(Wire, frozen=True, kw_only=True):
    """The session is deleted, or there was none."""


class StopReason(StrEnum):
    """The known reasons for the end of a turn; other values may come."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_TURN_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"


class PromptRequest(Wire, frozen=True, kw_only=True):
    """`session/prompt`: begins a turn; the answer ends it."""

    session_id: str
    prompt: Sequence[ContentBlock]


class PromptResponse(Wire, frozen=True, kw_only=True):
    """The turn is over."""

    stop_reason: str


class CancelNotification(Wire, frozen=True, kw_only=True):
    """`session/cancel`: end the turn; the prompt is still answered."""

    session_id: str


class CancelRequestNotification(Wire, frozen=True, kw_only=True):
    """`$/cancel_request`: the sender no longer needs the answer to one of its requests."""

    request_id: int | str | None
