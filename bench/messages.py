"""The few ACP messages of the benchmarks as msgspec types.

Shared by the contestants without types of their own (`ceiling`, `dragoman_rpc`); the official SDK
has its own. The unions have the members that occur together in real sessions, so that decoding has
to choose.
"""

from __future__ import annotations

from msgspec import Struct

from bench import script


class TextContent(Struct, tag_field="type", tag="text"):
    text: str


class ImageContent(Struct, tag_field="type", tag="image", rename="camel"):
    data: str
    mime_type: str


class ResourceLink(Struct, tag_field="type", tag="resource_link"):
    name: str
    uri: str


ContentBlock = TextContent | ImageContent | ResourceLink


class AgentMessageChunk(Struct, tag_field="sessionUpdate", tag="agent_message_chunk"):
    content: ContentBlock


class AgentThoughtChunk(Struct, tag_field="sessionUpdate", tag="agent_thought_chunk"):
    content: ContentBlock


class UserMessageChunk(Struct, tag_field="sessionUpdate", tag="user_message_chunk"):
    content: ContentBlock


class ToolCallStart(Struct, tag_field="sessionUpdate", tag="tool_call", rename="camel"):
    tool_call_id: str
    title: str
    kind: str | None = None
    status: str | None = None


class ToolCallProgress(Struct, tag_field="sessionUpdate", tag="tool_call_update", rename="camel"):
    tool_call_id: str
    title: str | None = None
    status: str | None = None


class SessionNotification(Struct, rename="camel"):
    session_id: str
    update: (
        AgentMessageChunk | AgentThoughtChunk | UserMessageChunk | ToolCallStart | ToolCallProgress
    )


class InitializeParams(Struct, rename="camel"):
    protocol_version: int


class InitializeResult(Struct, rename="camel"):
    protocol_version: int


class NewSessionParams(Struct, rename="camel"):
    cwd: str
    mcp_servers: list[str]


class NewSessionResult(Struct, rename="camel"):
    session_id: str


class PromptParams(Struct, rename="camel"):
    session_id: str
    prompt: list[ContentBlock]


class PromptResult(Struct, rename="camel"):
    stop_reason: str


class SetModeParams(Struct, rename="camel"):
    session_id: str
    mode_id: str


class SetModeResult(Struct):
    pass


class PermissionOption(Struct, rename="camel"):
    option_id: str
    name: str
    kind: str


class ToolCallUpdate(Struct, rename="camel", omit_defaults=True):
    tool_call_id: str
    title: str | None = None
    kind: str | None = None
    status: str | None = None


class PermissionParams(Struct, rename="camel"):
    session_id: str
    tool_call: ToolCallUpdate
    options: list[PermissionOption]


def permission(session_id: str) -> PermissionParams:
    """The permission request of `bench.script`. Created each time, as in a real turn."""
    return PermissionParams(
        session_id,
        ToolCallUpdate(script.TOOL_CALL, script.TOOL_TITLE),
        [PermissionOption(*option) for option in script.OPTIONS],
    )


class Selected(Struct, tag_field="outcome", tag="selected", rename="camel"):
    option_id: str


class Cancelled(Struct, tag_field="outcome", tag="cancelled"):
    pass


class PermissionResult(Struct):
    outcome: Selected | Cancelled
