"""Attempts for tests of the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import structs

from dragoman.redaction.redactor import Redactor
from dragoman.store.ledger import AttemptRecord, Ending, Ledger, Tokens
from dragoman.store.values import Arm, Charge, Posterior, Provenance

START = 1_800_000_000.0


def attempt(job: str = "j-1", **fields: Any) -> AttemptRecord:
    """An attempt that begins."""
    plain = AttemptRecord(
        job=job,
        decision_id="d-1",
        number=1,
        peer="codex",
        role="review",
        tier="strong",
        size="small",
        reason="it claims the role",
        started_at=START,
    )
    return structs.replace(plain, **fields)


def ending(**fields: Any) -> Ending:
    """An end as it should be."""
    plain = Ending(
        ended_at=START + 4,
        outcome="ok",
        model="gpt-5",
        tokens=Tokens(input=100, output=20, total=120, provenance=Provenance.REPORTED),
        cost=Charge(amount=0.5, currency="USD", provenance=Provenance.DERIVED),
        first_event_at=START + 1,
        files_changed=2,
    )
    return structs.replace(plain, **fields)


def new_ledger(folder: Path, redact: Redactor | None = None) -> Ledger:
    return Ledger.open(folder / "ledger.db", redact)


def done(ledger: Ledger, begun: AttemptRecord, end: Ending | None = None) -> int:
    """An attempt from its beginning to its end."""
    id = ledger.begin(begun.decision_id, {"role": begun.role}, begun)
    ledger.finish(id, end or ending())
    return id


def learn(ledger: Ledger, arm: Arm, posterior: Posterior) -> None:
    """Let an attempt end after which this is known of an arm."""
    job = f"j-{len(ledger.latest(1000))}-learned"
    id = ledger.begin("d-1", {}, attempt(job))
    ledger.finish(id, ending(), learned=(arm, lambda _: posterior))
