"""No line that the policy allows makes a real shell run a program that no rule names."""

from __future__ import annotations

from pathlib import Path
from random import Random, SystemRandom

import pytest
from hypothesis import settings

from tests.faults.shell_lines import SEEDS, Stage, hunt, shells

EXAMPLES = settings().max_examples
LINES = 2 * EXAMPLES if EXAMPLES >= 50_000 else EXAMPLES * 3 // 2
"""Lines of one run: 3,000 by default, 100,000 in the long profile. One in six is run in each shell.
"""


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not shells(), reason="there is no POSIX shell")
def test_no_allowed_line_runs_a_program_that_no_rule_named(tmp_path: Path) -> None:
    number = SystemRandom().getrandbits(32)
    tally = hunt(tmp_path, LINES, Random(number))
    assert tally.findings == [], f"Random({number})"
    assert tally.judged == LINES
    # A policy that allows nothing would prove nothing.
    assert tally.ran > LINES // 100


@pytest.mark.skipif(not shells(), reason="there is no POSIX shell")
def test_the_stage_sees_a_program_that_runs(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for shell in shells():
        ran, made = stage.run(shell, "git status; touch P & nothing-there; env evil > Q")
        assert {"git", "touch", "nothing-there", "env", "evil"} <= ran
        assert made == {"Q"}
    assert len(SEEDS) > 80
