"""Where a prompt comes from and what travels with it; how stdin and files are read."""

from __future__ import annotations

import base64
import io
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.cli import read_input
from dragoman.cli.read_input import (
    blocks,
    content_of,
    is_piped,
    mentioned,
    opened_lines,
    read_image,
    read_named,
    read_prompt,
    read_stdin,
    remaining,
)
from dragoman.errors import FileFailed, InputTimeout, Unsupported, UsageError
from dragoman.events.parts import Capabilities, Image, Link, Resource, Text

PNG = b"\x89PNG\r\n\x1a\n rest"


class Stdin(io.TextIOWrapper):
    def __init__(self, data: bytes, *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(data))
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def typed(monkeypatch: pytest.MonkeyPatch, data: bytes, *, terminal: bool = False) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(data, terminal=terminal))


# -- sources


@pytest.mark.parametrize("how", ["closed", "terminal", "empty", "blank", "--no-stdin"])
def test_an_argument_alone_is_the_prompt_where_nothing_was_piped(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    data = {"empty": b"", "blank": b" \n\n"}.get(how, b"piped")
    typed(monkeypatch, data, terminal=how == "terminal")
    if how == "closed":
        monkeypatch.setattr(sys, "stdin", None)
    assert read_prompt("do it", None, no_stdin=how == "--no-stdin") == "do it"


def test_what_was_piped_is_added_to_the_prompt_and_marked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "p.txt").write_text("the rest\n")
    framed = "<stdin>\na\n\nb\n</stdin>"
    for argument, file, prompt in (
        ("why?", None, f"why?\n\n{framed}"),
        (None, tmp_path / "p.txt", f"the rest\n\n{framed}"),
        ("why?", tmp_path / "p.txt", f"why?\n\nthe rest\n\n{framed}"),
        ("why?", Path("-"), "why?\n\na\n\nb"),
    ):
        typed(monkeypatch, b"a\n\nb\n")
        assert read_prompt(argument, file) == prompt


@pytest.mark.parametrize(("argument", "file"), [("-", None), ("do it", Path("-"))])
def test_a_dash_and_no_stdin_contradict_each_other(argument: str, file: Path | None) -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        read_prompt(argument, file, no_stdin=True)


def test_without_stdin_there_has_to_be_a_prompt() -> None:
    with pytest.raises(UsageError, match="there is no prompt"):
        read_prompt(None, None, no_stdin=True)


@pytest.mark.parametrize(("argument", "file"), [(None, None), ("-", None), (None, Path("-"))])
def test_a_pipe_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, argument: str | None, file: Path | None
) -> None:
    typed(monkeypatch, "\ufeffdo it\nnow\n".encode())
    assert read_prompt(argument, file) == "do it\nnow"


def test_a_file_is_added_to_the_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, b"")
    (tmp_path / "p.txt").write_text("the rest\n")
    assert read_prompt("first", tmp_path / "p.txt") == "first\n\nthe rest"


def test_a_terminal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, b"too late\n", terminal=True)
    with pytest.raises(UsageError, match="there is no prompt"):
        read_prompt(None, None)


@pytest.mark.parametrize(
    ("data", "why"), [(b" \n", "the prompt is empty"), (b"\xff", "stdin is not UTF-8")]
)
def test_what_is_not_a_prompt_is_an_error(
    monkeypatch: pytest.MonkeyPatch, data: bytes, why: str
) -> None:
    typed(monkeypatch, data)
    with pytest.raises(UsageError, match=why):
        read_prompt(None, None)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_prompt(None, tmp_path / "missing")


# -- mentions


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    for name in ("a.py", "src/b.py", "with space.md", "dots..", "v1.2"):
        (root / name).write_text(name)
    (tmp_path / "secret").write_text("x")
    return root


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("look at @a.py", ["a.py"]),
        ("@a.py, then @src/b.py. And @src", ["a.py", "src/b.py", "src"]),
        ('see @"with space.md"!', ["with space.md"]),
        ("(@a.py) @a.py", ["a.py"]),
        ("ends with @v1.2.", ["v1.2"]),
        ("literally @dots..", ["dots.."]),
        ("mail me@a.py or use @decorator, `@a.py`, @@a.py", []),
        ("nothing @ all @.", []),
    ],
)
def test_mentions_are_files_that_exist(workspace: Path, text: str, names: list[str]) -> None:
    found = [path.relative_to(workspace).as_posix() for path in mentioned(text, workspace)]
    assert found == names


