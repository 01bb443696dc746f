"""The probe as a program: an agent that a client can be pointed at.

Has the command line and the report file, which is complete after the client disconnects and has
the findings so far before that. `probe` plays the scenes.

    python -m dragoman.testing.conformance.probe_agent --report FILE
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from dragoman.testing.conformance.probe import ANSWER_TIMEOUT, SCENARIOS, Probe, Scenario
from dragoman.transports import open_stdio


async def serve(report: Path, *, scenario: Scenario, timeout: float) -> None:
    """Play for the client on standard input and output, and record the findings."""

    def write() -> None:
        # A client may kill us at any time; half a report is worse than an old one.
        draft = report.with_suffix(".draft")
        draft.write_text(probe.report().to_json(), encoding="utf-8")
        os.replace(draft, report)

    probe = Probe(
        await open_stdio(),
        scenario=scenario,
        timeout=timeout,
        on_change=write,
    )
    write()
    await probe.run()
    write()
    report.with_suffix(".done").touch()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dragoman.testing.conformance.probe_agent",
        description="An agent that checks its client. Point a client at it, let it open a session "
        "and send a prompt; then one with the word cancel, to be cancelled.",
    )
    parser.add_argument("--report", type=Path, required=True, help="where the report is written")
    parser.add_argument("--scenario", choices=SCENARIOS, default="main", help="what is played")
    parser.add_argument(
        "--timeout", type=float, default=ANSWER_TIMEOUT, help="seconds for an answer of the client"
    )
    options = parser.parse_args(argv)
    asyncio.run(serve(options.report, scenario=options.scenario, timeout=options.timeout))


if __name__ == "__main__":
    main()
