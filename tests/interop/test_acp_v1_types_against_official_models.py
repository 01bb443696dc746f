"""Our ACP v1 types against the models of the official Python package, in both directions.

The models are generated from the protocol's schema by other people, so agreement with them is
independent evidence. They follow a slightly older schema: what they do not have yet is listed here
by name.
"""

from __future__ import annotations

import json
from typing import Any, get_args

import acp.schema
import pydantic
import pytest

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1.unstable import sessions, updates
from tests.unit.dialects.acp.v1 import samples

TOO_NEW_UPDATES = {
    "notice",
    "compaction_update",
    "compaction_summary_chunk",
    "subagent_update",
    "session_message",
    "session_message_chunk",
}
TOO_NEW_FIELDS = {
    ("toolCall", "name"),
    ("update", "name"),
    ("", "name"),
    ("session", "compaction"),
    ("session", "notices"),
    ("", "models"),
    ("", "systemPrompt"),
    ("", "archived"),
    ("sessions", "archived"),
    ("clientCapabilities", "subagents"),
    ("sessionCapabilities", "systemPrompt"),
    ("sessionCapabilities", "archive"),
    ("sessionCapabilities", "status"),
    ("sessionCapabilities", "title"),
    ("auth", "status"),
}
"""Fields, with the field that contains them, that the models do not have."""

ABSENT = {
    "SetSessionModelRequest",
    "SetSessionModelResponse",
    "ArchiveSessionRequest",
    "ArchiveSessionResponse",
    "UnarchiveSessionRequest",
    "UnarchiveSessionResponse",
    "SessionStatusRequest",
    "SessionStatusResponse",
    "SetSessionTitleRequest",
    "SetSessionTitleResponse",
    "AuthStatusRequest",
    "AuthStatusResponse",
    "AuthStatusUpdateNotification",
    "MessageMcpRequest",
    "MessageMcpResponse",
    "MessageMcpNotification",
    "ProxySuccessorRequest",
    "ProxySuccessorNotification",
}
"""Types that the models do not have, or have in an earlier, incompatible form."""

BY_TAG: dict[Any, tuple[str, dict[str, str]]] = {
    v1.ContentBlock: (
        "type",
        {
            "text": "TextContentBlock",
            "image": "ImageContentBlock",
            "audio": "AudioContentBlock",
            "resource_link": "ResourceContentBlock",
            "resource": "EmbeddedResourceContentBlock",
        },
    ),
    v1.ToolCallContent: (
        "type",
        {
            "content": "ContentToolCallContent",
            "diff": "FileEditToolCallContent",
            "terminal": "TerminalToolCallContent",
        },
    ),
    v1.SessionConfigOption: (
        "type",
        {"select": "SessionConfigOptionSelect", "boolean": "SessionConfigOptionBoolean"},
    ),
    v1.AuthMethod: (
        "type",
        {
            "": "AuthMethodAgent",
            "terminal": "TerminalAuthMethod",
            "env_var": "EnvVarAuthMethod",
        },
    ),
    v1.McpServer: (
        "type",
        {"": "McpServerStdio", "http": "HttpMcpServer", "sse": "SseMcpServer"},
    ),
    sessions.McpServer: (
        "type",
        {
            "": "McpServerStdio",
            "http": "HttpMcpServer",
            "sse": "SseMcpServer",
            "acp": "AcpMcpServer",
        },
    ),
    v1.CreateElicitationRequest: (
        "mode",
        {
            "form": "CreateFormSessionElicitationRequest",
            "url": "CreateUrlRequestElicitationRequest",
        },
    ),
    v1.CreateElicitationResponse: (
        "action",
        {
            "accept": "AcceptElicitationResponse",
            "decline": "DeclineElicitationResponse",
            "cancel": "CancelElicitationResponse",
        },
    ),
    v1.SetSessionConfigOptionRequest: (
        "type",
        {
            "": "SetSessionConfigOptionSelectRequest",
            "boolean": "SetSessionConfigOptionBooleanRequest",
        },
    ),
}


