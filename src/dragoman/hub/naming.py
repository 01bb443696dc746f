"""Opening a peer by its name, with everything that is configured for it.

Owns the short way through the hub for programs: settings, catalogue, the way, the peer. Surfaces
that show what they do go the same steps one by one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Peer
from dragoman.client.folders import absolute
from dragoman.hub.catalogue import load_catalogue
from dragoman.hub.config import Config, find_paths, load_config
from dragoman.hub.launching import way_to
from dragoman.hub.opening import open_peer


@asynccontextmanager
async def open_named(
    peer_name: str,
    /,
    *,
    workspace: Path,
    budgets: Budgets | None = None,
    dialect: str | None = None,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    max_line_size: int | None = None,
    warm: bool | None = None,
    **options: Any,
) -> AsyncIterator[Peer]:
    """A peer of the catalogue, with the options of `dragoman.connect`.

    It is reached through its broker, unless `warm` or else the settings say otherwise.
    """
    config = load_config(absolute(workspace), find_paths())
    settings = config.settings
    way = way_to(peer_name, catalogue=load_catalogue(config), settings=settings)
    opened: Callable[..., AbstractAsyncContextManager[Peer]] = open_peer
    if settings.warm if warm is None else warm:
        # A call without a broker does not load what only brokers need.
        from dragoman.hub.broker.calling import open_warm

        opened = partial(
            open_warm, paths=config.paths, ttl=ttl_of(config), max_idle=settings.max_idle_brokers
        )
    async with opened(
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


def ttl_of(config: Config) -> float | None:
    """How long an idle broker is to stay, if somebody has said so: one that is there is told."""
    return None if config.origin("ttl") == "default" else config.settings.ttl
