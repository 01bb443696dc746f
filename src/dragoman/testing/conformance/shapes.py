"""Strict checks of the shapes that agents send.

Checks plain JSON for the required members and the allowed values of the ACP v1 schema. Does not use
`dragoman.dialects`, which is lenient by design. Every function returns the first problem as text,
or an empty string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

STOP_REASONS: Final = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
TOOL_STATUSES: Final = ("pending", "in_progress", "completed", "failed")
TOOL_KINDS: Final = (
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other",
)  # fmt: skip
PRIORITIES: Final = ("high", "medium", "low")
PLAN_STATUSES: Final = ("pending", "in_progress", "completed")

ROOTS: Final[dict[str, frozenset[str]]] = {
    "initialize": frozenset(
        {"protocolVersion", "agentCapabilities", "agentInfo", "authMethods", "_meta"}
    ),
    # `models` was in the schema once, and real agents still send it.
    "session/new": frozenset({"sessionId", "modes", "models", "configOptions", "_meta"}),
    "session/prompt": frozenset({"stopReason", "usage", "userMessageId", "_meta"}),
    "session/update": frozenset({"sessionId", "update", "_meta"}),
}
"""The members that the schema defines at the root of a type; anything else belongs in `_meta`."""

_BOOLEANS: Final = (
    "loadSession",
    "promptCapabilities.image",
    "promptCapabilities.audio",
    "promptCapabilities.embeddedContext",
    "mcpCapabilities.http",
    "mcpCapabilities.sse",
)
_MARKERS: Final = (
    "sessionCapabilities.list",
    "sessionCapabilities.delete",
    "sessionCapabilities.resume",
    "sessionCapabilities.close",
    "sessionCapabilities.fork",
    "sessionCapabilities.additionalDirectories",
    "auth.logout",
)


def capabilities(value: object) -> str:
    """Check `agentCapabilities`: switches are booleans, markers are objects."""
    if value is None:
        return ""
    if not isinstance(value, dict):
        return "the capabilities are not an object"
    for group in ("promptCapabilities", "mcpCapabilities", "sessionCapabilities", "auth"):
        if not isinstance(value.get(group, {}), dict | None):
            return f"{group} is not an object"
    return mistyped(value, booleans=_BOOLEANS, markers=_MARKERS)


def mistyped(value: object, *, booleans: Sequence[str], markers: Sequence[str]) -> str:
    """Check the types of members, given by their dotted paths. A missing member is accepted."""
    for paths, kind, name in ((booleans, bool, "a boolean"), (markers, dict, "an object")):
        for path in paths:
            found = _at(value, path)
            if found is not None and not isinstance(found, kind):
                return f"{path} is not {name}"
    return ""


def auth_methods(value: object) -> str:
    """Check `authMethods`: each has an id, a name, and the members of its type."""
    if value is None:
        return ""
    if not isinstance(value, list):
        return "authMethods is not a list"
    for method in value:
        if problem := _strings(method, "id", "name"):
            return f"a login method: {problem}"
        if method.get("type") == "terminal":
            if not _is_list_of(method.get("args", []), str):
                return "the args of a terminal login are not a list of strings"
            if not isinstance(method.get("env", {}), dict | None):
                return "the env of a terminal login is not an object"
    return ""


def modes(value: object) -> str:
    """Check `modes`: a list that contains the current one."""
    if not isinstance(value, dict) or not isinstance(value.get("availableModes"), list):
        return "modes has no list availableModes"
    for mode in value["availableModes"]:
        if problem := _strings(mode, "id", "name"):
            return f"a mode: {problem}"
    if value.get("currentModeId") not in [mode["id"] for mode in value["availableModes"]]:
        return "the current mode is not among the available ones"
    return ""


def config_options(value: object) -> str:
    """Check `configOptions`: each has a name, a type, and one of its possible values."""
    if not isinstance(value, list):
        return "configOptions is not a list"
    for option in value:
        if problem := _strings(option, "id", "name", "type"):
            return f"a config option: {problem}"
        current = option.get("currentValue")
        if option["type"] == "boolean" and not isinstance(current, bool):
            return f"the option {option['id']!r} has no boolean value"
        if option["type"] == "select":
            choices = list(select_values(option))
            if not choices or not all(isinstance(choice, str) for choice in choices):
                return f"the option {option['id']!r} has no proper list of choices"
            if current not in choices:
                return f"the value of the option {option['id']!r} is not among its choices"
    return ""


def select_values(option: dict[str, Any]) -> Iterator[object]:
    """Yield the possible values of a select, flat or in groups."""
    entries = option.get("options")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("options"), list):
            yield from select_values(entry)
        else:
            yield entry.get("value") if isinstance(entry, dict) else None


def session_info(value: object) -> str:
    """Check an entry of a session list."""
    if problem := _strings(value, "sessionId", "cwd"):
        return f"a listed session: {problem}"
    return ""


def block(value: object) -> str:
    """Check a content block."""
    if problem := _strings(value, "type"):
        return f"a content block: {problem}"
    assert isinstance(value, dict)
    match value["type"]:
        case "text":
            return _strings(value, "text")
        case "image" | "audio":
            return _strings(value, "data", "mimeType")
        case "resource_link":
            return _strings(value, "uri", "name")
        case "resource":
            inner = value.get("resource")
            if isinstance(inner, dict) and ("text" in inner) != ("blob" in inner):
                return _strings(inner, "uri")
            return "an embedded resource must have exactly one of text and blob"
        case other:
            return f"there is no content block of the type {other!r}"


def update(value: object) -> str:
    """Check the `update` of a `session/update`. Kinds that v1 does not have are ignored."""
    if problem := _strings(value, "sessionUpdate"):
        return problem
    assert isinstance(value, dict)
    judge = _UPDATES.get(value["sessionUpdate"])
    problem = judge(value) if judge is not None else ""
    return f"{value['sessionUpdate']}: {problem}" if problem else ""


def _chunk(value: dict[str, Any]) -> str:
    if not isinstance(value.get("messageId"), str | None):
        return "the messageId is not a string"
    return block(value.get("content"))


def _tool_call(value: dict[str, Any]) -> str:
    return _strings(value, "toolCallId", "title") or _tool(value)


def _tool_call_update(value: dict[str, Any]) -> str:
    return _strings(value, "toolCallId") or _tool(value)


def _tool(value: dict[str, Any]) -> str:
    if value.get("status") not in (None, *TOOL_STATUSES):
        return f"there is no status {value['status']!r}"
    if value.get("kind") not in (None, *TOOL_KINDS):
        return f"there is no kind {value['kind']!r}"
    for location in value.get("locations") or ():
        if problem := _strings(location, "path"):
            return f"a location: {problem}"
    for item in value.get("content") or ():
        if problem := _tool_content(item):
            return problem
    return ""


def _tool_content(item: object) -> str:
    if problem := _strings(item, "type"):
        return f"the content: {problem}"
    assert isinstance(item, dict)
    match item["type"]:
        case "content":
            return block(item.get("content"))
        case "diff":
            return _strings(item, "path", "newText")
        case "terminal":
            return _strings(item, "terminalId")
        case other:
            return f"there is no tool content of the type {other!r}"


def _plan(value: dict[str, Any]) -> str:
    if not isinstance(value.get("entries"), list):
        return "a plan has no list of entries"
    for entry in value["entries"]:
        if problem := _strings(entry, "content", "priority", "status"):
            return f"an entry: {problem}"
        if entry["priority"] not in PRIORITIES or entry["status"] not in PLAN_STATUSES:
            return f"an unknown priority or status: {entry['priority']!r}, {entry['status']!r}"
    return ""


def _commands(value: dict[str, Any]) -> str:
    if not isinstance(value.get("availableCommands"), list):
        return "there is no list availableCommands"
    return next(
        (p for command in value["availableCommands"] if (p := _strings(command, "name"))), ""
    )


def _mode(value: dict[str, Any]) -> str:
    return _strings(value, "currentModeId")


def _config(value: dict[str, Any]) -> str:
    return config_options(value.get("configOptions"))


def _usage(value: dict[str, Any]) -> str:
    for name in ("used", "size"):
        if type(value.get(name)) is not int:
            return f"{name} is not an integer"
    cost = value.get("cost")
    if cost is None:
        return ""
    if not isinstance(cost, dict) or not isinstance(cost.get("amount"), int | float):
        return "the cost has no amount"
    return _strings(cost, "currency")


_UPDATES: Final[dict[str, Callable[[dict[str, Any]], str]]] = {
    "user_message_chunk": _chunk,
    "agent_message_chunk": _chunk,
    "agent_thought_chunk": _chunk,
    "tool_call": _tool_call,
    "tool_call_update": _tool_call_update,
    "plan": _plan,
    "available_commands_update": _commands,
    "current_mode_update": _mode,
    "config_option_update": _config,
    "usage_update": _usage,
}


def _at(value: object, path: str) -> object:
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _strings(value: object, *names: str) -> str:
    if not isinstance(value, dict):
        return "it is not an object"
    for name in names:
        if not isinstance(value.get(name), str):
            return f"{name} is not a string"
    return ""


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)
