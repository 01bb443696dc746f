"""HTTP API of the peers screen: the status of each peer, and verify, enable, disable, unpark.

It shows and changes the same facts as `dragoman peers` and `dragoman explain`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from starlette.routing import Route

from dragoman.console.json_routes import body_of, json_route
from dragoman.console.verifications import Verifications
from dragoman.delegation.parked import unpark
from dragoman.delegation.peer_eligibility import PeerStanding, standings
from dragoman.delegation.peer_status import PeerStatus, overview
from dragoman.errors import DragomanError
from dragoman.rpc.tasks import in_thread
from dragoman.runs.context import ALWAYS_ENABLED, load_context
from dragoman.setup.add_peer import disable, enable
from dragoman.verify.report import proved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from dragoman.catalogue.card import Card
    from dragoman.console.live_state import LiveState


class _Verify(Struct):
    turns: bool = False


class PeerRoutes:
    """Handles the requests of the peers screen. Always call `aclose`: it ends verifications."""

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self.verifications = Verifications(self._verified)
        state.add_to_snapshot("verifications", lambda: self.verifications.all)

    async def aclose(self) -> None:
        await self.verifications.aclose()

    def routes(self) -> Sequence[Route]:
        at = "/api/v1/peers"
        return [
            Route(f"{at}/status", json_route(self._status)),
            Route(f"{at}/{{name}}/verify", json_route(self._verify), methods=["POST"]),
            Route(f"{at}/{{name}}/verify/stop", json_route(self._stop), methods=["POST"]),
            Route(f"{at}/{{name}}/enable", json_route(self._enable), methods=["POST"]),
            Route(f"{at}/{{name}}/disable", json_route(self._disable), methods=["POST"]),
            Route(f"{at}/{{name}}/unpark", json_route(self._unpark), methods=["POST"]),
        ]

    def _verified(self, shown: dict[str, Any]) -> None:
        self._state.tell({"type": "verification", "verification": shown})

    async def _status(self, request: Request) -> Any:
        return await in_thread(str(Path.home()), lambda _: status_of_all())

    async def _verify(self, request: Request) -> Any:
        asked = await body_of(request, _Verify)
        await self.verifications.start(request.path_params["name"], turns=asked.turns)
        return {"started": True}

    async def _stop(self, request: Request) -> Any:
        return {"stopped": self.verifications.stop(request.path_params["name"])}

    async def _enable(self, request: Request) -> Any:
        def change(name: str) -> Any:
            place = load_context(Path.home())
            done = enable((name,), place)
            unpark([name], place.paths)
            return {"notes": list(done.notes)}

        return await _change(change, request)

    async def _disable(self, request: Request) -> Any:
        def change(name: str) -> Any:
            return {"notes": list(disable((name,), load_context(Path.home())).notes)}

        return await _change(change, request)

    async def _unpark(self, request: Request) -> Any:
        def change(name: str) -> Any:
            place = load_context(Path.home())
            place.catalogue.get(name)
            return {"unparked": bool(unpark([name], place.paths))}

        return await _change(change, request)


async def _change(change: Callable[[str], Any], request: Request) -> Any:
    name = request.path_params["name"]
    return await in_thread(str(Path.home()), lambda _: change(name), changes_disk=True)


def status_of_all() -> dict[str, Any]:
    """Return the status of every peer, with the settings that apply in the home directory."""
    place = load_context(Path.home())
    problem = ""
    known: dict[str, PeerStanding] = {}
    try:
        known = standings(place)
    except DragomanError as error:
        problem = str(error)
    broken = (*place.config.problems, *place.catalogue.problems)
    return {
        "peers": [_peer(row, known.get(row.descriptor.name)) for row in overview(place)],
        "problems": [*([problem] if problem else []), *(str(each) for each in broken)],
    }


def _peer(row: PeerStatus, standing: PeerStanding | None) -> dict[str, Any]:
    peer = row.descriptor
    parked = row.parked
    return {
        "name": peer.name,
        "title": peer.title,
        "about": peer.notes,
        "installed": row.installed,
        "missing": row.missing,
        "install": peer.install.hint,
        "login": peer.credentials.login,
        "enabled": row.enabled,
        "always": peer.name in ALWAYS_ENABLED,
        "version": row.version,
        "protocol": peer.protocol,
        "launch": None if row.way is None else row.way.shown,
        "claims": list(peer.roles),
        "standings": [] if standing is None else msgspec.to_builtins(standing.roles),
        "health": None if standing is None else msgspec.to_builtins(standing.health),
        "parked": None if parked is None else {"until": parked.until, "why": parked.why},
        "notes": list(row.notes),
        "cardState": row.card_state,
        "card": None if row.card is None else _card(row.card),
    }


def _card(card: Card) -> dict[str, Any]:
    return {
        "version": card.version,
        "measuredAt": card.measured_at,
        "platform": card.platform,
        "turns": card.turns,
        "usable": card.usable,
        "proved": proved(card),
        "rungs": msgspec.to_builtins(card.rungs),
    }
