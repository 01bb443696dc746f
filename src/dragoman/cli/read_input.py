"""Read the input of a command: the prompt with its mentions, stdin, and files named by options.

A prompt comes from an argument, a file and stdin, with ``@file`` mentions and images; files outside
the workspace are read only if an option names them. Reading has size limits and a timeout, and
after a second of waiting for stdin a notice is shown. Sends nothing; `cli.mcp_config_option` and
`cli.sessions` parse the contents of their own files.
"""

from __future__ import annotations

import base64
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple

from dragoman.cli.output.terminal import is_terminal
from dragoman.errors import FileFailed, InputTimeout, Unsupported, UsageError
from dragoman.errors.usage import shown
from dragoman.events.parts import Block, Capabilities, Image, Link, Resource, Text

STDIN: Final = "-"

LINE_END: Final = "\n"

MENTION: Final = re.compile(r"""(?<![\w@./\\`])@(?:"([^"\n]+)"|([\w./~+=,:-]+))""")
"""``@path`` or ``@"path with spaces"``, not in the middle of a word such as an address."""

_SUFFIX: Final = re.compile(r"\w\.[A-Za-z]\w{0,3}$")
"""The suffix of a file name, unlike a number such as 1.5 or a name such as @pytest.fixture."""

EMBEDDED_SIZE: Final = 256 * 1024
"""Maximum size of a mentioned file that is embedded in the prompt. A larger one is only named:
agents read files themselves, and a prompt must fit into a model's context."""

IMAGE_SIZE: Final = 20 * 1024 * 1024
"""Maximum size of an image, in bytes: every model provider rejects larger ones."""

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)

MAX_PROMPT_SIZE: Final = 10 * 1024 * 1024
"""Maximum size of a prompt, in bytes. No model accepts more, and a protocol line is limited to 16
MiB."""

MAX_CONFIG_SIZE: Final = 1024 * 1024
"""Maximum size of a settings file named by an option, in bytes."""

MAX_LINE_SIZE: Final = 64 * 1024 * 1024
"""Maximum size of one line of an exported session, in bytes; a peer's message has at most 16
MiB."""

NOTICE_DELAY: Final = 1.0
"""Seconds until a notice says that the command is waiting for input. By then a program that pipes
input has finished, or is slow."""

CHUNK_SIZE: Final = 64 * 1024

SPOOL_SIZE: Final = 1024 * 1024
"""Maximum number of bytes of piped lines that are kept in memory. More go to a temporary file."""

WAITING: Final = "reading stdin until its end; --no-stdin skips it"


GIVE_PROMPT: Final = "give it as an argument, with -f FILE, or by pipe"


# -- prompts


def read_prompt(
    argument: str | None,
    file: Path | None,
    *,
    no_stdin: bool = False,
    timeout: float | None = None,
    on_wait: Callable[[str], object] | None = None,
) -> str:
    """Return the text of a prompt: the argument, then the contents of the file, then piped input.

    Piped input is marked as such, unless it is the whole prompt or was requested with a dash. A
    terminal is read only if a dash requests it: otherwise the user would not know that input is
    expected. `timeout` and `on_wait` are those of `read_stdin`. Raises `UsageError` if there is no
    prompt or a part of it cannot be read, and `InputTimeout` as `read_stdin` does.
    """
    if argument == STDIN:
        argument, file = None, file or Path(STDIN)
    wanted = argument is None and (file is None or str(file) == STDIN)
    added = read_added(file, no_stdin=no_stdin, timeout=timeout, wanted=wanted, on_wait=on_wait)
    return join_prompt(argument, added)


class AddedText(NamedTuple):
    """The text that a file and a pipe add to a prompt; None for what does not exist."""

    file: str | None
    piped: str | None
    dashed: bool
    """Whether a dash, as the prompt or as the file, requested the piped input."""


