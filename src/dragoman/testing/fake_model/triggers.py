"""Rules for what the fake model answers, without any wire format.

Parses the triggers and chooses a tool; `chat`, `responses`, `messages` and `gemini` read and write
the requests and answers. Stateless: the same question always gets the same answer, except where the
caller counts (`HTTP:500*2`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

SLOW_CHUNKS: Final = 600
SLOW_INTERVAL: Final = 0.1
"""Seconds between chunks of a slow answer, which takes a minute: longer than any test waits, short
enough to end by itself."""

SAID_SIZE: Final = 500
"""Maximum number of characters of a tool's result to repeat."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the agent offers."""

    name: str
    schema: dict[str, Any] = field(default_factory=dict)
    freeform: bool = False
    """Whether the tool takes a string instead of arguments."""
    namespace: str = ""
    """The tool's group, if the format has groups."""

    @property
    def called(self) -> str:
        """The name that a prompt uses for the tool."""
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Asked:
    """The parts of a request that the answer depends on."""

    model: str
    text: str
    """The last text of the user."""
    results: tuple[str, ...] = ()
    """The tool results after the last text of the user."""
    tools: tuple[Tool, ...] = ()
    stream: bool = False
    schema: dict[str, Any] | None = None
    """The schema that a JSON answer must fit; None if no JSON is requested."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of one of the agent's tools, with a string for a tool that takes one, else with
    arguments."""

    name: str
    arguments: dict[str, Any] | str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """How the model answers a request."""

    chunks: tuple[str, ...] = ()
    thoughts: tuple[str, ...] = ()
    call: ToolCall | None = None
    status: int = 200
    """The HTTP status. Any status but 200 is an error response without an answer."""
    times: int | None = None
    """How often the error comes before the answer; None means always."""
    interval: float = 0.0
    """Seconds between two chunks."""
    hold: bool = False
    """Whether to hold the answer after the first chunk until it is released."""
    cut: bool = False
    """Whether to break the connection after the first chunk."""
    hang: bool = False
    """Whether to send no answer at all."""

    @property
    def text(self) -> str:
        return "".join(self.chunks)

    @property
    def thought(self) -> str:
        return "".join(self.thoughts)

    @property
    def words(self) -> int:
        """The number of chunks, thoughts and calls, which counts as the number of tokens."""
        return len(self.chunks) + len(self.thoughts) + (self.call is not None)


_TAGGED: Final = re.compile(r"<([a-zA-Z][\w-]*)[^>]*>.*?</\1>", re.DOTALL)
_HTTP: Final = re.compile(r"\bHTTP:(\d{3})(?:\*(\d+))?")
_CHUNKS: Final = re.compile(r"\bCHUNKS:(\d+)")
_ACTION: Final = re.compile(r"^[ \t]*(SHELL|WRITE|PLAN|TOOL):(.+)$", re.MULTILINE)
_WRITE: Final = re.compile(r"([A-Za-z]:[\\/][^:]*|[^:]+):(.*)")


def last_text(texts: Iterable[str]) -> str:
    """Return the user's newest text among the texts of one message.

    Agents put reminders in tags next to or around it; those are not the user's text.
    """
    said = [_TAGGED.sub("", text).strip() for text in texts]
    return next((text for text in reversed(said) if text), "")


def reply_to(asked: Asked, *, ignore_errors: bool = False) -> Reply:
    """Decide the answer to a request. With `ignore_errors`, `HTTP:` triggers have no effect."""
    if asked.schema is not None:
        return Reply((json.dumps(sample(asked.schema)),))
    text = asked.text
    error = None if ignore_errors else _HTTP.search(text)
    if error is not None:
        return Reply(status=int(error[1]), times=int(error[2]) if error[2] else None)
    if _has(text, "HANG"):
        return Reply(hang=True)
    thoughts = ("I think ", "about ", "this.") if _has(text, "THINK") else ()
    actions = _ACTION.findall(text)
    done = len(asked.results)
    if done < len(actions):
        kind, argument = actions[done]
        call = _call(kind, argument.strip(), asked.tools)
        if call is None:
            return Reply((f"There is no tool for {kind}, or its argument is wrong.",), thoughts)
        return Reply(thoughts=thoughts, call=call)
    if asked.results:
        return Reply(words(f"The tool said: {asked.results[-1][:SAID_SIZE]}"), thoughts)
    if _has(text, "SLOW"):
        slow = tuple(f"slow-{number} " for number in range(1, SLOW_CHUNKS + 1))
        return Reply(slow, thoughts, interval=SLOW_INTERVAL)
    if (chunks := _CHUNKS.search(text)) is not None:
        many = tuple(f"chunk-{number} " for number in range(1, int(chunks[1]) + 1))
        return Reply(many, thoughts)
    said = words(f"You said: {text}")
    return Reply(said, thoughts, hold=_has(text, "HOLD"), cut=_has(text, "CUT"))


