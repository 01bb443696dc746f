"""A card in words, for a terminal or a bug report.

Owns the text: a line for each rung with its verdict, the evidence, and the remedy where there is
one, and at the end whether the peer can be used. It knows no colours: whoever prints may add them.
"""

from __future__ import annotations

from typing import Final

from dragoman.hub.verify.card import Card, RungResult, Verdict

WIDTH: Final = 12
"""The longest name of a rung."""

INDENT: Final = " " * (4 + 2 + WIDTH + 2)

WORDS: Final = {
    Verdict.PASS: "ok",
    Verdict.WARN: "warn",
    Verdict.FAIL: "FAIL",
    Verdict.SKIPPED: "-",
}


def rung_lines(result: RungResult) -> list[str]:
    """One rung: its verdict and evidence, and what to do about it."""
    took = f" ({result.seconds:.1f} s)" if result.seconds >= 0.05 else ""
    lines = [f"{WORDS[result.verdict]:<4}  {result.rung:<{WIDTH}}  {result.evidence}{took}"]
    if result.remedy and result.verdict is not Verdict.PASS:
        lines.append(f"{INDENT}what to do: {result.remedy}")
    return lines


def summary(card: Card) -> str:
    """Whether the peer can be used, in one sentence."""
    version = f" {card.version}" if card.version else ""
    failures = [one for one in card.rungs if one.verdict is Verdict.FAIL]
    warnings = sum(one.verdict is Verdict.WARN for one in card.rungs)
    if not card.usable:
        stopped = f" (see {failures[0].rung})" if failures else ""
        return f"{card.peer}{version} cannot be used{stopped}"
    told = [f"{len(failures)} failed"] if failures else []
    told += [f"{warnings} to know about"] if warnings else []
    if not card.turns:
        told.append("no turns were tried")
    return f"{card.peer}{version} can be used" + (f": {', '.join(told)}" if told else "")


def text(card: Card) -> str:
    """The whole card, as the ladder went."""
    lines = [line for result in card.rungs for line in rung_lines(result)]
    return "\n".join([*lines, "", summary(card)])