def read_added(
    file: Path | None,
    *,
    no_stdin: bool = False,
    timeout: float | None = None,
    wanted: bool = False,
    on_wait: Callable[[str], object] | None = None,
) -> AddedText:
    """Read the text that a file and a pipe add to a prompt.

    `wanted`: whether there is no other text, so that stdin must be the prompt. `timeout` and
    `on_wait` are those of `read_stdin`. Raises `UsageError` if there is no prompt or a part of it
    cannot be read, and `InputTimeout` as `read_stdin` does.
    """
    dashed = file is not None and str(file) == STDIN
    if no_stdin and dashed:
        raise UsageError("`-` reads stdin, so it cannot be combined with --no-stdin")
    text = None
    if file is not None and not dashed:
        text = _text(_read_prompt_file(file, timeout, on_wait), str(file))
    if wanted and (no_stdin or (file is None and is_terminal(sys.stdin))):
        raise UsageError("there is no prompt", remedy=GIVE_PROMPT)
    piped = None
    if wanted or dashed or (not no_stdin and is_piped()):
        piped = _text(read_stdin(timeout=timeout, on_wait=on_wait), "stdin")
    return AddedText(text, piped, dashed)


def join_prompt(argument: str | None, added: AddedText) -> str:
    """Return the text of a prompt: the argument, then the file, then what was piped. Raises
    `UsageError` if it is empty or not UTF-8."""
    parts = [part for part in (argument, added.file) if part is not None]
    if added.piped is not None:
        if added.dashed or not parts:
            parts.append(added.piped)
        elif added.piped.strip():
            parts.append(f"<stdin>\n{added.piped.strip(LINE_END)}\n</stdin>")
    if not parts:
        raise UsageError("there is no prompt", remedy=GIVE_PROMPT)
    prompt = "\n\n".join(part.strip(LINE_END) for part in parts)
    if not prompt.strip():
        raise UsageError("the prompt is empty", remedy=GIVE_PROMPT)
    return _sendable(prompt)


