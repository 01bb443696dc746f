from __future__ import annotations

import re
from dataclasses import fields

from msgspec import structs

from dragoman.catalogue.descriptor import CanaryPrompts
from dragoman.verify.canary_prompts import Canaries, canaries_for, fill


def test_words_in_braces_are_replaced_and_other_braces_are_left_alone() -> None:
    assert fill("WRITE:{path}:{}{other}", path="a", text="b") == "WRITE:a:{}{other}"


def test_a_value_is_not_looked_through_for_further_words() -> None:
    assert fill("{text} in {path}", path="{text}", text="t") == "t in {text}"


def test_every_canary_that_needs_a_word_names_it() -> None:
    wanted = {"echo": {"token"}, "write": {"path", "text"}, "shell": {"command"}}
    wanted |= {"tool": {"tool", "server"}, "slow": set(), "slower": set(), "failure": set()}
    for field in fields(Canaries):
        assert set(re.findall(r"{(\w+)}", field.default or "")) == wanted[field.name], field.name  # type: ignore[arg-type]


def test_a_descriptor_replaces_what_it_names_and_leaves_the_rest_as_it_is_asked_of_everybody() -> (
    None
):
    asked = canaries_for(CanaryPrompts(echo="/help", tool=""))
    assert (asked.echo, asked.tool) == ("/help", "")
    assert (asked.write, asked.slow) == (Canaries().write, Canaries().slow)


def test_a_descriptor_can_replace_every_canary_but_those_that_follow_from_others() -> None:
    named = {field.name for field in structs.fields(CanaryPrompts)}
    assert named == {field.name for field in fields(Canaries)} - {"failure", "slower"}


def test_a_descriptor_that_says_what_is_slow_is_asked_for_the_same_again() -> None:
    made = canaries_for(CanaryPrompts(slow="count"))
    assert (made.slow, made.slower) == ("count", "count")
