"""Messages of the app-server that dragoman decodes and encodes.

The types keep the protocol's own names. Unused fields are omitted: the server adds new ones with
every version, and the raw message is kept anyway. Messages that end a turn have the fewest required
fields, because a turn whose end cannot be decoded would never end.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, field

from dragoman.dialects import analyse


class Shape(Struct, rename="camel", gc=False):
    """Base class of the app-server's messages: wire names in camelCase, unknown fields ignored."""


# -- handshake and account


class InitializeResponse(Shape):
    user_agent: str
    codex_home: str | None = None
    platform_family: str | None = None
    platform_os: str | None = None


class GetAccountResponse(Shape):
    requires_openai_auth: bool
    account: Any = None


class RateLimitWindow(Shape):
    used_percent: float
    window_duration_mins: int | None = None
    resets_at: int | None = None


class RateLimitSnapshot(Shape):
    limit_id: str | None = None
    limit_name: str | None = None
    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None
    rate_limit_reached_type: str | None = None


class AccountRateLimitsUpdated(Shape):
    rate_limits: RateLimitSnapshot


class GetAccountRateLimitsResponse(Shape):
    rate_limits: RateLimitSnapshot
    rate_limits_by_limit_id: dict[str, RateLimitSnapshot] | None = None


class Model(Shape):
    id: str
    model: str
    display_name: str
    description: str = ""
    hidden: bool = False
    is_default: bool = False


class ModelListResponse(Shape):
    data: list[Model]
    next_cursor: str | None = None


# -- threads and turns


class FileUpdateChange(Shape):
    path: str
    kind: Any
    diff: str


class Item(Shape):
    """Any item of a turn: the fields of all kinds together, distinguished by `type`."""

    type: str
    id: str
    text: str | None = None
    content: Any = None
    summary: list[str] | None = None
    phase: str | None = None
    command: str | None = None
    command_actions: list[dict[str, Any]] | None = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    status: str | None = None
    changes: list[FileUpdateChange] | None = None
    server: str | None = None
    tool: str | None = None
    arguments: Any = None
    result: Any = None
    error: Any = None
    query: str | None = None
    path: str | None = None
    review: str | None = None


class TurnOutline(Shape):
    """A turn without its items, which are sent one by one anyway."""

    id: str
    status: str = ""
    error: Any = None


class Turn(TurnOutline):
    items: list[Raw] = field(default_factory=list)
    """Decoded one by one: a new kind of item must not make a whole history unreadable."""


class Thread(Shape):
    id: str
    cwd: str | None = None
    name: str | None = None
    preview: str = ""
    created_at: int | None = None
    updated_at: int | None = None
    forked_from_id: str | None = None
    model: str | None = None
    turns: list[Turn] = field(default_factory=list)


class ThreadResponse(Shape):
    """The response to starting, resuming and forking a thread, with the settings in force."""

    thread: Thread
    model: str
    cwd: str
    approval_policy: Any
    sandbox: Any
    model_provider: str | None = None


class ThreadListResponse(Shape):
    data: list[Thread]
    next_cursor: str | None = None


class ThreadReadResponse(Shape):
    thread: Thread


class TurnStartResponse(Shape):
    turn: TurnOutline


class TurnSteerResponse(Shape):
    turn_id: str


# -- notifications


class Scope(Shape):
    """The thread and turn that a message belongs to, if it names them."""

    thread_id: str | None = None
    turn_id: str | None = None


class ThreadScoped(Shape):
    """Base class of messages that name their thread."""

    thread_id: str


class TurnScoped(ThreadScoped):
    """Base class of messages that name their thread and their turn."""

    turn_id: str


class TurnNotification(ThreadScoped):
    turn: TurnOutline


class ItemNotification(TurnScoped):
    item: Item


class ItemDelta(TurnScoped):
    item_id: str
    delta: str


class SummaryTextDelta(ItemDelta):
    summary_index: int


class SummaryPartAdded(TurnScoped):
    item_id: str
    summary_index: int


class ReasoningTextDelta(ItemDelta):
    content_index: int


class PatchUpdated(TurnScoped):
    item_id: str
    changes: list[FileUpdateChange]


class TerminalInteraction(TurnScoped):
    item_id: str
    stdin: str


class McpToolCallProgress(TurnScoped):
    item_id: str
    message: str


class TurnPlanStep(Shape):
    step: str
    status: str


class TurnPlanUpdated(TurnScoped):
    plan: list[TurnPlanStep]
    explanation: str | None = None


class TurnDiffUpdated(TurnScoped):
    diff: str


class TokenUsageBreakdown(Shape):
    total_tokens: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    reasoning_output_tokens: int
    cache_write_input_tokens: int = 0


class ThreadTokenUsage(Shape):
    total: TokenUsageBreakdown
    last: TokenUsageBreakdown
    model_context_window: int | None = None


class ThreadTokenUsageUpdated(TurnScoped):
    token_usage: ThreadTokenUsage


class ThreadStatus(Shape):
    type: str
    active_flags: list[str] = field(default_factory=list)


class ThreadStatusChanged(ThreadScoped):
    status: ThreadStatus


class ThreadNameUpdated(ThreadScoped):
    thread_name: str | None = None


class ThreadNotification(Shape):
    thread: Thread


class ThreadSettings(Shape):
    model: str
    approval_policy: Any
    sandbox_policy: Any


class ThreadSettingsUpdated(ThreadScoped):
    thread_settings: ThreadSettings


class ErrorNotification(TurnScoped):
    error: Any
    will_retry: bool


class Warning(Shape):
    message: str
    thread_id: str | None = None


class ConfigWarning(Shape):
    summary: str
    details: str | None = None


class ModelRerouted(TurnScoped):
    from_model: str
    to_model: str


class ServerRequestResolved(ThreadScoped):
    request_id: int | str


class AccountUpdated(Shape):
    auth_mode: Any = None


class AccountLoginCompleted(Shape):
    success: bool
    error: str | None = None


# -- requests from the server


class CommandApproval(TurnScoped):
    item_id: str
    command: str | None = None
    command_actions: list[dict[str, Any]] | None = None
    cwd: str | None = None
    reason: str | None = None
    available_decisions: list[Any] | None = None
    """The decisions that the server accepts. Not in the schema, although the server sends it."""


class FileChangeApproval(TurnScoped):
    item_id: str
    reason: str | None = None
    grant_root: str | None = None


class PermissionsApproval(TurnScoped):
    item_id: str
    permissions: Any
    reason: str | None = None


class UserInputRequest(TurnScoped):
    item_id: str
    questions: list[dict[str, Any]]


class ElicitationRequest(ThreadScoped):
    server_name: str
    turn_id: str | None = None
    mode: str | None = None
    message: str = ""
    requested_schema: Any = None
    url: str | None = None
    elicitation_id: str | None = None
    meta: Any = field(name="_meta", default=None)


class LegacyApproval(Shape):
    conversation_id: str
    call_id: str
    command: Any = None
    file_changes: Any = None
    cwd: str | None = None
    reason: str | None = None


analyse(__name__)
