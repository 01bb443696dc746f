"""Render brokers as table rows, pages and JSON lines.

The status comes from `broker.client`; for a broker that does not answer, its record
(`broker.records`) is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dragoman.cli.output.escape import Neutral, one_line
from dragoman.cli.output.tables import facts
from dragoman.cli.output.times import ago, iso, span

if TYPE_CHECKING:
    from dragoman.broker.records import BrokerRecord

HEAD: Final = ("broker", "peer", "state", "callers", "sessions", "memory", "idle", "workspace")
DROP: Final = ("idle", "sessions", "callers", "memory", "workspace")
"""Columns that a narrow terminal drops, least important first. `broker status` has them."""

Status = Mapping[str, Any]


def as_cells(record: BrokerRecord, status: Status | None, now: float) -> list[str]:
    """Return a broker as a row under `HEAD`."""
    told = status or {}
    return [
        record.name,
        record.peer,
        state_of(record, status),
        _number(told.get("callers")),
        _number(len(sessions)) if isinstance(sessions := told.get("sessions"), list) else "",
        memory(told.get("peerRss")),
        _idle(told, now),
        record.workspace,
    ]


class Difference(NamedTuple):
    """How a broker differs from the oldest one of its peer."""

    oldest: str
    """The name of the oldest broker."""
    terms: tuple[str, ...]
    """What differs: the names of variables, and other conditions in words."""


def differing(records: Sequence[BrokerRecord]) -> dict[str, Difference]:
    """Return how each broker differs from the oldest one of its peer, by the name of the broker.

    This explains why a peer has more than one. Brokers that do not differ are left out. `records`
    are sorted, oldest first.
    """
    from dragoman.broker.client.brokers import differences

    first: dict[str, BrokerRecord] = {}
    found = {}
    for record in records:
        oldest = first.setdefault(record.peer, record)
        if oldest is not record and (terms := differences(record, oldest)):
            found[record.name] = Difference(oldest.name, terms)
    return found


def why_not_one(found: Mapping[str, Difference]) -> list[str]:
    """Return lines that say why brokers of one peer are separate."""
    return [
        f"{name} and {one.oldest} differ in {', '.join(map(one_line, one.terms))}."
        for name, one in found.items()
    ]


def as_json(
    record: BrokerRecord, status: Status | None, difference: Difference | None = None
) -> dict[str, Any]:
    """Return a broker as a JSON object."""
    return {
        "type": "Broker",
        "broker": record.name,
        "peer": record.peer,
        "workspace": record.workspace,
        "state": state_of(record, status),
        "pid": record.broker.pid,
        "version": record.version,
        "started_at": iso(record.started_at),
        "address": record.address,
        "log": record.log,
        "differs_from": None if difference is None else difference.oldest,
        "differences": [] if difference is None else list(difference.terms),
        "status": dict(status) if status is not None else None,
    }


def page(record: BrokerRecord, status: Status | None, now: float) -> Neutral:
    """Format the known facts about a broker, one per line."""
    told = status or {}
    known = {
        "broker": record.name,
        "peer": record.peer,
        "workspace": record.workspace,
        "state": state_of(record, status),
        "process": str(record.broker.pid),
        "started": ago(record.started_at, now),
        "version": record.version,
        "socket": record.address,
        "log": record.log,
        "memory": memory(told.get("rss")),
        "peer's process": _number(told.get("peerPid")),
        "peer's memory": memory(told.get("peerRss")),
        "callers": _number(told.get("callers")),
        "waiting": _number(told.get("waiting")),
        "peer's problem": _words(told.get("problem")),
        "not stored": _words(told.get("storing")),
    }
    sessions = told.get("sessions")
    listed = sessions if isinstance(sessions, list) else ()
    return facts([*known.items(), *(("session", _session(session)) for session in listed)])


def state_of(record: BrokerRecord, status: Status | None) -> str:
    """Return the state to display: `draining`, the state that the broker reports, or `does not
    answer`."""
    if record.draining:
        return "draining"
    state = (status or {}).get("state")
    return one_line(state) if isinstance(state, str) else "does not answer"


def memory(size: Any) -> str:
    """Format a number of bytes for people; empty if it is not a number."""
    number = _seconds(size)
    return "" if number is None else f"{number / 2**20:.0f} MiB"


def _words(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _session(session: Any) -> str:
    if not isinstance(session, Mapping):
        return ""
    key = str(session.get("key") or session.get("sessionId") or "")
    words = [f"{key} ({session['name']})" if session.get("name") else key]
    if session.get("running"):
        words.append(f"running {session['running']}")
    if session.get("queued"):
        words.append(f"{session['queued']} waiting")
    if session.get("quarantined"):
        words.append("does not respond to a cancel request")
    return one_line(", ".join(words))


def _idle(told: Status, now: float) -> str:
    since = _seconds(told.get("idleSince"))
    return "" if since is None else span(max(now - since, 0.0))


def _number(value: Any) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None
