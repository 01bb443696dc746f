"""Routing facts about peers on other machines, without a connection."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.catalogue.host_checks import HostAgent, HostCheck, store_check
from dragoman.catalogue.session_settings import WantedSettings
from dragoman.delegation.host_facts import host_facts, host_peers
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import PeerFacts
from dragoman.policy import Policy
from dragoman.policy.rules import Rule
from dragoman.runs.context import RunContext
from tests.unit.runs.contexts import place_in

CONFIG = 'enabled_peers = ["codex@box"]\n[hosts.box]\ndestination = "me@box"\n'
AGENTS = (
    HostAgent(name="codex", installed=True, roles=("review", "plan"), login="logged in"),
    HostAgent(name="gemini", installed=True, roles=("research",)),
    HostAgent(name="qwen", installed=False),
    HostAgent(name="scout", installed=True),
)
ALL = Policy(preset="approve-all")


def place_with(folder: Path, text: str = CONFIG, **check: Any) -> RunContext:
    (folder / "config_home").mkdir(exist_ok=True)
    (folder / "config_home" / "config.toml").write_text(text)
    place = place_in(folder)
    (place.cwd / ".git").mkdir(exist_ok=True)
    found = HostCheck(
        host="box",
        destination="me@box",
        findings=(),
        agents=AGENTS,
        dragoman="/opt/dragoman",
        checked_at=time.time() - 7200,
    )
    if check.get("checked", True):
        store_check(place.paths, structs.replace(found, **check))
    return place


def facts(
    place: RunContext, name: str = "codex@box", policy: Policy = ALL, **wish: Any
) -> PeerFacts:
    request = DelegationRequest(role="review", prompt="look", workspace=place.cwd, **wish)
    return host_facts(name, request, place, policy)


def test_enabled_peers_come_first_then_installed_ones(tmp_path: Path) -> None:
    text = 'enabled_peers = ["codex", "mine@box"]\n[hosts.box]\ndestination = "me@box"\n'
    assert host_peers(place_with(tmp_path, text)) == ["mine@box", "codex@box", "gemini@box"]


def test_the_last_check_provides_the_facts(tmp_path: Path) -> None:
    found = facts(place_with(tmp_path))
    assert (found.host, found.enabled, found.installed) == ("box", True, True)
    assert found.roles == ("review", "plan") and found.host_problem == ""
    assert found.host_note == "checked 2 h ago, login: logged in"
    assert not facts(place_with(tmp_path), "qwen@box").installed


def test_roles_in_the_settings_replace_those_of_the_host(tmp_path: Path) -> None:
    text = CONFIG + '[peer."codex@box"]\nroles = ["execute"]\n'
    assert facts(place_with(tmp_path, text)).roles == ("execute",)
    text = CONFIG + '[peer.codex]\nroles = ["plan"]\n'
    assert facts(place_with(tmp_path, text)).roles == ("plan",)


@pytest.mark.parametrize(
    ("text", "check", "why"),
    [
        ('enabled_peers = ["codex@box"]\n', {}, "dragoman hosts add box"),
        (CONFIG, {"destination": "me@other"}, "the address of box changed"),
        (CONFIG, {"dragoman": None}, "dragoman hosts bootstrap box"),
    ],
)
def test_a_host_that_cannot_be_used_has_a_remedy(
    tmp_path: Path, text: str, check: dict[str, Any], why: str
) -> None:
    assert why in facts(place_with(tmp_path, text, **check)).host_problem


def test_a_host_that_was_never_checked_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "config_home").mkdir()
    (tmp_path / "config_home" / "config.toml").write_text(CONFIG)
    place = place_in(tmp_path)
    (place.cwd / ".git").mkdir()
    assert "dragoman hosts check box" in facts(place).host_problem


def test_only_a_git_repository_can_be_sent(tmp_path: Path) -> None:
    place = place_with(tmp_path)
    (place.cwd / ".git").rmdir()
    assert "git repository" in facts(place).host_problem


def test_unsupported_options_are_named(tmp_path: Path) -> None:
    place = place_with(tmp_path)
    assert facts(place, cold=True).lacking == "--cold"
    assert facts(place, session=WantedSettings(allow_tool=("x",))).lacking == "--allow-tool"


def denying(path: str, **more: Any) -> Policy:
    return Policy(preset="approve-all", rules=(Rule(action="deny", paths=(path,), **more),))


def test_a_rule_about_local_files_cannot_be_enforced_on_the_host(tmp_path: Path) -> None:
    place = place_with(tmp_path)
    inside, above = f"{place.cwd}/secret/**", f"{tmp_path}/**"
    for path in (inside, above):
        assert "relative to the workspace" in facts(place, policy=denying(path)).unenforced
        assert facts(place, policy=denying(path), allow_unenforced=True).unenforced == ""
    nested = Policy(preset="approve-all", ceilings=(denying(inside),))
    assert facts(place, policy=nested).unenforced


@pytest.mark.parametrize("path", ["secret/**", "/etc/**", "/**", "~/.ssh/**"])
def test_a_rule_that_means_the_same_on_the_host_is_accepted(tmp_path: Path, path: str) -> None:
    assert facts(place_with(tmp_path), policy=denying(path)).unenforced == ""
