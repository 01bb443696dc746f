"""What every test shares: how many examples a property test tries, that it does so untraced, and
that the garbage collector leaves alone what was there before the first test.

HYPOTHESIS_PROFILE chooses: `default` for the gate, `quick` while writing code, `long` for a night.
A property test that needs more than the usual 60 seconds says so with @pytest.mark.timeout.
Failing examples print the line that repeats them. Fixtures of one kind of test live in that kind's
folder, not here.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# In the background of a shell, interrupts are ignored, and children inherit that. Tests interrupt.
for name in ("SIGINT", "SIGHUP", "SIGQUIT", "SIGTERM"):
    number = getattr(signal, name, None)
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)

# A peer that is opened by its name must not leave a broker behind the test, so brokers are off, in
# fixtures of any scope and in every program that a test starts. Tests of brokers turn them on.
os.environ["DRAGOMAN_WARM"] = "0"

PROPERTY = Path(__file__).parent / "property"

for name, max_examples in (("quick", 100), ("default", 2_000), ("long", 50_000)):
    settings.register_profile(
        name,
        max_examples=max_examples,
        # A shared machine pauses a test at any point; a pause says nothing about the code.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        # Hypothesis turns this on by itself where it sees CI, and would then try the same
        # examples for ever.
        derandomize=False,
        print_blob=True,
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Measure no coverage in property tests: it makes them two to three times slower, and the
    unit tests have to cover a module without their help anyway."""
    for item in items:
        if PROPERTY in item.path.parents:
            item.add_marker(pytest.mark.no_cover)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector look at what tests make, and at nothing older.

    Collecting tests makes half a million objects that stay to the end. Looking through them is a
    quarter of that work, and afterwards takes a third of a second each time that a test asks
    whether something was left behind.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
