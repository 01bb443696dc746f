"""The pages about peers, descriptors and settings match the code and omit nothing."""

from __future__ import annotations

import re
import tomllib
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
from dragoman.errors import ConfigInvalid
from dragoman.paths import VARIABLES
from scripts.reference import settings_page, table_pages
from scripts.reference.pages import PAGES, REFERENCE, updated
from scripts.reference.toml_keys import Table, keys
from tests.docs.markdown import ROOT, blocks, section, table


def structs(module: ModuleType) -> list[type[msgspec.Struct]]:
    return [
        thing
        for thing in vars(module).values()
        if isinstance(thing, type)
        and issubclass(thing, msgspec.Struct)
        and thing.__module__ == module.__name__
    ]


@pytest.mark.parametrize("name", PAGES)
def test_the_generated_part_of_a_page_is_what_the_code_says(name: str) -> None:
    written = (REFERENCE / name).read_text("utf-8")
    assert written == updated(name), "run python -m scripts.reference"


@pytest.mark.parametrize(
    ("module", "described"),
    [(descriptor, table_pages.DESCRIPTOR), (schema, settings_page.TABLES)],
)
def test_every_table_is_on_the_page_and_every_key_is_described(
    module: ModuleType, described: tuple[Table, ...]
) -> None:
    assert {each.struct for each in described} == set(structs(module))
    for each in described:
        assert [key for key, _, _, what in keys(each) if not what] == [], each.name


def test_required_keys_are_those_without_which_a_descriptor_is_refused() -> None:
    top = table_pages.DESCRIPTOR[0]
    required = {key for key, _, default, _ in keys(top) if "required" in default}
    whole = {"name": "mine", "title": "Mine", "launch": [{"command": ["mine"]}]}
    assert required == set(whole)
    describe(whole, origin="the page")
    for key in whole:
        with pytest.raises(ConfigInvalid):
            describe({k: v for k, v in whole.items() if k != key}, origin="the page")


@pytest.mark.parametrize("shown", table_pages.DESCRIPTOR, ids=lambda each: each.name or "top")
def test_the_example_of_a_table_of_a_descriptor_is_valid(shown: Table) -> None:
    given = tomllib.loads(shown.example)
    whole = {"name": "mine", "title": "Mine", "protocol": "acp", "launch": [{"command": ["mine"]}]}
    describe(whole | given, origin="the page")
    assert shown.name == "session" or given


def test_the_example_of_a_rule_is_a_valid_setting() -> None:
    *_, last = table_pages.POLICY
    check_settings(tomllib.loads(last.example), origin="the page")


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


@pytest.mark.parametrize("key", settings_page.EXAMPLES)
def test_the_example_of_a_key_is_a_valid_setting(key: str) -> None:
    checked = check_settings(tomllib.loads(settings_page.example(key)), origin="the page")
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
