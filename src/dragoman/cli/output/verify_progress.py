"""Render the progress of `dragoman peers verify`: each rung (one step) when it is done.

The texts come from `verify.report`; this module adds colours and the JSON lines.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from dragoman.cli.output.escape import joined, neutral
from dragoman.cli.output.jsonl import write_json
from dragoman.cli.output.terminal import paint_for, put_err, put_out
from dragoman.cli.shared_options import ListFormat

if TYPE_CHECKING:
    from dragoman.catalogue.card import Card, RungResult

COLOURS: Final = {"pass": "green", "warn": "yellow", "fail": "red", "skipped": "dim"}


class LadderProgress:
    """Renders a verification: `rung` is called with each completed step, and `end` with the
    card."""

    def __init__(self, format: ListFormat) -> None:
        self._format = format
        self._first: str | None = None

    def say(self, text: str) -> None:
        """Show a note that is not about one rung, on stderr and only as text."""
        if self._format is ListFormat.TEXT:
            put_err(neutral(text) + "\n")

    def rung(self, result: RungResult) -> None:
        if self._format is ListFormat.JSON:
            write_json({"type": "Rung", **_plain(result)})
            return
        if self._format is ListFormat.QUIET:
            return
        if result.rung == self._first:
            self.say("It can be used. Repeating all steps with your environment and with turns:")
        self._first = self._first or result.rung
        from dragoman.verify.report import rung_lines

        paint = paint_for(sys.stdout)
        head, *rest = [neutral(line) for line in rung_lines(result)]
        word, gap, tail = head.partition(" ")
        colour = COLOURS[str(result.verdict)]
        put_out(joined("\n", [paint(word, colour) + gap + tail, *rest]), "\n")
        # The next line may take a while.
        sys.stdout.flush()

    def end(self, card: Card) -> None:
        from dragoman.verify.report import summary

        if self._format is not ListFormat.JSON:
            put_out(neutral(summary(card)) + "\n")


def card_as_json(card: Card) -> dict[str, Any]:
    """Return a card as a JSON object, in its file format."""
    return {"type": "Card", **_plain(card)}


def _plain(value: Any) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
