"""The chat commands of `chat --host`, without a connection."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.broker.client.ssh_command import Host
from dragoman.broker.host_protocol import HostPrompt
from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.host_chat import HostChat
from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.quiet import Quiet
from dragoman.config.schema import HostSettings
from dragoman.errors import CallCancelled, UsageError
from tests.aio import aio


class Turns:
    host = Host("box", HostSettings())
    job = None


def new_chat() -> HostChat:
    turns: Any = Turns()
    chat = HostChat(turns, CommandLoop(), Quiet(), HostPrompt(job="j-0", peer="codex"))
    chat.interactive = True
    return chat


@aio
async def test_lines_are_prompts_except_commands() -> None:
    chat = new_chat()
    assert await chat.carry_out("hello") == "hello"
    assert await chat.carry_out("/quit") is None
    assert chat.over


@aio
async def test_model_and_mode_apply_to_the_next_prompts() -> None:
    chat = new_chat()
    await chat.carry_out("/model big")
    await chat.carry_out("/mode plan")
    assert chat._next.options == {"model": "big", "mode": "plan"}
    with pytest.raises(UsageError, match="/model needs a name"):
        await chat.carry_out("/model")


@aio
async def test_commands_that_do_not_work_remotely_are_rejected() -> None:
    with pytest.raises(UsageError, match="cannot be used with --host"):
        await new_chat().carry_out("/peer gemini")


@aio
async def test_piped_lines_are_prompts_except_three_commands() -> None:
    chat = new_chat()
    chat.interactive = False
    assert await chat.carry_out("/model x") == "/model x"
    assert await chat.carry_out("/exit") is None
    assert chat.over


@aio
async def test_the_help_is_not_mixed_with_json_output(capsys: pytest.CaptureFixture[str]) -> None:
    chat = new_chat()
    chat.interactive = False
    chat.show = JsonLines()
    assert await chat.carry_out("/help") is None
    told = capsys.readouterr()
    assert told.out == "" and "show this list" in told.err
    assert "/peer" not in told.err


@aio
async def test_a_named_session_that_exists_is_continued(capsys: pytest.CaptureFixture[str]) -> None:
    chat = new_chat()
    await chat.carry_out("/new parser")
    assert chat._next.session == "parser"
    assert "continues the session parser, or starts it if box has none" in capsys.readouterr().err


def test_the_title_names_the_host() -> None:
    assert new_chat().title == "codex on box"


@aio
async def test_a_prompt_that_is_cancelled_before_it_began_does_not_end_the_chat() -> None:
    chat = new_chat()

    class Cancelled(Turns):
        def interrupted(self, count: int) -> None:
            raise AssertionError("there was no interrupt after the prompt")

        async def turn(self, prompt: HostPrompt) -> Any:
            chat.live.interrupts = 1
            raise CallCancelled(-32800, "cancelled")

    turns: Any = Cancelled()
    chat._turns = turns
    with pytest.raises(UsageError, match="before the agent was prompted"):
        await chat.turn("hello", ())
    assert chat.live.interrupts == 0
    # The next interrupt is for the line, and not for a turn.
    chat.live.interrupts = 1
    chat.live.listen(chat.live._on_interrupt or (lambda count: None))
    assert chat.live.interrupts == 0
