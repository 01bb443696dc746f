"""Settings for all tests: the number of examples of property tests, no coverage for them, and a
garbage collector that ignores objects from before the first test.

HYPOTHESIS_PROFILE selects the profile: `default` for CI, `quick` while writing code, `long` for an
overnight run. A property test that needs more than the usual 60 seconds has @pytest.mark.timeout.
A failing example prints the line that reproduces it. Fixtures for one kind of test are in the
directory of that kind, not here.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Background processes of a shell, and so their children, ignore interrupts. Tests need interrupts.
for name in ("SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM"):
    number = getattr(signal, name, None)
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)

# Opening a peer by its name must not leave a broker behind, so brokers are off, in fixtures of any
# scope and in every program that a test starts. Tests of brokers turn them on.
os.environ["DRAGOMAN_WARM"] = "0"

PROPERTY = Path(__file__).parent / "property"

for name, max_examples in (("quick", 100), ("default", 2_000), ("long", 50_000)):
    settings.register_profile(
        name,
        max_examples=max_examples,
        # A busy machine may pause a test at any point, which says nothing about the code.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        # Hypothesis turns this on when it detects CI, and would then always try the same examples.
        derandomize=False,
        print_blob=True,
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Measure no coverage in property tests: it makes them two to three times slower, and the unit
    tests must cover a module without them anyway."""
    for item in items:
        if PROPERTY in item.path.parents:
            item.add_marker(pytest.mark.no_cover)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Make the garbage collector ignore all objects from before the first test.

    Collecting the tests creates half a million objects that stay until the end. Scanning them takes
    a quarter of that time, and later a third of a second each time a test checks for leaks.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
