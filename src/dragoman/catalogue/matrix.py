"""Render the capability matrix of the peers, ``docs/reference/peers.md``, as Markdown.

The catalogue and the cards are arguments; this module loads and measures nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from dragoman.catalogue.card import Card
from dragoman.catalogue.descriptor import Descriptor, Quirks
from dragoman.catalogue.load import Catalogue
from dragoman.catalogue.roles import ROLES, is_generalist

HEAD = """\
# Peers

The agents that dragoman knows by name: how to install, log in to and start each one, and the roles
that it claims. Under "evidence", "seen" means that turns of the peer were tested, and "unverified"
that none were: the facts come from the vendor's documentation or from a handshake. "Source" says
which. "Quirks" are keys of a [descriptor](descriptor.md#quirks). `dragoman peers verify NAME`
measures what a peer does on your machine and stores the result as its [card](peer-card.md). To use
an agent that is not listed, [add a peer](../how-to/add-a-peer.md).

This page is generated from the catalogue:

```sh
python -m dragoman.catalogue > docs/reference/peers.md
```
"""


def page(catalogue: Catalogue, cards: Mapping[str, Card] | None = None) -> str:
    """Return the whole page in Markdown. `cards` are the newest cards, by the name of their
    peer."""
    cards = cards or {}
    peers = list(catalogue)
    roles = [*ROLES, *(role for role in catalogue.roles if role not in ROLES)]
    lines = [HEAD, "## Claimed roles", ""]
    lines += _table(
        ["peer", *roles, "protocol", "evidence"],
        (
            [
                _linked(peer),
                *("yes" if role in peer.roles else "" for role in roles),
                peer.protocol,
                _evidence(peer, cards.get(peer.name)),
            ]
            for peer in peers
        ),
    )
    lines += ["", "A peer that claims every role is marked as a generalist."]
    lines += ["", "## The roles", ""]
    lines += _table(
        ["role", "what it is for", "claimed by"],
        (
            [role, ROLES.get(role, "a role of a peer's own"), ", ".join(catalogue.claimants(role))]
            for role in roles
        ),
    )
    for peer in peers:
        lines += ["", f"## {peer.name}", "", *_section(peer, cards.get(peer.name))]
    return "\n".join(lines) + "\n"


def _linked(peer: Descriptor) -> str:
    return f"[{peer.name}](#{peer.name})" + (" (generalist)" if is_generalist(peer.roles) else "")


def _evidence(peer: Descriptor, card: Card | None) -> str:
    if card is not None:
        return f"card of {card.version or 'an unknown version'}, {card.measured_at[:10]}"
    return "seen" if peer.verified else "unverified"


def _section(peer: Descriptor, card: Card | None) -> Iterator[str]:
    yield f"{peer.title}. {peer.notes}".strip()
    yield ""
    for launch in peer.launch:
        way = f"`{shlex.join(launch.command)}`" if launch.command else f"`{launch.address}`"
        where = f" on {', '.join(launch.platforms)}" if launch.platforms else ""
        last = " (deprecated by its vendor)" if launch.deprecated else ""
        yield f"- Command: {way}{where}{last}."
    if peer.install.hint:
        node = f"; needs Node.js {peer.install.node} or newer" if peer.install.node else ""
        yield f"- Install: `{peer.install.hint}`{node}."
    if peer.credentials.login:
        yield f"- Login: {peer.credentials.login}."
    names = (*peer.credentials.env, *peer.credentials.endpoints)
    if names:
        yield f"- Environment variables: {', '.join(f'`{name}`' for name in names)}."
    if peer.tiers:
        tiers = ", ".join(f"{tier} `{model}`" for tier, model in peer.tiers.items())
        yield f"- Models: {tiers}."
    quirks = list(_quirks(peer.quirks))
    if quirks:
        yield f"- Quirks: {', '.join(quirks)}."
    for form in peer.wrong_forms:
        yield f"- Do not use `{shlex.join(form.command)}`: {form.effect}."
    yield f"- Source: {peer.source}{'' if peer.verified else ' (unverified)'}."
    if card is not None:
        failed = [rung.rung for rung in card.rungs if rung.verdict == "fail"]
        said = f"failed at {', '.join(failed)}" if failed else "no rung failed"
        yield f"- Card: {card.version or 'unknown version'} on {card.platform}, {said}."


def _quirks(quirks: Quirks) -> Iterator[str]:
    usual = Quirks()
    for name, value in structs.asdict(quirks).items():
        if value != getattr(usual, name):
            yield f"`{name}`" if value is True else f"`{name} = {_shown(value)}`"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(repr(one) for one in value)
    return str(value)


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
