"""Build the content of a prompt: argument, file, stdin, ``@file`` mentions and images.

Reads files outside the workspace only if an option names them. Sends nothing; `read_input` reads
stdin and bounds the wait.
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from dragoman.cli import read_input
from dragoman.cli.output.terminal import is_terminal
from dragoman.errors import Unsupported, UsageError
from dragoman.events.parts import Block, Capabilities, Image, Link, Resource, Text

STDIN: Final = "-"

LINE_END: Final = "\n"

MENTION: Final = re.compile(r"""(?<![\w@./\\`])@(?:"([^"\n]+)"|([\w./~+=,:-]+))""")
"""``@path`` or ``@"path with spaces"``, not in the middle of a word such as an address."""

_SUFFIX: Final = re.compile(r"\w\.[A-Za-z]\w{0,3}$")
"""The end of a file's name, and not of a number such as 1.5 or of @pytest.fixture."""

EMBEDDED_SIZE: Final = 256 * 1024
"""A mentioned file up to this size travels with the prompt; a larger one is only named. Agents
read files themselves, and a prompt has to fit into a model's context."""

IMAGE_SIZE: Final = 20 * 1024 * 1024
"""Larger images are refused by every model provider there is."""

_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def read_prompt(
    argument: str | None,
    file: Path | None,
    *,
    no_stdin: bool = False,
    timeout: float | None = None,
    on_wait: Callable[[str], object] | None = None,
) -> str:
    """The text of a prompt: the argument, then what the file holds, then what was piped.

    What was piped is marked as such, unless it is all there is or a dash stands for it. A terminal
    is not read: nobody would know that something is waited for. How long stdin is waited for, and
    who is told, is up to `inputs.read_stdin`.
    """
    if argument == STDIN:
        argument, file = None, file or Path(STDIN)
    dashed = file is not None and str(file) == STDIN
    if no_stdin and dashed:
        raise UsageError("- and --no-stdin contradict each other")
    parts = [] if argument is None else [argument]
    if file is not None and not dashed:
        data = read_input.read_named(file, max_size=read_input.MAX_PROMPT_SIZE)
        parts.append(_text(data, str(file)))
    wanted = dashed or not parts
    if wanted and (no_stdin or (file is None and is_terminal(sys.stdin))):
        raise UsageError("there is no prompt: give it as an argument, with -f FILE, or by pipe")
    if wanted or (not no_stdin and read_input.is_piped()):
        piped = _text(read_input.read_stdin(timeout=timeout, on_wait=on_wait), "stdin")
        if wanted:
            parts.append(piped)
        elif piped.strip():
            parts.append(f"<stdin>\n{piped.strip(LINE_END)}\n</stdin>")
    prompt = "\n\n".join(part.strip(LINE_END) for part in parts)
    if not prompt.strip():
        raise UsageError("the prompt is empty")
    return _sendable(prompt)


def _sendable(text: str) -> str:
    """The text, if it is one: what came in as other bytes than UTF-8 has no place in a message."""
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
    """The files and folders that a text mentions, each once.

    What names nothing that exists is not a mention: people write @decorators and @names. What
    exists outside of the workspace is an error, because the agent has no business there.
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
                "choose another one with --cwd, or send the text with -f"
            )
        seen.add(found)
        yield found


def missing_mentions(text: str, workspace: Path) -> list[str]:
    """What a text mentions like a path, with a slash or a suffix, and does not exist."""
    root = workspace.resolve()
    missing = []
    for match in MENTION.finditer(text):
        name = (match[1] or match[2]).rstrip(".,:")
        if (match[1] or _like_path(name)) and _found(match, root) is None:
            missing.append(name)
    return list(dict.fromkeys(missing))


def _like_path(name: str) -> bool:
    # `@scope/package` of npm is told as well: it is a path as much as a name.
    return "/" in name or _SUFFIX.search(name) is not None


def tell_missing(text: str, workspace: Path, notice: Callable[[str], object]) -> None:
    """Say which mentioned files do not exist: they go to the agent as words only."""
    for name in missing_mentions(text, workspace):
        notice(f"@{name}: there is no such file in {workspace}, so it is sent as text only")


def _found(match: re.Match[str], root: Path) -> Path | None:
    name = match[1] or match[2]
    # The end of a sentence is not a part of the name, unless it is.
    for candidate in dict.fromkeys((name, name.rstrip(".,:"))):
        try:
            path = (root / Path(candidate).expanduser()).resolve()
            if candidate and path.exists() and path != root:
                return path
        except (OSError, RuntimeError, ValueError):
            continue
    return None


def content_of(path: Path, can: Capabilities) -> Block:
    """A mentioned file as the agent can take it: with its text, or by its address."""
    uri = path.as_uri()
    if path.is_file() and can.embedded is True and path.stat().st_size <= EMBEDDED_SIZE:
        try:
            return Resource(uri, path.read_text("utf-8"), mime_type="text/plain")
        except (OSError, UnicodeDecodeError):
            pass  # Named only: the agent may have other ways to look into it.
    return Link(uri, path.name)


# -- images


def read_image(path: Path) -> Image:
    """An image file as content."""
    data = read_input.read_named(path, max_size=IMAGE_SIZE)
    return Image(base64.b64encode(data).decode(), _kind(data, path))


def _kind(data: bytes, path: Path) -> str:
    for magic, kind in _MAGIC:
        if data.startswith(magic):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise UsageError(f"{path} is no PNG, JPEG, GIF or WebP image")


def blocks(
    text: str,
    *,
    typed: str,
    images: Sequence[Image],
    workspace: Path,
    can: Capabilities,
    peer: str,
) -> list[Block]:
    """The content of a prompt. Mentions count in what was `typed`: what came from a file or a pipe
    may be full of at signs that mean something else."""
    if images and can.image is False:
        raise Unsupported(f"{peer} takes no images, and --image was given")
    made: list[Block] = [Text(_sendable(text))]
    made += [content_of(path, can) for path in mentioned(typed, workspace)]
    made += images
    return made
