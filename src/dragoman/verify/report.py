"""Format a card as text: verdict, evidence and remedy of each rung, and a summary.

For a terminal or a bug report. Adds no colours.
"""

from __future__ import annotations

from typing import Final

from dragoman.catalogue.card import Card, RungResult, RungVerdict, to_know

WIDTH: Final = 12
"""Width of the longest rung name."""

INDENT: Final = " " * (4 + 2 + WIDTH + 2)

WORDS: Final = {
    RungVerdict.PASS: "ok",
    RungVerdict.WARN: "warn",
    RungVerdict.FAIL: "FAIL",
    RungVerdict.SKIPPED: "-",
}


def rung_lines(result: RungResult) -> list[str]:
    """Format one rung: verdict, evidence, remedy."""
    took = f" ({result.seconds:.1f} s)" if result.seconds >= 0.05 else ""
    lines = [f"{WORDS[result.verdict]:<4}  {result.rung:<{WIDTH}}  {result.evidence}{took}"]
    if result.remedy and result.verdict is not RungVerdict.PASS:
        lines.append(f"{INDENT}what to do: {result.remedy}")
    return lines


def proved(card: Card) -> str:
    """Describe what the card proves about a peer, and add whether a turn failed or was not tried,
    and whether a login is required or was not checked."""
    facts = card.facts
    did = ["starts"] if facts.handshake_seconds is not None or facts.dialect else []
    did += [f"speaks {facts.dialect}"] if facts.dialect else []
    did += ["opens a session"] if facts.sessions else []
    did += ["completes a turn"] if facts.echo else []
    not_tried = []
    if facts.echo is False:
        not_tried.append("a turn failed")
    elif facts.echo is None:
        not_tried.append("no turn was tried")
    if facts.authenticated is False:
        not_tried.append("it requires a login")
    elif facts.authenticated is None and facts.sessions:
        not_tried.append("the login was not checked")
    return "; ".join(filter(None, [", ".join(did), *not_tried]))


def summary(card: Card) -> str:
    """Summarise the card in one sentence: what it proves and how many problems were found, or that
    the peer cannot be used and which rung failed first."""
    version = f" {card.version}" if card.version else ""
    failures = [one for one in card.rungs if one.verdict is RungVerdict.FAIL]
    if not card.usable:
        stopped = f" (see {failures[0].rung})" if failures else ""
        return f"{card.peer}{version} cannot be used{stopped}"
    count = len(to_know(card))
    told = f"; {count} problem{'' if count == 1 else 's'}, see above" if count else ""
    return f"{card.peer}{version}: {proved(card)}{told}"


def text(card: Card) -> str:
    """Format the whole card, in the order of the rungs."""
    lines = [line for result in card.rungs for line in rung_lines(result)]
    return "\n".join([*lines, "", summary(card)])
