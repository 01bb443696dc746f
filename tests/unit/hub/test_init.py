"""Names of earlier releases."""

from __future__ import annotations

import importlib
import sys

import pytest

import dragoman.hub
from dragoman.hub import MOVED

DOCUMENTED = [
    ("adapters", "Errand", "dragoman.adapters", "Assignment"),
    ("connecting", "connect", "dragoman.runs.connect", "connect"),
    ("delegating", "Wish", "dragoman.delegation", "DelegationRequest"),
    ("delegating", "delegate", "dragoman.delegation", "delegate"),
    ("launching", "Way", "dragoman.catalogue.launch", "LaunchSpec"),
    ("opening", "judge", "dragoman.catalogue.open", "judge"),
    ("opening", "open_peer", "dragoman.catalogue.open", "open_peer"),
    ("place", "look_around", "dragoman.runs.context", "load_context"),
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
    ("verify.canaries", "Canaries", "dragoman.verify.canaries", "Canaries"),
    ("verify.ladder", "climb", "dragoman.verify.ladder", "climb"),
    ("verify.limits", "Limits", "dragoman.verify.limits", "LadderLimits"),
    ("verify.report", "text", "dragoman.verify.report", "text"),
]


@pytest.mark.parametrize(("old", "name", "new", "now"), DOCUMENTED)
def test_every_documented_name_leads_to_the_new_one(
    old: str, name: str, new: str, now: str
) -> None:
    module = importlib.import_module(f"dragoman.hub.{old}")
    with pytest.warns(DeprecationWarning, match=f"is {new}.{now} now"):
        value = getattr(module, name)
    assert value is getattr(importlib.import_module(new), now)


def test_every_new_module_exists() -> None:
    for new, _ in MOVED.values():
        importlib.import_module(new)


def test_a_module_below_an_old_package_is_found_in_it() -> None:
    assert dragoman.hub.verify is sys.modules["dragoman.hub.verify"]
    assert dragoman.hub.verify.report is sys.modules["dragoman.hub.verify.report"]


def test_what_never_was_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        dragoman.hub.nothing  # noqa: B018
