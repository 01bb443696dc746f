"""How approvals are put and answered."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dragoman.client.codex import approvals
from dragoman.client.permissions import Answer, Chosen
from dragoman.client.tool_input import told_of
from dragoman.dialects.codex import shapes
from dragoman.events.parts import FileChange
from dragoman.events.words import FileOp, PermissionKind, ToolKind

HERE = {"threadId": "t", "turnId": "u", "itemId": "i"}


def made(method: str, **params: Any) -> approvals.Approval:
    return approvals.APPROVALS[method](Raw(json.dumps(params).encode()))


def command(**params: Any) -> approvals.Approval:
    return made("item/commandExecution/requestApproval", **HERE, **params)


def test_a_command_is_asked_about_by_its_words() -> None:
    approval = command(command="touch x", reason="because", cwd="/w")
    question = approval.question("7")
    assert (question.session_id, question.tool_call_id, question.request_id) == ("t", "i", "7")
    assert (question.title, question.kind, approval.description) == (
        "touch x",
        "execute",
        "because",
    )
    assert approval.question("7", "another title").title == "another title"
    assert command().title == "Run a command"


def test_a_command_that_only_reads_is_marked_as_read() -> None:
    assert command(commandActions=[{"type": "read"}]).kind is ToolKind.READ
    assert command(commandActions=[{"type": "read"}, {"type": "unknown"}]).kind is ToolKind.EXECUTE


@pytest.mark.parametrize(
    ("answer", "option", "reply"),
    [
        (Answer.ALLOW_ONCE, "accept", {"decision": "accept"}),
        (Answer.ALLOW_ALWAYS, "acceptForSession", {"decision": "acceptForSession"}),
        (Answer.REJECT_ONCE, "decline", {"decision": "decline"}),
        (Answer.REJECT_ALWAYS, "decline", {"decision": "decline"}),
        (Answer.CANCEL, None, {"decision": "cancel"}),
    ],
)
def test_an_answer_becomes_a_decision(answer: Answer, option: str | None, reply: Any) -> None:
    assert command().reply(answer) == (option, reply, answer)
    file = made("item/fileChange/requestApproval", **HERE)
    assert file.reply(answer) == (option, reply, answer)


def test_the_decisions_that_are_offered_are_the_options_and_declining_is_always_one() -> None:
    amendment = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}
    approval = command(availableDecisions=["accept", amendment, "cancel", "accept", "odd", 3])
    assert [(option.option_id, option.kind) for option in approval.options] == [
        ("accept", PermissionKind.ALLOW_ONCE),
        ("acceptWithExecpolicyAmendment", PermissionKind.ALLOW_ALWAYS),
        ("cancel", PermissionKind.CANCEL_TURN),
        ("odd", PermissionKind.OTHER),
        ("3", PermissionKind.OTHER),
        ("decline", PermissionKind.REJECT_ONCE),
    ]
    assert approval.reply(Answer.ALLOW_ALWAYS) == (
        "acceptWithExecpolicyAmendment",
        {"decision": amendment},
        Answer.ALLOW_ALWAYS,
    )
    assert approval.reply(Answer.REJECT_ONCE)[:2] == ("decline", {"decision": "decline"})


def test_allowing_once_never_becomes_allowing_always() -> None:
    approval = command(availableDecisions=["acceptForSession", "cancel"])
    # And what nothing that was offered can allow is refused; the turn goes on.
    refused = ("decline", {"decision": "decline"}, Answer.REJECT_ONCE)
    assert approval.reply(Answer.ALLOW_ONCE) == refused
    assert approval.reply(Chosen("accept", Answer.ALLOW_ONCE)) == refused


def test_a_change_of_files_says_where_it_wants_to_write() -> None:
    assert made("item/fileChange/requestApproval", **HERE).title == "Change files"
    approval = made("item/fileChange/requestApproval", **HERE, grantRoot="/other")
    assert (approval.title, approval.kind) == ("Write below /other", ToolKind.EDIT)


@pytest.mark.parametrize(
    ("told", "lines", "hidden"),
    [
        ({"command": "make"}, ["make"], False),
        ({"command": "cat a", "commandActions": [{"type": "read"}]}, ["cat a"], False),
        ({}, [], True),
        ({"reason": "because"}, [], True),
        ({"command": "make", "reason": "make"}, ["make"], False),
    ],
)
def test_a_command_is_judged_by_its_line_and_its_folder(
    told: dict[str, Any], lines: list[str], hidden: bool
) -> None:
    found = told_of(command(**told, cwd="/w"))
    assert (found.lines, found.hidden, found.cwd) == (lines, hidden, "/w")


def test_changes_of_files_are_judged_by_every_path() -> None:
    approval = made("item/fileChange/requestApproval", **HERE, grantRoot="/root")
    changes = (
        FileChange("a", FileOp.ADD, new_text="x"),
        FileChange("to", FileOp.MOVE, old_path="from"),
    )
    told = told_of(approval.about(changes))
    assert set(told.paths) == {"a", "to", "from", "/root"} and told.kinds == {"edit"}
    patch = {
        "a": {"type": "add", "content": "x"},
        "b": {"update": {"unified_diff": "@@", "move_path": "c"}},
        "d": {"delete": {"content": "x"}},
        "e": {"update": {"unified_diff": "@@"}},
        "f": "odd",
    }
    old = made("applyPatchApproval", conversationId="t", callId="i", fileChanges=patch)
    assert set(told_of(old).paths) == set("abcdef")
    assert [change.op for change in old.content] == [
        *(FileOp.ADD, FileOp.MOVE, FileOp.DELETE, FileOp.MODIFY, FileOp.MODIFY)
    ]
    assert old.about(changes) is old


def test_permissions_and_tools_are_judged_by_what_they_are() -> None:
    wanted = {"fileSystem": {"write": ["/etc"]}}
    approval = made("item/permissions/requestApproval", **HERE, permissions=wanted)
    assert approval.raw_input == {"permissions": wanted} and told_of(approval).unknown
    meta = {"codex_approval_kind": "mcp_tool_call", "tool_params": {"path": ".git/config"}}
    request = shapes.ElicitationRequest(thread_id="t", server_name="files", meta=meta)
    call = approvals.tool_call(request)
    assert call is not None and told_of(call).paths == [".git/config"]


def test_permissions_are_granted_whole_or_not_at_all() -> None:
    wanted = {"network": {"enabled": True}}
    approval = made("item/permissions/requestApproval", **HERE, permissions=wanted)
    assert approval.reply(Answer.ALLOW_ONCE)[1] == {"permissions": wanted, "scope": "turn"}
    assert approval.reply(Answer.ALLOW_ALWAYS)[1] == {"permissions": wanted, "scope": "session"}
    assert approval.reply(Answer.REJECT_ONCE)[1] == {"permissions": {}}
    assert approval.reply(Answer.CANCEL)[:2] == (None, {"permissions": {}})


def test_the_old_questions_get_the_old_words() -> None:
    run = made("execCommandApproval", conversationId="t", callId="i", command=["ls", "-l"])
    assert told_of(run).argv == ("ls", "-l")
    assert (run.title, run.kind, run.turn_id) == ("ls -l", ToolKind.EXECUTE, None)
    assert run.reply(Answer.ALLOW_ONCE)[1] == {"decision": "approved"}
    assert run.reply(Answer.REJECT_ONCE)[1]["decision"].keys() == {"denied"}
    edit = made("applyPatchApproval", conversationId="t", callId="i", fileChanges={})
    assert (edit.title, edit.kind) == ("Change files", ToolKind.EDIT)
    assert edit.reply(Answer.CANCEL)[1] == {"decision": "abort"}


@pytest.mark.parametrize("method", sorted(approvals.APPROVALS))
def test_a_question_that_is_none_is_refused(method: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        made(method, nonsense=1)
