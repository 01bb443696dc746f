"""The tables of bandit posteriors and of peer health, including parked peers.

A change is a function of the stored value and runs inside a write transaction, so that two
processes cannot lose each other's update. `delegation.bandit` and `delegation.health` compute the
changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

import msgspec
from msgspec import structs

from dragoman.decoders import convert_typed, decode_typed
from dragoman.store.database import Database, Form
from dragoman.store.ledger.schema import FORM
from dragoman.store.values import Arm, Health, Posterior

Learned: TypeAlias = tuple[Arm, Callable[[Posterior | None], Posterior]]
"""An arm, and the function that updates its posterior. It gets None for an arm that was never
tried."""

HealthChange: TypeAlias = Callable[[Health], Health]

TEXT_SIZE: Final = 2000
"""Maximum number of characters of a text to keep."""

_ARM: Final = Arm.__struct_fields__
_POSTERIOR: Final = Posterior.__struct_fields__
_COLUMNS: Final = (*_ARM, *_POSTERIOR)
_SAVE: Final = (
    f"INSERT OR REPLACE INTO posteriors ({', '.join(_COLUMNS)})"
    f" VALUES ({', '.join('?' * len(_COLUMNS))})"
)


class PosteriorTable(Database):
    """The methods of the ledger for posteriors and the health of peers."""

    form: ClassVar[Form] = FORM

    def posteriors(self) -> dict[Arm, Posterior]:
        """Return the posteriors of all arms that were tried."""
        with self._reading() as connection:
            rows = connection.execute(f"SELECT {', '.join(_COLUMNS)} FROM posteriors").fetchall()
        size = len(_ARM)
        return {
            convert_typed(dict(zip(_ARM, row[:size], strict=True)), Arm): convert_typed(
                dict(zip(_POSTERIOR, row[size:], strict=True)), Posterior
            )
            for row in rows
        }

    def posterior(self, arm: Arm) -> Posterior | None:
        """Return the posterior of one arm, or None if it was never tried."""
        where = " AND ".join(f"{name} = ?" for name in _ARM)
        with self._reading() as connection:
            row = connection.execute(
                f"SELECT {', '.join(_POSTERIOR)} FROM posteriors WHERE {where}",
                structs.astuple(arm),
            ).fetchone()
        if row is None:
            return None
        return convert_typed(dict(zip(_POSTERIOR, row, strict=True)), Posterior)

    def forget_posteriors(self) -> int:
        """Delete all posteriors, and return their number."""
        with self.transaction() as connection:
            return connection.execute("DELETE FROM posteriors").rowcount

    def health(self, peer: str) -> Health:
        """Return the health of a peer, with the default values if it was never tried."""
        with self._reading() as connection:
            row = connection.execute("SELECT data FROM health WHERE peer = ?", (peer,)).fetchone()
            return Health(peer=peer) if row is None else decode_typed(row[0], Health)

    def healths(self) -> dict[str, Health]:
        """Return the stored health of peers, by name. There is none for a peer that was never tried
        or parked."""
        with self._reading() as connection:
            rows = connection.execute("SELECT peer, data FROM health ORDER BY peer").fetchall()
            return {peer: decode_typed(data, Health) for peer, data in rows}

    def change_health(self, peer: str, change: HealthChange) -> Health:
        """Replace the health of a peer by what `change` returns for it, and return the new value,
        redacted."""
        with self.transaction() as connection:
            changed = change(self.health(peer))
            after = structs.replace(
                changed,
                peer=peer,
                last_error=self._cleaned(changed.last_error),
                parked_why=self._cleaned(changed.parked_why),
                logins={
                    name: structs.replace(park, why=self._cleaned(park.why))
                    for name, park in changed.logins.items()
                },
            )
            connection.execute(
                "INSERT OR REPLACE INTO health (peer, data) VALUES (?, ?)",
                (peer, msgspec.json.encode(after).decode()),
            )
        return after

    def park(self, peer: str, until: float, why: str) -> Health:
        """Park a peer until an instant, so that delegation does not use it. `why` is the reason
        that users see. Raises `ValueError` if `until` is not finite."""
        if not math.isfinite(until):
            raise ValueError("a peer can only be parked until a finite time")
        return self.change_health(
            peer, lambda health: structs.replace(health, parked_until=until, parked_why=why)
        )

    def unpark(self, peer: str) -> Health:
        """Unpark a peer, and reset its failures."""
        return self.change_health(
            peer,
            lambda health: structs.replace(
                health,
                parked_until=None,
                parked_why=None,
                logins={},
                failures=0,
                opened_at=None,
                trial_at=None,
            ),
        )

    def _cleaned(self, text: str | None) -> str | None:
        # A peer's error may be a page of HTML. Truncated after redaction: half a secret does not
        # look like one.
        return None if text is None else self.redact.text(text)[:TEXT_SIZE]

    def _learn(self, learned: Learned) -> None:
        arm, change = learned
        with self.transaction() as connection:
            after = change(self.posterior(arm))
            connection.execute(_SAVE, (*structs.astuple(arm), *structs.astuple(after)))
