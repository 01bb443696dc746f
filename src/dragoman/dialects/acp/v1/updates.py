"""Session updates: what an agent reports while it works (`session/update`).

Defines the union `SessionUpdate`, distinguished by `sessionUpdate`, and the types only it uses. A
message chunk is the most common message of the protocol, so these types are flat: decoding one is a
single pass. Other packages fold the updates.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, UnsetType

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1.content import (
    ContentBlock,
    TextContent,
    ToolCallContent,
    ToolCallLocation,
    ToolCallUpdate,
)
from dragoman.dialects.acp.v1.session import SessionConfigOption
from dragoman.dialects.acp.v1.shape import FORGIVING, UNKNOWN_TAG, Alias, Unknown, Wire


class ContentChunk(Wire, frozen=True, kw_only=True):
    """A chunk of a message; chunks with the same `message_id` belong together."""

    content: ContentBlock
    message_id: str | None = None


class UserMessageChunk(
    ContentChunk, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="user_message_chunk"
):
    """A chunk of a user message, mostly in a replay."""


class AgentMessageChunk(
    ContentChunk, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="agent_message_chunk"
):
    """A chunk of the agent's answer."""


class AgentThoughtChunk(
    ContentChunk, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="agent_thought_chunk"
):
    """A chunk of the agent's reasoning."""


class ToolCall(Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call"):
    """A tool call begins. Without `status` it is pending, without `kind` it is "other"."""

    tool_call_id: str
    title: str
    name: str | None = None
    kind: str | None = None
    status: str | None = None
    content: Sequence[ToolCallContent] | None = None
    locations: Sequence[ToolCallLocation] | None = None
    raw_input: Any = None
    raw_output: Any = None


class ToolCallProgress(
    ToolCallUpdate, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call_update"
):
    """A tool call changed; agents also send it for calls that were never announced."""


class PlanEntryPriority(StrEnum):
    """The known priorities of a plan entry; other values are possible."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class PlanEntryStatus(StrEnum):
    """The known states of a plan entry; other values are possible."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class PlanEntry(Wire, frozen=True, kw_only=True):
    """One task in the agent's plan."""

    content: str
    priority: str
    status: str


class Plan(Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="plan"):
    """The whole plan; it replaces the previous one."""

    entries: Annotated[Sequence[PlanEntry], FORGIVING]


class UnstructuredCommandInput(Wire, frozen=True, kw_only=True):
    """The command takes the text after its name; `hint` says what to write there."""

    hint: str


class AvailableCommand(Wire, frozen=True, kw_only=True):
    """A command that may begin a prompt, after a slash."""

    name: str
    description: str
    input: UnstructuredCommandInput | None = None


def command(name: str, *, description: str, hint: str | None) -> AvailableCommand:
    """Return a command; it takes text if it has a hint."""
    taken = None if hint is None else UnstructuredCommandInput(hint=hint)
    return AvailableCommand(name=name, description=description, input=taken)


class AvailableCommandsUpdate(
    Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="available_commands_update"
):
    """The complete list of commands, which replaces the previous one."""

    available_commands: Annotated[Sequence[AvailableCommand], FORGIVING]


class CurrentModeUpdate(
    Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="current_mode_update"
):
    """The mode changed. Some agents call the field `modeId`, as an example in the specification
    did."""

    current_mode_id: Annotated[str, Alias("modeId")]


class ConfigOptionUpdate(
    Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="config_option_update"
):
    """The current state of all options, which replaces the previous one."""

    config_options: Annotated[Sequence[SessionConfigOption], FORGIVING]


class SessionInfoUpdate(
    Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="session_info_update"
):
    """Changes to the session's description: UNSET leaves a value unchanged, None clears it."""

    title: str | None | UnsetType = UNSET
    updated_at: str | None | UnsetType = UNSET


class Cost(Wire, frozen=True, kw_only=True):
    """What the session has cost so far. The currency may be a unit such as "credits"."""

    amount: float
    currency: str


class UsageUpdate(Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="usage_update"):
    """How full the context is: `used` of `size` tokens."""

    used: int
    size: int
    cost: Cost | None = None


class NoticeSeverity(StrEnum):
    """The known levels of a notice; other values may come."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Notice(Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="notice"):
    """Something the user should see now; only for clients that advertise `session.notices`."""

    severity: str
    title: str
    description: str | None = None


class CompactionStatus(StrEnum):
    """The known states of a compaction; other values may come."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class CompactionUpdate(
    Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="compaction_update"
):
    """The context is being compacted; only for clients that advertise `session.compaction`.

    `summary` and `error` patch earlier values: UNSET leaves a value unchanged, None clears it.
    """

    compaction_id: str
    status: str
    summary: Sequence[ContentBlock] | None | UnsetType = UNSET
    error: str | None | UnsetType = UNSET


class CompactionSummaryChunk(
    Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="compaction_summary_chunk"
):
    """A chunk of a compaction's summary, to be appended."""

    compaction_id: str
    content: ContentBlock


class UnknownUpdate(Unknown, frozen=True, tag_field="sessionUpdate", tag=UNKNOWN_TAG):
    """An update of a kind this version does not know."""


SessionUpdate: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCall
    | ToolCallProgress
    | Plan
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
    | Notice
    | CompactionUpdate
    | CompactionSummaryChunk
    | UnknownUpdate
)


class SessionNotification(Wire, frozen=True, kw_only=True):
    """`session/update`: one thing that happened in a session."""

    session_id: str
    update: SessionUpdate


def agent_text(session_id: str, value: str) -> SessionNotification:
    """Return the update that carries a chunk of the agent's answer."""
    return SessionNotification(
        session_id=session_id, update=AgentMessageChunk(content=TextContent(text=value))
    )


analyse(__name__)
