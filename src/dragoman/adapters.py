"""The public contract for a peer's Python adapter.

An adapter gets an `Assignment`, runs one prompt of a role on its peer and returns a `Result`. It
is written with `open_peer` and `judge`; `dragoman peers add --python` generates one that uses them.
`runs.adapters` loads adapters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.open import judge, open_peer
from dragoman.client.budgets import Budgets
from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import Permit, deny_all
from dragoman.client.results import Result
from dragoman.events import model

__all__ = ["Adapter", "Assignment", "ConnectOptions", "Notified", "judge", "open_peer"]

Notified = Callable[[model.Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """How and where to start a peer for one prompt, with the permissions, limits, model and mode to
    use."""

    way: LaunchSpec
    cwd: Path
    permit: Permit = deny_all
    budgets: Budgets | None = None
    env: tuple[str, ...] = ()
    """Names of additional environment variables to pass to the peer."""
    model: str | None = None
    mode: str | None = None

    def options(self, on_event: Notified | None = None) -> ConnectOptions:
        """Return the options for `open_peer`. `on_event`, if given, is called with every event."""
        return ConnectOptions(
            permit=self.permit, budgets=self.budgets, inherit=self.env, on_event=on_event
        )


@runtime_checkable
class Adapter(Protocol):
    """Runs prompts on one peer, each in a role that the adapter claims."""

    name: str
    protocol: str
    ROLES_CLAIMED: Sequence[str]
    ROLE_PREFIX: Mapping[str, str]

    def claims(self, role: str) -> bool:
        """Return whether the peer accepts work in this role."""
        ...

    async def dispatch(
        self, launch: Assignment, role: str, text: str, on_notification: Notified | None = None
    ) -> Result:
        """Run the prompt `text` in a role, and return the result of the turn. Raises
        `RoleNotClaimed`, before anything is started, if the adapter does not claim the role. Calls
        `on_notification`, if given, with every event, and always closes the peer."""
        ...
