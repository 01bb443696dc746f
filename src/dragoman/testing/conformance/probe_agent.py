"""The probe as a program: an agent for a client to connect to.

Parses the command line and writes the report file. Until the client disconnects, the file has the
findings so far. `probe` plays the scenes.

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
    """Serve the client on standard input and output, and record the findings."""

    def write() -> None:
        # The client may kill us at any time: an old report is better than half of a new one.
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
        description="An agent that checks its client. Make the client start it, open a session and "
        "send a prompt, then send a prompt with the word cancel and cancel it.",
    )
    parser.add_argument("--report", type=Path, required=True, help="path of the report file")
    parser.add_argument(
        "--scenario", choices=SCENARIOS, default="main", help="the scenario to play"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=ANSWER_TIMEOUT,
        help="timeout in seconds for a response from the client",
    )
    options = parser.parse_args(argv)
    asyncio.run(serve(options.report, scenario=options.scenario, timeout=options.timeout))


if __name__ == "__main__":
    main()
