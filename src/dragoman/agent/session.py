"""A session as the author of an agent sees it.

Owns what the agent keeps about one conversation: where it works, its mode, its options, and
whatever the author puts into `state`. It does not talk (`turn` does) and does not decide what a
mode means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dragoman.dialects.acp import v1 as acp

if TYPE_CHECKING:
    from dragoman.agent.turn import Turn


class Session:
    """One conversation with a client."""

    __slots__ = (
        "additional_directories",
        "client",
        "cwd",
        "id",
        "mcp_servers",
        "meta",
        "mode",
        "options",
        "state",
        "turn",
    )

    def __init__(
        self,
        id: str,
        cwd: Path,
        *,
        additional_directories: Sequence[Path] = (),
        mcp_servers: Sequence[acp.McpServer] = (),
        meta: Mapping[str, Any] | None = None,
        client: acp.InitializeRequest,
        mode: str | None = None,
        options: Mapping[str, str | bool] | None = None,
    ) -> None:
        self.id = id
        self.cwd = cwd
        self.additional_directories = tuple(additional_directories)
        self.mcp_servers = tuple(mcp_servers)
        self.meta = dict(meta or {})
        """What the client sent in `_meta` when it opened the session."""
        self.client = client
        """What the client said of itself in the handshake."""
        self.mode = mode
        self.options = dict(options or {})
        """The current values of the agent's config options."""
        self.state = SimpleNamespace()
        """Anything the author wants to keep with the session."""
        self.turn: Turn | None = None
        """The turn that is running, if one is."""

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders that file tools should stay in."""
        return (self.cwd, *self.additional_directories)
