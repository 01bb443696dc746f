"""Usage errors of `dragoman fleet up` and `fleet coordinator`. `tests/fleet` runs them."""

from __future__ import annotations

import pytest

from tests.unit.cli.calling import Shell

THREE = "a.lan:4222,b.lan:4222,c.lan:4222"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["up", "--listen", "4222"], "--listen takes ADDRESS:PORT"),
        (["up", "--disk", "0"], "--disk must be at least"),
        (["up", "--lease", "0"], "--lease must be greater than 0"),
        (["up", "--keep", "0"], "--keep must be greater than 0"),
        (["up", "--max-waiting", "0"], "--max-waiting must be greater than 0"),
        (["up", "--max-events", "-1"], "--max-events must be greater than 0"),
        (["up", "--events-rate", "0"], "--events-rate must be greater than 0"),
        (["up", "--node", "1"], "--node needs --cluster"),
        (["up", "--cluster", THREE], "--cluster needs --node"),
        (["up", "--cluster", "a.lan:1,b.lan:1", "--node", "1"], "three or five"),
        (["up", "--cluster", THREE, "--node", "1", "--listen", "0.0.0.0:1"], "the port differs"),
        (["up", "--cluster", THREE, "--node", "2"], "copy fleet.json"),
        (["coordinator"], "no fleet in"),
    ],
)
def test_usage_errors_are_reported(shell: Shell, words: list[str], problem: str) -> None:
    said = shell("fleet", *words)
    assert said.code == 2
    assert problem in " ".join(said.err.split())
