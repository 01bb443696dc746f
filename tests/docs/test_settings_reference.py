"""The pages about peers, descriptors and settings match the code and omit nothing."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from dragoman.catalogue import descriptor
from dragoman.catalogue.load import Catalogue, built_in
from dragoman.catalogue.matrix import page
from dragoman.catalogue.validate import describe
from dragoman.config import schema
from dragoman.config.load import OTHER_VARIABLES, check_settings
from dragoman.paths import VARIABLES
from scripts import write_settings
from tests.docs import names
from tests.docs.markdown import ROOT, blocks, section, table

REFERENCE = ROOT / "docs" / "reference"
PAGES: dict[str, tuple[ModuleType, list[str]]] = {
    "descriptor.md": (
        descriptor,
        [
            *("Descriptor", "Launch", "WrongForm", "VersionSource", "Models", "Credentials"),
            *("Install", "Quirks", "Enforcement", "McpServers"),
            *("SettingWay", "SessionSupport", "CanaryPrompts"),
        ],
    ),
}


def expected(name: str) -> list[str]:
    module, classes = PAGES[name]
    lines = "\n".join(_chapters(module, classes)).strip()
    return lines.splitlines()


def _chapters(module: ModuleType, classes: list[str]) -> Iterator[str]:
    for name in classes:
        kind = getattr(module, name)
        yield from ("", f"### {name}", "", names.describe(kind), "", "| key | what |", "|---|---|")
        yield from (str(row) for row in names.members(kind) if "(" not in row.name)


def structs(module: ModuleType) -> list[type[msgspec.Struct]]:
    return [
        thing
        for thing in vars(module).values()
        if isinstance(thing, type)
        and issubclass(thing, msgspec.Struct)
        and thing.__module__ == module.__name__
    ]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_keys_is_what_the_code_says(name: str) -> None:
    _, _, rest = (REFERENCE / name).read_text("utf-8").partition("<!-- from the code -->\n")
    written = rest.strip().splitlines()
    assert written == expected(name), "it should read:\n" + "\n".join(expected(name))


@pytest.mark.parametrize("name", PAGES)
def test_no_table_and_no_key_is_without_a_sentence(name: str) -> None:
    module, classes = PAGES[name]
    assert sorted(classes) == sorted(kind.__name__ for kind in structs(module))
    for kind in structs(module):
        described = {row.name for row in names.members(kind) if row.what}
        assert set(kind.__struct_fields__) - described == set(), kind.__name__


def test_the_page_of_the_peers_is_made_from_the_catalogue() -> None:
    written = (REFERENCE / "peers.md").read_text("utf-8")
    again = "run python -m dragoman.catalogue > docs/reference/peers.md"
    assert written == page(Catalogue(built_in())), again


def test_the_descriptor_that_is_shown_is_one() -> None:
    first, *_ = [block for block in blocks(REFERENCE / "descriptor.md") if block.info == "toml"]
    peer = describe(tomllib.loads(first.text), origin="the page", folder=Path("/"))
    assert (peer.name, peer.roles) == ("mine", ("plan", "review"))


def test_the_settings_that_are_shown_are_some() -> None:
    shown, *_ = [block for block in blocks(REFERENCE / "configuration.md") if block.info == "toml"]
    assert check_settings(tomllib.loads(shown.text), origin="the page")["timeouts.total"] == 600


def test_the_keys_of_the_settings_are_those_of_the_code() -> None:
    written = (REFERENCE / "configuration.md").read_text("utf-8")
    assert written == write_settings.page(written), "run python scripts/write_settings.py"


def test_every_table_of_the_settings_is_on_the_page() -> None:
    assert set(write_settings.SECTIONS.values()) == set(structs(schema))


@pytest.mark.parametrize("key", write_settings.EXAMPLES)
def test_the_example_of_a_key_is_a_valid_setting(key: str) -> None:
    checked = check_settings(tomllib.loads(write_settings.example(key)), origin="the page")
    assert list(checked) == [key.replace("NAME", "codex").replace("BOX", "box")]


def test_every_folder_is_named_with_the_variable_that_moves_it() -> None:
    rows = "\n".join(section(REFERENCE / "configuration.md", "What is stored where"))
    for name, variable in VARIABLES.items():
        assert f"| {name} |" in rows and f"`{variable}`" in rows


def test_every_other_variable_is_documented() -> None:
    source = ROOT / "src" / "dragoman"
    read = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r'"(DRAGOMAN_[A-Z_]*[A-Z])"', path.read_text("utf-8"))
    }
    rows = table(section(REFERENCE / "configuration.md", "Other variables"))
    told = {cells[0].strip("`") for cells in rows}
    assert told == read - set(VARIABLES.values())
    assert told >= OTHER_VARIABLES - set(VARIABLES.values())
