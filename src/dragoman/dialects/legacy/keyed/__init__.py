"""ACP as it was once read off the wire: updates keyed by what they carry.

Owns the names and shapes (`keyed.shapes`) and what they mean (`keyed.translate`) at both ends. It does not know
how messages travel, and no other dialect.
"""

from dragoman.dialects.legacy.keyed.translate import DIALECT, LOSSES, AgentEnd, ClientEnd

__all__ = ["DIALECT", "LOSSES", "ClientEnd", "AgentEnd"]