def _sendable(text: str) -> str:
    """Return the text unchanged. Raises `UsageError` if it is not UTF-8 and so cannot be sent."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError("the prompt is not UTF-8 text") from None
    return text


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{what} is not UTF-8 text") from None


# -- mentions


def mentioned(text: str, workspace: Path) -> Iterator[Path]:
    """Yield the files and directories that a text mentions, each once.

    A name that does not exist is not a mention: people write @decorators and @names. Raises
    `UsageError` for an existing path outside the workspace, which the agent must not access.
    """
    root = workspace.resolve()
    seen: set[Path] = set()
    for match in MENTION.finditer(text):
        found = _found(match, root)
        if found is None or found in seen:
            continue
        if not found.is_relative_to(root):
            raise UsageError(
                f"@{match[1] or match[2]} is outside of the workspace {root}: "
                "choose another workspace with --cwd, or send the text with -f"
            )
        seen.add(found)
        yield found


def missing_mentions(text: str, workspace: Path) -> list[str]:
    """Return the mentioned names that look like a path, because of quotes, a slash or a suffix, but
    do not exist."""
    root = workspace.resolve()
    missing = []
    for match in MENTION.finditer(text):
        name = (match[1] or match[2]).rstrip(".,:")
        if (match[1] or _like_path(name)) and _found(match, root) is None:
            missing.append(name)
    return list(dict.fromkeys(missing))


def _like_path(name: str) -> bool:
    # npm's `@scope/package` is reported as well: it may be a path.
    return "/" in name or _SUFFIX.search(name) is not None


def tell_missing(text: str, workspace: Path, notice: Callable[[str], object]) -> None:
    """Report mentioned files that do not exist: they are sent to the agent as text."""
    for name in missing_mentions(text, workspace):
        notice(f"@{name}: there is no such file in {workspace}, so it is sent as text only")


def _found(match: re.Match[str], root: Path) -> Path | None:
    name = match[1] or match[2]
    # Punctuation at the end of a sentence is not part of the name, unless such a file exists.
    for candidate in dict.fromkeys((name, name.rstrip(".,:"))):
        try:
            path = (root / Path(candidate).expanduser()).resolve()
            if candidate and path.exists() and path != root:
                return path
        except (OSError, RuntimeError, ValueError):
            continue
    return None


def content_of(path: Path, can: Capabilities) -> Block:
    """Return a mentioned file or directory as content: embedded, if the agent supports that and it
    is a text file of at most `EMBEDDED_SIZE`, otherwise as a link."""
    uri = path.as_uri()
    if path.is_file() and can.embedded is True and path.stat().st_size <= EMBEDDED_SIZE:
        try:
            return Resource(uri, path.read_text("utf-8"), mime_type="text/plain")
        except (OSError, UnicodeDecodeError):
            pass  # Named only: the agent may have other ways to look into it.
    return Link(uri, path.name)


# -- images


def read_image(path: Path) -> Image:
    """Read an image file as prompt content. Raises `UsageError` if it cannot be read, is too large
    or has an unsupported format."""
    data = read_named(path, max_size=IMAGE_SIZE)
    return Image(base64.b64encode(data).decode(), _kind(data, path))


def _kind(data: bytes, path: Path) -> str:
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise UsageError(f"{path} is not a PNG, JPEG, GIF or WebP image")


def blocks(
    text: str,
    *,
    typed: str,
    images: Sequence[Image],
    workspace: Path,
    can: Capabilities,
    peer: str,
) -> list[Block]:
    """Build the content of a prompt.

    Mentions are only parsed in what was `typed`: text from a file or a pipe may contain many
    unrelated at signs. Raises `Unsupported` if the agent does not accept images, and `UsageError`
    if the text or a mention cannot be sent.
    """
    if images and can.image is False:
        raise Unsupported(f"--image: {peer} does not accept images")
    made: list[Block] = [Text(_sendable(text))]
    made += [content_of(path, can) for path in mentioned(typed, workspace)]
    made += images
    return made


# -- stdin and files


def is_piped() -> bool:
    """Return whether stdin may have piped input: it is neither a terminal nor /dev/null nor
    closed."""
    if sys.stdin is None or sys.stdin.closed or is_terminal(sys.stdin):
        return False
    try:
        found = os.fstat(sys.stdin.fileno())
    except ValueError:
        return True  # It is in memory.
    except OSError:
        return False
    null = os.stat(os.devnull)
    return not (stat.S_ISCHR(found.st_mode) and found.st_rdev == null.st_rdev)


def read_stdin(
    *, timeout: float | None = None, on_wait: Callable[[str], object] | None = None
) -> bytes:
    """Read all of stdin. Raises `UsageError` if it is too large or cannot be read, and
    `InputTimeout` if it does not end within `timeout`.

    `on_wait` is called once if it has not ended after a second.
    """
    try:
        fd = sys.stdin.fileno()
    except ValueError:
        data = sys.stdin.buffer.read(MAX_PROMPT_SIZE + 1)  # It is in memory.
    else:
        data = _drain("stdin", lambda: os.dup(fd), timeout, on_wait)
    return _of_size("stdin", data, MAX_PROMPT_SIZE)


def _read_prompt_file(
    path: Path, timeout: float | None, on_wait: Callable[[str], object] | None
) -> bytes:
    """Read a file that is part of a prompt. A named pipe may have no writer, so it is read like
    stdin, with the timeout."""
    try:
        is_pipe = stat.S_ISFIFO(path.stat().st_mode)
    except (OSError, ValueError):
        is_pipe = False
    if not is_pipe:
        return read_named(path, max_size=MAX_PROMPT_SIZE)
    name = shown(str(path))
    data = _drain(name, lambda: os.open(path, os.O_RDONLY), timeout, on_wait)
    return _of_size(name, data, MAX_PROMPT_SIZE)


def _drain(
    name: str,
    open_: Callable[[], int],
    timeout: float | None,
    on_wait: Callable[[str], object] | None,
) -> bytes:
    import queue
    import threading

    # A thread, because no system call waits with a timeout for every kind of stdin on every system.
    # It may still be waiting when the process exits. `_pump` bounds the size of the queue.
    pieces: queue.SimpleQueue[bytes | OSError] = queue.SimpleQueue()
    reader = threading.Thread(target=_pump, args=(open_, pieces.put), name="stdin", daemon=True)
    reader.start()
    began_at = time.monotonic()
    data = bytearray()
    while True:
        spent = time.monotonic() - began_at
        if timeout is not None and spent >= timeout:
            raise InputTimeout(timeout, name)
        if on_wait is not None and spent >= NOTICE_DELAY:
            on_wait(WAITING if name == "stdin" else f"reading {name} until its end")
            on_wait = None
        waits = [timeout - spent] if timeout is not None else []
        waits += [NOTICE_DELAY - spent] if on_wait is not None else []
        try:
            piece = pieces.get(timeout=min(waits, default=None))
        except queue.Empty:
            continue
        if isinstance(piece, OSError):
            raise UsageError(f"{name} cannot be read: {piece.strerror or piece}")
        data += piece
        if not piece or len(data) > MAX_PROMPT_SIZE:
            break
    reader.join()
    return bytes(data)


def _pump(open_: Callable[[], int], put: Callable[[bytes | OSError], object]) -> None:
    """Read to the end of the input, or slightly beyond the size limit. Passes each chunk to `put`,
    an empty one at the end, or the error that ended the read."""
    try:
        fd = open_()
    except OSError as error:
        put(error)
        return
    try:
        size = 0
        while size <= MAX_PROMPT_SIZE:
            try:
                piece = os.read(fd, CHUNK_SIZE)
            except BlockingIOError:
                # Another process that shares stdin has made it non-blocking.
                import select

                select.select([fd], [], [])
                continue
            size += len(piece)
            put(piece)
            if not piece:
                return
    except OSError as error:
        put(error)
    finally:
        os.close(fd)


def remaining(timeout: float | None, spent: float) -> float | None:
    """Return what is left of a timeout after `spent` seconds, rounded to tenths and at least 0.1.
    It is unchanged if it is None (no limit), or if less than a tenth of a second was spent."""
    if timeout is None or spent < 0.1:
        return timeout
    return max(round(timeout - spent, 1), 0.1)


def read_named(path: Path, *, max_size: int) -> bytes:
    """Read a file named by the user, which may be a pipe such as the shell's ``<(…)``. Raises
    `UsageError` if it cannot be read or is larger than `max_size`."""
    try:
        with path.open("rb") as file:
            data = file.read(max_size + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return _of_size(shown(str(path)), data, max_size)


@contextmanager
def opened_lines(path: Path) -> Iterator[Iterator[bytes]]:
    """Context manager: the lines of a file named by the user, without newlines; ``-`` is stdin.

    A pipe is first read to its end, into a temporary file, because the caller may hold a lock while
    it takes the lines and must not wait for another program. Raises `UsageError` if the file cannot
    be read, and `FileFailed` if the temporary file cannot be written.
    """
    what = "stdin" if str(path) == STDIN else shown(str(path))
    with ExitStack() as stack:
        try:
            if str(path) == STDIN:
                file: IO[bytes] = sys.stdin.buffer
            else:
                file = stack.enter_context(path.open("rb"))
            if not _is_regular(file):
                import tempfile

                spool = stack.enter_context(tempfile.SpooledTemporaryFile(SPOOL_SIZE))
                _spool(file, spool)
                file = spool
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error
        yield _lines(what, path, file)


def _is_regular(file: IO[bytes]) -> bool:
    try:
        return stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except ValueError:
        return False  # It is in memory.


def _spool(file: IO[bytes], spool: IO[bytes]) -> None:
    while piece := file.read(CHUNK_SIZE):
        try:
            spool.write(piece)
        except OSError as error:
            import tempfile

            detail = error.strerror or str(error)
            raise FileFailed(tempfile.gettempdir(), detail, error.errno) from error
    spool.seek(0)


def _lines(what: str, path: Path, file: IO[bytes]) -> Iterator[bytes]:
    try:
        while line := file.readline(MAX_LINE_SIZE + 1):
            yield _of_size(f"a line of {what}", line, MAX_LINE_SIZE).rstrip(b"\r\n")
    except OSError as error:
        raise _unreadable(path, error) from error


def _of_size(what: str, data: bytes, max_size: int) -> bytes:
    if len(data) > max_size:
        raise UsageError(f"{what} is larger than {max_size} bytes")
    return data


def _unreadable(path: Path, error: OSError | ValueError) -> UsageError:
    detail = getattr(error, "strerror", None) or str(error)
    return UsageError(f"{shown(str(path))} cannot be read: {detail}")
