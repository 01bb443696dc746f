"""Render stored turns, and turns running in another shell, as text.

Unlike `output.turn_text`, it shows the prompts too and ends each turn with its outcome.
"""

from __future__ import annotations

from typing import TextIO

from msgspec.structs import replace

from dragoman.cli.output.escape import neutral
from dragoman.cli.output.terminal import paint_for
from dragoman.cli.output.turn_text import TextShow
from dragoman.events import model
from dragoman.events.parts import Text


class HistoryView(TextShow):
    """Shows events of stored turns, or of turns started by another command, all on stdout."""

    def __init__(
        self, out: TextIO | None = None, err: TextIO | None = None, *, verbose: bool = False
    ) -> None:
        super().__init__(out, err, verbose=verbose)
        self.separate = False
        self._paint = paint_for(self.out)

    def event(self, event: model.Event) -> None:
        if event.replay:
            # Other output must start a new line after it.
            event = replace(event, replay=False)
        if isinstance(event, model.TurnStarted):
            self.asked("".join(b.text for b in event.prompt if isinstance(b, Text)))
            self.doing("thinking")
        elif isinstance(event, model.TurnEnded):
            super().event(event)
            failure = f": {event.failure.message}" if event.failure is not None else ""
            self.over(f"{event.outcome.value}{failure}")
        else:
            super().event(event)

    def asked(self, prompt: str) -> None:
        """Show the prompt of a turn."""
        for line in neutral(prompt).splitlines() or [""]:
            self._line(f"> {line}", "bold")

    def over(self, outcome: str) -> None:
        """Show the outcome of a turn."""
        self._line(f"[{neutral(outcome)}]", "dim")
        self._line("")
        self._answered_something = False
        self._spoken.clear()


class Answers(TextShow):
    """Prints only the agent's text of stored turns, or of turns started by another command, for
    `--format quiet`. The text is escaped only on a terminal."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        super().__init__(out, err)
        self.is_live = False

    def event(self, event: model.Event) -> None:
        if isinstance(event, model.MessageDelta) and event.role == "agent":
            self.write_data(event.text)
            self._at_start = event.text.endswith("\n")
        elif isinstance(event, model.TurnEnded):
            self._end_line()
