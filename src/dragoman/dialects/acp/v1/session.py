"""Sessions: create, load, resume, list, close, delete, prompt and cancel.

Defines the params and results of the `session/…` methods that clients call, and the types of a
session's MCP servers, modes and options. What the agent reports is in `updates`; its permission
requests are in `content`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1.content import ContentBlock
from dragoman.dialects.acp.v1.shape import (
    FORGIVING,
    META,
    NULL_IS_EMPTY,
    STRICT,
    UNKNOWN_TAG,
    Family,
    Unknown,
    Wire,
    ours_in,
)


class EnvVariable(Wire, frozen=True, kw_only=True):
    """An environment variable to set for a program that is started."""

    name: str
    value: str


class HttpHeader(Wire, frozen=True, kw_only=True):
    """A header that is sent with every request to an MCP server."""

    name: str
    value: str


class McpServerFamily(Family):
    """The kinds of MCP servers, distinguished by `type`; those without it are programs to start.

    A server of unknown type is never treated as a program, whatever fields it has.
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
    """A server reached over HTTP; needs `mcpCapabilities.http`."""

    name: str
    url: str
    headers: Annotated[Sequence[HttpHeader], NULL_IS_EMPTY]


class McpServerSse(Wire, McpServerFamily, frozen=True, kw_only=True, tag_field="type", tag="sse"):
    """A server reached over server-sent events; needs `mcpCapabilities.sse`."""

    name: str
    url: str
    headers: Annotated[Sequence[HttpHeader], NULL_IS_EMPTY]


class UnknownMcpServer(Unknown, McpServerFamily, frozen=True):
    """A server of a type this version does not know."""


if TYPE_CHECKING:
    McpServer: TypeAlias = McpServerStdio | McpServerHttp | McpServerSse | UnknownMcpServer
else:
    McpServer = McpServerFamily


class SessionMode(Wire, frozen=True, kw_only=True):
    """One mode a session can be in."""

    id: str
    name: str
    description: str | None = None


class SessionModeState(Wire, frozen=True, kw_only=True):
    """The modes of a session and the current one."""

    current_mode_id: str
    available_modes: Annotated[Sequence[SessionMode], FORGIVING]


class SessionConfigOptionCategory(StrEnum):
    """The known purposes of an option, a hint for presentation; other values may come."""

    MODE = "mode"
    MODEL = "model"
    MODEL_CONFIG = "model_config"
    THOUGHT_LEVEL = "thought_level"


class SessionConfigSelectEntry(Family):
    """An entry of a select: one choice, or a named group of choices."""

    __slots__ = ()

    @staticmethod
    def member(raw: dict[str, Any]) -> type[Wire]:
        return SessionConfigSelectGroup if "group" in raw else SessionConfigSelectOption


class SessionConfigSelectOption(Wire, SessionConfigSelectEntry, frozen=True, kw_only=True):
    """One choice of a select."""

    value: str
    name: str
    description: str | None = None


class SessionConfigSelectGroup(Wire, SessionConfigSelectEntry, frozen=True, kw_only=True):
    """A named group of a select's choices."""

    group: str
    name: str
    options: Annotated[Sequence[SessionConfigSelectOption], FORGIVING]


if TYPE_CHECKING:
    SessionConfigSelectOptions: TypeAlias = (
        Sequence[SessionConfigSelectOption] | Sequence[SessionConfigSelectGroup]
    )
else:
    SessionConfigSelectOptions = Sequence[SessionConfigSelectEntry]


class SessionConfigSelect(Wire, frozen=True, kw_only=True, tag_field="type", tag="select"):
    """An option with a list of choices, flat or in groups."""

    id: str
    name: str
    current_value: str
    options: SessionConfigSelectOptions
    description: str | None = None
    category: str | None = None


OPEN_ENDED: dict[str, Any] = {"dragoman": {"openEnded": True}}
"""The `_meta` of a select that accepts values not in its list, such as the models of a provider
that the agent cannot list. The protocol has no field for this."""


def listed_values(option: SessionConfigSelect) -> list[str]:
    """Return the values that a select lists, including those in groups."""
    values: list[str] = []
    for entry in option.options:
        if isinstance(entry, SessionConfigSelectGroup):
            values.extend(choice.value for choice in entry.options)
        else:
            values.append(entry.value)
    return values


def is_open_ended(option: SessionConfigSelect) -> bool:
    """Return whether a select says that it accepts values not in its list."""
    ours = (option.meta or {}).get("dragoman")
    return isinstance(ours, dict) and ours.get("openEnded") is True


