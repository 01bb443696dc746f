"""A wish is refused where it contradicts itself, and an agent file is read as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.delegation.request import Assigned, DelegationRequest, nothing, read_agent
from dragoman.errors import DelegationInvalid, UsageError
from dragoman.events.parts import Capabilities
from tests.unit.runs.contexts import place_in


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"prompt": " \n"}, "the prompt is empty"),
        ({"prompt": "a\udcff"}, "the prompt is not valid Unicode text: character 2"),
        ({"model": "\ud800"}, "the model is not valid Unicode text: character 1"),
        ({"apply": True}, "--apply needs --isolate"),
        ({"tier": "quick"}, "use fast, standard, strong"),
    ],
)
def test_a_wish_that_cannot_be_done_is_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        DelegationRequest(**{"role": "review", "prompt": "x", "workspace": Path("/w"), **fields})  # type: ignore[arg-type]


def test_a_wish_brings_nothing_along_unless_told() -> None:
    wish = DelegationRequest(role="review", prompt="x", workspace=Path("/w"))
    assert wish.attach is nothing and nothing(Path("/w"), Capabilities()) == ()


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("---\ndelegate_to: scout-exploration\n---\n\nLook.\n\nWell.\n", "Look.\n\nWell."),
        ("\ufeff---\ndelegate_to: scout-exploration\n...\nLook.\n", "Look."),
        ("---\ndelegate_to: scout-exploration\n---\n", ""),
    ],
)
def test_the_instructions_stand_behind_the_front_matter(
    text: str, body: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.md"
    file.write_text(text)
    expected = Assigned("scout", "exploration", body)
    assert read_agent(file, place_in(tmp_path).catalogue) == expected
    assert expected.prompt("Go.") == (f"{body}\n\nGo." if body else "Go.")


def test_a_file_without_front_matter_is_all_instructions(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text("Be brief.\n")
    assert read_agent(file, place_in(tmp_path).catalogue) == Assigned(None, None, "Be brief.")


def test_a_file_without_a_peer_and_one_that_opts_out_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    catalogue = place_in(tmp_path).catalogue
    file.write_text("---\ndelegate_to: nobody-plan\n---\n")
    with pytest.raises(DelegationInvalid):
        read_agent(file, catalogue)
    for text in ("---\ndelegate_to: none\n---\n", "---\ndelegate_to:\n---\n"):
        file.write_text(text)
        with pytest.raises(UsageError):
            read_agent(file, catalogue)
