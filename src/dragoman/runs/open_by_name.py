"""Open a peer of the catalogue by name, with its settings, budgets and permission enforcement.

Uses a warm broker (`broker.client.connect`) or a direct child (`catalogue.open`). The settings of a
project that the user does not trust can only restrict the user's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec import structs

from dragoman.catalogue import load_catalogue
from dragoman.catalogue.enforcement import Enforced, enforce
from dragoman.catalogue.launch import way_to
from dragoman.catalogue.open import is_unrestricted, open_peer
from dragoman.client.conversation import Conversation, Opening, Peer
from dragoman.client.folders import absolute
from dragoman.client.options import ConnectOptions
from dragoman.config import find_paths, load_config
from dragoman.events import fold
from dragoman.events.model import Event
from dragoman.events.view import View
from dragoman.wire.framing import require_line_size


@asynccontextmanager
async def open_named(
    peer_name: str,
    options: ConnectOptions | None = None,
    *,
    workspace: Path,
    warm: bool | None = None,
) -> AsyncIterator[Peer]:
    """Context manager: open a peer of the catalogue by name. Uses its broker, unless `warm` or the
    settings say otherwise. Unless `permit` allows everything, the peer is configured to ask for
    permission. Raises `PolicyNotEnforced` if it is known not to ask for permission, or to ignore a
    refusal, unless the settings allow that."""
    options = options or ConnectOptions()
    require_line_size(options.max_line_size)
    config = load_config(absolute(workspace), find_paths())
    settings = config.settings
    way = way_to(peer_name, catalogue=load_catalogue(config), settings=settings)
    options = structs.replace(
        options,
        budgets=options.budgets or settings.budgets(way.budgets()),
        max_line_size=options.max_line_size or settings.max_line_size,
    )
    holding: Holding | None = None
    if not is_unrestricted(options.permit):
        from dragoman.catalogue.card import CARDS, CardStore

        enforced = enforce(
            way,
            restricts=True,
            card=CardStore(config.paths.data / CARDS).latest(way.name),
            allow_unenforced=settings.for_peer(peer_name).allow_unenforced,
        )
        way = enforced.way
        holding = Holding(enforced, options.on_event)
        options = structs.replace(options, on_event=holding.event)
    opened: Callable[..., AbstractAsyncContextManager[Peer]] = open_peer
    if settings.warm if warm is None else warm:
        # A call without a broker does not load what only brokers need.
        from dragoman.broker.client.connect import open_warm

        opened = partial(
            open_warm, paths=config.paths, ttl=config.chosen_ttl, max_idle=settings.max_idle_brokers
        )
    async with opened(way, options, workspace=workspace) as peer:
        peer.on_open = None if holding is None else holding.opened
        yield peer


class Holding:
    """Makes the peer ask for permission in the sessions that a program opens."""

    def __init__(self, enforced: Enforced, on_event: Callable[[Event], None] | None) -> None:
        self._enforced = enforced
        self._on_event = on_event
        self._views: dict[str | None, View] = {}

    def event(self, event: Event) -> None:
        fold.apply_settings(self._views.setdefault(event.session, View()), event)
        if self._on_event is not None:
            self._on_event(event)

    async def opened(self, conversation: Conversation, opening: Opening) -> None:
        """Called when the program has opened a session: set a mode and options in which the peer
        asks for permission, unless the session already has them. Raises `PolicyNotEnforced` if the
        peer does not ask for permission in the requested mode, or with the settings that the
        session reports, unless `allow_unenforced` is set."""
        if opening.mode is not None:
            self._enforced.check_mode(opening.mode)
        enforced = structs.replace(self._enforced, mode=opening.mode)
        await enforced.hold(conversation, self._views.setdefault(conversation.id, View()))
