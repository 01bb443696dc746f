"""Routing: who is asked to do a piece of work, and why nobody else is.

It is pure: the caller gathers the facts, and hands over the time and a source of randomness. What
the bandit believes is in `dragoman.delegation.bandit`. Whoever carries a decision out, and what happens
after a failure, is not known here.
"""

from dragoman.delegation.routing.decide import MODEL_TIER, decide
from dragoman.delegation.routing.decision import Candidate, Decision, PassedOver, Reason
from dragoman.delegation.routing.explain import explain
from dragoman.delegation.routing.facts import Adaptive, Breaker, CardFacts, Inputs, PeerFacts

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
    "decide",
    "explain",
]
