"""Render peers as table rows, pages and JSON.

The rows come from `delegation.peer_status`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from dragoman.cli.output.escape import Neutral, joined
from dragoman.cli.output.tables import facts
from dragoman.cli.output.terminal import paint_for

if TYPE_CHECKING:
    from dragoman.delegation.peer_status import PeerStatus
    from dragoman.events.parts import Choice

HEAD: Final = (
    "peer", "installed", "enabled", "version", "protocol", "roles", "card", "notes",
)  # fmt: skip
DROP: Final = ("protocol", "version", "card", "notes", "roles")
"""Columns that a narrow terminal drops, least important first. `peers show` has them all."""


def row_as_cells(row: PeerStatus) -> list[str]:
    """Return a peer as cells under `HEAD`."""
    peer = row.descriptor
    return [
        peer.name,
        _yes(row.installed),
        _yes(row.enabled),
        (row.version or "unknown") if row.installed else "",
        peer.protocol,
        ",".join(peer.roles),
        row.card_state,
        "; ".join(row.notes),
    ]


def row_as_json(row: PeerStatus) -> dict[str, Any]:
    """Return a peer as a JSON object."""
    peer = row.descriptor
    return {
        "type": "Peer",
        "name": peer.name,
        "title": peer.title,
        "installed": row.installed,
        "enabled": row.enabled,
        "version": row.version,
        "protocol": peer.protocol,
        "roles": list(peer.roles),
        "launch": None if row.way is None else row.way.shown,
        "missing": row.missing or None,
        "card": None if row.card is None else row.card_state,
        "origin": row.origin,
        "notes": list(row.notes),
        "parked": None
        if row.parked is None
        else {"until": row.parked.until, "why": row.parked.why},
    }


MODELS_HEAD: Final = ("model", "in use", "name", "description")
MODELS_DROP: Final = ("description", "name")


def model_as_cells(model: Choice, current: str | None) -> list[str]:
    """Return a model of a peer as cells under `MODELS_HEAD`."""
    in_use = "yes" if model.value == current else ""
    name = model.name if model.name != model.value else ""
    return [model.value, in_use, name, model.description or ""]


def model_as_json(
    model: Choice, current: str | None, *, peer: str, since: str | None
) -> dict[str, Any]:
    """Return a model as a JSON object. `since` is the date of the card that the model comes from;
    None if the peer itself was asked."""
    return {
        "type": "Model",
        "peer": peer,
        "model": model.value,
        "name": model.name or None,
        "description": model.description,
        "current": None if current is None else model.value == current,
        "measured_at": since,
    }


def page(row: PeerStatus, credentials: Sequence[str], env: Sequence[str] = ()) -> Neutral:
    """Format everything known about one peer.

    `credentials` are the names of its credential variables that are set, and `env` those of the
    variables that the settings pass on to it.
    """
    paint = paint_for(sys.stdout)
    return joined(
        "\n",
        [
            paint(f"{row.descriptor.title} ({row.descriptor.name})", "bold"),
            facts(_facts(row, credentials, env), indent="  "),
            paint("Card", "bold"),
            *(f"  {line}".rstrip() for line in _card(row)),
            "",
        ],
    )


def _facts(
    row: PeerStatus, credentials: Sequence[str], env: Sequence[str]
) -> list[tuple[str, str]]:
    peer = row.descriptor
    names = (*peer.credentials.env, *peer.credentials.endpoints)
    told = [f"{name} (set)" if name in credentials else name for name in names]
    return [
        ("notes", peer.notes),
        ("installed", f"yes: {row.way.shown}" if row.way is not None else f"no: {row.missing}"),
        ("enabled", _yes(row.enabled)),
        ("parked", _parked(row)),
        ("version", row.version or "unknown"),
        ("speaks", peer.protocol),
        ("roles", ", ".join(peer.roles) or "none"),
        ("starts as", "; ".join(_launches(row))),
        ("works by", f"its Python adapter {peer.adapter}" if peer.adapter else ""),
        ("models", ", ".join(f"{tier}: {model}" for tier, model in peer.tiers.items())),
        ("variables", ", ".join(told)),
        ("also passed", ", ".join(env)),
        ("login", peer.credentials.login),
        ("install", peer.install.hint),
        ("quirks", ", ".join(_quirks(row))),
        ("remarks", "; ".join(row.notes)),
        ("known from", f"{row.origin}; {peer.source}" if peer.source else row.origin),
    ]


def _parked(row: PeerStatus) -> str:
    """Return why delegation skips a parked peer, and how to unpark it; empty if it is not parked.
    The peer's remarks say until when it is parked."""
    if row.parked is None:
        return ""
    freed = f"`dragoman peers unpark {row.descriptor.name}` unparks it"
    return f"{row.parked.why}; {freed}" if row.parked.why else freed


def _launches(row: PeerStatus) -> Iterator[str]:
    for launch in row.descriptor.launch:
        where = f" (on {', '.join(launch.platforms)})" if launch.platforms else ""
        old = " (deprecated)" if launch.deprecated else ""
        yield (shlex.join(launch.command) or str(launch.address)) + where + old


def _quirks(row: PeerStatus) -> Iterator[str]:
    from msgspec import structs

    for name, value in structs.asdict(row.descriptor.quirks).items():
        if value is True:
            yield name
        elif value and name != "login_shown_in":
            yield f"{name}: {value if isinstance(value, str) else ', '.join(value)}"


def _card(row: PeerStatus) -> list[str]:
    from dragoman.verify.report import text

    card = row.card
    if card is None:
        return [f"none: `dragoman peers verify {row.descriptor.name}` measures it"]
    measured = f"measured on {card.measured_at} with dragoman {card.dragoman} on {card.platform}"
    lines = [measured, *text(card).splitlines()]
    if row.version is not None and card.version != row.version:
        lines.append(
            f"version {row.version} is installed now: run `dragoman peers verify {card.peer}` again"
        )
    return lines


def page_as_json(row: PeerStatus, credentials: Sequence[str]) -> dict[str, Any]:
    """Return the JSON page: the row, the descriptor and the card, each in its own format."""
    import msgspec

    return {
        **row_as_json(row),
        "credentials_set": list(credentials),
        "descriptor": msgspec.to_builtins(row.descriptor),
        "card": None if row.card is None else msgspec.to_builtins(row.card),
    }


def _yes(value: bool) -> str:
    return "yes" if value else "no"
