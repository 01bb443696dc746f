"""The reference pages of the public names omit no member, and show how each one is used."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest

import dragoman
from dragoman import agent
from dragoman.client import acp
from scripts.reference import pages
from scripts.reference.members import Member, members
from scripts.reference.python_names import Chapter, signature, undocumented
from tests.docs.markdown import section, table

BLOCKING = {"BlockingTurn", "BlockingToolCall"}
"""They have the names of their `async` counterparts, which are documented."""

CHAPTERS = [*pages.CONVERSATION, *pages.CLIENT, *pages.DECISIONS, *pages.KIT, pages.AGENT]


def ids(chapter: Chapter) -> str:
    return f"{chapter.cls.__module__}.{chapter.cls.__name__}"


def entry(thing: Any, variable: str, name: str) -> str:
    """Return how a page shows a member of a class."""
    found: dict[str, Member] = {member.name: member for member in members(thing)}
    return signature(Chapter(thing, variable), found[name])


def test_the_table_of_the_package_has_all_of_its_names() -> None:
    rows = [line for line in pages.PAGES["names.md"]() if line.startswith("| [`")]
    assert [row.split("`")[1] for row in rows] == list(dragoman.__all__)


@pytest.mark.parametrize(("module", "name"), [(acp, "acp-client.md"), (agent, "agent.md")])
def test_every_public_name_of_a_module_is_on_its_page(module: Any, name: str) -> None:
    lines = "\n".join(pages.PAGES[name]())
    for each in set(module.__all__) - BLOCKING:
        shown = f"## {each}\n" if inspect.isclass(getattr(module, each)) else f" {each}("
        assert shown in lines, each


def test_the_names_of_the_client_are_imported_from_the_modules_on_its_page() -> None:
    rows = table(section(pages.REFERENCE / "acp-client.md", "ACP client"))
    found = [(names.split("`")[1::2], module.split("`")[1]) for names, module in rows]
    assert [
        f"{module}.{name}"
        for names, module in found
        for name in names
        if not hasattr(import_module(module), name)
    ] == []
    told = {name for names, _ in found for name in names}
    assert told >= {chapter.cls.__name__ for chapter in (*pages.CLIENT, *pages.DECISIONS)}


@pytest.mark.parametrize("chapter", CHAPTERS, ids=ids)
def test_no_member_on_a_page_is_without_a_description(chapter: Chapter) -> None:
    assert undocumented(chapter) == []


@pytest.mark.parametrize("chapter", CHAPTERS, ids=ids)
def test_every_public_attribute_of_a_class_is_on_its_page_or_hidden_on_purpose(
    chapter: Chapter,
) -> None:
    shown = {member.name for _, group in chapter.members() for member in group}
    slots = {
        name
        for cls in chapter.cls.__mro__
        for name in (getattr(cls, "__slots__", None) or ())
        if not name.startswith("_")
    }
    fields = {*slots, *getattr(chapter.cls, "__struct_fields__", ())}
    assert fields - shown <= set(chapter.hidden)
    assert set(chapter.hidden) <= {member.name for member in members(chapter.cls)}


@pytest.mark.parametrize(
    ("thing", "variable", "name", "shown"),
    [
        (acp.AcpClient, "client", "logout", "await client.logout()"),
        (
            acp.AcpClient,
            "client",
            "list_sessions",
            "async for info in client.list_sessions(cwd: str | Path | None = None)",
        ),
        (acp.Turn, "turn", "wait", "await turn.wait() -> Result"),
        (acp.Session, "session", "cwd", "session.cwd: Path"),
        (agent.Agent, "agent", "prompt", "@agent.prompt"),
        (agent.Agent, "agent", "extension", "@agent.extension(method: str)"),
        (agent.Turn, "turn", "title", "await turn.title(title: str | None)"),
    ],
)
def test_a_member_is_shown_the_way_it_is_used(
    thing: Any, variable: str, name: str, shown: str
) -> None:
    assert entry(thing, variable, name) == shown


def test_a_group_that_omits_a_member_is_an_error() -> None:
    with pytest.raises(ValueError, match="release"):
        Chapter(agent.Terminal, "terminal", {"All": ("id", "output", "wait", "kill")}).members()


@pytest.mark.parametrize("blocking", sorted(BLOCKING))
def test_what_plain_functions_get_has_the_names_of_what_coroutines_get(blocking: str) -> None:
    twin = getattr(agent, blocking.removeprefix("Blocking"))
    own = {member.name for member in members(getattr(agent, blocking))} - {"inner"}
    known = {member.name for member in members(twin)}
    assert own - known == ({"run_command", "ask_form", "ask_url"} if "Turn" in blocking else set())
