"""Content blocks, tool calls as they are reported, and permission requests for them.

Defines the blocks that make up prompts, messages and tool results; `ToolCallUpdate`, which appears
both in a permission request and (tagged) in a session update; and `session/request_permission`.
None always means "not sent": in an update it leaves the value unchanged, in a first report the
protocol's default applies.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from dragoman.dialects import analyse
from dragoman.dialects.acp.v1.shape import UNKNOWN_TAG, Family, Unknown, Wire


class Role(StrEnum):
    """The intended audience of a piece of content; other values may come."""

    ASSISTANT = "assistant"
    USER = "user"


class Annotations(Wire, frozen=True, kw_only=True):
    """Hints on how to use or show a block."""

    audience: Sequence[str] | None = None
    last_modified: str | None = None
    priority: float | None = None


class TextContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """Text, usually Markdown. Every agent accepts it in a prompt."""

    text: str
    annotations: Annotations | None = None


class ImageContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image in base64. In a prompt it requires `promptCapabilities.image`."""

    data: str
    mime_type: str
    uri: str | None = None
    annotations: Annotations | None = None


class AudioContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="audio"):
    """Audio in base64. In a prompt it requires `promptCapabilities.audio`."""

    data: str
    mime_type: str
    annotations: Annotations | None = None


class ResourceLink(Wire, frozen=True, kw_only=True, tag_field="type", tag="resource_link"):
    """The URI of something the agent can read. Every agent accepts it in a prompt."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None


class ResourceContents(Family):
    """The contents of a resource: text if there is a `text` field, else a blob."""

    __slots__ = ()

    @staticmethod
    def member(raw: dict[str, Any]) -> type[Wire]:
        if "text" not in raw and "blob" in raw:
            return BlobResourceContents
        return TextResourceContents


class TextResourceContents(Wire, ResourceContents, frozen=True, kw_only=True):
    """A resource that is text."""

    uri: str
    text: str
    mime_type: str | None = None


class BlobResourceContents(Wire, ResourceContents, frozen=True, kw_only=True):
    """A resource that is bytes, in base64."""

    uri: str
    blob: str
    mime_type: str | None = None


if TYPE_CHECKING:
    EmbeddedResourceResource: TypeAlias = TextResourceContents | BlobResourceContents
else:
    EmbeddedResourceResource = ResourceContents


class EmbeddedResource(Wire, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    """A resource with its contents. In a prompt it requires
    `promptCapabilities.embeddedContext`."""

    resource: EmbeddedResourceResource
    annotations: Annotations | None = None


class UnknownContent(Unknown, frozen=True, tag_field="type", tag=UNKNOWN_TAG):
    """A block of a type this version does not know."""


ContentBlock: TypeAlias = (
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent
)


def text(value: str) -> TextContent:
    """Return a block of text."""
    return TextContent(text=value)


class ToolKind(StrEnum):
    """The known categories of tools, for icons and policies; other values may come."""

    READ = "read"
    EDIT = "edit"
    DELETE = "delete"
    MOVE = "move"
    SEARCH = "search"
    EXECUTE = "execute"
    THINK = "think"
    FETCH = "fetch"
    SWITCH_MODE = "switch_mode"
    OTHER = "other"


class ToolCallStatus(StrEnum):
    """The known states of a tool call; other values may come."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"


class Content(Wire, frozen=True, kw_only=True, tag_field="type", tag="content"):
    """A content block that a tool produced."""

    content: ContentBlock


class Diff(Wire, frozen=True, kw_only=True, tag_field="type", tag="diff"):
    """A change to one file, as the whole text before and after. Without `old_text` the file is
    new."""

    path: str
    new_text: str
    old_text: str | None = None


class Terminal(Wire, frozen=True, kw_only=True, tag_field="type", tag="terminal"):
    """The live output of a terminal created with `terminal/create`."""

    terminal_id: str


class UnknownToolCallContent(Unknown, frozen=True, tag_field="type", tag=UNKNOWN_TAG):
    """Tool content of a type this version does not know."""


ToolCallContent: TypeAlias = Content | Diff | Terminal | UnknownToolCallContent


class ToolCallLocation(Wire, frozen=True, kw_only=True):
    """A file a tool works on; lines count from 1."""

    path: str
    line: int | None = None


class ToolCallUpdate(Wire, frozen=True, kw_only=True):
    """The changed fields of a tool call. `content` and `locations` replace the whole list."""

    tool_call_id: str
    title: str | None = None
    name: str | None = None
    kind: str | None = None
    status: str | None = None
    content: Sequence[ToolCallContent] | None = None
    locations: Sequence[ToolCallLocation] | None = None
    raw_input: Any = None
    raw_output: Any = None


class PermissionOptionKind(StrEnum):
    """The known meanings of an option; other values may come, and a policy never chooses them."""

    ALLOW_ONCE = "allow_once"
    ALLOW_ALWAYS = "allow_always"
    REJECT_ONCE = "reject_once"
    REJECT_ALWAYS = "reject_always"


class PermissionOption(Wire, frozen=True, kw_only=True):
    """One possible answer to a permission request."""

    option_id: str
    name: str
    kind: str


class RequestPermissionRequest(Wire, frozen=True, kw_only=True):
    """`session/request_permission`: ask whether this tool call may run."""

    session_id: str
    tool_call: ToolCallUpdate
    options: Sequence[PermissionOption]


class SelectedPermissionOutcome(
    Wire, frozen=True, kw_only=True, tag_field="outcome", tag="selected"
):
    """One of the options was chosen."""

    option_id: str


class CancelledPermissionOutcome(
    Wire, frozen=True, kw_only=True, tag_field="outcome", tag="cancelled"
):
    """The turn was cancelled before a choice was made."""


class UnknownPermissionOutcome(Unknown, frozen=True, tag_field="outcome", tag=UNKNOWN_TAG):
    """An outcome this version does not know; an agent does not treat it as consent."""


RequestPermissionOutcome: TypeAlias = (
    SelectedPermissionOutcome | CancelledPermissionOutcome | UnknownPermissionOutcome
)


class RequestPermissionResponse(Wire, frozen=True, kw_only=True):
    """The response to `session/request_permission`."""

    outcome: RequestPermissionOutcome


def selected(option_id: str) -> RequestPermissionResponse:
    """Return the response to a permission request that chooses an option."""
    return RequestPermissionResponse(outcome=SelectedPermissionOutcome(option_id=option_id))


def cancelled() -> RequestPermissionResponse:
    """Return the response to a permission request of a cancelled turn."""
    return RequestPermissionResponse(outcome=CancelledPermissionOutcome())


analyse(__name__)
