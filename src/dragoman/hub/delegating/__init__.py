"""Delegation: a piece of work goes to the peer that has earned it, and the result hides nothing.

The parts in the order of their work: `wishes` (what is wanted), `gathering` (what is known),
`delegation` (the course), `attempting` and `trial` (one attempt), `lessons` and `books` (what is
learned and written down), `results` (what came of it). The decision itself is made in
`dragoman.hub.routing`.
"""

from dragoman.hub.delegating.delegation import Audience, decide_for, delegate
from dragoman.hub.delegating.results import Delegation
from dragoman.hub.delegating.stopping import Reins
from dragoman.hub.delegating.wishes import Assigned, Wish, read_agent

__all__ = [
    "Assigned",
    "Audience",
    "Delegation",
    "Reins",
    "Wish",
    "decide_for",
    "delegate",
    "read_agent",
]
