"""Questions as the page shows them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.broker.protocol import ShownQuestion
from dragoman.console.questions import (
    MAX_DIFF_TEXT,
    MAX_OPTIONS,
    MAX_PATHS,
    MAX_TEXT,
    OpenForm,
    OpenPermission,
    open_question,
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
    return open_question(question, peer="codex", workspace="/work")


def permission(**call: Any) -> OpenPermission:
    tool = {"toolCallId": "t", **call}
    found = shown({"sessionId": "s", "toolCall": tool, "options": OPTIONS})
    assert isinstance(found, OpenPermission)
    return found


def test_a_permission_describes_the_requested_action() -> None:
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
    [
        ({"command": "make test"}, "make test"),
        ({"command": ["make", "all"]}, "make all"),
        ({"command": ["rm", "a b"]}, "rm 'a b'"),
        ({"script": "ls", "command": ["rm", "a"]}, "ls\nrm a"),
    ],
)
def test_a_command_is_shown_as_one_line(given: Any, command: str) -> None:
    assert permission(kind="execute", rawInput=given).command == command


def test_the_directory_and_the_notes_of_a_command_are_shown() -> None:
    given = {"command": "make", "cwd": "/tmp", "env": {"PATH": "/tmp"}}
    found = permission(kind="execute", rawInput=given)
    assert found.cwd == "/tmp" and found.input == given
    assert found.notes == ["The command has its own environment or input."]
    hidden = permission(kind="execute", rawInput={"code": "import os"})
    assert hidden.notes == ["It runs a command that the agent does not show."]
    assert not hidden.input_is_shown
    unnamed = permission(kind="execute", title="make")
    assert unnamed.notes == ["The agent does not report the command; the title may be the command."]


def test_input_that_the_other_fields_do_not_show_is_marked() -> None:
    assert permission(rawInput={"command": "make"}).input_is_shown
    assert not permission(rawInput={"command": "make", "sudo": "yes"}).input_is_shown
    diff = {"type": "diff", "path": "/work/a", "newText": "2"}
    assert permission(content=[diff], rawInput={"content": "2"}).input_is_shown
    assert not permission(content=[diff], rawInput={"content": "3"}).input_is_shown


def test_no_number_of_changes_paths_and_options_makes_a_question_too_large() -> None:
    diff = {"type": "diff", "path": "/work/a", "newText": "x" * 300_000}
    found = permission(content=[diff] * 50, locations=[{"path": "p" * 9_999}])
    assert len(found.diffs) + found.more_diffs == 50 and found.more_diffs > 0
    assert sum(len(each.new_text) for each in found.diffs) <= MAX_DIFF_TEXT
    assert len(found.paths[0]) < 5_000 and found.more_paths == 0
    far = permission(locations=[{"path": f"/work/{n % 250}"} for n in range(500)])
    assert len(far.paths) == MAX_PATHS and far.more_paths == 250 - MAX_PATHS
    options = [{"optionId": "o" * 2_000, "name": "Long", "kind": "allow_once"}, *OPTIONS * 100]
    many = shown({"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": options})
    assert isinstance(many, OpenPermission)
    assert len(many.options) == MAX_OPTIONS and many.options[0].id == "a"


def test_all_options_are_offered() -> None:
    assert [option.id for option in permission().options] == ["a", "b", "c"]


def test_very_long_texts_are_cut() -> None:
    found = permission(title="x" * 1_000_000, rawInput={"command": "y" * 1_000_000})
    assert len(found.title) < 3_000
    assert found.command is not None and len(found.command) < MAX_TEXT + 100
    assert found.input == "1000014 bytes"


def test_a_form_has_a_message_and_a_schema_or_a_url() -> None:
    form = shown({"mode": "form", "message": "Name?", "requestedSchema": {}}, "elicitation/create")
    assert isinstance(form, OpenForm) and form.message == "Name?" and form.url is None
    page = shown({"mode": "url", "message": "Log in", "url": "https://x"}, "elicitation/create")
    assert isinstance(page, OpenForm) and page.url == "https://x"


def test_long_texts_of_a_form_are_cut() -> None:
    long = {"mode": "x" * 1_000_000, "message": "y" * 1_000_000, "url": "z" * 1_000_000}
    form = shown(long, "elicitation/create")
    assert len(msgspec.json.encode(form)) < 30_000


def test_an_undecodable_question_is_not_shown() -> None:
    assert shown({"sessionId": "s"}) is None
    assert shown([], "elicitation/create") is None
