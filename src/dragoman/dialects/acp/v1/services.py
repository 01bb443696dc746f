"""What an agent may ask its client to do: read and write files, run commands in terminals.

Owns the bodies of `fs/…` and `terminal/…`. It touches no file and starts no process; whoever
answers does. Paths are absolute and lines count from 1.
"""

from collections.abc import Sequence
from typing import Annotated

from dragoman.dialects.acp.v1.session import EnvVariable
from dragoman.dialects.acp.v1.shape import STRICT, Wire


class ReadTextFileRequest(Wire, frozen=True, kw_only=True):
    """`fs/read_text_file`: at most `limit` lines from `line` on, unsaved changes included."""

    session_id: str
    path: str
    line: Annotated[int | None, STRICT] = None
    limit: Annotated[int | None, STRICT] = None


class ReadTextFileResponse(Wire, frozen=True, kw_only=True):
    """The text."""

    content: str


class WriteTextFileRequest(Wire, frozen=True, kw_only=True):
    """`fs/write_text_file`: the file's new text; the file is made if there is none."""

    session_id: str
    path: str
    content: str


class WriteTextFileResponse(Wire, frozen=True, kw_only=True):
    """The text is written."""


class CreateTerminalRequest(Wire, frozen=True, kw_only=True):
    """`terminal/create`: start a command; keep the last `output_byte_limit` bytes it prints."""

    session_id: str
    command: str
    args: Annotated[Sequence[str], STRICT] = []
    env: Annotated[Sequence[EnvVariable], STRICT] = []
    cwd: Annotated[str | None, STRICT] = None
    output_byte_limit: Annotated[int | None, STRICT] = None


class CreateTerminalResponse(Wire, frozen=True, kw_only=True):
    """The command was started; it may still be running."""

    terminal_id: str


class TerminalExitStatus(Wire, frozen=True, kw_only=True):
    """How a command ended: with a code, or by a signal."""

    exit_code: int | None = None
    signal: str | None = None


class TerminalOutputRequest(Wire, frozen=True, kw_only=True):
    """`terminal/output`: what was printed so far."""

    session_id: str
    terminal_id: str


class TerminalOutputResponse(Wire, frozen=True, kw_only=True):
    """The output; `truncated` if its beginning was dropped; the status once it has ended."""

    output: str
    truncated: bool
    exit_status: TerminalExitStatus | None = None


class WaitForTerminalExitRequest(Wire, frozen=True, kw_only=True):
    """`terminal/wait_for_exit`: answered when the command ends."""

    session_id: str
    terminal_id: str


class WaitForTerminalExitResponse(Wire, frozen=True, kw_only=True):
    """How the command ended: with a code, or by a signal."""

    exit_code: int | None = None
    signal: str | None = None


class KillTerminalRequest(Wire, frozen=True, kw_only=True):
    """`terminal/kill`: end the command, keep the terminal and its output."""

    session_id: str
    terminal_id: str


class KillTerminalResponse(Wire, frozen=True, kw_only=True):
    """The command was told to end."""


class ReleaseTerminalRequest(Wire, frozen=True, kw_only=True):
    """`terminal/release`: end the command if it runs, and forget the terminal."""

    session_id: str
    terminal_id: str


class ReleaseTerminalResponse(Wire, frozen=True, kw_only=True):
    """The terminal is gone."""
