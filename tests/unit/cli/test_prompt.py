"""Where a prompt comes from, and what travels with it."""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path

import pytest

from dragoman.cli import prompt as cli_prompt
from dragoman.cli.prompt import blocks, content_of, mentioned, read_image, read_prompt
from dragoman.errors import Unsupported, UsageError
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
    with pytest.raises(UsageError, match="contradict"):
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


def test_nobody_is_waited_for_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, b"too late\n", terminal=True)
    with pytest.raises(UsageError, match="there is no prompt"):
        read_prompt(None, None)


@pytest.mark.parametrize(
    ("data", "why"), [(b" \n", "the prompt is empty"), (b"\xff", "stdin is not UTF-8")]
)
def test_what_is_no_prompt_is_an_error(
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


def test_a_name_that_no_system_allows_is_no_mention(workspace: Path) -> None:
    assert list(mentioned(f"@{'x' * 5000} @~nobody-at-all/x", workspace)) == []


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
    monkeypatch.setattr(cli_prompt, "EMBEDDED_SIZE", 3)
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


def test_what_is_no_image_or_too_large_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.png").write_text("not at all")
    with pytest.raises(UsageError, match="no PNG, JPEG, GIF or WebP"):
        read_image(tmp_path / "x.png")
    monkeypatch.setattr(cli_prompt, "IMAGE_SIZE", 5)
    with pytest.raises(UsageError, match="has more than 5 bytes"):
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
    with pytest.raises(Unsupported, match="codex takes no images"):
        made("x", typed="x", can=Capabilities(image=False), workspace=workspace)
    assert made("x", typed="x", can=Capabilities(image=None), workspace=workspace)


def test_what_is_no_text_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        read_prompt("h\udcffi", None)
    with pytest.raises(UsageError, match="not UTF-8"):
        blocks("\udcff", typed="", images=(), workspace=tmp_path, can=Capabilities(), peer="x")
