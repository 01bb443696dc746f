"""What may be different on one connection.

Owns the choices that a dialect or a user makes for a connection before it starts. What they mean is
known to `connection`, `lanes` and `dragoman.wire`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dragoman.rpc.lanes import Limits
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.messages import Id, Reserved


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """What a dialect or a user may want different on one connection."""

    jsonrpc: bool = True
    """Whether the constant `jsonrpc` member is sent."""
    half_duplex: bool = False
    """One call at a time; others wait for their turn."""
    max_line_size: int = DEFAULT_MAX_LINE_SIZE
    limits: Limits = field(default_factory=Limits)
    cancel_notice: Callable[[Id], tuple[str, Any]] | None = None
    """The notification by which a call that we gave up is called off, if the dialect has one."""
    reserved: Reserved | None = None
    """A text that the dialect's values may not leave on the wire."""
