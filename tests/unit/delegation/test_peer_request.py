"""The request for a named peer takes its terms from the settings, the policy and the lineage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dragoman.catalogue.launch import way_to
from dragoman.delegation.peer_request import attended_terms, peer_request
from dragoman.delegation.permission_ceiling import VARIABLE
from dragoman.errors import UnknownPeer
from dragoman.paths import VARIABLES, Paths
from dragoman.policy import narrowed, preset
from dragoman.policy.rules import Preset
from dragoman.runs.context import load_context
from dragoman.runs.lineage import DEPTH, Lineage
from dragoman.runs.run_values import RunRequest
from tests.unit.console.place import short_paths


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    with short_paths() as paths:
        for name, variable in VARIABLES.items():
            monkeypatch.setenv(variable, str(getattr(paths, name)))
        yield paths


def request(workspace: Path, *, depth: int, policy: Preset = "deny-all") -> RunRequest:
    place = load_context(workspace)
    way = way_to(
        "scout",
        catalogue=place.catalogue,
        settings=place.config.settings,
        environ=place.environ,
    )
    return peer_request(
        way,
        place=place,
        workspace=workspace,
        policy=preset(policy),
        lineage=Lineage(depth=depth),
        adapter=None,
        warm=True,
    )


def test_settings_of_the_peer_and_the_policy_are_in_the_request(
    paths: Paths, tmp_path: Path
) -> None:
    paths.config.mkdir(parents=True)
    paths.config_file.write_text('[peer.scout]\nmode = "quick"\nenv = ["SOME_VARIABLE"]\n')
    built = request(tmp_path, depth=0)
    assert (built.peer, built.mode, built.options.inherit) == ("scout", "quick", ("SOME_VARIABLE",))
    assert built.unattended == "deny-all" and not built.asks
    assert request(tmp_path, depth=0, policy="ask").asks


def test_only_nested_work_hands_depth_and_policy_to_the_peer(paths: Paths, tmp_path: Path) -> None:
    assert not request(tmp_path, depth=0).options.env
    nested = request(tmp_path, depth=2).options.env
    assert nested is not None and nested[DEPTH] == "2" and "deny-all" in nested[VARIABLE]


def test_a_person_is_asked_within_the_limits_of_the_agent_that_started_this_process(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, own, lineage = attended_terms("scout", load_context(tmp_path))
    assert (launch.name, own.preset, lineage.depth) == ("scout", "ask", 0)
    limit = preset("deny-all")
    monkeypatch.setenv(DEPTH, "1")
    monkeypatch.setenv(VARIABLE, msgspec.json.encode(limit).decode())
    _, policy, lineage = attended_terms("scout", load_context(tmp_path))
    assert policy == narrowed(limit, own) != own
    assert lineage.depth == 1
    with pytest.raises(UnknownPeer):
        attended_terms("unheard-of", load_context(tmp_path))
