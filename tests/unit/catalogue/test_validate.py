"""What a descriptor must fulfil beyond its types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue.validate import describe
from dragoman.errors import ConfigInvalid

GOOD: dict[str, Any] = {"name": "mine", "title": "Mine", "launch": [{"command": ["mine", "acp"]}]}


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"name": "Mine"}, "name", "is not a valid name"),
        ({"name": "a--b"}, "name", "is not a valid name"),
        ({"name": "../x"}, "name", "is not a valid name"),
        ({"name": "x" * 65}, "name", "is not a valid name"),
        ({"name": "none"}, "name", "is reserved"),
        ({"title": " "}, "title", "empty"),
        ({"launch": []}, "launch", "with a command or an address"),
        ({"launch": [{}]}, "launch[0]", "either a command or an address"),
        ({"launch": [{"command": ["x"], "address": "unix:/x"}]}, "launch[0]", "not both"),
        ({"launch": [{"command": [" "]}]}, "launch[0]", "empty"),
        ({"launch": [{"command": ["x", "\0"]}]}, "launch[0]", "null"),
        ({"launch": [{"address": "http://x"}]}, "launch[0]", "is not an address"),
        (
            {"launch": [{"command": ["x"], "platforms": ["mac"]}]},
            "launch[0].platforms[0]",
            "did you mean 'macos'?",
        ),
        ({"protocol": "apc"}, "protocol", "did you mean 'acp'?"),
        ({"roles": ["Do It"]}, "roles", "is not a valid role"),
        ({"roles": ["plan", "plan"]}, "roles", "twice"),
        ({"role_prefixes": {"plan": "/plan "}}, "role_prefixes", "not among the roles"),
        ({"env": {"A B": "x"}}, "env", "not a valid name of an environment variable"),
        ({"env": {"X_API_KEY": "abc-def-123-456"}}, "env.X_API_KEY", "secret"),
        (
            {"credentials": {"env": ["A=B"]}},
            "credentials.env",
            "not a valid name of an environment variable",
        ),
        ({"version": {"how": "package"}}, "version", "`package` must be set if and only if"),
        ({"version": {"flag": "--version"}}, "version", "`flag` must be set if and only if"),
        ({"models": {"listing": "command"}}, "models", "`command` must be set if and only if"),
        ({"max_line_size": 0}, "max_line_size", "it must be 4096 bytes or greater"),
        ({"max_line_size": -1}, "max_line_size", "it must be 4096 bytes or greater"),
        ({"max_line_size": 4095}, "max_line_size", "it must be 4096 bytes or greater"),
        ({"handshake_timeout": -1.0}, "handshake_timeout", "above 0"),
        ({"quirks": {"mode_after_open": "x"}}, "quirks.mode_after_open", "protocol = 'acp'"),
        ({"quirks": {"error_texts": [""]}}, "quirks.error_texts", "empty"),
        ({"canaries": {"echo": " "}}, "canaries.echo", "must not be empty"),
        ({"details": {"sandbox": "x"}}, "details", "apply to one dialect"),
        ({"lanch": []}, "lanch", "did you mean `launch`?"),
        ({"quirks": {"late_reply": True}}, "quirks.late_reply", "did you mean `late_replay`?"),
        ({"verified": "yes"}, "verified", "expected true or false"),
    ],
)
def test_a_mistake_is_named_with_its_place(change: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        describe({**GOOD, **change}, origin="mine.toml")
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"mine.toml: {key}: ")


def test_a_new_role_is_accepted() -> None:
    assert describe({**GOOD, "roles": ["translate"]}, origin="f").roles == ("translate",)


def test_relative_programs_count_from_the_folder_of_the_file() -> None:
    table = {
        **GOOD,
        "launch": [
            {"command": ["./bin/agent", "a/b"]},
            {"command": ["agent"]},
            {"command": ["/abs/agent"]},
            {"command": ["{python}", "-m", "x"]},
            {"address": "unix:/x"},
        ],
    }
    peer = describe(table, origin="f", folder=Path("/home/me"))
    assert [launch.command for launch in peer.launch] == [
        ("/home/me/bin/agent", "a/b"),
        ("agent",),
        ("/abs/agent",),
        ("{python}", "-m", "x"),
        (),
    ]