def model_name(hint: Any, sample: dict[str, Any]) -> str:
    """Return the official model for a sample."""
    if hint in BY_TAG:
        tag_field, names = BY_TAG[hint]
        return names[sample.get(tag_field, "")]
    return str(hint.__name__)


def is_comparable(pair: tuple[Any, dict[str, Any]]) -> bool:
    hint, sample = pair
    update = sample.get("update", {})
    if update.get("sessionUpdate") in TOO_NEW_UPDATES:
        return False
    return model_name(hint, sample) not in ABSENT


def without_what_is_too_new(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {
            key: item if key == "_meta" else without_what_is_too_new(item, key)
            for key, item in value.items()
            if (name, key) not in TOO_NEW_FIELDS or is_a_name_they_know(name, key, value)
        }
    if isinstance(value, list):
        return [without_what_is_too_new(item, name) for item in value]
    return value


def is_a_name_they_know(name: str, key: str, value: dict[str, Any]) -> bool:
    """Tool calls got a `name` recently; everything else that has one always had it."""
    return key == "name" and "toolCallId" not in value


COMPARABLE = [pair for pair in samples.STABLE + samples.UNSTABLE if is_comparable(pair)]


@pytest.mark.parametrize("pair", COMPARABLE, ids=samples.name_of)
def test_the_official_model_reads_what_we_write_and_loses_nothing(
    pair: tuple[Any, dict[str, Any]],
) -> None:
    hint, sample = pair
    ours = v1.encode(v1.decode(json.dumps(sample).encode(), hint))
    model: type[pydantic.BaseModel] = getattr(acp.schema, model_name(hint, sample))
    theirs = model.model_validate_json(ours)
    written = json.loads(theirs.model_dump_json(by_alias=True, exclude_unset=True))
    assert written == without_what_is_too_new(sample)


@pytest.mark.parametrize("pair", COMPARABLE, ids=samples.name_of)
def test_we_read_what_the_official_model_writes(pair: tuple[Any, dict[str, Any]]) -> None:
    hint, sample = pair
    model: type[pydantic.BaseModel] = getattr(acp.schema, model_name(hint, sample))
    theirs = model.model_validate_json(json.dumps(sample))
    # Every field is written, including defaults as nulls: null must count as absent.
    value = v1.decode(theirs.model_dump_json(by_alias=True).encode(), hint)
    expected = v1.convert(without_what_is_too_new(sample), hint)
    assert as_written(value) == as_written(expected)


def as_written(value: Any) -> Any:
    """Return the JSON of a value without parts that only say that something is absent."""
    return absent_left_out(json.loads(v1.encode(value)))


def absent_left_out(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: absent_left_out(item)
            for key, item in value.items()
            if item is not None and item is not False and item != [] and item != {}
        }
    if isinstance(value, list):
        return [absent_left_out(item) for item in value]
    return value


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (v1.StopReason, "StopReason"),
        (v1.ToolKind, "ToolKind"),
        (v1.ToolCallStatus, "ToolCallStatus"),
        (v1.PermissionOptionKind, "PermissionOptionKind"),
        (v1.PlanEntryPriority, "PlanEntryPriority"),
        (v1.PlanEntryStatus, "PlanEntryStatus"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_known_values_are_the_official_ones(ours: Any, theirs: str) -> None:
    assert {str(member) for member in ours} == set(get_args(getattr(acp.schema, theirs)))


def test_every_update_they_know_is_one_of_ours() -> None:
    theirs = {
        get_args(model.model_fields["session_update"].annotation)[0]
        for model in vars(acp.schema).values()
        if isinstance(model, type)
        and issubclass(model, pydantic.BaseModel)
        and "session_update" in model.model_fields
    }
    ours = {
        member.__struct_config__.tag
        for member in get_args(updates.SessionUpdate)
        if not issubclass(member, v1.Unknown)
    }
    assert theirs <= ours
    assert ours - theirs == TOO_NEW_UPDATES
