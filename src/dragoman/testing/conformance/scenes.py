"""The updates, requests and lines that a probe sends in each scene.

Only data, and the shapes of what clients send; `probe` defines the order. Everything unusual here
was sent by a real agent, or is allowed by the protocol and may be sent one day.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.testing.conformance.shapes import mistyped

LIFE_LIMIT: Final = 3600.0
"""Seconds after which a probe always ends, in case its client never disconnects."""

LARGE_SIZE: Final = 2 * 1024 * 1024

HELLO: Final[dict[str, Any]] = {
    "protocolVersion": 1,
    "agentInfo": {"name": "dragoman-probe", "version": "1", "title": None},
    # Deliberately malformed: it must count as absent.
    "agentCapabilities": {
        "loadSession": "perhaps",
        "promptCapabilities": {"image": 1, "audio": None},
        "sessionCapabilities": {"list": None, "aCapabilityOfTomorrow": {}},
    },
    "authMethods": [],
}

ROOTS: Final[dict[str, frozenset[str]]] = {
    "initialize": frozenset({"protocolVersion", "clientCapabilities", "clientInfo", "_meta"}),
    "session/new": frozenset({"cwd", "mcpServers", "additionalDirectories", "_meta"}),
    "session/prompt": frozenset({"sessionId", "prompt", "messageId", "_meta"}),
}
"""The members that the schema defines at the root of what clients send."""

_BOOLEANS: Final = ("fs.readTextFile", "fs.writeTextFile", "terminal", "auth.terminal")
_MARKERS: Final = (
    "session.configOptions.boolean",
    "session.notices",
    "session.compaction",
    "elicitation.form",
    "elicitation.url",
)


def client_capabilities(value: object) -> str:
    """Return the first problem with a client's capabilities, as a sentence, or an empty string if
    there is none."""
    if value is None:
        return ""
    if not isinstance(value, dict):
        return "clientCapabilities is not an object"
    return mistyped(value, booleans=_BOOLEANS, markers=_MARKERS)


def chunk(text: str) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


def question(session: str) -> dict[str, Any]:
    """Return a permission request with the usual options, under unusual names."""
    return {
        "sessionId": session,
        "toolCall": {"toolCallId": "probe-call", "title": "Look around", "kind": "read"},
        "options": [
            {"optionId": "cancel", "name": "No", "kind": "reject_once"},
            {"optionId": "42", "name": "Yes", "kind": "allow_once"},
            {"optionId": "ünï", "name": "Always", "kind": "allow_always"},
        ],
    }


ODD_OPTIONS: Final[list[dict[str, Any]]] = [
    {"optionId": "x", "name": "Somehow", "kind": "allow_sometimes"},
    {"optionId": "y", "name": "Otherwise", "kind": "_vendor/reject"},
]

EARLY: Final[tuple[dict[str, Any], ...]] = (
    {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [{"name": "plan", "description": "Make a plan"}],
    },
)

UPDATES: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "unknown_updates_are_survived": (
        {"sessionUpdate": "dragoman_update_of_tomorrow", "anything": [1, {"a": None}]},
        {"sessionUpdate": "_vendor_update", "_meta": {"x": 1}},
        {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "hologram", "data": "…"},
            "messageId": None,
        },
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "t1",
            "title": "Something new",
            "kind": "teleport",
            "status": "half_done",
        },
        {"sessionUpdate": "tool_call_update", "toolCallId": "never-announced", "status": "failed"},
        {
            "sessionUpdate": "plan",
            "entries": [{"content": "a", "priority": "urgent", "status": "blocked"}],
        },
        {"sessionUpdate": "current_mode_update", "currentModeId": "never-listed"},
        {"sessionUpdate": "notice", "severity": "info", "title": "A notice"},
    ),
    "malformed_updates_are_survived": (
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "t2",
            "title": "Crooked",
            "kind": 7,
            "status": None,
            "content": [5, {"type": "content"}, {"type": "diff", "path": "/a", "newText": "b"}],
            "locations": "everywhere",
        },
        {
            "sessionUpdate": "available_commands_update",
            "availableCommands": [7, {"name": "ok", "description": "fine"}, {}],
        },
        {"sessionUpdate": "plan", "entries": [None, {"content": "only this"}]},
        {"sessionUpdate": "session_info_update", "title": 5, "updatedAt": []},
        {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": "free"},
        {"sessionUpdate": "config_option_update", "configOptions": [{"id": "only"}]},
        {**chunk("x"), "sessionUpdate": "agent_thought_chunk", "_meta": 3},
    ),
    "large_update_is_taken": (chunk("x" * LARGE_SIZE),),
}  # fmt: skip
"""The updates to send for each check, by the name of the check."""

AFTER_CANCEL: Final[tuple[dict[str, Any], ...]] = (
    {"sessionUpdate": "tool_call_update", "toolCallId": "probe-call", "status": "failed"},
    chunk("Stopping."),
)

LATE: Final[tuple[dict[str, Any], ...]] = (
    {"sessionUpdate": "usage_update", "used": 10, "size": 1000},
    {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": "completed"},
)

NOISE: Final = b"Loading model weights... done\n\n"

ODD_JSON: Final = b"null\n42\n{}\n[1]\n"

STRAY: Final = (
    b'{"jsonrpc":"2.0","id":987654321,"result":{}}\n'
    b'{"jsonrpc":"2.0","id":"never-asked","error":{"code":-32603,"message":"What?"}}\n'
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}\n'
)
