"""The keyed dialect: ACP as reverse-engineered from agents, with updates keyed by their content.

`keyed.shapes` has method names and message shapes, `keyed.translate` the translation to and from
events.
"""

from dragoman.dialects.legacy.keyed.translate import DIALECT, LOSSES, AgentEnd, ClientEnd

__all__ = ["DIALECT", "LOSSES", "ClientEnd", "AgentEnd"]
