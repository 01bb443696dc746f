"""What we say and understand of the app-server protocol, held against its own schema.

The installed program writes the schema of its exact version, so that a new version which renames a
method or drops a field fails here and not in somebody's conversation.
"""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.client.codex import client as client_module
from dragoman.client.codex.approvals import APPROVALS
from dragoman.dialects.codex import failures, items, shapes, translate
from tests.peers.programs import peer_environment, peer_program

SOURCE = Path(client_module.__file__).parent
SCHEMA_TIMEOUT = 60.0
"""Writing some hundred files takes a second."""

UNDOCUMENTED = {("CommandApproval", "availableDecisions")}
"""Sent, and in no schema."""

TYPES: dict[str, tuple[str, ...]] = {
    "InitializeResponse": ("InitializeResponse",),
    "GetAccountResponse": ("GetAccountResponse",),
    "RateLimitWindow": ("RateLimitWindow",),
    "RateLimitSnapshot": ("RateLimitSnapshot",),
    "GetAccountRateLimitsResponse": ("GetAccountRateLimitsResponse",),
    "Model": ("Model",),
    "ModelListResponse": ("ModelListResponse",),
    "FileUpdateChange": ("FileUpdateChange",),
    "Item": ("ThreadItem",),
    "TurnOutline": ("Turn",),
    "Turn": ("Turn",),
    "Thread": ("Thread",),
    "ThreadResponse": ("ThreadStartResponse", "ThreadResumeResponse", "ThreadForkResponse"),
    "ThreadListResponse": ("ThreadListResponse",),
    "ThreadReadResponse": ("ThreadReadResponse",),
    "TurnStartResponse": ("TurnStartResponse",),
    "TurnSteerResponse": ("TurnSteerResponse",),
    "TurnPlanStep": ("TurnPlanStep",),
    "TokenUsageBreakdown": ("TokenUsageBreakdown",),
    "ThreadTokenUsage": ("ThreadTokenUsage",),
    "ThreadStatus": ("ThreadStatus",),
    "ThreadSettings": ("ThreadSettings",),
    "CommandApproval": ("CommandExecutionRequestApprovalParams",),
    "FileChangeApproval": ("FileChangeRequestApprovalParams",),
    "PermissionsApproval": ("PermissionsRequestApprovalParams",),
    "UserInputRequest": ("ToolRequestUserInputParams",),
    "ElicitationRequest": ("McpServerElicitationRequestParams",),
    "LegacyApproval": ("ExecCommandApprovalParams", "ApplyPatchApprovalParams"),
}
"""Our shapes and the types of the schema that they are read from. The shapes of notifications are
found by the notification's name."""


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schema")
    command = [*peer_program("codex"), "app-server", "generate-json-schema", "--out", str(folder)]
    subprocess.run(
        [*command, "--experimental"],
        check=True,
        capture_output=True,
        env=peer_environment(folder),
        timeout=SCHEMA_TIMEOUT,
    )
    return folder


@cache
def definitions(folder: Path) -> dict[str, Any]:
    """Every type by its name, of all files together."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.json")):
        document = json.loads(path.read_text())
        inner = document.get("definitions", {})
        found.update({**inner, **inner.get("v2", {})})
        found.setdefault(path.stem, document)
    return found


@cache
def methods(folder: Path, kind: str) -> dict[str, str]:
    """The methods of a direction, and the names of their params' types."""
    found: dict[str, str] = {}
    for variant in json.loads((folder / f"{kind}.json").read_text())["oneOf"]:
        (method,) = variant["properties"]["method"]["enum"]
        params = variant["properties"].get("params", {}).get("$ref", "")
        found[method] = params.rpartition("/")[2]
    return found


def properties(folder: Path, type_name: str) -> set[str]:
    """The fields of a type; of a union, those of all variants together."""
    known = definitions(folder)
    found: set[str] = set()
    waiting = [known[type_name]]
    while waiting:
        part = waiting.pop()
        found |= set(part.get("properties", {}))
        for group in ("oneOf", "anyOf", "allOf"):
            waiting += part.get(group, [])
        if "$ref" in part:
            waiting.append(known[part["$ref"].rpartition("/")[2]])
    return found


def fields(shape: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(shape)}


def calls_of_ours() -> set[str]:
    """Every method that the client sends, found in its source."""
    text = "".join(path.read_text() for path in SOURCE.glob("*.py"))
    pattern = r'(?:ask|call|begin|notify)\(\s*"([a-z][\w/]*)"'
    return {*re.findall(pattern, text), *re.findall(r'"[a-z]+": "(thread/\w+)"', text)}


def shape_of(method: str) -> type[msgspec.Struct]:
    decode, _ = translate._NOTIFICATIONS[method]
    shape: type[msgspec.Struct] = decode.__self__.type  # type: ignore[attr-defined]
    return shape


def test_every_method_that_we_call_exists(schema: Path) -> None:
    ours = calls_of_ours()
    assert {"initialize", "initialized", "turn/start", "turn/interrupt", "thread/fork"} <= ours
    theirs = {**methods(schema, "ClientRequest"), **methods(schema, "ClientNotification")}
    assert ours - set(theirs) == set()


