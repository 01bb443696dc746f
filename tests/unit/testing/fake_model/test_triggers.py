"""What the fake model answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.testing.fake_model.triggers import (
    SAID_SIZE,
    Asked,
    Reply,
    Tool,
    ToolCall,
    last_text,
    reply_to,
    sample,
    words,
)
from dragoman.verify.canary_prompts import fill
from tests.faults.ladder_table import TRIGGERS


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


EXEC = Tool("exec_command", schema("cmd", cmd={"type": "string"}))
SHELL = Tool("shell", schema("command", command={"type": "array"}))
BASH = Tool(
    "bash",
    schema("command", "description", command={"type": "string"}, description={"type": "string"}),
)
WRITE = Tool("write_file", schema("file_path", "content", file_path={}, content={}))


def asked(text: str, *tools: Tool, results: tuple[str, ...] = ()) -> Asked:
    return Asked("m", text, results, tools)


def test_a_text_is_repeated_a_word_in_each_chunk() -> None:
    reply = reply_to(asked("hello there"))
    assert reply.chunks == ("You ", "said: ", "hello ", "there")
    assert (reply.text, reply.thought, reply.status) == ("You said: hello there", "", 200)


def test_chunks_are_as_many_as_were_asked_for() -> None:
    assert reply_to(asked("please CHUNKS:3 now")).chunks == ("chunk-1 ", "chunk-2 ", "chunk-3 ")


def test_thoughts_come_beside_every_kind_of_answer() -> None:
    assert reply_to(asked("THINK")).thought == "I think about this."
    assert reply_to(asked("THINK\nSHELL:ls", EXEC)).thought == "I think about this."


@pytest.mark.parametrize(
    "text", ["UNTHINKABLE", "THINKING", "I said HOLDing", "SLOWLY", "CUTE", "CHANGE"]
)
def test_a_word_that_only_contains_a_trigger_is_none(text: str) -> None:
    reply = reply_to(asked(text))
    assert reply.text == f"You said: {text}"
    assert (reply.thoughts, reply.hold, reply.cut, reply.hang, reply.interval) == (
        (),
        False,
        False,
        False,
        0.0,
    )


def test_words_of_a_prompt_choose_pace_and_accidents() -> None:
    assert reply_to(asked("SLOW")).interval > 0
    assert reply_to(asked("HOLD on")).hold
    assert reply_to(asked("CUT it")).cut
    assert reply_to(asked("HANG")).hang


def test_errors_have_their_status_and_their_number() -> None:
    assert (reply_to(asked("HTTP:429")).status, reply_to(asked("HTTP:429")).times) == (429, None)
    assert reply_to(asked("HTTP:500*2")).times == 2
    assert reply_to(asked("HTTP:500*2"), ignore_errors=True).text == "You said: HTTP:500*2"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (EXEC, {"cmd": "ls -l"}),
        (SHELL, {"command": ["bash", "-lc", "ls -l"]}),
        (BASH, {"command": "ls -l", "description": "fake"}),
    ],
)
def test_a_command_is_called_as_the_agents_tool_wants_it(
    tool: Tool, arguments: dict[str, Any]
) -> None:
    assert reply_to(asked("SHELL:ls -l", tool)).call == ToolCall(tool.name, arguments)


def test_a_file_is_written_with_the_tool_for_files_where_there_is_one() -> None:
    reply = reply_to(asked("WRITE:/a/b.txt:some: content", EXEC, WRITE))
    assert reply.call == ToolCall(
        "write_file", {"file_path": "/a/b.txt", "content": "some: content"}
    )


def test_a_path_may_begin_with_a_drive() -> None:
    call = reply_to(asked("WRITE:C:\\a\\b.txt:text", WRITE)).call
    assert call == ToolCall("write_file", {"file_path": "C:\\a\\b.txt", "content": "text"})


def test_without_a_file_tool_a_file_is_patched() -> None:
    patch = "*** Begin Patch\n*** Add File: a.txt\n+text\n*** End Patch"
    free = Tool("apply_patch", freeform=True)
    assert reply_to(asked("WRITE:a.txt:text", EXEC, free)).call == ToolCall("apply_patch", patch)
    typed = Tool("apply_patch", schema("input", input={"type": "string"}))
    assert reply_to(asked("WRITE:a.txt:text", typed)).call == ToolCall(
        "apply_patch", {"input": patch}
    )
    call = reply_to(asked("WRITE:a.txt:text", EXEC)).call
    assert call == ToolCall("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}\nEOF"})


def test_a_plan_has_its_first_step_under_way() -> None:
    step = schema("step", "status", "note", step={}, status={}, note={"type": "string"})
    tool = Tool("update_plan", schema("plan", plan={"type": "array", "items": step}))
    call = reply_to(asked("PLAN:look; change", tool)).call
    assert call == ToolCall(
        "update_plan",
        {
            "plan": [
                {"step": "look", "status": "in_progress", "note": "fake"},
                {"step": "change", "status": "pending", "note": "fake"},
            ]
        },
    )


def test_any_tool_can_be_called_by_its_name() -> None:
    call = reply_to(asked('TOOL:exec_command:{"cmd": "x:y"}', EXEC)).call
    assert call == ToolCall("exec_command", {"cmd": "x:y"})
    free = Tool("anything", freeform=True)
    assert reply_to(asked("TOOL:anything:a: b", free)).call == ToolCall("anything", "a: b")
    grouped = Tool("list", namespace="mcp__files")
    assert reply_to(asked("TOOL:mcp__files.list:{}", grouped)).call == ToolCall(
        "list", {}, "mcp__files"
    )


@pytest.mark.parametrize(
    "text",
    [
        "SHELL:ls",
        "WRITE:a:b",
        "WRITE:nonsense",
        "PLAN:a",
        "TOOL:missing:{}",
        "TOOL:bash:nonsense",
        "TOOL:bash:[]",
    ],
)
def test_a_call_that_cannot_be_made_is_said_so(text: str) -> None:
    tools = (BASH,) if "TOOL" in text or "nonsense" in text else ()
    reply = reply_to(asked(text, *tools))
    assert reply.call is None
    assert reply.text.startswith("There is no tool for ")


def test_calls_are_made_one_after_another_and_then_the_last_result_is_named() -> None:
    text = "SHELL:one\n  SHELL:two"
    calls = [reply_to(asked(text, EXEC, results=("r",) * n)).call for n in range(2)]
    assert calls == [
        ToolCall("exec_command", {"cmd": "one"}),
        ToolCall("exec_command", {"cmd": "two"}),
    ]
    assert reply_to(asked(text, EXEC, results=("a", "b"))).text == "The tool said: b"
    long = reply_to(asked(text, EXEC, results=("a", "b" * 1000))).text
    assert len(long) == len("The tool said: ") + SAID_SIZE


def test_an_answer_in_json_fits_its_schema_whatever_the_text_says() -> None:
    wanted = schema("choice", "why", choice={"enum": ["flash", "pro"]}, why={"type": "string"})
    reply = reply_to(Asked("m", "HTTP:500", schema=wanted))
    assert json.loads(reply.text) == {"choice": "flash", "why": "fake"}


@pytest.mark.parametrize(
    ("wanted", "value"),
    [
        ({"const": 3}, 3),
        ({"enum": ["a", "b"]}, "a"),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, False),
        ({"oneOf": [{"type": "null"}]}, None),
        ({"type": ["integer", "null"], "minimum": 4}, 4),
        ({"type": "number"}, 1),
        ({"type": "ARRAY"}, []),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}}, {"a": False}),
        ({"type": "object"}, {}),
        ({}, "fake"),
        (None, "fake"),
    ],
)
def test_some_value_is_found_for_every_schema(wanted: Any, value: Any) -> None:
    assert sample(wanted) == value


def test_the_last_words_of_a_user_are_not_those_of_his_program() -> None:
    texts = ["older", "<system-reminder>HTTP:500</system-reminder>mine", "<note x='1'>a</note>\n"]
    assert last_text(texts) == "mine"
    assert last_text(["<only>tags</only>"]) == ""
    assert last_text([]) == ""


def test_no_space_is_lost_between_words() -> None:
    for text in ("a  b\n\nc ", "  leading", "one", ""):
        assert "".join(words(text)) == text


def test_the_fake_model_understands_every_canary() -> None:
    def replied(prompt: str) -> Reply:
        tools = tuple(Tool(name) for name in ("write_file", "run_shell_command", "sing"))
        return reply_to(Asked("m", prompt, tools=tools))

    said = replied(fill(TRIGGERS.echo, token="anchorage"))
    assert "anchorage" in said.text and len(said.chunks) > 1
    assert replied(TRIGGERS.slow).interval > 0
    write = replied(fill(TRIGGERS.write, path="/w/granted.txt", text="abc")).call
    assert write is not None and write.arguments == {
        "file_path": "/w/granted.txt",
        "content": "abc",
    }
    shell = replied(fill(TRIGGERS.shell, command="echo ran > ran.txt")).call
    assert shell is not None and shell.arguments == {"cmd": "echo ran > ran.txt"}
    tool = replied(fill(TRIGGERS.tool, tool="sing", server="dragoman-canary")).call
    assert tool is not None and tool.name == "sing"
    assert TRIGGERS.failure is not None
    assert replied(TRIGGERS.failure).status == 400
