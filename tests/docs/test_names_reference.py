"""The reference pages of the public names match the code and omit no name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import dragoman
from dragoman import agent
from dragoman.client import acp, budgets, permissions, results
from tests.docs import names
from tests.docs.markdown import ROOT

REFERENCE = ROOT / "docs" / "reference"
DECIDING = ["approve_all", "approve_reads", "deny_all", "Answer", "Chosen", "Question", "Denial"]
BLOCKING = {"BlockingTurn", "BlockingToolCall"}
"""They have the names of their `async` counterparts, which are documented."""


def front_door() -> Iterator[str]:
    yield from ("| name | lives in | what |", "|---|---|---|")
    for name in dragoman.__all__:
        thing = getattr(dragoman, name)
        home = thing.__name__ if inspect.ismodule(thing) else thing.__module__
        yield f"| `{name}` | `{home}` | {names.describe(thing)} |"


def client() -> Iterator[str]:
    yield from names.chapter(acp, list(acp.__all__))
    yield from names.chapter(results, ["Result"])
    yield from names.chapter(budgets, ["Budgets"])
    yield from names.chapter(permissions, DECIDING)


def kit() -> Iterator[str]:
    yield from names.chapter(agent, [name for name in agent.__all__ if name not in BLOCKING])


PAGES = {"names.md": front_door, "acp-client.md": client, "agent.md": kit}


def written(page: Path) -> list[str]:
    """Return the text after the line that marks the beginning of the generated part."""
    _, _, rest = page.read_text(encoding="utf-8").partition("<!-- from the code -->\n")
    return rest.strip().splitlines()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_names_is_what_the_code_says(page: str) -> None:
    expected = "\n".join(PAGES[page]()).strip()
    assert written(REFERENCE / page) == expected.splitlines(), f"it should read:\n{expected}"


@pytest.mark.parametrize("page", PAGES)
def test_no_public_name_is_without_a_sentence(page: str) -> None:
    assert [line for line in PAGES[page]() if line.rstrip().endswith("|  |")] == []


@pytest.mark.parametrize("blocking", sorted(BLOCKING))
def test_what_plain_functions_get_has_the_names_of_what_coroutines_get(blocking: str) -> None:
    twin = getattr(agent, blocking.removeprefix("Blocking"))
    own = {row.name.partition("(")[0] for row in names.members(getattr(agent, blocking))}
    extra = {name for name in own if not hasattr(twin, name)}
    assert extra <= {"run_command", "ask_form", "ask_url", "session", "prompt", "meta", "cancelled"}
