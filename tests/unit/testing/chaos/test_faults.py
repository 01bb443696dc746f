from __future__ import annotations

import pytest

from dragoman.testing.chaos import faults


def test_every_fault_has_a_meaning_of_its_own() -> None:
    meanings = [faults.meaning(name) for name in faults.names()]
    assert len(set(meanings)) == len(meanings)
    assert "hang:session/prompt" in faults.names()
    assert faults.meaning("hang:session/prompt") == "never answers session/prompt"


@pytest.mark.parametrize("name", ["", "nonsense", "hang:", "hang:session/nothing"])
def test_a_healthy_behaviour_has_no_fault(name: str) -> None:
    assert name not in faults.names()
    with pytest.raises(KeyError):
        faults.meaning(name)
