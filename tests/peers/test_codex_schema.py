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

import jsonschema
import msgspec
import pytest
from msgspec import structs

from dragoman.client.codex import client as client_module
from dragoman.client.codex.approvals import APPROVALS
from dragoman.client.permissions import approve_all
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.codex import failures, items, shapes, translate
from dragoman.events import model
from dragoman.events.parts import Image, Text
from tests.aio import aio
from tests.conformance import codex
from tests.conformance.codex import Wire
from tests.conformance.test_codex_turns import item_steps
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


def generated(folder: Path, *options: str) -> Path:
    command = [*peer_program("codex"), "app-server", "generate-json-schema", "--out", str(folder)]
    subprocess.run(
        [*command, *options],
        check=True,
        capture_output=True,
        env=peer_environment(folder),
        timeout=SCHEMA_TIMEOUT,
    )
    return folder


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The schema with its experimental parts."""
    return generated(tmp_path_factory.mktemp("schema"), "--experimental")


@pytest.fixture(scope="module")
def stable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generated(tmp_path_factory.mktemp("stable"))


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
        params = variant["properties"].get("params", {})
        # Params that may be left out are one of two.
        named = [each["$ref"] for each in (params, *params.get("anyOf", ())) if "$ref" in each]
        found[method] = named[0].rpartition("/")[2] if named else ""
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


# -- messages from the client and of the scripted server


async def talk_about_everything(folder: Path) -> Wire:
    """A conversation with the scripted server in which the client uses every method that it has,
    and answers every kind of request."""
    permissions = {"permissions": {"network": {"enabled": True}}, "cwd": "/w", "startedAtMs": 1}
    questions = [{"id": "q", "header": "h", "question": "?", "options": None}]
    old = {"conversationId": "t1", "callId": "c1"}
    asked = [
        codex.ask_command(0),
        codex.request(
            1, "item/fileChange/requestApproval", **codex.about(), itemId="c1", startedAtMs=1
        ),
        codex.request(
            2, "item/permissions/requestApproval", **codex.about(), itemId="c1", **permissions
        ),
        codex.request(
            3,
            "item/tool/requestUserInput",
            **codex.about(),
            **{"itemId": "c1", "isBlocking": True, "questions": questions},
        ),
        codex.request(
            4,
            "mcpServer/elicitation/request",
            **codex.about(),
            **{"serverName": "s", "mode": "form", "message": "m"},
            requestedSchema={"type": "object", "properties": {}},
        ),
        codex.request(5, "execCommandApproval", **old, command=["ls"], cwd="/w", parsedCmd=[]),
        codex.request(6, "applyPatchApproval", **old, fileChanges={}),
    ]
    waits = [step for id, ask in enumerate(asked) for step in (ask, codex.wait_for(id))]
    usage = {"totalTokens": 1, "inputTokens": 1, "cachedInputTokens": 0}
    usage |= {"outputTokens": 0, "reasoningOutputTokens": 0}
    first = [
        codex.wait_for("turn/steer"),
        *(codex.command("inProgress", "started"), *waits, codex.resolved(0)),
        *(codex.command("completed", "completed"), codex.delta("hel"), codex.message("hello")),
        codex.tell(
            "thread/tokenUsage/updated", **codex.about(), tokenUsage={"total": usage, "last": usage}
        ),
    ]
    second = [codex.delta("a", turn="u2"), codex.wait_for("turn/interrupt")]
    script = codex.turns(first, second)
    options = structs.replace(codex.OPTIONS, permit=approve_all, sandbox="workspace-write")
    async with codex.codex(folder, script, options) as (peer, wire):
        server = acp.McpServerStdio(name="s", command="/bin/s", args=["a"], env=[])
        async with peer.session(model="m", mcp_servers=[server]) as talk:
            await talk.set_mode("read-only")
            await talk.set_option("approval_policy", "untrusted")
            await talk.set_model("n")
            async with talk.prompt([Text("x"), Image("QQ==", "image/png")]) as turn:
                await talk.steer("more")
                await turn.wait()
            # The settings that a turn changed are read back before the next one.
            async with talk.prompt("y") as turn:
                async for event in turn:
                    if isinstance(event, model.MessageDelta):
                        turn.cancel()
        earlier: list[dict[str, Any]] = [{"load": "t1"}, {"resume": "t1"}, {"fork": "t1"}]
        for how in earlier:
            async with peer.session(**how):
                pass
        assert [session async for session in peer.list_sessions(folder)] == []
        await peer.read_session("t1")
        await peer.rename_session("t1", "name")
        await peer.archive_session("t1")
        await peer.unarchive_session("t1")
        await peer.delete_session("t1")
        await peer.client.limits()
    return wire


def check(folder: Path, type_name: str, value: Any) -> None:
    document = {"$ref": f"#/definitions/{type_name}", "definitions": definitions(folder)}
    errors = jsonschema.Draft7Validator(document).iter_errors(value)
    # Without the schema, which would fill the screen.
    assert [(list(error.absolute_path), error.message[:200]) for error in errors] == []


@aio
async def test_what_the_client_sends_is_valid_by_the_stable_schema(
    stable: Path, tmp_path: Path
) -> None:
    wire = await talk_about_everything(tmp_path)
    calls = [message for message in wire.of("client") if "method" in message]
    assert {message["method"] for message in calls} == calls_of_ours()
    known = methods(stable, "ClientRequest")
    for message in calls:
        if "id" in message:
            params = known[message["method"]]
            check(stable, params, message["params"])
            assert set(message["params"]) - properties(stable, params) == set(), message
    asked = {
        each["id"]: each["method"]
        for each in wire.of("server")
        if "method" in each and "id" in each
    }
    answers = [message for message in wire.of("client") if "method" not in message]
    assert len(answers) == len(asked) == 7
    for message in answers:
        kind = methods(stable, "ServerRequest")[asked[message["id"]]]
        check(stable, kind.removesuffix("Params") + "Response", message["result"])


@aio
async def test_what_the_scripted_server_sends_is_valid_by_the_schema(
    schema: Path, tmp_path: Path
) -> None:
    wire = await talk_about_everything(tmp_path)
    requests = {
        each["id"]: each["method"]
        for each in wire.of("client")
        if "method" in each and "id" in each
    }
    for message in wire.of("server"):
        if "method" in message:
            kind = "ServerRequest" if "id" in message else "ServerNotification"
            check(schema, methods(schema, kind)[message["method"]], message["params"])
        else:
            kind = methods(schema, "ClientRequest")[requests[message["id"]]]
            response = kind.removesuffix("Params") + "Response"
            check(schema, response, message["result"])
    items_of_all_kinds = [step["send"] for step in item_steps()]
    for message in items_of_all_kinds:
        if not message["params"]["item"]["type"].startswith("novel"):
            check(
                schema, methods(schema, "ServerNotification")[message["method"]], message["params"]
            )