def test_every_notification_that_we_know_or_do_not_want_exists(schema: Path) -> None:
    theirs = set(methods(schema, "ServerNotification"))
    assert set(translate._NOTIFICATIONS) - theirs == set()
    assert set(client_module.NEVER_USED) - theirs == set()
    assert set(client_module.NEVER_USED) & set(translate._NOTIFICATIONS) == set()


def test_every_notification_that_they_send_was_thought_about(schema: Path) -> None:
    without_a_word = {
        "hook/completed",
        "hook/started",
        "item/autoApprovalReview/completed",
        "item/autoApprovalReview/started",
        "model/verification",
        "modelProvider/authRecoveryCompleted",
        "modelProvider/authRecoveryStarted",
        "rawResponse/completed",
        "rawResponseItem/completed",
        "windows/worldWritableWarning",
    }
    theirs = set(methods(schema, "ServerNotification"))
    handled = {*translate._NOTIFICATIONS, *client_module.NEVER_USED}
    assert theirs - handled - without_a_word == set()


@pytest.mark.parametrize("method", sorted(translate._NOTIFICATIONS))
def test_every_field_of_a_notification_exists(method: str, schema: Path) -> None:
    theirs = properties(schema, methods(schema, "ServerNotification")[method])
    assert fields(shape_of(method)) - theirs == set()


def test_every_request_that_they_make_is_answered_or_refused_on_purpose(schema: Path) -> None:
    refused = {
        "account/chatgptAuthTokens/refresh",
        "attestation/generate",
        "currentTime/read",
        "item/tool/call",
    }
    answered = {*APPROVALS, "item/tool/requestUserInput", "mcpServer/elicitation/request"}
    assert set(methods(schema, "ServerRequest")) == answered | refused


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_field_of_a_shape_exists(name: str, schema: Path) -> None:
    for theirs in TYPES[name]:
        missing = fields(getattr(shapes, name)) - properties(schema, theirs)
        if len(TYPES[name]) > 1:
            others = set().union(*(properties(schema, other) for other in TYPES[name]))
            missing &= fields(getattr(shapes, name)) - others
        assert {(name, field) for field in missing} - UNDOCUMENTED == set()


def test_every_shape_is_compared_with_something() -> None:
    notified = {shape_of(method).__name__ for method in translate._NOTIFICATIONS}
    bases = {"Shape", "Scope", "ThreadScoped", "TurnScoped"}
    ours = {
        name
        for name, value in vars(shapes).items()
        if isinstance(value, type) and issubclass(value, shapes.Shape)
    }
    assert ours - set(TYPES) - notified - bases == set()


def words(folder: Path, type_name: str) -> set[str]:
    """The words that a type of the schema allows, and the keys of its objects."""
    found: set[str] = set()
    for variant in definitions(folder)[type_name].get("anyOf", []) or definitions(folder)[
        type_name
    ].get("oneOf", [definitions(folder)[type_name]]):
        found |= set(variant.get("enum", ()))
        found |= set(variant.get("required", ()))
    return found


def test_the_words_for_settings_are_theirs(schema: Path) -> None:
    assert set(translate.MODES) <= words(schema, "SandboxMode")
    assert set(translate.POLICIES) <= words(schema, "AskForApproval")
    policies = json.dumps(definitions(schema)["SandboxPolicy"])
    assert all(f'"{word}"' in policies for word in translate.MODES.values())


def test_the_words_for_errors_are_theirs(schema: Path) -> None:
    ours = {*failures._ERROR_KINDS, *failures._OUTCOMES}
    assert ours - words(schema, "CodexErrorInfo") == set()


def test_the_kinds_of_items_that_we_name_are_theirs(schema: Path) -> None:
    variants = definitions(schema)["ThreadItem"]["oneOf"]
    theirs = {variant["properties"]["type"]["enum"][0] for variant in variants}
    source = Path(items.__file__).read_text()
    ours = {
        word
        for line in re.findall(r"case (\"\w+\"(?: \| \"\w+\")*):", source)
        for word in re.findall(r'"(\w+)"', line)
    }
    # `text` and the like are kinds of a user's input, not of items.
    assert {"userMessage", "agentMessage", "commandExecution"} <= ours
    assert (ours | set(items._KINDS)) - theirs == set()


def test_the_decisions_that_we_send_are_theirs(schema: Path) -> None:
    theirs = json.dumps(definitions(schema)["CommandExecutionApprovalDecision"])
    for decision in ("accept", "acceptForSession", "decline", "cancel"):
        assert f'"{decision}"' in theirs
        assert f'"{decision}"' in json.dumps(definitions(schema)["FileChangeApprovalDecision"])
    legacy = json.dumps(definitions(schema)["ReviewDecision"])
    for decision in ("approved", "approved_for_session", "denied", "rejection", "abort"):
        assert f'"{decision}"' in legacy
