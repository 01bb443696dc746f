"""`dragoman doctor`: print diagnoses with their remedies, or a bug report.

`setup.doctor` does the checks and writes the report; secrets are redacted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_out
from dragoman.cli.shared_options import CwdOption, FormatOption, ListFormat

if TYPE_CHECKING:
    from dragoman.runs.context import RunContext
    from dragoman.setup.doctor import Diagnosis

HELP: Final = """
Find problems with this installation, and how to fix them.

Checks Python and node, the PATH, the configuration, trust, descriptors and agent files, the
installed peers and their cards, dragoman's directories, and leftover processes. Trusted Python
adapters of enabled peers are loaded. Nothing is changed and no agent is started. The exit code is 1
if a check is bad.

\b
Examples:
  dragoman doctor
  dragoman doctor --format json | jq 'select(.state == "bad")'
  dragoman doctor --report > report.txt      for a bug report: no secrets, no names
"""

WIDTHS: Final = (4, 11)
"""Widths of the longest state and check name. They cannot be measured, because findings are printed
as they arrive."""

COLOURS: Final = {"ok": "green", "warn": "yellow", "bad": "red"}

app: Final = new_app()


@app.command(help=HELP, context_settings=CONTEXT)
def doctor(
    *,
    report: Annotated[
        bool, typer.Option("--report", help="Print a report for bug reports, without secrets.")
    ] = False,
    format: FormatOption = ListFormat.TEXT,
    cwd: CwdOption = None,
) -> None:
    from dragoman.cli.exit_codes import ExitCode
    from dragoman.runs.context import load_context

    place = load_context(cwd)
    findings = _findings(place, format if not report else ListFormat.QUIET)
    if report:
        _report(place, findings)
    bad = sum(finding.state == "bad" for finding in findings)
    warned = sum(finding.state == "warn" for finding in findings)
    if format is ListFormat.TEXT and not report:
        put_out(f"{bad} bad, {warned} warning{'' if warned == 1 else 's'}\n")
    if bad:
        raise typer.Exit(ExitCode.FAILED)


def _findings(place: RunContext, format: ListFormat) -> list[Diagnosis]:
    """Return all findings. In text and JSON format they are also printed as they arrive."""
    import asyncio

    from dragoman.cli.output.jsonl import write_json
    from dragoman.setup.doctor import examine

    found: list[Diagnosis] = []

    async def look() -> None:
        async for finding in examine(place):
            found.append(finding)
            if format is ListFormat.JSON:
                write_json(
                    {
                        "type": "Finding",
                        "check": finding.check,
                        "state": finding.state.value,
                        "text": finding.text,
                        "cure": finding.cure or None,
                    }
                )
            elif format is ListFormat.TEXT:
                _print(finding)

    asyncio.run(look())
    return found


def _print(finding: Diagnosis) -> None:
    from dragoman.cli.output.tables import line
    from dragoman.cli.output.terminal import paint_for

    state = finding.state.value
    shown = line([state, finding.check, finding.text], WIDTHS)
    put_out(paint_for(sys.stdout)(state, COLOURS[state]), f"{shown[len(state) :]}\n")
    if finding.cure and state != "ok":
        put_out(line(["", "", f"cure: {finding.cure}"], WIDTHS), "\n")
    sys.stdout.flush()


def _report(place: RunContext, findings: list[Diagnosis]) -> None:
    from dragoman.cli.output.escape import neutral
    from dragoman.cli.versions import report
    from dragoman.setup.doctor import compose

    put_out(neutral(compose(place, findings, versions=report())))
