"""The descriptor of a new peer, and its adapter."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue.card import MeasuredFacts
from dragoman.catalogue.command_unwrap import describe_command
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.validate import describe
from dragoman.setup.descriptor_draft import PeerDraft, adapter_text, descriptor_text, first_table
from tests.unit.runs.contexts import card_of, place_in

WISH = PeerDraft(name="my-agent", roles=("review", "plan"), command=("my-agent", "--acp"))


def made(
    wish: PeerDraft, way: LaunchSpec | None = None, facts: MeasuredFacts | None = None
) -> dict[str, Any]:
    text = descriptor_text(
        wish, way or LaunchSpec(command=wish.command), card_of(wish.name, facts=facts)
    )
    table = tomllib.loads(text)
    describe(table, origin="test")
    return table


def test_a_descriptor_says_what_the_user_said_and_what_was_measured() -> None:
    assert made(WISH) == {
        "name": "my-agent",
        "title": "Mine Agent",
        "roles": ["review", "plan"],
        "protocol": "acp",
        "source": "measured by dragoman 0.1.0 on 2026-05-04",
        "verified": True,
        "launch": [{"command": ["my-agent", "--acp"]}],
    }


def test_a_title_of_the_users_own_wins_and_variables_are_named() -> None:
    table = made(PeerDraft(name="a", roles=(), command=("a",), title="Mine", env=("MY_KEY",)))
    assert table["title"] == "Mine"
    assert table["credentials"] == {"env": ["MY_KEY"]}


def test_an_address_is_reached_and_not_started() -> None:
    wish = PeerDraft(name="far", roles=("plan",), command=("ws://127.0.0.1:1/x",))
    assert wish.address == "ws://127.0.0.1:1/x"
    assert made(wish, LaunchSpec(address=wish.address))["launch"] == [
        {"address": "ws://127.0.0.1:1/x"}
    ]


def test_what_was_seen_becomes_a_quirk_and_what_was_not_does_not() -> None:
    facts = MeasuredFacts(
        dialect="acp", refusal_ends_turn=True, clean_exit=False, uses_terminals=False
    )
    assert made(WISH, facts=facts)["quirks"] == {"reject_ends_turn": True, "stays_after_eof": True}
    assert "quirks" not in made(WISH, facts=MeasuredFacts(clean_exit=True))


def test_a_login_that_was_reported_is_kept() -> None:
    facts = MeasuredFacts(dialect="acp", login="run `my-agent login`")
    assert made(WISH, facts=facts)["credentials"] == {"login": "run `my-agent login`"}


def test_a_second_peer_with_a_known_program_knows_what_is_known_of_it(tmp_path: Path) -> None:
    catalogue = place_in(tmp_path).catalogue
    way = describe_command(("gemini", "--acp", "--model", "x"), catalogue)
    wish = PeerDraft(
        name="flash", roles=("research",), command=("gemini", "--acp", "--model", "x"), env=("MY",)
    )
    table = made(wish, way, MeasuredFacts(dialect="acp"))
    assert table["env"] == {"GEMINI_CLI_NO_RELAUNCH": "true"}
    assert table["quirks"]["missing_file_is_empty"] is True
    assert {"GEMINI_API_KEY", "MY"} <= set(table["credentials"]["env"])
    assert table["version"] == {"how": "package", "package": "@google/gemini-cli"}
    assert "wrong_forms" not in table


def test_a_dialect_that_the_handshake_did_not_show_is_not_written_down() -> None:
    way = LaunchSpec(command=("x",))
    assert made(WISH, way, MeasuredFacts(dialect="acp", dialect_shown=True))["protocol"] == "acp"
    assert "protocol" not in made(WISH, way, MeasuredFacts(dialect="acp", dialect_shown=False))


def test_before_it_is_tried_little_is_known() -> None:
    assert first_table(WISH)["title"] == "my-agent"
    assert "protocol" not in first_table(WISH)


@pytest.mark.parametrize("roles", [(), ("review",), ("review", "code-review")])
def test_an_adapter_is_a_program_with_the_parts_that_are_asked_for(roles: tuple[str, ...]) -> None:
    wish = PeerDraft(name="my-agent", roles=roles, command=("x",), python=True)
    module: dict[str, Any] = {}
    exec(compile(adapter_text(wish, card_of("my-agent")), "adapter", "exec"), module)
    assert (module["name"], module["protocol"]) == ("my-agent", "acp")
    assert module["ROLES_CLAIMED"] == roles
    assert set(module["ROLE_PREFIX"]) == set(roles)
    assert not module["claims"]("nothing")
    assert wish.adapter == "my_agent_adapter.py"
    assert made(wish)["adapter"] == "my_agent_adapter.py"
