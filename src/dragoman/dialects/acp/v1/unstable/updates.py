"""Session updates that are not stable yet: several plans, child sessions, their messages.

Defines the wider `SessionUpdate` and `SessionNotification`. The stable updates are in the stable
`updates` and are part of the union here.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, UnsetType

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1 import updates
from dragoman.dialects.acp.v1.content import ContentBlock
from dragoman.dialects.acp.v1.shape import (
    FORGIVING,
    STRICT,
    UNKNOWN_TAG,
    Supported,
    Unknown,
    Wire,
)
from dragoman.dialects.acp.v1.unstable.sessions import Usage


class PlanItems(Wire, frozen=True, kw_only=True, tag_field="type", tag="items"):
    """A plan as a list of entries."""

    plan_id: str
    entries: Annotated[Sequence[updates.PlanEntry], FORGIVING]


class PlanFile(Wire, frozen=True, kw_only=True, tag_field="type", tag="file"):
    """A plan in a file."""

    plan_id: str
    uri: str


class PlanMarkdown(Wire, frozen=True, kw_only=True, tag_field="type", tag="markdown"):
    """A plan as Markdown."""

    plan_id: str
    content: str


class UnknownPlan(Unknown, frozen=True, tag_field="type", tag=UNKNOWN_TAG):
    """A plan in a form this version does not know."""


PlanUpdateContent: TypeAlias = PlanItems | PlanFile | PlanMarkdown | UnknownPlan


class PlanUpdate(Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="plan_update"):
    """One plan is new or changed; only for clients that advertise `plan`."""

    plan: PlanUpdateContent


class PlanRemoved(Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="plan_removed"):
    """One plan was removed; only for clients that advertise `plan`."""

    plan_id: str


class ErrorInfo(Wire, frozen=True, kw_only=True):
    """The error with which a child session stopped."""

    code: int
    message: str
    data: Any = None


class RunningState(Wire, frozen=True, kw_only=True, tag_field="state", tag="running"):
    """The child is working."""


class IdleState(Wire, frozen=True, kw_only=True, tag_field="state", tag="idle"):
    """The child waits for a prompt; `error` is set if it stopped with "error"."""

    stop_reason: str | None = None
    usage: Usage | None = None
    error: ErrorInfo | None = None


class RequiresActionState(
    Wire, frozen=True, kw_only=True, tag_field="state", tag="requires_action"
):
    """The child waits for an answer."""


class UnconfirmedState(Wire, frozen=True, kw_only=True, tag_field="state", tag="unknown"):
    """The agent does not know the child's state."""


class UnknownState(Unknown, frozen=True, tag_field="state", tag=UNKNOWN_TAG):
    """A state this version does not know."""


StateUpdate: TypeAlias = (
    RunningState | IdleState | RequiresActionState | UnconfirmedState | UnknownState
)


class SubagentSessionCapabilities(Wire, frozen=True, kw_only=True):
    """What the client may do to a child session."""

    cancel: Supported | None = None


class SubagentUpdate(
    Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="subagent_update"
):
    """A child session is new or changed: UNSET leaves a value unchanged, None clears it."""

    session_id: str
    title: str | None | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    capabilities: SubagentSessionCapabilities | None | UnsetType = UNSET
    state: StateUpdate | None | UnsetType = UNSET
    cwd: Annotated[str | None | UnsetType, STRICT] = UNSET
    additional_directories: Annotated[Sequence[str] | None | UnsetType, STRICT] = UNSET


class SessionMessage(
    Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="session_message"
):
    """A message between sessions is new or changed: UNSET leaves the content unchanged, None clears
    it."""

    message_id: str
    sender_session_id: str | None = None
    recipient_session_id: str | None = None
    sender_message_id: str | None = None
    recipient_message_id: str | None = None
    content: Sequence[ContentBlock] | None | UnsetType = UNSET


class SessionMessageChunk(
    Wire, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="session_message_chunk"
):
    """A piece of a message between sessions."""

    message_id: str
    content: ContentBlock


SessionUpdate: TypeAlias = (
    updates.SessionUpdate
    | PlanUpdate
    | PlanRemoved
    | SubagentUpdate
    | SessionMessage
    | SessionMessageChunk
)


class SessionNotification(updates.SessionNotification, frozen=True, kw_only=True):
    """`session/update`. Its union is wider than the stable one, which a type checker does not
    allow in a subclass."""

    update: SessionUpdate  # type: ignore[assignment]


analyse(__name__)
