"""Content blocks: what prompts, messages and tool results are made of.

Owns the blocks of the protocol and the annotations on them. It does not know where a block
stands: `updates`, `prompt` and `tools` do.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from dragoman.dialects.acp.v1.shape import UNKNOWN_TAG, Family, Unknown, Wire


class Role(StrEnum):
    """For whom a piece of content is meant; other values may come."""

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
    """An image in base64. In a prompt it needs `promptCapabilities.image`."""

    data: str
    mime_type: str
    uri: str | None = None
    annotations: Annotations | None = None


class AudioContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="audio"):
    """Sound in base64. In a prompt it needs `promptCapabilities.audio`."""

    data: str
    mime_type: str
    annotations: Annotations | None = None


class ResourceLink(Wire, frozen=True, kw_only=True, tag_field="type", tag="resource_link"):
    """The address of something the agent can read. Every agent accepts it in a prompt."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None


class ResourceContents(Family):
    """The contents of a resource: text if there is a text, else a blob."""

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
    """A resource with its contents. In a prompt it needs `promptCapabilities.embeddedContext`."""

    resource: EmbeddedResourceResource
    annotations: Annotations | None = None


class UnknownContent(Unknown, frozen=True, tag_field="type", tag=UNKNOWN_TAG):
    """A block of a type this version does not know."""


ContentBlock: TypeAlias = (
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent
)


def text(value: str) -> TextContent:
    """A block of text."""
    return TextContent(text=value)
