"""`--format quiet`: print only the final answer, for ``$(dragoman run …)``.

Errors go to stderr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman.cli.output.renderer import Renderer, TurnReport, cut_notice

if TYPE_CHECKING:
    from dragoman.errors import DragomanError
    from dragoman.events import model


class Quiet(Renderer):
    """Prints only the text of the answer."""

    def event(self, event: model.Event) -> None:
        pass

    def ended(self, report: TurnReport) -> None:
        text = report.result.text.strip("\n")
        if text:
            # A pipe gets the agent's bytes unchanged: control characters have no effect there.
            self.write_data(text + "\n")
            self.flush()
        if report.result.truncated:
            self.notice(cut_notice(report))
        self.write_failure(report)

    def failed(self, error: DragomanError) -> None:
        self.write_error(error)
