"""Keys of well-known kinds are found wherever they stand; ordinary words are not taken for one."""

from __future__ import annotations

import re

import pytest

from dragoman.redaction import shapes
from dragoman.redaction.names import REDACTED
from dragoman.redaction.redactor import Redactor
from tests.keys import KEYS

NEIGHBOURS = ("", "x", "X", "7", "_", "m", "n", "D", "=", "鍵", "é", "\\n", "%3D", "\x1b[32m", '"')


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:12])
def test_a_key_is_found_with_any_neighbour_before_it(key: str) -> None:
    for before in NEIGHBOURS:
        clean = Redactor().text(f"use {before}{key}, please")
        assert key not in clean and key[8:] not in clean, before
        assert clean.endswith(", please") and REDACTED in clean


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:12])
def test_a_key_in_colours_or_escapes_is_cut_out(key: str) -> None:
    half = len(key) // 2
    coloured = f"\x1b[32m{key[:half]}\x1b[1;31m{key[half:]}\x1b[0m"
    percent = "".join(f"%{ord(c):02x}" for c in key)
    escaped = "".join(f"\\u{ord(c):04x}" for c in key)
    for written in (
        coloured,
        percent,
        escaped,
        coloured.replace("\x1b", "\\u001b"),
        coloured.replace("\x1b[", "\x9b"),
        percent.replace("%", "%25"),
        re.sub(r"([_.-])", r"\\\1", key),
    ):
        clean = Redactor().text(f"a {written} b")
        assert clean.startswith("a ") and clean.endswith(" b"), written
        assert key[half:] not in clean and written[-len(key) // 2 :] not in clean


@pytest.mark.parametrize(
    "text",
    [
        "the task-list of the risk-assessment-department and network-interfaces-in-detail",
        "disk-0193abcdef0123456789abcdef012345",
        "npm_config_registry=x pnpm_store PNPM_HOME",
        "MSG.attribute.with.a.long.chain.of.words.that.goes.on.and.on.and.on",
        "SKETCH ACCEPTED ASIAN",
        "see https://example.org/a:b@c and git@example.org:x/y",
        "12:Alpha 2024:August",
        "eyJ is how it begins",
        "ops_team devops_pipeline",
        "sha256:" + "0f" * 32,
    ],
)
def test_ordinary_words_are_not_redacted(text: str) -> None:
    assert Redactor().text(text) == text


def test_the_quick_look_sees_every_kind() -> None:
    for key in KEYS:
        assert shapes.may_hold(f"x {key} y"), key
        assert shapes.has_literal(key)
        assert shapes.looks_like_a_secret(key)
    assert not shapes.may_hold("nothing of the kind")
