from __future__ import annotations

import re
from dataclasses import fields

from dragoman.hub.verify.canaries import Canaries, fill


def test_words_in_braces_are_replaced_and_other_braces_are_left_alone() -> None:
    assert fill("WRITE:{path}:{}{other}", path="a", text="b") == "WRITE:a:{}{other}"


def test_a_value_is_not_looked_through_for_further_words() -> None:
    assert fill("{text} in {path}", path="{text}", text="t") == "t in {text}"


def test_every_canary_that_needs_a_word_names_it() -> None:
    wanted = {"echo": {"token"}, "write": {"path", "text"}, "shell": {"command"}}
    wanted |= {"tool": {"tool", "server"}, "slow": set(), "failure": set()}
    for field in fields(Canaries):
        assert set(re.findall(r"{(\w+)}", field.default or "")) == wanted[field.name], field.name  # type: ignore[arg-type]
