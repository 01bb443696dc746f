"""A policy reaches delegations below, and never widens on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.config.schema import PeerSettings, Settings
from dragoman.delegation.permission_ceiling import (
    VARIABLE,
    environment,
    inherited_ceilings,
    policy_for,
)
from dragoman.errors import ConfigInvalid
from dragoman.policy import Act, Policy, Rule, judge, preset
from dragoman.runs.lineage import Lineage

EDIT = Act(kind="edit", paths=("a.txt",), workspace="/w", peer="alpha", role="review")
READ = Act(kind="read", paths=("a.txt",), workspace="/w", peer="alpha", role="review")


def above(folder: Path, environ: str) -> Path:
    """A process 10 below a process 5 with this environment."""
    for pid, parent, text in ((10, 5, ""), (5, 1, environ)):
        (folder / str(pid)).mkdir(parents=True)
        (folder / str(pid) / "stat").write_text(f"{pid} (x) S {parent} 0")
        (folder / str(pid) / "environ").write_text(text)
    return folder


def test_a_policy_comes_back_out_of_the_environment_as_it_was(tmp_path: Path) -> None:
    policy = Policy(preset="ask", rules=(Rule(action="deny", kind="edit", paths=("*.txt",)),))
    found = inherited_ceilings(
        Lineage(depth=1), environment(policy, peer="alpha"), pid=10, proc=tmp_path
    )
    assert found == (policy,)


def test_a_rule_for_a_peer_or_a_role_binds_the_peers_it_delegates_to(tmp_path: Path) -> None:
    rules = (
        Rule(action="deny", kind="edit", peer="alpha"),
        Rule(action="deny", kind="read", role="review"),
        Rule(action="deny", kind="execute", peer="gamma"),
    )
    told = environment(Policy(preset="approve-all", rules=rules), peer="alpha", role="review")
    (found,) = inherited_ceilings(Lineage(depth=1), told, pid=10, proc=tmp_path)
    child = policy_for(
        Settings(permissions="approve-all"), "beta", wished=None, attended=False, ceilings=(found,)
    )
    for act, action in (("edit", "deny"), ("read", "deny"), ("execute", "allow")):
        below = Act(kind=act, paths=("a.txt",), workspace="/w", peer="beta", role="plan")
        assert judge(child, below).action == action


def test_what_a_peer_leaves_out_its_parent_still_has(tmp_path: Path) -> None:
    told = environment(preset("deny-all"), peer="alpha")[VARIABLE]
    proc = above(tmp_path, f"A=b\0{VARIABLE}={told}\0")
    assert inherited_ceilings(Lineage(depth=1), {}, pid=10, proc=proc) == (preset("deny-all"),)


def test_a_ceiling_that_should_be_there_and_is_not_leaves_nothing(tmp_path: Path) -> None:
    assert inherited_ceilings(Lineage(), {}, pid=10, proc=tmp_path) == ()
    assert inherited_ceilings(Lineage(depth=2), {}, pid=10, proc=tmp_path) == (preset("deny-all"),)


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"preset": "allow-me"}'])
def test_a_ceiling_that_no_dragoman_wrote_is_an_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="not written by dragoman"):
        inherited_ceilings(Lineage(depth=1), {VARIABLE: text}, pid=10, proc=tmp_path)


def test_who_is_alone_may_read_and_nothing_else() -> None:
    settings = Settings(permissions="ask", peer={"beta": PeerSettings(permissions="deny-all")})
    alone = policy_for(settings, "alpha", wished=None, attended=False, ceilings=())
    assert (alone.preset, judge(alone, EDIT).action) == ("approve-reads", "deny")
    assert policy_for(settings, "alpha", wished=None, attended=True, ceilings=()).preset == "ask"
    assert (
        policy_for(settings, "beta", wished=None, attended=True, ceilings=()).preset == "deny-all"
    )
    assert policy_for(
        settings, "beta", wished="approve-all", attended=False, ceilings=()
    ).preset == ("approve-all")


def test_a_wish_never_goes_beyond_the_ceilings() -> None:
    ceilings = (preset("approve-reads"), preset("deny-all"))
    wide = policy_for(Settings(), "alpha", wished="approve-all", attended=False, ceilings=ceilings)
    assert judge(wide, READ).action == judge(wide, EDIT).action == "deny"
