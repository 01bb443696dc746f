"""What is a slash command and what is not."""

from __future__ import annotations

import pytest

from dragoman.agent.commands import Command, is_meant, is_name, parse
from dragoman.dialects.acp import v1 as acp


def text(value: str) -> list[acp.ContentBlock]:
    return [acp.TextContent(text=value)]


@pytest.mark.parametrize(
    ("typed", "name", "rest"),
    [
        ("/help", "help", ""),
        ("  /help  ", "help", ""),
        ("/review src/a.py and b", "review", "src/a.py and b"),
        ("/review\n\ntwo\nlines\n", "review", "two\nlines"),
        ("/mcp:tool-name.v2 x", "mcp:tool-name.v2", "x"),
        ("/web https://example.org/a b", "web", "https://example.org/a b"),
    ],
)
def test_a_slash_and_a_name_are_a_command_and_the_rest_is_its_input(
    typed: str, name: str, rest: str
) -> None:
    assert parse(text(typed)) == Command(name, rest)


@pytest.mark.parametrize(
    "typed",
    ["", "/", "//", "/ help", "/usr/bin", "/usr/bin/env is a program", "/1st", "/-x", "help /me"],
)
def test_a_path_or_a_text_is_not_a_command(typed: str) -> None:
    assert parse(text(typed)) is None


def test_only_the_first_block_can_be_a_command_and_only_if_it_is_text() -> None:
    image = acp.ImageContent(data="AA==", mime_type="image/png")
    command = acp.TextContent(text="/help")
    assert parse([]) is None
    assert parse([image, command]) is None
    assert parse([acp.TextContent(text="hello"), command]) is None
    assert parse([command, image]) == Command("help", "")


@pytest.mark.parametrize("name", ["help", "a", "mcp:x", "to-do", "v1.2"])
def test_a_name_that_can_be_typed_is_valid(name: str) -> None:
    assert is_name(name)
    assert parse(text(f"/{name} x")) == Command(name, "x")


@pytest.mark.parametrize("name", ["", "two words", "/help", "a/b", "1st", "a\n"])
def test_a_name_that_cannot_be_typed_is_invalid(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("/hlep", True),
        ("/etc", True),
        ("/reveiw src/a.py", True),
        ("/revue it", True),
        ("/etc is broken", False),
        ("/tmp and /var are full", False),
        ("/home looks odd", False),
    ],
)
def test_a_command_that_is_none_was_meant_if_it_stands_alone_or_is_nearly_one(
    typed: str, meant: bool
) -> None:
    command = parse(text(typed))
    assert command is not None
    assert is_meant(command, ["help", "review"]) is meant