@pytest.mark.parametrize("mention", ["@../secret", "@link", "@/etc/passwd", "@src/../../secret"])
def test_nothing_outside_of_the_workspace_can_be_mentioned(workspace: Path, mention: str) -> None:
    (workspace / "link").symlink_to(workspace.parent / "secret")
    with pytest.raises(UsageError, match="outside of the workspace"):
        list(mentioned(f"read {mention} now", workspace))


def test_a_name_that_no_system_allows_is_not_a_mention(workspace: Path) -> None:
    assert list(mentioned(f"@{'x' * 5000} @~no-such-user/x", workspace)) == []


def test_text_is_embedded_where_the_agent_takes_it_and_named_elsewhere(workspace: Path) -> None:
    file = workspace / "a.py"
    embedded = content_of(file, Capabilities(embedded=True))
    assert embedded == Resource(file.as_uri(), "a.py", mime_type="text/plain")
    assert content_of(file, Capabilities(embedded=False)) == Link(file.as_uri(), "a.py")
    assert isinstance(content_of(workspace / "src", Capabilities(embedded=True)), Link)


def test_bytes_and_large_files_are_only_named(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "bytes").write_bytes(b"\xff\xfe")
    monkeypatch.setattr(read_input, "EMBEDDED_SIZE", 3)
    can = Capabilities(embedded=True)
    assert isinstance(content_of(workspace / "bytes", can), Link)
    assert isinstance(content_of(workspace / "a.py", can), Link)


# -- images


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_an_image_is_known_by_its_bytes(tmp_path: Path, data: bytes, kind: str) -> None:
    (tmp_path / "x").write_bytes(data)
    assert read_image(tmp_path / "x") == Image(base64.b64encode(data).decode(), kind)


def test_what_is_not_an_image_or_too_large_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.png").write_text("not at all")
    with pytest.raises(UsageError, match="not a PNG, JPEG, GIF or WebP"):
        read_image(tmp_path / "x.png")
    monkeypatch.setattr(read_input, "IMAGE_SIZE", 5)
    with pytest.raises(UsageError, match="is larger than 5 bytes"):
        read_image(tmp_path / "x.png")


# -- together


def made(text: str, *, typed: str, can: Capabilities, workspace: Path) -> list[object]:
    image = Image("", "image/png")
    return [*blocks(text, typed=typed, images=[image], workspace=workspace, can=can, peer="codex")]


def test_mentions_count_only_in_what_was_typed(workspace: Path) -> None:
    can = Capabilities(image=True)
    whole = made("look\n\n+@a.py", typed="look", can=can, workspace=workspace)
    assert whole == [Text("look\n\n+@a.py"), Image("", "image/png")]
    whole = made("@a.py", typed="@a.py", can=can, workspace=workspace)
    assert [type(block) for block in whole] == [Text, Link, Image]


def test_an_agent_that_takes_no_images_is_named(workspace: Path) -> None:
    with pytest.raises(Unsupported, match="codex does not accept images"):
        made("x", typed="x", can=Capabilities(image=False), workspace=workspace)
    assert made("x", typed="x", can=Capabilities(image=None), workspace=workspace)


def test_what_is_not_text_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        read_prompt("h\udcffi", None)
    with pytest.raises(UsageError, match="not UTF-8"):
        blocks("\udcff", typed="", images=(), workspace=tmp_path, can=Capabilities(), peer="x")


