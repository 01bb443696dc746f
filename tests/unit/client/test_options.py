"""The options of a connection: what is refused, and what each dialect's client gets of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from dragoman.client.acp.options import ClientOptions
from dragoman.client.budgets import Budgets
from dragoman.client.codex import CodexOptions
from dragoman.client.legacy import DocumentOptions
from dragoman.client.options import (
    ConnectOptions,
    DialectOptions,
    PlainOptions,
    StreamOptions,
    for_dialect,
    named_dialect,
    plain_of,
    require_options,
)
from dragoman.errors import Unsupported, UsageError

KINDS = [ClientOptions, CodexOptions, DocumentOptions]


@pytest.mark.parametrize("kind", KINDS)
def test_a_dialect_declares_only_options_of_its_own(kind: type[DialectOptions]) -> None:
    shared = {*DialectOptions.__struct_fields__, *ConnectOptions.__struct_fields__}
    assert not set(kind.__annotations__) & shared
    assert not set(DialectOptions.__annotations__) & set(ConnectOptions.__struct_fields__)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dialect_gets_all_options_that_count_on_a_stream(kind: type[DialectOptions]) -> None:
    given: dict[str, Any] = {name: object() for name in StreamOptions.__struct_fields__}
    made = for_dialect(kind, ConnectOptions(**given), "x")
    assert {name: getattr(made, name) for name in given} == given


def test_changes_go_before_the_options_and_details_before_both() -> None:
    options = ConnectOptions(name="a", details={"login_hint": "log in"})
    made = for_dialect(ClientOptions, options, "acp", name="b", title="T")
    assert (made.name, made.title, made.login_hint) == ("b", "T", "log in")
    options = structs.replace(options, details={"name": "c"})
    assert for_dialect(ClientOptions, options, "acp", name="b").name == "c"


@pytest.mark.parametrize("name", ["colour", "env", "cache"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_detail_that_the_client_does_not_have_is_named(
    kind: type[DialectOptions], name: str
) -> None:
    with pytest.raises(Unsupported, match=f"the dialect x has no option {name}"):
        for_dialect(kind, ConnectOptions(details={name: None}), "x")


def test_the_options_for_a_broker_are_listed_by_name() -> None:
    options = ConnectOptions(terminals=True, max_line_size=5)
    plain = plain_of(options)
    assert plain == {
        "read_files": True,
        "write_files": True,
        "terminals": True,
        "any_version": False,
        "unstable": False,
        "max_line_size": 5,
    }
    assert PlainOptions(**plain) == PlainOptions(terminals=True, max_line_size=5)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("permit", "approve_all", "permit= takes a function"),
        ("guard", 1, "guard= takes a function"),
        ("inquire", 1, "inquire= takes a function"),
        ("env", {"A": 1}, "env= takes a mapping"),
        ("env", ["A"], "env= takes a mapping"),
        ("inherit", "PATH", "inherit= takes a list"),
        ("inherit", 1, "inherit= takes a list"),
        ("on_event", 1, "on_event= takes a function"),
        ("on_stderr", 1, "on_stderr= takes a function"),
        ("budgets", 60, "budgets= takes a dragoman.client.budgets.Budgets"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused(option: str, value: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        require_options(ConnectOptions(**{option: value}))


def test_options_of_the_right_kind_are_not_refused() -> None:
    require_options(ConnectOptions())
    require_options(
        ConnectOptions(
            guard=print,  # type: ignore[arg-type]
            inquire=print,  # type: ignore[arg-type]
            env={"A": "b"},
            inherit=("PATH",),
            on_event=print,
            on_stderr=print,
            budgets=Budgets(),
        )
    )


@pytest.mark.parametrize(
    ("word", "name"), [("auto", "auto"), ("ASP", "threads"), ("Keyed", "keyed"), ("acp", "acp")]
)
def test_a_dialect_is_named_by_our_word_or_by_that_of_its_document(word: str, name: str) -> None:
    assert named_dialect(word) == name


def test_an_unknown_dialect_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="there is no dialect 'latin'; the dialects are auto, acp"):
        named_dialect("latin")
