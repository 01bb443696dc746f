"""Names of earlier releases."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

import pytest

import dragoman.hub
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.permissions import approve_all
from dragoman.hub import KEYWORDS, MOVED
from tests.aio import aio

DOCUMENTED = [
    ("adapters", "DescribedAdapter", "dragoman.runs.adapters", "DescribedAdapter"),
    ("adapters", "Errand", "dragoman.adapters", "Assignment"),
    ("adapters", "load_adapter", "dragoman.runs.adapters", "load_adapter"),
    ("catalogue", "Known", "dragoman.catalogue", "KnownPeer"),
    ("config", "Ignored", "dragoman.config", "IgnoredSetting"),
    ("connecting", "connect", "dragoman.runs.connect", "connect"),
    ("delegating", "Audience", "dragoman.delegation", "DelegationListener"),
    ("delegating", "Reins", "dragoman.delegation", "CancelHandle"),
    ("delegating", "Wish", "dragoman.delegation", "DelegationRequest"),
    ("delegating", "delegate", "dragoman.delegation", "delegate_request"),
    ("launching", "Way", "dragoman.catalogue.launch", "LaunchSpec"),
    ("ledger", "EventLog", "dragoman.store.ledger", "EventsFile"),
    ("opening", "judge", "dragoman.catalogue.open", "judge"),
    ("opening", "open_peer", "dragoman.catalogue.open", "open_peer"),
    ("place", "look_around", "dragoman.runs.context", "load_context"),
    ("policy", "Desk", "dragoman.policy", "Approver"),
    ("routing", "CardFacts", "dragoman.delegation.routing", "CardFacts"),
    ("routing", "Inputs", "dragoman.delegation.routing", "Inputs"),
    ("routing", "PeerFacts", "dragoman.delegation.routing", "PeerFacts"),
    ("routing", "decide", "dragoman.delegation.routing", "decide"),
    ("routing", "explain", "dragoman.delegation.routing", "explain"),
    ("sessions", "Redactor", "dragoman.store", "Redactor"),
    ("sessions", "SessionRecord", "dragoman.store", "SessionRecord"),
    ("sessions", "Store", "dragoman.store", "Store"),
    ("sessions", "new_session_key", "dragoman.store", "new_session_key"),
    ("sessions.history", "history", "dragoman.store.history", "history"),
    ("verify.canaries", "Canaries", "dragoman.verify.canary_prompts", "Canaries"),
    ("verify.ladder", "climb", "dragoman.verify.ladder", "climb"),
    ("verify.limits", "Limits", "dragoman.verify.time_limits", "LadderLimits"),
    ("verify.report", "text", "dragoman.verify.report", "text"),
]


@pytest.mark.parametrize(("old", "name", "new", "now"), DOCUMENTED)
def test_every_documented_name_leads_to_the_new_one(
    old: str, name: str, new: str, now: str
) -> None:
    module = importlib.import_module(f"dragoman.hub.{old}")
    with pytest.warns(DeprecationWarning, match=f"is now {new}.{now}"):
        value = getattr(module, name)
    there = getattr(importlib.import_module(new), now)
    assert inspect.unwrap(value) is inspect.unwrap(there)


def test_every_new_module_exists() -> None:
    for new, _ in MOVED.values():
        importlib.import_module(new)


def test_a_renamed_name_is_where_it_is_said_to_be() -> None:
    for new, renamed in MOVED.values():
        for now in renamed.values():
            home, _, name = now.rpartition(".")
            assert hasattr(importlib.import_module(home or new), name)


@pytest.mark.parametrize("name", ["delegate", "decide_for"])
def test_parameters_that_have_new_names_are_taken_by_the_old_ones(name: str) -> None:
    with pytest.warns(DeprecationWarning):
        function = getattr(importlib.import_module("dragoman.hub.delegating"), name)
    now = inspect.signature(inspect.unwrap(function)).parameters
    assert "request" in now and not KEYWORDS.keys() & now.keys()
    # All but the place, which is the only thing that is missed then.
    old = [key for key, new in KEYWORDS.items() if new in now]
    with pytest.raises(TypeError, match="missing 1 required .* argument: 'place'"):
        function(**dict.fromkeys(old))


@aio
async def test_a_peer_is_opened_with_the_options_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "a")
    code = (
        "import json, os, sys; id = json.loads(sys.stdin.readline())['id']\n"
        "name = os.environ.get('A_KEY', '') + os.environ.get('B', '')\n"
        "name += ' ' + os.path.basename(os.getcwd())\n"
        "result = {'protocolVersion': 1, 'agentInfo': {'name': name, 'version': '1'}}\n"
        "print(json.dumps({'jsonrpc': '2.0', 'id': id, 'result': result}), flush=True)\n"
        "sys.stdin.read()"
    )
    with pytest.warns(DeprecationWarning):
        open_peer = importlib.import_module("dragoman.hub.opening").open_peer
    tool = LaunchSpec(command=(sys.executable, "-c", code), protocol="acp")
    async with open_peer(
        tool,
        workspace=tmp_path,
        env=["A_KEY"],
        extra_env={"B": "b"},
        dialect=None,
        permit=approve_all,
    ) as peer:
        assert peer.info.name == f"ab {tmp_path.name}"


def test_a_star_import_takes_the_old_names() -> None:
    taken: dict[str, object] = {}
    with pytest.warns(DeprecationWarning):
        exec("from dragoman.hub.delegating import *\nfrom dragoman.hub.place import *", taken)
    assert {"Wish", "delegate", "Place", "look_around"} <= taken.keys()
    assert not {"DelegationRequest", "RunContext", "load_context"} & taken.keys()


def test_a_module_below_an_old_package_is_found_in_it() -> None:
    assert dragoman.hub.verify is sys.modules["dragoman.hub.verify"]
    assert dragoman.hub.verify.report is sys.modules["dragoman.hub.verify.report"]


def test_what_never_was_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        dragoman.hub.nothing  # noqa: B018