# -- stdin and files


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The writing end of a pipe that is stdin."""
    reader, writer = os.pipe()
    with open(reader) as stdin, open(writer, "wb", closefd=False):
        monkeypatch.setattr(sys, "stdin", stdin)
        yield writer
        try:
            os.close(writer)
        except OSError:
            pass  # The test has closed it.


def test_a_pipe_and_a_file_may_hold_something(
    pipe: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_piped()
    (tmp_path / "file").touch()
    with (tmp_path / "file").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert is_piped()
    assert not is_piped()


def test_null_and_what_is_closed_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert not is_piped()
    reader, writer = os.pipe()
    os.close(writer)
    with open(reader, closefd=False) as stdin:
        os.close(reader)
        monkeypatch.setattr(sys, "stdin", stdin)
        assert not is_piped()


def test_stdin_is_read_to_its_end_in_one_piece_or_many(pipe: int) -> None:
    def write() -> None:
        for number in range(100):
            os.write(pipe, b"%d\n" % number * 1000)
        os.close(pipe)

    writer = threading.Thread(target=write)
    writer.start()
    data = read_stdin(timeout=30.0)
    writer.join()
    assert data == b"".join(b"%d\n" % number * 1000 for number in range(100))
    assert "stdin" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_stdin_that_does_not_block_is_waited_for(pipe: int) -> None:
    os.set_blocking(sys.stdin.fileno(), False)
    told = threading.Event()

    def write() -> None:
        told.wait(30.0)
        os.write(pipe, b"late")
        os.close(pipe)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_stdin(timeout=30.0, on_wait=lambda text: told.set()) == b"late"
    writer.join()


def test_what_is_waited_for_is_said_once_and_ends_the_silence(
    pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_input, "NOTICE_DELAY", 0.01)
    told: list[str] = []

    def hear(text: str) -> None:
        told.append(text)
        os.write(pipe, b"there")
        os.close(pipe)

    assert read_stdin(on_wait=hear) == b"there"
    assert len(told) == 1 and "--no-stdin" in told[0]


def test_a_stdin_that_does_not_end_ends_with_the_time_limit(pipe: int) -> None:
    os.write(pipe, b"more follows")
    with pytest.raises(InputTimeout, match="within 0.05 s"):
        read_stdin(timeout=0.05)


def test_a_named_pipe_without_a_writer_ends_with_the_time_limit(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    with pytest.raises(InputTimeout, match="pipe' did not end within 0.05 s"):
        read_prompt("explain", path, no_stdin=True, timeout=0.05)
    # End the thread that waits for a writer.
    os.close(os.open(path, os.O_RDWR))


def test_a_named_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    writer = threading.Thread(target=path.write_bytes, args=(b"a diff\n",))
    writer.start()
    assert read_prompt("explain", path, no_stdin=True, timeout=30.0) == "explain\n\na diff"
    writer.join()


def test_a_stdin_without_end_is_refused_at_a_size(
    pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_input, "MAX_PROMPT_SIZE", 10)
    os.write(pipe, b"x" * 11)
    with pytest.raises(UsageError, match="stdin is larger than 10 bytes"):
        read_stdin()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 11)))
    with pytest.raises(UsageError, match="stdin is larger than 10 bytes"):
        read_stdin()


@pytest.mark.skipif(os.name != "posix", reason="folders are opened on POSIX")
def test_a_stdin_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)

    class Folder(io.TextIOWrapper):
        def fileno(self) -> int:
            return folder

    monkeypatch.setattr(sys, "stdin", Folder(io.BytesIO()))
    try:
        with pytest.raises(UsageError, match="stdin cannot be read: Is a directory"):
            read_stdin()
    finally:
        os.close(folder)


def test_what_is_left_of_a_time_limit_is_never_nothing() -> None:
    assert remaining(None, 5.0) is None
    assert remaining(10.0, 0.01) == 10.0
    assert remaining(10.0, 3.14159) == 6.9
    assert remaining(10.0, 12.0) == 0.1


def test_a_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_named(tmp_path / "file", max_size=5) == b"12345"
    with pytest.raises(UsageError, match="is larger than 4 bytes"):
        read_named(tmp_path / "file", max_size=4)


@pytest.mark.skipif(os.name != "posix", reason="sparse files and long names of POSIX")
def test_a_huge_file_and_a_huge_name_are_refused_in_a_short_sentence(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    for path in (tmp_path / "huge", tmp_path / ("x" * 5000), tmp_path):
        with pytest.raises(UsageError, match="larger than 100 bytes|cannot be read") as refused:
            read_named(path, max_size=100)
        assert len(str(refused.value)) < 400


def test_lines_have_a_size_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_input, "MAX_LINE_SIZE", 10)
    (tmp_path / "file").write_bytes(b"1\r\n2\n" + b"x" * 20)
    with opened_lines(tmp_path / "file") as lines:
        assert [next(lines), next(lines)] == [b"1", b"2"]
        with pytest.raises(UsageError, match="a line of .* is larger than 10 bytes"):
            next(lines)
    with pytest.raises(UsageError, match="cannot be read"), opened_lines(tmp_path):
        pass


def test_a_dash_is_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\r\n2\n")))
    with opened_lines(Path("-")) as lines:
        assert list(lines) == [b"1", b"2"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
def test_a_full_disk_for_temporary_files_is_not_blamed_on_the_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n")))
    monkeypatch.setattr(
        tempfile, "SpooledTemporaryFile", lambda size: open("/dev/full", "wb", buffering=0)
    )
    with pytest.raises(FileFailed, match="No space left"), opened_lines(Path("-")):
        pass
