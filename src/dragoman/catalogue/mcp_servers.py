"""Which of the MCP servers of a session a peer takes, and what has to be set so that it does.

Owns the answer by what the descriptor and the card say. It starts no server: the peer does. Servers
that a peer's dialect has no words for are refused by its client.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.catalogue.descriptor import McpKind, McpServers

if TYPE_CHECKING:
    from dragoman.catalogue.card import Card
    from dragoman.catalogue.launch import LaunchSpec


@dataclass(frozen=True, slots=True)
class McpLaunch:
    """The way to a peer that is handed MCP servers."""

    way: LaunchSpec
    ignored: tuple[str, ...] = ()
    """The names of the servers that the peer leaves out."""
    why: str = ""

    @property
    def notice(self) -> str:
        """What a person should know; empty if the peer takes all of them."""
        if not self.ignored:
            return ""
        return f"{self.way.name} does not use the MCP servers {', '.join(self.ignored)}: {self.why}"


def taken(
    way: LaunchSpec, servers: Sequence[Any], *, workspace: Path, card: Card | None = None
) -> McpLaunch:
    """What a peer does with these servers, and the way on which it does it."""
    if not servers:
        return McpLaunch(way)
    table = McpServers() if way.descriptor is None else way.descriptor.mcp
    ignored = {kind: f"it takes none over {kind}" for kind in table.ignored}
    if table.env:
        found = _trusted_by(workspace, table.trusts)
        if found is None:
            way = replace(way, env={**way.env, **table.env})
        else:
            why = "it uses them only in a folder that you trust in its own program, because of "
            return McpLaunch(way, tuple(map(_name, servers)), f"{why}{found}")
    elif card is not None and card.facts.mcp is False:
        ignored.setdefault("stdio", "it started none when it was verified")
    left = [one for one in servers if kind_of(one) in ignored]
    reasons = dict.fromkeys(ignored[kind_of(one)] for one in left)
    return McpLaunch(way, tuple(map(_name, left)), "; ".join(reasons))


def kind_of(server: Any) -> McpKind:
    """How a server is reached."""
    kind = getattr(type(server), "__struct_config__", None)
    tag = getattr(kind, "tag", None)
    return tag if tag in ("http", "sse") else "stdio"


def _name(server: Any) -> str:
    return str(getattr(server, "name", ""))


def _trusted_by(workspace: Path, names: Sequence[str]) -> Path | None:
    """What the workspace, or a folder above it, would decide if it were trusted. What lies in the
    user's home itself is the user's own."""
    home = Path.home()
    for folder in (workspace, *workspace.parents):
        if folder == home or folder in home.parents:
            return None
        for name in names:
            if os.path.exists(folder / name):
                return folder / name
    return None
