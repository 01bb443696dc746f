"""Opening a peer by its name, with everything that is configured for it.

Owns the short way through the hub for programs: settings, catalogue, the way, the peer. Surfaces
that show what they do go the same steps one by one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Peer
from dragoman.client.folders import absolute
from dragoman.hub.catalogue import load_catalogue
from dragoman.hub.config import find_paths, load_config
from dragoman.hub.launching import way_to
from dragoman.hub.opening import open_peer


@asynccontextmanager
async def open_named(
    name: str,
    *,
    workspace: Path,
    budgets: Budgets | None = None,
    dialect: str | None = None,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    max_line_size: int | None = None,
    **options: Any,
) -> AsyncIterator[Peer]:
    """A peer of the catalogue, with the options of `dragoman.connect`."""
    config = load_config(absolute(workspace), find_paths())
    settings = config.settings
    way = way_to(name, catalogue=load_catalogue(config), settings=settings)
    async with open_peer(
        way,
        workspace=workspace,
        budgets=budgets or settings.budgets(way.budgets()),
        dialect=None if dialect == "auto" else dialect,
        env=inherit,
        extra_env=env,
        max_line_size=max_line_size or settings.max_line_size,
        **options,
    ) as peer:
        yield peer
