"""The line editor of `dragoman chat` on a terminal: keys, multi-line input, completion, history.

Runs prompt_toolkit in the event loop. Output that arrives while the prompt is open is held back and
then shown above it. While a question to the user is open, the prompt is removed from the screen
(`suspended`). Lines are parsed by `cli.chat_commands`. Only a chat on a terminal imports this
module.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from prompt_toolkit import PromptSession as LineEditor
from prompt_toolkit.application import in_terminal, run_in_terminal
from prompt_toolkit.completion import (
    CompleteEvent,
    Completer,
    Completion,
    get_common_complete_suffix,
)
from prompt_toolkit.document import Document
from prompt_toolkit.filters import has_focus
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from dragoman.cli.chat_commands import Suggestion
from dragoman.cli.command_loop import Interrupted
from dragoman.cli.output.escape import one_line
from dragoman.cli.output.terminal import held, put_err, wants_colour
from dragoman.client.folders import make_private
from dragoman.config.safe_files import locked, read_file, write_whole
from dragoman.errors import DragomanError
from dragoman.rpc.tasks import TaskOwner
from dragoman.wire.messages import UNDECODABLE

PROMPT: Final = "> "

HISTORY: Final = "chat_history"
"""The history file in the state directory: a JSON string per line, newest last."""

HISTORY_SIZE: Final = 1024 * 1024
"""Size of the history, in bytes, above which its older half is dropped."""

ENTRY_SIZE: Final = 16 * 1024
"""Maximum length of a prompt in the history, in characters. Longer ones, which were usually pasted,
are not kept."""

ESCAPE_TIMEOUT: Final = 0.1
"""Seconds to distinguish the Escape key from Alt with another key, which sends Escape first."""


STOP_TIMEOUT: Final = 0.2
"""Seconds for a stop signal to reach all threads. The signal has no effect if there is no shell to
return to."""

SHOW_DELAY: Final = 0.2
"""Seconds to collect output before the prompt is redrawn below it: agents send small pieces."""


class ChatInput:
    """Reads prompts from a terminal. Used in one event loop, one prompt at a time."""

    def __init__(
        self,
        *,
        history: Path,
        redact: Callable[[str], str],
        complete: Callable[[str], Iterable[Suggestion]],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._editor: LineEditor[str] = LineEditor(
            PROMPT,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            history=ChatHistory(history, redact, on_trouble),
            completer=ChatCompleter(complete),
            complete_while_typing=False,
            key_bindings=_keys(),
            output=_output(),
        )
        self._editor.app.ttimeoutlen = ESCAPE_TIMEOUT
        self._open = False
        self._hold = ExitStack()
        self._tasks = TaskOwner("the prompt")

    async def read(self) -> str | None:
        """Return the next prompt, or None for Ctrl-D.

        Raises `Interrupted` for Ctrl-C at an empty prompt.
        """
        self._loop = asyncio.get_running_loop()
        sys.stdout.flush()
        self._open = True
        self._hold_output()
        try:
            return await self._editor.prompt_async(handle_sigint=False, set_exception_handler=False)
        except EOFError:
            return None
        finally:
            self._open = False
            self._hold.close()

    def interrupt(self) -> None:
        """If a prompt is being read, end `read` as Ctrl-C at an empty prompt does."""
        if self._open and self._editor.app.is_running:
            self._editor.app.exit(exception=Interrupted())

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Context manager: take an open prompt off the screen during the block. The typed text is
        kept."""
        if not self._open:
            yield
            return
        async with in_terminal():
            self._hold.close()
            try:
                yield
            finally:
                if not held.at_line_start:
                    # The prompt is drawn as if it started a line.
                    put_err("\n")
                if self._open:
                    self._hold_output()

    async def aclose(self) -> None:
        await self._tasks.aclose()

    def _hold_output(self) -> None:
        self._hold.enter_context(held.hold(self._output_came))

    def _output_came(self) -> None:
        # Called in the writer's thread.
        self._loop.call_soon_threadsafe(self._show_held_soon)

    def _show_held_soon(self) -> None:
        if self._open:
            self._tasks.start(self._show_held(), "output above the prompt")

    async def _show_held(self) -> None:
        await asyncio.sleep(SHOW_DELAY)
        async with self.suspended():
            pass


