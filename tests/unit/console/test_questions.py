"""Questions as the page shows them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman.broker.protocol import ShownQuestion
from dragoman.broker.records import BrokerRecord
from dragoman.console.questions import MAX_TEXT, OpenForm, OpenPermission, open_question
from dragoman.transports.process.identity import own_identity

BROKER = BrokerRecord(
    name="codex-1",
    address="/x",
    peer="codex",
    workspace="/work",
    version="0",
    broker=own_identity(),
    owner="",
    started_at=0.0,
)
OPTIONS = [
    {"optionId": "a", "name": "Yes", "kind": "allow_once"},
    {"optionId": "b", "name": "Always", "kind": "allow_always"},
    {"optionId": "c", "name": "Never", "kind": "reject_always"},
]


def shown(params: Any, method: str = "session/request_permission") -> Any:
    question = ShownQuestion(
        id="1",
        digest="d",
        session_id="s",
        key="s-1",
        job="j-1",
        method=method,
        params=Raw(json.dumps(params).encode()),
        asked_at=5.0,
    )
    return open_question(question, BROKER)


def permission(**call: Any) -> OpenPermission:
    tool = {"toolCallId": "t", **call}
    found = shown({"sessionId": "s", "toolCall": tool, "options": OPTIONS})
    assert isinstance(found, OpenPermission)
    return found


def test_a_permission_says_what_would_be_done() -> None:
    diff = {"type": "diff", "path": "/work/a", "oldText": "1", "newText": "2"}
    text = {"type": "content", "content": {"type": "text", "text": "because"}}
    found = permission(
        title="Edit", kind="edit", content=[diff, text], locations=[{"path": "/work/a"}]
    )
    assert (found.title, found.tool_kind, found.text) == ("Edit", "edit", "because")
    assert [(each.path, each.old_text, each.new_text) for each in found.diffs] == [
        ("/work/a", "1", "2")
    ]
    assert found.paths == ["/work/a"]
    assert (found.peer, found.workspace, found.session, found.job) == (
        "codex",
        "/work",
        "s-1",
        "j-1",
    )


@pytest.mark.parametrize(
    ("given", "command"),
    [({"command": "make test"}, "make test"), ({"command": ["make", "all"]}, "make all")],
)
def test_a_command_is_shown_as_a_line(given: Any, command: str) -> None:
    assert permission(kind="execute", rawInput=given).command == command


def test_an_answer_for_longer_than_this_question_is_offered_only_in_place_of_another() -> None:
    assert [option.id for option in permission().options] == ["a", "c"]


def test_a_text_without_end_is_cut() -> None:
    found = permission(title="x" * 1_000_000, rawInput={"command": "y" * 1_000_000})
    assert len(found.title) < 3_000
    assert found.command is not None and len(found.command) < MAX_TEXT + 100
    assert found.input == "1000014 bytes"


def test_a_form_has_a_message_and_a_schema_or_a_page() -> None:
    form = shown({"mode": "form", "message": "Name?", "requestedSchema": {}}, "elicitation/create")
    assert isinstance(form, OpenForm) and form.message == "Name?" and form.url is None
    page = shown({"mode": "url", "message": "Log in", "url": "https://x"}, "elicitation/create")
    assert isinstance(page, OpenForm) and page.url == "https://x"


def test_what_cannot_be_read_is_not_shown() -> None:
    assert shown({"sessionId": "s"}) is None
    assert shown([], "elicitation/create") is None
