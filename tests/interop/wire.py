"""What dragoman sent on the wire in a test, read from its trace and validated.

Reads the messages from a trace file, and knows the names that the protocol gives to the parts of a
message. Validators are arguments: one uses the models of the official Python SDK, another the
official JSON schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dragoman.dialects.acp import v1 as acp

UNION_NAMES = {
    "elicitation/create": ("CreateElicitationRequest", "CreateElicitationResponse"),
}
"""Types that are unions in dragoman and have no name of their own at run time."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message that dragoman sent."""

    method: str
    part: Literal["params", "result", "error"]
    value: Any

    @property
    def is_extension(self) -> bool:
        return self.method.startswith("_")

    @property
    def type_name(self) -> str:
        """The protocol's name for the type of the value."""
        if self.part == "error":
            return "Error"
        if self.method in UNION_NAMES:
            return UNION_NAMES[self.method][self.part == "result"]
        table = acp.method_table(unstable=True)
        method = table.request(self.method) or table.notification(self.method)
        assert method is not None, f"dragoman sent a method that it does not know: {self.method}"
        return str((method.params if self.part == "params" else method.result).__name__)

    @property
    def update(self) -> str | None:
        """The kind of an update."""
        if self.method != acp.SESSION_UPDATE.name:
            return None
        kind: str = self.value["update"]["sessionUpdate"]
        return kind


Judge: TypeAlias = Callable[[str, Any], None]
"""Raises for a value that is not of the named type of the protocol."""


def read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every message of a trace, with its direction: ``send`` or ``recv``."""
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        yield entry["dir"], entry["msg"]


def said(path: Path) -> list[Said]:
    """Return everything that one connection sent, responses with the method that they answer."""
    asked: dict[Any, str] = {}
    found: list[Said] = []
    for direction, message in read(path):
        assert message.get("jsonrpc") == "2.0"
        if direction == "recv":
            if "method" in message and "id" in message:
                asked[message["id"]] = message["method"]
        elif "method" in message:
            found.append(Said(message["method"], "params", message.get("params")))
        elif "error" in message:
            found.append(Said(asked[message["id"]], "error", message["error"]))
        else:
            found.append(Said(asked[message["id"]], "result", message["result"]))
    return found


def judge_all(messages: list[Said], judge: Judge) -> None:
    """Validate every message that the protocol defines; fail if there are none."""
    assert messages
    for message in messages:
        if not message.is_extension or message.part == "error":
            judge(message.type_name, message.value)


def called(messages: list[Said]) -> set[str]:
    """Return the methods of the protocol that were called."""
    return {m.method for m in messages if m.part == "params" and not m.is_extension}


def answered(messages: list[Said]) -> set[str]:
    """Return the methods of the protocol that got a result."""
    return {m.method for m in messages if m.part == "result" and not m.is_extension}


def updates(messages: list[Said]) -> set[str]:
    """Return the kinds of updates that were sent."""
    return {m.update for m in messages if m.update is not None}
