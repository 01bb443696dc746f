"""Routing: decide which peers to try, in which order, and give a reason for each excluded peer.

Pure: facts, time and randomness are arguments. `collect_facts` collects the facts,
`delegation.bandit` scores the peers, `delegation.execution` executes the decision.
"""

from dragoman.delegation.routing.decide import MODEL_TIER, decide
from dragoman.delegation.routing.decision import Candidate, Decision, PassedOver, Reason
from dragoman.delegation.routing.explain import explain
from dragoman.delegation.routing.inputs import (
    Adaptive,
    Breaker,
    CardFacts,
    Inputs,
    PeerFacts,
    TrackRecord,
)

__all__ = [
    "MODEL_TIER",
    "Adaptive",
    "Breaker",
    "Candidate",
    "CardFacts",
    "Decision",
    "Inputs",
    "PassedOver",
    "PeerFacts",
    "Reason",
    "TrackRecord",
    "decide",
    "explain",
]
