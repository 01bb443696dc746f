"""ACP as it was once read off the wire: updates keyed by what they carry.

Owns the names and shapes (`shapes`) and what they mean (`meaning`) at both ends. It does not know
how messages travel, and no other dialect.
"""

from dragoman.dialects.keyed.meaning import DIALECT, LOSSES, ClientEnd, Voice

__all__ = ["DIALECT", "LOSSES", "ClientEnd", "Voice"]
