"""`dragoman chat`: help, and the loop that reads a line and runs a turn or a command.

Options are in `cli.prompt_options`, turns and commands in `cli.chat_session`. Lines are read by
`cli.chat_input` on a terminal, else by `command_loop`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from dragoman.cli.command_module import (
    CONTEXT,
    WithCommandLine,
    new_app,
    with_options,
    words_after_dashes,
)
from dragoman.cli.output.terminal import put_err
from dragoman.cli.prompt_options import COMMANDS
from dragoman.errors import BrokerError, ConnectionLost, DragomanError, UsageError

if TYPE_CHECKING:
    from dragoman.cli.chat_input import ChatInput
    from dragoman.cli.chat_session import Chat
    from dragoman.cli.command_loop import CommandLoop
    from dragoman.cli.host_chat import HostChat
    from dragoman.cli.output.renderer import Renderer
    from dragoman.cli.run_plan import RunOptions, RunPlan

HELP = """
Chat with an agent, turn by turn.

On a terminal, Enter sends the prompt, Alt-Enter or Ctrl-J starts a new line, and several pasted
lines are one prompt. /help shows the commands: /model, /mode, /peer, /new, /sessions, /cost, /quit
and those of the agent. Ctrl-C cancels the running turn. To leave, press Ctrl-C twice at an empty
prompt, or Ctrl-D. Without a terminal each line of stdin is a prompt, and the exit code is that of
the first turn that failed.

\b
Examples:
  dragoman chat scout
  dragoman chat gemini -s parser               continue the session parser
  dragoman chat codex --model gpt-5 --cwd ~/project
  dragoman chat -- python my_agent.py
  printf 'hello\\nand again\\n' | dragoman chat scout
"""

LEAVE_HINT: Final = "press Ctrl-C again, Ctrl-D or /quit to leave"

app = new_app()


@app.command(cls=WithCommandLine, help=HELP, context_settings=CONTEXT)
@with_options(*COMMANDS["chat"])
def chat(
    context: typer.Context,
    *,
    peer: str | None,
    trace: Path | None,
    host: str | None = None,
    **given: Any,
) -> None:
    command = words_after_dashes(context)
    if host is not None:
        from dragoman.cli import host_chat

        code = host_chat.chat(host, peer=peer, trace=trace, command=command, **given)
        raise typer.Exit(code)
    if peer is not None and command is not None:
        raise UsageError("name a peer or give a command line after --, but not both")

    from dragoman.cli.command_loop import CommandLoop, perform
    from dragoman.cli.run_plan import RunOptions, prepare

    options = RunOptions(peer=peer, command=command, **given)
    plan, show = prepare(options, trace)
    live = CommandLoop()
    try:
        code = perform(live, lambda: converse(plan, live, show, options))
    except DragomanError as error:
        from dragoman.cli import error_messages

        show.failed(error)
        raise typer.Exit(error_messages.exit_code(error)) from None
    raise typer.Exit(code)


async def converse(plan: RunPlan, live: CommandLoop, show: Renderer, options: RunOptions) -> int:
    """Open a chat and read its lines (`read_lines`). Returns the exit code."""
    from dragoman.cli.chat_session import Chat
    from dragoman.cli.output.terminal import is_interactive

    async with Chat(plan, live, show, options, interactive=is_interactive()) as chat:
        return await read_lines(chat)


async def read_lines(chat: Chat | HostChat) -> int:
    """Read the lines of a chat and carry them out, until the input ends, the user leaves, the
    process is terminated, or the output or the connection is lost.

    Returns the exit code. After a termination or a loss it is that of the last turn. Otherwise it
    is that of the first failure, which does not count on a terminal, or 1 if output could not be
    written.
    """
    live, interactive = chat.live, chat.interactive
    code = 0
    async with _lines(chat) as read:
        if interactive:
            chat.show.notice(f"chatting with {chat.title}; /help lists the commands, Ctrl-D leaves")
        while (line := await read()) is not None:
            if not line.strip():
                continue
            try:
                prompt = await chat.carry_out(line)
                if prompt is None:
                    if chat.over:
                        break
                    continue
                content = chat.content(prompt)
            except DragomanError as error:
                chat.failed(error)
                code = code or 2
                continue
            try:
                report = await chat.turn(prompt, content)
            except UsageError as error:
                if not interactive:
                    raise
                chat.failed(error)
                continue
            code = code or report.exit_code
            lost = isinstance(report.result.error, ConnectionLost | BrokerError)
            if chat.show.broken or live.terminated or lost:
                return report.exit_code
            live.calm()
        return int(chat.show.lost) if interactive else code or int(chat.show.lost)


@asynccontextmanager
async def _lines(chat: Chat | HostChat) -> AsyncIterator[LineReader]:
    """Context manager: the line reader of a chat, with the line editor on a capable terminal."""
    if not chat.interactive:
        yield LineReader(chat)
        return
    if os.environ.get("TERM", "dumb" if os.name == "posix" else "") == "dumb":
        yield LineReader(chat)
        return
    from dragoman.cli.chat_input import HISTORY, ChatInput
    from dragoman.paths import find_paths

    editor = ChatInput(
        history=find_paths().state / HISTORY,
        redact=chat.redacted,
        complete=chat.suggestions,
        on_trouble=lambda text: chat.show.notice(text),
    )
    chat.live.suspend_prompt = editor.suspended
    try:
        yield LineReader(chat, editor)
    finally:
        chat.live.suspend_prompt = None
        await editor.aclose()


class LineReader:
    """Reads the lines of a chat. On a terminal the first Ctrl-C at a prompt only shows how to
    leave."""

    def __init__(self, chat: Chat | HostChat, editor: ChatInput | None = None) -> None:
        self._chat = chat
        self._editor = editor
        chat.editor = editor

    async def __call__(self) -> str | None:
        """Return the next line; None at the end of the input, or if the user leaves the chat."""
        from dragoman.cli.command_loop import Interrupted

        chat = self._chat
        warned = False
        while True:
            try:
                if self._editor is not None:
                    return await self._editor.read()
                return await chat.live.line("> " if chat.interactive else "")
            except Interrupted:
                if self._editor is None:
                    put_err("\n")
                if warned or not chat.interactive:
                    return None
                warned = True
                chat.show.notice(LEAVE_HINT)
