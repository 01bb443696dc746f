"""Made-up facts for the tests of routing: peers that are fine unless a test says otherwise."""

from __future__ import annotations

import random
from typing import Any

from dragoman.delegation.routing import CardFacts, Decision, Inputs, PeerFacts, decide

NOW = 1_000_000.0
FINE = CardFacts(turns_ok=True, asks_permission=True)


def peer(name: str, **facts: Any) -> PeerFacts:
    return PeerFacts(**{"name": name, "roles": ("review",), "enabled": True, "card": FINE, **facts})


def scout(**facts: Any) -> PeerFacts:
    return PeerFacts(**{"name": "scout", "roles": ("exploration",), "always": True, **facts})


def inputs(*peers: PeerFacts, **wishes: Any) -> Inputs:
    return Inputs(**{"role": "review", "peers": peers, "adaptive": "off", **wishes})


def decided(*peers: PeerFacts, seed: int = 0, **wishes: Any) -> Decision:
    return decide(inputs(*peers, **wishes), random.Random(seed), NOW)


def names(decision: Decision) -> list[str]:
    return [candidate.peer for candidate in decision.candidates]
