"""Decide which MCP servers of a session a peer uses, and set the environment variables it needs.

The answer comes from the descriptor and the card. The peer starts the servers. The dialect's client
rejects servers that its protocol cannot express.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.catalogue.descriptor import McpKind, McpServers

if TYPE_CHECKING:
    from dragoman.catalogue.card import Card
    from dragoman.catalogue.launch import LaunchSpec


@dataclass(frozen=True, slots=True)
class McpLaunch:
    """A peer's launch with MCP servers, and the servers that it ignores."""

    way: LaunchSpec
    ignored: tuple[str, ...] = ()
    """The names of the servers that the peer ignores."""
    why: str = ""

    @property
    def notice(self) -> str:
        """A notice for the user about the ignored servers; empty if the peer uses all servers."""
        if not self.ignored:
            return ""
        return f"{self.way.name} does not use the MCP servers {', '.join(self.ignored)}: {self.why}"


def taken(
    spec: LaunchSpec, servers: Sequence[Any], *, workspace: Path, card: Card | None = None
) -> McpLaunch:
    """Return which of the servers a peer ignores, with the reason, and its launch spec, with the
    environment variables that it needs to use the others."""
    if not servers:
        return McpLaunch(spec)
    table = McpServers() if spec.descriptor is None else spec.descriptor.mcp
    ignored = {kind: f"it supports none over {kind}" for kind in table.ignored}
    if table.env:
        found = _trusted_by(workspace, table.trusts)
        if found is None:
            spec = replace(spec, env={**spec.env, **table.env})
        else:
            why = "it uses them only in a directory that you have trusted in the agent itself"
            return McpLaunch(spec, tuple(map(_name, servers)), f"{why}, because of {found}")
    elif card is not None and card.facts.mcp is False:
        ignored.setdefault("stdio", "it started none when it was verified")
    left = [one for one in servers if kind_of(one) in ignored]
    reasons = dict.fromkeys(ignored[kind_of(one)] for one in left)
    return McpLaunch(spec, tuple(map(_name, left)), "; ".join(reasons))


def kind_of(server: Any) -> McpKind:
    """Return the transport of an MCP server; ``stdio`` if its type names no other."""
    kind = getattr(type(server), "__struct_config__", None)
    tag = getattr(kind, "tag", None)
    return tag if tag in ("http", "sse") else "stdio"


def _name(server: Any) -> str:
    return str(getattr(server, "name", ""))


def _trusted_by(workspace: Path, names: Sequence[str]) -> Path | None:
    """Return the first of these entries that the workspace or a directory above it contains, or
    None.

    The home directory and those above it are not searched: what is there is the user's own.
    """
    home = Path.home()
    for folder in (workspace, *workspace.parents):
        if folder == home or folder in home.parents:
            return None
        for name in names:
            if os.path.exists(folder / name):
                return folder / name
    return None
