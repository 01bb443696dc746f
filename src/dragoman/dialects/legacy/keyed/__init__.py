"""The keyed dialect: ACP as once seen on the wire, with updates keyed by what they carry.

`keyed.shapes` has method names and message shapes, `keyed.translate` the translation to and from
events.
"""

from dragoman.dialects.legacy.keyed.translate import DIALECT, LOSSES, AgentEnd, ClientEnd

__all__ = ["DIALECT", "LOSSES", "ClientEnd", "AgentEnd"]
