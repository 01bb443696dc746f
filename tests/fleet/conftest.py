"""A rig per test, and the random seed of the run.

Without a nats-server these tests are skipped. `make test-fleet` installs the newest version, and
the oldest supported one for tests marked with `with_every_server`.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.rig import Rig, nats_server, oldest_server

TOLD = "fleet"
"""Property of a test: its line in the summary."""


def pytest_configure(config: pytest.Config) -> None:
    # In the environment, so that all workers of pytest-xdist use the same seed.
    os.environ.setdefault("FLEET_SEED", str(random.randrange(1, 10**6)))


def pytest_report_header() -> str:
    return f"fleet faults: FLEET_SEED={os.environ['FLEET_SEED']}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == TOLD and report.when == "call":
                    terminalreporter.write_line(f"{TOLD}: {text}")


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    oldest = getattr(request, "param", "newest") == "oldest"
    program = oldest_server() if oldest else nats_server()
    if program is None:
        pytest.skip("nats-server is not installed: run `make test-fleet`")
    with tempfile.TemporaryDirectory(prefix="dgm") as name:
        rig = Rig(Path(name).resolve(), server=program)
        try:
            yield rig
        finally:
            rig.close()
        rig.wait(lambda: not rig.agents_left())