def _output() -> Output:
    """Return the terminal on stderr: stdout may be redirected, and gets only the answers."""
    depth = None if wants_colour(sys.stderr) else ColorDepth.DEPTH_1_BIT
    if os.name == "nt":
        return create_output(sys.stderr)
    sized = Vt100_Output.from_pty(sys.stderr)
    # No cursor position requests: a response that arrives after the prompt was closed would be read
    # as typed text.
    return Vt100_Output(
        sys.stderr,
        sized.get_size,
        term=os.environ.get("TERM"),
        default_color_depth=depth,
        enable_bell=False,
        enable_cpr=False,
    )


def _keys() -> KeyBindings:
    keys = KeyBindings()
    at_prompt = has_focus("DEFAULT_BUFFER")

    @keys.add("enter", filter=at_prompt)
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=at_prompt)
    @keys.add("c-j", filter=at_prompt)
    def newline(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    @keys.add("tab", filter=at_prompt)
    def complete(event: KeyPressEvent) -> None:
        # Synchronously: the next Enter could overtake a task.
        buffer = event.current_buffer
        if buffer.complete_state:
            buffer.complete_next()
            return
        asked = CompleteEvent(completion_requested=True)
        found = list(buffer.completer.get_completions(buffer.document, asked))
        if common := get_common_complete_suffix(buffer.document, found):
            buffer.insert_text(common)
        elif len(found) == 1:
            buffer.apply_completion(found[0])
        elif found:
            buffer.start_completion()

    @keys.add("c-c", filter=at_prompt)
    def clear_or_leave(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=Interrupted())

    if hasattr(signal, "SIGTSTP"):

        @keys.add("c-z", filter=at_prompt)
        def stop(event: KeyPressEvent) -> None:
            run_in_terminal(_stop_process)

    return keys


def _stop_process() -> None:
    """Stop the processes of this command, as Ctrl-Z usually does, until the shell resumes them."""
    os.kill(0, signal.SIGTSTP)
    # Another thread may get the signal. Then this thread stops a moment later. Until then it must
    # not change the terminal mode, which belongs to the shell.
    time.sleep(STOP_TIMEOUT)


class ChatCompleter(Completer):
    """Provides the completions of a chat to the line editor."""

    def __init__(self, complete: Callable[[str], Iterable[Suggestion]]) -> None:
        self._complete = complete

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        try:
            found = list(self._complete(document.text_before_cursor))
        except (DragomanError, OSError):
            return  # The command itself reports errors in the store or the settings.
        for each in found:
            about = one_line(each.about, width=60)
            yield Completion(each.text, start_position=-each.replaces, display_meta=about)


class ChatHistory(History):
    """The prompts of earlier chats and of this one. Secrets are redacted in the file, and a prompt
    that starts with a space or is too long is not kept."""

    def __init__(
        self, path: Path, redact: Callable[[str], str], on_trouble: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._path = path
        self._redact = redact
        self._on_trouble = on_trouble
        self._failed = False

    def load_history_strings(self) -> Iterator[str]:
        """Yield the prompts in the file, newest first."""
        try:
            lines = (read_file(self._path, max_size=2 * HISTORY_SIZE) or b"").splitlines()
        except DragomanError as error:
            self._fail(error)
            return
        for line in reversed(lines):
            try:
                yield msgspec.json.decode(line, type=str)
            except UNDECODABLE:
                continue  # The line was cut off by a full disk.

    def append_string(self, string: str) -> None:
        if not string[:1].isspace() and len(string) <= ENTRY_SIZE:
            super().append_string(string)

    def store_string(self, string: str) -> None:
        try:
            line = msgspec.json.encode(self._redact(string)) + b"\n"
        except UnicodeEncodeError:
            return  # Not valid UTF-8: such prompts are not sent either.
        try:
            make_private(self._path.parent)
            with locked(self._path):
                data = (read_file(self._path, max_size=2 * HISTORY_SIZE) or b"") + line
                if len(data) > HISTORY_SIZE:
                    data = data[-HISTORY_SIZE // 2 :].partition(b"\n")[2]
                # Replaced rather than appended to: an existing file may have a different mode.
                write_whole(self._path, data)
        except (DragomanError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            self._on_trouble(f"the chat history cannot be used: {error}")
