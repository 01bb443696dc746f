"""The tables of decisions and attempts: begin, finish, verdict, export and prune.

An attempt is one transaction at its start and one at its end, which also stores the posterior and
the health of the peer. A killed process loses at most the end, and `end_orphans` adds it later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs

from dragoman.decoders import convert_typed
from dragoman.errors import UnknownJob
from dragoman.events.words import Outcome
from dragoman.store.ledger.posterior_table import TEXT_SIZE, HealthChange, Learned, PosteriorTable
from dragoman.store.ledger.records import (
    MAX_TOKENS,
    NO_TOKENS,
    AttemptRecord,
    Ending,
    Tokens,
    Verdict,
    VerdictSource,
)
from dragoman.store.values import Charge

PAGE: Final = 1000
"""Number of rows to read at a time, so that a long export blocks no writer."""

PROCESS_GONE: Final = "process_gone"
"""The `error_class` of an attempt whose own process died before it could record the end."""


_NESTED: Final = frozenset({"tokens", "cost"})
_PLAIN: Final = tuple(name for name in AttemptRecord.__struct_fields__ if name not in _NESTED)
COLUMNS: Final = (
    *_PLAIN,
    *("input_tokens", "output_tokens", "total_tokens", "tokens_provenance"),
    *("cost", "currency", "cost_provenance"),
)
_NAMES: Final = ", ".join(COLUMNS)
_TEXTS: Final = ("model", "error_class", "reason", "peer", "role", "tier", "unenforced", "machine")


class EndedAttempt(NamedTuple):
    """An attempt on another machine, which is recorded only after it has ended."""

    began: AttemptRecord
    ending: Ending
    learned: Learned | None


class AttemptTable(PosteriorTable):
    """The decision and attempt methods of the ledger."""

    def begin(
        self,
        decision_id: str,
        decision: Mapping[str, Any],
        attempt: AttemptRecord,
        *,
        health: HealthChange | None = None,
    ) -> int:
        """Record the start of an attempt, and return its id.

        The decision is stored with its first attempt. `health` updates the health of the peer in
        the same transaction. Raises `StoreConflict` if the job already has an attempt of this
        number.
        """
        data = self.redact.line(msgspec.json.encode(decision, enc_hook=str)).decode()
        row = self._row(structs.replace(attempt, decision_id=decision_id))
        del row["id"]
        row["day"] = day_of(attempt.started_at)
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO decisions (id, at, data) VALUES (?, ?, ?)",
                (decision_id, attempt.started_at, data),
            )
            made = connection.execute(
                f"INSERT INTO attempts ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
                tuple(row.values()),
            )
            if health is not None:
                self.change_health(attempt.peer, health)
        assert made.lastrowid is not None
        return made.lastrowid

    def finish(
        self,
        attempt_id: int,
        ending: Ending,
        *,
        learned: Learned | None = None,
        health: HealthChange | None = None,
    ) -> AttemptRecord:
        """Record the end of an attempt. `learned` and `health` update its arm and the health of its
        peer in the same transaction.

        Raises `StoreConflict` if there is no such attempt, or it has already ended.
        """
        with self.transaction() as connection:
            before = self.attempt(attempt_id)
            if before is None or before.outcome is not None:
                what = "has already ended" if before else "does not exist"
                raise self._conflict(f"the attempt {attempt_id} {what}")
            fields = structs.asdict(ending)
            # A clock that was set back in between must not reduce the sums.
            fields["ended_at"] = max(ending.ended_at, before.started_at)
            if ending.model is None:
                del fields["model"]
            after = structs.replace(before, **fields)
            row = self._row(after)
            connection.execute(
                f"UPDATE attempts SET {', '.join(f'{name} = ?' for name in row)} WHERE id = ?",
                (*row.values(), attempt_id),
            )
            if learned is not None:
                self._learn(learned)
            if health is not None:
                self.change_health(before.peer, health)
        return after

    def add_ended(
        self, decision_id: str, decision: Mapping[str, Any], attempts: Sequence[EndedAttempt]
    ) -> bool:
        """Record all attempts of an ended job in one transaction. Returns False and changes nothing
        if there are none, or if the ledger already has attempts of this job."""
        with self.transaction():
            if not attempts or self.attempts(attempts[0].began.job):
                return False
            for one in attempts:
                number = self.begin(decision_id, decision, one.began)
                self.finish(number, one.ending, learned=one.learned)
        return True

    def verdict(
        self,
        job: str,
        word: Verdict,
        *,
        source: VerdictSource = "user",
        learned: Callable[[AttemptRecord], Learned | None] | None = None,
    ) -> AttemptRecord:
        """Record a verdict on a job, in the record of its last attempt that has ended.

        Returns that attempt as it was before, so that a repeated verdict can be distinguished from
        a new one. The callback `learned` gets it too, and may return the update of an arm. Raises
        `UnknownJob` if no attempt of the job has ended.
        """
        with self.transaction() as connection:
            found = self._attempts(
                "job = ? AND outcome IS NOT NULL ORDER BY number DESC LIMIT 1", job
            )
            if not found:
                raise UnknownJob(f"the ledger has no finished attempt of the job {job}")
            before = found[0]
            connection.execute(
                "UPDATE attempts SET verdict = ?, verdict_source = ? WHERE id = ?",
                (word, source, before.id),
            )
            change = learned(before) if learned is not None else None
            if change is not None:
                self._learn(change)
        return before

    def attempt(self, attempt_id: int) -> AttemptRecord | None:
        """Return the attempt with this id, or None."""
        found = self._attempts("id = ?", attempt_id)
        return found[0] if found else None

    def attempts(self, job: str) -> list[AttemptRecord]:
        """Return the attempts of a job, in order."""
        return self._attempts("job = ? ORDER BY number", job)

    def latest(self, limit: int) -> list[AttemptRecord]:
        """Return the most recent attempts, at most `limit`, newest first."""
        return self._attempts("TRUE ORDER BY started_at DESC, id DESC LIMIT ?", limit)

    def decision(self, decision_id: str) -> dict[str, Any] | None:
        """Return a decision as passed to `begin`, redacted, or None if it is unknown."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT data FROM decisions WHERE id = ?", (decision_id,)
            ).fetchone()
            return None if row is None else msgspec.json.decode(row[0], type=dict[str, Any])

    def end_orphans(
        self,
        is_alive: Callable[[dict[str, Any]], bool],
        last_sign: Callable[[AttemptRecord], float | None],
    ) -> list[AttemptRecord]:
        """Mark as crashed every unfinished attempt whose process is gone, and return these
        attempts, as changed. Their cost remains unknown.

        Their end is the time that `last_sign` returns for them, or else their start: when their
        process was killed is unknown, and may be days ago.
        """
        orphans = [one for one in self._attempts("outcome IS NULL") if not is_alive(one.runner)]
        if not orphans:
            return []
        # Before the transaction: it reads another file, for which it may have to wait.
        ended_at = {one.id: last_sign(one) or one.started_at for one in orphans}
        ended = []
        with self.transaction():
            for attempt in self._attempts("outcome IS NULL"):
                if attempt.id in ended_at:
                    ending = Ending(
                        ended_at=ended_at[attempt.id],
                        outcome=Outcome.CRASHED.value,
                        error_class=PROCESS_GONE,
                    )
                    ended.append(self.finish(attempt.id, ending))
        return ended

    def export(self) -> Iterator[dict[str, Any]]:
        """Yield everything, one object at a time: decisions, attempts, posteriors, health."""
        for at, id, data in self._pages("SELECT at, id, data FROM decisions", "id", 1):
            yield {"type": "Decision", "id": id, "at": at, "decision": msgspec.json.decode(data)}
        for row in self._pages(f"SELECT {_NAMES} FROM attempts", "id", 0):
            yield {"type": "Attempt", **msgspec.to_builtins(_record(row))}
        for arm, posterior in self.posteriors().items():
            yield {
                "type": "Posterior",
                **msgspec.to_builtins(arm),
                **msgspec.to_builtins(posterior),
            }
        for health in self.healths().values():
            yield {"type": "Health", **msgspec.to_builtins(health)}

    def prune(self, before: float) -> int:
        """Delete the attempts that ended before `before`, and the decisions made before it that
        have no attempts left. Returns the number of deleted attempts."""
        with self.transaction() as connection:
            gone = connection.execute(
                "DELETE FROM attempts WHERE started_at < ? AND ended_at < ?", (before, before)
            ).rowcount
            connection.execute(
                "DELETE FROM decisions WHERE at < ? AND NOT EXISTS"
                " (SELECT 1 FROM attempts WHERE decision_id = decisions.id)",
                (before,),
            )
        self._give_space_back()
        return gone

    def _attempts(self, where: str, *values: Any) -> list[AttemptRecord]:
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT {_NAMES} FROM attempts WHERE {where}", values
            ).fetchall()
            return [_record(row) for row in rows]

    def _pages(self, select: str, key: str, place: int) -> Iterable[tuple[Any, ...]]:
        """Yield rows in the order of a key, which is the column at `place`."""
        last: Any = None
        while True:
            where = "TRUE" if last is None else f"{key} > ?"
            values = () if last is None else (last,)
            with self._reading() as connection:
                rows = connection.execute(
                    f"{select} WHERE {where} ORDER BY {key} LIMIT {PAGE}", values
                ).fetchall()
            yield from rows
            if len(rows) < PAGE:
                return
            last = rows[-1][place]

    def _row(self, attempt: AttemptRecord) -> dict[str, Any]:
        """Return an attempt as stored in the table, redacted."""
        row: dict[str, Any] = {name: getattr(attempt, name) for name in _PLAIN}
        for name in _TEXTS:
            if row[name] is not None:
                # Truncated only after redaction: half a secret does not look like one.
                row[name] = self.redact.text(str(row[name]))[:TEXT_SIZE]
        for name in ("outcome", "verdict", "verdict_source"):
            row[name] = None if row[name] is None else str(row[name])
        row["runner"] = msgspec.json.encode(attempt.runner).decode()
        tokens, cost = _possible(attempt.tokens), attempt.cost
        row["input_tokens"], row["output_tokens"] = tokens.input, tokens.output
        row["total_tokens"], row["tokens_provenance"] = tokens.total, tokens.provenance.value
        row["cost"], row["currency"] = cost.amount, cost.currency
        row["cost_provenance"] = cost.provenance.value
        return row


def _possible(tokens: Tokens) -> Tokens:
    """Return the token counts, or unknown ones if a count is impossible."""
    counts = (tokens.input, tokens.output, tokens.total)
    if all(count is None or 0 <= count <= MAX_TOKENS for count in counts):
        return tokens
    return NO_TOKENS


def day_of(at: float) -> str:
    """Return the local date of an instant, in ISO format."""
    return datetime.fromtimestamp(at).date().isoformat()


def _record(row: tuple[Any, ...]) -> AttemptRecord:
    fields = dict(zip(COLUMNS, row, strict=True))
    tokens = {
        "input": fields.pop("input_tokens"),
        "output": fields.pop("output_tokens"),
        "total": fields.pop("total_tokens"),
        "provenance": fields.pop("tokens_provenance"),
    }
    cost = {
        "amount": fields.pop("cost"),
        "currency": fields.pop("currency"),
        "provenance": fields.pop("cost_provenance"),
    }
    fields["runner"] = msgspec.json.decode(fields["runner"])
    return convert_typed(
        {
            **fields,
            "tokens": convert_typed(tokens, Tokens),
            "cost": convert_typed(cost, Charge),
        },
        AttemptRecord,
    )