def words(text: str) -> tuple[str, ...]:
    """Return a text in chunks: each word with the following space."""
    return tuple(re.findall(r"\s*\S+\s?", text)) or (text,)


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w:]){word}(?![\w:])", text) is not None


# -- tools

_SHELLS: Final = (
    "exec_command",
    "shell_command",
    "shell",
    "run_shell_command",
    "bash",
    "Bash",
    "Shell",
    "execute_command",
    "run_terminal_cmd",
    "run_commands",
)
_WRITERS: Final = ("write_file", "Write", "write", "WriteFile", "create", "write_to_file", "editor")
_PLANNERS: Final = ("update_plan", "write_todos", "todo_write", "TodoWrite", "todowrite")

_COMMANDS: Final = ("cmd", "command", "commands", "script")
_PATHS: Final = ("file_path", "filePath", "path", "filename")
_CONTENTS: Final = ("content", "file_text", "contents", "text")
_STEPS: Final = ("plan", "todos", "steps")


def _call(kind: str, argument: str, tools: Sequence[Tool]) -> ToolCall | None:
    match kind:
        case "SHELL":
            return _shell(argument, tools)
        case "WRITE":
            found = _WRITE.fullmatch(argument)
            return None if found is None else _write(found[1], found[2], tools)
        case "PLAN":
            return _plan([step.strip() for step in argument.split(";")], tools)
        case _:
            return _named(argument, tools)


def _find(tools: Sequence[Tool], names: Sequence[str]) -> Tool | None:
    by_name = {tool.called: tool for tool in tools}
    return next((by_name[name] for name in names if name in by_name), None)


def _shell(command: str, tools: Sequence[Tool]) -> ToolCall | None:
    tool = _find(tools, _SHELLS)
    if tool is None:
        return None
    name = _parameter(tool, _COMMANDS)
    listed = _properties(tool).get(name, {}).get("type") == "array"
    return _fill(tool, {name: ["bash", "-lc", command] if listed else command})


def _write(path: str, content: str, tools: Sequence[Tool]) -> ToolCall | None:
    tool = _find(tools, _WRITERS)
    if tool is not None:
        given = {_parameter(tool, _PATHS): path, _parameter(tool, _CONTENTS): content}
        return _fill(tool, given)
    lines = "".join(f"+{line}\n" for line in content.split("\n"))
    patch = f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch"
    tool = _find(tools, ("apply_patch",))
    if tool is not None:
        if tool.freeform:
            return ToolCall(tool.name, patch)
        return _fill(tool, {_parameter(tool, ("input", "patch")): patch})
    # Codex offers no file tool to an unknown model: there the patch is a command.
    return _shell(f"apply_patch <<'EOF'\n{patch}\nEOF", tools)


def _plan(steps: Sequence[str], tools: Sequence[Tool]) -> ToolCall | None:
    tool = _find(tools, _PLANNERS)
    if tool is None:
        return None
    name = _parameter(tool, _STEPS)
    item = _properties(tool).get(name, {}).get("items", {})
    item = item if isinstance(item, dict) else {}
    known = item.get("properties", {})
    wording = next((key for key in ("step", "content", "description") if key in known), "step")
    entries: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        status = "in_progress" if number == 0 else "pending"
        entry = {wording: step, "status": status}
        missing = [key for key in item.get("required", ()) if key not in entry]
        entries.append({**entry, **{key: sample(known.get(key, {})) for key in missing}})
    return _fill(tool, {name: entries})


def _named(argument: str, tools: Sequence[Tool]) -> ToolCall | None:
    name, _, text = argument.partition(":")
    tool = _find(tools, (name.strip(),))
    if tool is None:
        return None
    if tool.freeform:
        return ToolCall(tool.name, text)
    try:
        given = json.loads(text or "{}")
    except ValueError:
        return None
    return ToolCall(tool.name, given, tool.namespace) if isinstance(given, dict) else None


def _properties(tool: Tool) -> dict[str, Any]:
    properties = tool.schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _parameter(tool: Tool, names: Sequence[str]) -> str:
    properties = _properties(tool)
    return next((name for name in names if name in properties), names[0])


def _fill(tool: Tool, given: dict[str, Any]) -> ToolCall:
    """Return a call with these arguments, and some value for every other required one."""
    properties = _properties(tool)
    required = tool.schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in given:
            given[name] = sample(properties.get(name, {}))
    return ToolCall(tool.name, given)


def sample(schema: Any) -> Any:
    """Return some value that fits a JSON schema, for the features that agents use."""
    if not isinstance(schema, dict):
        return "fake"
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    for several in ("anyOf", "oneOf"):
        if isinstance(schema.get(several), list) and schema[several]:
            return sample(schema[several][0])
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match str(kind).lower():
        case "object":
            properties = schema.get("properties")
            names = schema.get("required") or properties or {}
            known = properties if isinstance(properties, dict) else {}
            return {name: sample(known.get(name, {})) for name in names}
        case "array":
            return []
        case "boolean":
            return False
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "null":
            return None
        case _:
            return "fake"
