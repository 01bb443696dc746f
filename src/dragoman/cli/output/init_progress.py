"""Render the steps, the progress and the end of `dragoman init`, in every output format.

The facts come from `setup.init`; the delegation at the end is rendered by
`output.delegation_output`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dragoman.cli.output.escape import Neutral, joined, neutral, one_line
from dragoman.cli.output.jsonl import encode
from dragoman.cli.output.renderer import Renderer
from dragoman.cli.output.tables import aligned, cut
from dragoman.cli.output.terminal import is_terminal, paint_for, put, put_err, width_of
from dragoman.cli.shared_options import ListFormat

if TYPE_CHECKING:
    from dragoman.catalogue.card import RungResult
    from dragoman.delegation import Delegation, DelegationRequest
    from dragoman.delegation.attempt_report import AttemptReport
    from dragoman.setup.init import InstalledAgents, VerifiedPeer


TICK_INTERVAL: Final = 1.0
"""Seconds between two updates of the time in the progress line, which shows whole seconds."""


@dataclass
class InitProgress:
    """What has been done so far, for the summary and for the report after an interrupt."""

    installed: list[str] = field(default_factory=list)
    verified: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    enabled: list[str] = field(default_factory=list)
    job: str | None = None
    answered: str | None = None


class InitOutput:
    """Renders the steps of `dragoman init`."""

    def __init__(self, format: ListFormat, show: Renderer) -> None:
        self.done = InitProgress()
        self._format = format
        self._out = show
        self._paint = paint_for(self._out.out)
        self._step = 0
        self._waiting: dict[str, str] = {}
        self._status = ""

    # -- the steps

    def found(self, found: InstalledAgents) -> None:
        self.done.installed = [row.descriptor.name for row in found.installed]
        if self._format is ListFormat.JSON:
            from dragoman.cli.output.peer_pages import row_as_json

            for row in (*found.installed, *found.missing):
                self._json(row_as_json(row))
            return
        self._head("Installed agents")
        told = []
        for row in found.installed:
            peer = row.descriptor
            title = " ".join(filter(None, [peer.title, row.version or ""]))
            told.append((peer.name, f"{title}, for {', '.join(peer.roles) or 'no role'}"))
        for line in aligned(told):
            self._line(line)
        if not found.installed:
            self._line(
                "No agent found except scout, which ships with dragoman. Install one, such as:"
            )
            from dragoman.setup.init import suggestions

            for hint in suggestions(found):
                self._line(hint, mark=" ")
        elif found.missing:
            names = ", ".join(row.descriptor.name for row in found.missing)
            self._line(f"not installed: {names}", style="dim")

    def verifying(self, *, turns: bool) -> None:
        model = "with calls to its model" if turns else "without calling its model"
        self._head(f"Verifying: each one is started and tested, {model}")

    def rung(self, name: str, result: RungResult) -> None:
        """Note the step (rung) that the peer `name` has just completed. On a terminal, one line
        shows the latest step of every peer that is being verified."""
        self._waiting[name] = result.rung
        self._progress()

    @contextmanager
    def prompting(self, name: str) -> Iterator[None]:
        """Context manager: during the block, show that a peer works on a prompt, and for how
        long."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        later: asyncio.Handle

        def tick() -> None:
            nonlocal later
            self._waiting[name] = f"answering a prompt, {loop.time() - started_at:.0f} s"
            self._progress()
            later = loop.call_later(TICK_INTERVAL, tick)

        tick()
        try:
            yield
        finally:
            later.cancel()

    def _progress(self) -> None:
        if self._format is ListFormat.TEXT and is_terminal(sys.stderr):
            told = ", ".join(f"{peer}: {rung}" for peer, rung in self._waiting.items())
            self._show(cut(one_line(f"   ... {told}"), width_of(sys.stderr) - 1))

    def proof(self, proof: VerifiedPeer) -> None:
        # A peer may be verified twice: the last result counts.
        for names in (self.done.verified, self.done.failed):
            names[:] = [name for name in names if name != proof.name]
        (self.done.verified if proof.ready else self.done.failed).append(proof.name)
        self._waiting.pop(proof.name, None)
        if self._format is ListFormat.JSON:
            self._json(proof_as_json(proof))
            return
        if proof.ready:
            self._line(f"{proof.name}: {_praise(proof)}", mark=self._paint("ok", "green"))
            self._to_know(proof)
        else:
            self._line(f"{proof.name}: {proof.trouble}", mark=self._paint("no", "red"))
            if proof.cure:
                self._line(f"    what to do: {proof.cure}")

    def _to_know(self, proof: VerifiedPeer) -> None:
        """Show the remarks about a peer, one per line, and the command that shows more."""
        from dragoman.catalogue.card import to_know

        lines = to_know(proof.card) if proof.card is not None else []
        for line in lines:
            self._line(f"    note: {line}", style="dim")
        if lines:
            self._line(f"    more: dragoman peers show {proof.name}", style="dim")

    def choosing(self) -> None:
        self._head("Peers for delegation")

    def enabled(self, names: Sequence[str], notes: Sequence[str], file: str) -> None:
        self.done.enabled = list(names)
        if self._format is ListFormat.JSON:
            self._json({"type": "Enabled", "peers": list(names), "file": file})
        elif self._format is ListFormat.QUIET:
            self._write("".join(f"{name}\n" for name in names))
        elif names:
            self._line(f"enabled: {', '.join(names)} (in {file})")
        else:
            self._line("No peer is enabled, so scout is used.")
        for note in notes:
            if self._format is ListFormat.TEXT:
                self._line(note)

    def delegating(self, request: DelegationRequest) -> None:
        self._head(f'First task: dragoman delegate {request.role} "{request.prompt}"')

    def question(self, text: str) -> None:
        """Show a question on its own lines, wrapped at words. The answer is read below it."""
        self._line(text)

    # -- the end

    def ended(
        self, done: Delegation, request: DelegationRequest, failure: AttemptReport | None, code: int
    ) -> None:
        self.done.job, self.done.answered = done.job, done.answered
        if self._format is ListFormat.JSON:
            self._json(self.as_json(code))
            return
        self._line("", bare=True)
        if failure is not None:
            for line in self._let_down(done, failure):
                self._line(line, bare=True)
        elif not done.ok:
            self._line(f"Even {done.final.peer} failed: run `dragoman doctor`", bare=True)
        elif self.done.installed and not self.done.enabled:
            self._line(f"{done.answered} answered, but none of your agents is enabled.", bare=True)
        else:
            self._line(f"It works: {done.answered} answered. Next steps:", bare=True)
            for line in self._next(request):
                self._line(line)

    def skipped(self, request: DelegationRequest, code: int) -> None:
        """Report that the first task was not sent."""
        if self._format is ListFormat.JSON:
            self._json(self.as_json(code))
            return
        self._line("", bare=True)
        self._line("Nothing was sent. Next steps:", bare=True)
        for line in self._next(request):
            self._line(line)

    def interrupted(self, code: int) -> None:
        """Report that the command was interrupted, and which results were saved before that."""
        self._show("")
        if self._format is ListFormat.JSON:
            self._json(self.as_json(code, interrupted=True))
        kept = [
            f"{', '.join(names)} {state}"
            for names, state in (
                (self.done.verified, "verified"),
                (self.done.enabled, "enabled"),
            )
            if names
        ]
        stays = f"Saved: {'; '.join(kept)}." if kept else "Nothing was changed."
        put_err(
            neutral(f"dragoman: interrupted. {stays} `dragoman init` continues from there.") + "\n"
        )

    def as_json(self, code: int, *, interrupted: bool = False) -> dict[str, Any]:
        """Return the final JSON object."""
        done = self.done
        return {
            "type": "Beginning",
            "installed": done.installed,
            "verified": done.verified,
            "failed": done.failed,
            "enabled": done.enabled,
            "job": done.job,
            "answered": done.answered,
            "interrupted": interrupted,
            "exit_code": int(code),
        }

    def _let_down(self, done: Delegation, failure: AttemptReport) -> list[str]:
        told = failure.failure.message if failure.failure is not None else failure.stop
        how = "" if failure.outcome == "failed" else failure.outcome.value
        lines = [f"{failure.peer} failed: {': '.join(filter(None, (how, told)))}"]
        if done.ok:
            lines.append(f"{done.answered} answered instead.")
        return [*lines, f"To find out more: dragoman run {failure.peer} hello"]

    def _next(self, request: DelegationRequest) -> list[str]:
        peer = self.done.enabled[0] if self.done.enabled else "scout"
        work = "fix the failing test" if self.done.enabled else "where is main defined?"
        return [
            f'dragoman run {peer} "{work}"',
            f"dragoman explain {request.role}",
            "dragoman mcp install --client claude",
        ]

    # -- writing

    def _head(self, text: str) -> None:
        if self._format is ListFormat.TEXT:
            self._step += 1
            self._line(f"{self._step}. {text}", bare=True, style="bold")

    def _line(self, text: str, *, bare: bool = False, style: str = "", mark: str = "") -> None:
        if self._format is ListFormat.TEXT:
            self._show("")
            # The text may come from peers, so it is escaped before it is coloured.
            words = self._paint(" ".join(neutral(text).splitlines()), *filter(None, [style]))
            before = joined("", ["" if bare else "   ", mark, "  " if mark else ""])
            self._out.write_lines(joined("", [before, words, "\n"]))
            self._out.flush()

    def _json(self, value: dict[str, Any]) -> None:
        self._write(encode(value, self._out.out))

    def _write(self, text: str) -> None:
        self._out.write(text)
        # The next line may take a while.
        self._out.flush()

    def _show(self, status: str) -> None:
        """Replace the progress line on the terminal."""
        if self._status or status:
            blank = " " * len(self._status)
            # A closed terminal is reported by a signal.
            with suppress(OSError):
                put(sys.stderr, Neutral(f"\r{blank}\r"), status)
                sys.stderr.flush()
        self._status = status


def proof_as_json(proof: VerifiedPeer) -> dict[str, Any]:
    """Return a verified peer as a JSON object."""
    from dragoman.catalogue.card import to_know
    from dragoman.verify.report import proved

    card = proof.card
    return {
        "type": "Proof",
        "peer": proof.name,
        "ready": proof.ready,
        "version": None if card is None else card.version,
        "kept": proof.kept,
        "proved": None if card is None else proved(card),
        "to_know": [] if card is None else to_know(card),
        "trouble": proof.trouble or None,
        "cure": proof.cure or None,
    }


def _praise(proof: VerifiedPeer) -> str:
    from dragoman.verify.report import proved

    card = proof.card
    assert card is not None
    when = f" (measured on {card.measured_at[:10]})" if proof.kept else ""
    return f"{proved(card)}{when}"