class SessionConfigBoolean(Wire, frozen=True, kw_only=True, tag_field="type", tag="boolean"):
    """A boolean option, for clients that advertise `session.configOptions.boolean`."""

    id: str
    name: str
    current_value: bool
    description: str | None = None
    category: str | None = None


class UnknownConfigOption(Unknown, frozen=True, tag_field="type", tag=UNKNOWN_TAG):
    """An option of a type this version does not know; a client omits it."""


SessionConfigOption: TypeAlias = SessionConfigSelect | SessionConfigBoolean | UnknownConfigOption


class SetSessionModeRequest(Wire, frozen=True, kw_only=True):
    """`session/set_mode`: change the mode, even during a turn."""

    session_id: str
    mode_id: str


class SetSessionModeResponse(Wire, frozen=True, kw_only=True):
    """The mode is set."""


class SetSessionConfigOptionRequest(Wire, frozen=True, kw_only=True):
    """`session/set_config_option`: set an option to a choice's value, or to a boolean.

    The protocol requires `type` with a boolean; it is filled in if missing.
    """

    session_id: str
    config_id: str
    value: str | bool
    type: str | None = None

    def __post_init__(self) -> None:
        if self.type is None and isinstance(self.value, bool):
            msgspec.structs.force_setattr(self, "type", "boolean")


class SetSessionConfigOptionResponse(Wire, frozen=True, kw_only=True):
    """The current state of all options, since one change may affect others."""

    config_options: Annotated[Sequence[SessionConfigOption], FORGIVING]


# The models of a session were removed from the schema. They are read because agents still send
# them.


class ModelInfo(Wire, frozen=True, kw_only=True):
    """One model a session can use."""

    model_id: str
    name: str
    description: str | None = None


class SessionModelState(Wire, frozen=True, kw_only=True):
    """The models of a session and the current one."""

    current_model_id: str
    available_models: Annotated[Sequence[ModelInfo], FORGIVING]


class SetSessionModelRequest(Wire, frozen=True, kw_only=True):
    """`session/set_model`: change the model."""

    session_id: str
    model_id: str


class SetSessionModelResponse(Wire, frozen=True, kw_only=True):
    """The model is set, or the agent did not check it: several accept any id."""


class NewSessionRequest(Wire, frozen=True, kw_only=True):
    """`session/new`: create a session. Paths are absolute; `mcp_servers` is required, even if
    empty."""

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
    """`session/load`: reopen a session; its history is replayed as updates."""

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
    """`session/resume`: reopen a session without a replay."""

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
    """`session/list`: request one page; `cursor` is the previous page's `next_cursor`."""

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
    """`session/close`: stop a session's work and free its resources."""

    session_id: str


class CloseSessionResponse(Wire, frozen=True, kw_only=True):
    """The session is closed."""


class DeleteSessionRequest(Wire, frozen=True, kw_only=True):
    """`session/delete`: remove a session from the list for good."""

    session_id: str


class DeleteSessionResponse(Wire, frozen=True, kw_only=True):
    """The session is deleted, or did not exist."""


class StopReason(StrEnum):
    """The known reasons for the end of a turn; other values may come."""

    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_TURN_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"


class PromptRequest(Wire, frozen=True, kw_only=True):
    """`session/prompt`: begins a turn; the response ends it."""

    session_id: str
    prompt: Sequence[ContentBlock]


class PromptResponse(Wire, frozen=True, kw_only=True):
    """The response to `session/prompt`: why the turn ended."""

    stop_reason: str


class CancelNotification(Wire, frozen=True, kw_only=True):
    """`session/cancel`: end the turn; the prompt still gets a response."""

    session_id: str


class CancelRequestNotification(Wire, frozen=True, kw_only=True):
    """`$/cancel_request`: the sender no longer needs the response to one of its requests."""

    request_id: int | str | None


def listed_meta(created_at: str | None, status: str | None) -> dict[str, Any] | None:
    """Return the `_meta` of a listed session, for values that have no field in the protocol."""
    told = {"createdAt": created_at, "status": status}
    known = {name: value for name, value in told.items() if value is not None}
    return {META: known} if known else None


def listed_in(meta: Any) -> tuple[str | None, str | None]:
    """Return the creation time and the status of a listed session, from its `_meta`; None if
    absent."""
    ours = ours_in(meta)
    created_at, status = ours.get("createdAt"), ours.get("status")
    return (
        created_at if isinstance(created_at, str) else None,
        status if isinstance(status, str) else None,
    )


analyse(__name__)
