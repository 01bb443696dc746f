from __future__ import annotations

import re

import pytest

from dragoman.scout.definitions import classify, is_call
from dragoman.scout.languages import Language
from dragoman.scout.rules import EXPORT, RULES, TRUE

PIECES = ["a ", "a, ", "a<", "@a( ", "public ", "a.", "* ", "a::", "(", "{", "\t", "const ", "[",
          "export ", "a\t=", "pub(", '"', "' ", "typedef ", "template<", "=> ", "def "]  # fmt: skip


@pytest.mark.parametrize("family", RULES)
def test_every_rule_compiles_and_has_a_rank(family: str) -> None:
    for rule in RULES[family]:
        re.compile(rule.before)
        re.compile(rule.after)
        assert TRUE <= rule.rank <= EXPORT
        assert rule.kind


@pytest.mark.parametrize("family", RULES)
def test_no_line_is_slow_to_judge(family: str) -> None:
    # A rule that backtracks would take hours for such lines, and the test would be ended by its
    # time limit.
    language = Language("x", family, ("x",))
    for piece in PIECES:
        line = (piece * 400)[:400] + "name" + (piece * 600)[:600]
        classify(line, "name", language, "__init__.py")
        is_call(line, "name", language)
        assert classify("nothing of it", "name", language) is None
