"""Run the verifications that users start from the page, and report progress after every rung.

Verifications run in this process and end with it. `setup.add_peer` measures and stores the card.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.console.json_routes import INTERNAL_PROBLEM
from dragoman.errors import DragomanError, UsageError
from dragoman.rpc.tasks import TaskOwner, cancel_soon, in_thread
from dragoman.runs.context import load_context
from dragoman.setup.add_peer import verify_known
from dragoman.verify.report import proved, summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.catalogue.card import RungResult
    from dragoman.runs.context import RunContext

log: Final = logging.getLogger("dragoman.console")


class Verifications:
    """Runs verifications, and keeps the state of the last one of each peer. `on_change` is called
    with that state after each change. Always call `aclose`."""

    def __init__(self, on_change: Callable[[dict[str, Any]], None]) -> None:
        self._on_change = on_change
        self._tasks = TaskOwner("verifications")
        self._running: dict[str, asyncio.Task[None]] = {}
        self._shown: dict[str, dict[str, Any]] = {}

    @property
    def all(self) -> list[dict[str, Any]]:
        return list(self._shown.values())

    async def aclose(self) -> None:
        await self._tasks.aclose()

    async def start(self, name: str, *, turns: bool) -> None:
        """Start verifying a peer. Raises `UnknownPeer`, or `UsageError` if it is already being
        verified."""
        place = await in_thread(str(Path.home()), lambda _: load_context(Path.home()))
        place.catalogue.get(name)
        if name in self._running:
            raise UsageError(f"{name} is already being verified")
        self._shown[name] = {
            "peer": name,
            "state": "running",
            "turns": turns,
            "startedAt": time.time(),
            "rungs": [],
            "summary": "",
            "problem": "",
        }
        self._running[name] = self._tasks.start(
            self._run(name, place, turns=turns), f"verify {name}"
        )
        self._tell(name)

    def stop(self, name: str) -> bool:
        """Stop the verification of a peer, without waiting until it has ended. Returns False if
        there is none."""
        task = self._running.get(name)
        if task is not None:
            # Its last step removes it from the running ones, so it has to begin.
            cancel_soon(task)
        return task is not None

    async def _run(self, name: str, place: RunContext, *, turns: bool) -> None:
        shown = self._shown[name]

        def rung(result: RungResult) -> None:
            shown["rungs"].append(msgspec.to_builtins(result))
            self._tell(name)

        try:
            card = await verify_known(name, place, turns=turns, on_rung=rung)
            shown["summary"] = f"It {proved(card)}." if card.usable else f"{summary(card)}."
        except DragomanError as error:
            log.info("cannot verify %s: %s", name, error)
            shown["problem"] = str(error)
        except Exception:
            shown["problem"] = INTERNAL_PROBLEM
            raise
        except asyncio.CancelledError:
            shown["problem"] = "stopped"
            raise
        finally:
            del self._running[name]
            shown["state"] = "ended"
            self._tell(name)

    def _tell(self, name: str) -> None:
        # Copy the list: the message may still be queued when the next step ends.
        shown = self._shown[name]
        self._on_change(shown | {"rungs": list(shown["rungs"])})
