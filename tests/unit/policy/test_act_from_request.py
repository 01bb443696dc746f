"""Questions of agents as acts. The tool calls are those that real agents send."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dragoman.client.codex import approvals
from dragoman.client.permissions import Question
from dragoman.dialects.acp import v1 as acp
from dragoman.policy.act_from_request import act_of
from dragoman.policy.rules import Act


def act(peer: str = "someone", *, titled: bool = False, **call: Any) -> Act:
    tool_call = msgspec.convert({"toolCallId": "1", **call}, acp.ToolCallUpdate)
    question = Question(
        session_id="s",
        tool_call_id="1",
        title=tool_call.title or "",
        kind=tool_call.kind or "other",
        options=(),
        tool_call=tool_call,
    )
    return act_of(question, peer=peer, role="write", workspace="/w", titled=titled)


def test_who_asks_and_where_is_kept() -> None:
    told = act("codex", kind="think", title="hm")
    assert (told.peer, told.role, told.workspace, told.kind, told.title) == (
        *("codex", "write", "/w", "think", "hm"),
    )
    assert not told.runs and told.evident == () and told.paths == ()


def test_paths_come_from_locations_diffs_and_input() -> None:
    told = act(
        kind="edit",
        locations=[{"path": "/w/a"}],
        content=[{"type": "diff", "path": "/w/b", "newText": "x"}],
        rawInput={"file_path": "/w/c", "filePath": "/w/d", "paths": ["/w/e", "/w/a"]},
    )
    assert told.paths == ("/w/a", "/w/b", "/w/c", "/w/d", "/w/e")


def test_a_path_deep_in_the_input_counts() -> None:
    told = act(kind="edit", rawInput={"edits": [{"target": {"path": "/w/a"}}]})
    assert told.paths == ("/w/a",)


@pytest.mark.parametrize(
    ("call", "evident"),
    [
        ({"content": [{"type": "diff", "path": "/a", "newText": "x"}]}, ("edit",)),
        ({"rawInput": {"path": "/a", "content": "x"}}, ("edit",)),
        ({"rawInput": {"path": "/a", "old_string": "x"}}, ("edit",)),
        ({"rawInput": {"url": "https://example.org"}}, ("fetch",)),
        ({"rawInput": {"code": "import os"}}, ("execute",)),
        ({"rawInput": {"path": "/a"}}, ()),
        ({"rawInput": {"path": "/a", "content": ""}}, ("edit",)),
        ({"rawInput": {"path": "/a", "content": None}}, ()),
        ({"rawInput": {"path": "/a", "delete": True}}, ("other",)),
        ({"rawInput": {"from": "/a", "to": "/b"}}, ("other",)),
        ({"locations": [{"path": "https://example.org/a"}]}, ("fetch",)),
        ({"rawInput": {"pattern": "x", "-n": True, "head_limit": 5}}, ()),
        ({"content": [{"type": "terminal", "terminalId": "t"}]}, ("execute",)),
        ({"rawInput": {"uri": "https://example.org/a"}}, ("fetch",)),
        ({"rawInput": {"path": "/a", "payload": "rm -rf ~"}}, ("other",)),
        ({"rawInput": {"path": "/a", "args": ["rm"]}}, ("other",)),
        ({"rawInput": "rm -rf ~"}, ("other",)),
        ({"title": "Read a"}, ("other",)),
    ],
)
def test_what_shows_in_a_call_counts_whatever_it_is_called(
    call: dict[str, Any], evident: tuple[str, ...]
) -> None:
    assert act(kind="read", **call).evident == evident


def test_a_command_is_a_line_or_words() -> None:
    line = act(kind="execute", rawInput={"command": "git status"})
    assert (line.line, line.argv) == ("git status", None)
    words = act(kind="execute", rawInput={"command": ["git", "status"]})
    assert (words.line, words.argv) == (None, ("git", "status"))
    apart = act(kind="execute", rawInput={"command": "git", "args": ["status"]})
    assert apart.argv == ("git", "status")
    joined = act(kind="execute", rawInput={"command": "git", "args": "status"})
    assert joined.line == "git status"


def test_several_commands_are_one_line_each() -> None:
    both = act(kind="execute", rawInput={"command": "a", "commands": ["a", "b"]})
    assert both.line == "a\nb"


def test_a_command_of_any_kind_of_tool_is_seen() -> None:
    assert act(kind="read", rawInput={"command": "rm x"}).line == "rm x"


@pytest.mark.parametrize(
    "given",
    [
        {"command": ["git", 1]},
        {"command": {"a": "b"}},
        {"command": ["git", "a\0b"]},
        {"command": ["a"], "cmd": ["b"]},
        {"command": "git", "args": ["status"], "Args": ["push"]},
        {"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": {"command": "rm"}}}}}}}}}},
    ],
)
def test_a_command_that_cannot_be_read_is_hidden(given: dict[str, Any]) -> None:
    assert act(kind="execute", rawInput=given).hidden


def test_an_environment_and_a_folder_beside_a_command_are_reported() -> None:
    told = act(kind="execute", rawInput={"command": "a", "env": {"PATH": "/x"}, "cwd": "/y"})
    assert told.tainted and told.cwd == "/y"
    assert not act(kind="execute", rawInput={"command": "a", "env": {}}).tainted


def test_two_folders_are_not_one() -> None:
    told = act(kind="execute", rawInput={"command": "a", "cwd": "/x", "workdir": "/y"})
    assert told.cwd == "/y" and "/y" in told.paths


def test_a_title_is_a_command_only_where_the_program_writes_it() -> None:
    call: dict[str, Any] = {"kind": "execute", "title": "touch x", "locations": []}
    assert act(titled=True, **call).line == "touch x"
    other = act(**call)
    assert other.line is None and other.hidden
    told = act(titled=True, rawInput={"command": "rm x"}, **call)
    assert told.line == "rm x"


def test_what_was_sent_has_a_fingerprint() -> None:
    one = act(kind="other", title="x", rawInput={"a": 1})
    assert one.fingerprint == act(kind="other", title="x", rawInput={"a": 1}).fingerprint
    assert one.fingerprint != act(kind="other", title="x", rawInput={"a": 2}).fingerprint


# -- codex


def codex(method: str, **params: Any) -> Act:
    raw = msgspec.Raw(
        msgspec.json.encode({"threadId": "t", "turnId": "u", "itemId": "i", **params})
    )
    approval = approvals.APPROVALS[method](raw)
    return act_of(approval.question("r"), peer="codex", role="", workspace="/w")


def test_a_command_of_codex_is_its_title() -> None:
    told = codex("item/commandExecution/requestApproval", command="rm x", reason="to clean up")
    assert (told.kind, told.line, told.hidden) == ("execute", "rm x", False)


def test_a_reason_of_codex_is_not_a_command() -> None:
    told = codex("item/commandExecution/requestApproval", reason="git status")
    assert told.line is None and told.hidden
    assert codex("item/commandExecution/requestApproval").hidden


def test_a_change_of_files_of_codex_does_not_say_which() -> None:
    told = codex("item/fileChange/requestApproval", reason="x")
    assert (told.kind, told.paths, told.runs) == ("edit", (), False)


def test_an_open_quote_in_one_of_several_lines_hides_none_of_the_others() -> None:
    told = act(kind="execute", rawInput={"commands": ["git status '", "touch x", "'"]})
    assert told.hidden
    assert not act(kind="execute", rawInput={"commands": ["git status 'a'", "ls"]}).hidden
