"""Run the probe against a client.

Builds the command line that the client must start, reads the report of each run, and merges the
reports. `probe` plays the scenes; `probe_agent` is the program.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

import dragoman
from dragoman.errors import ConnectionLost, SpawnError, UsageError
from dragoman.testing.conformance.client_checks import merged
from dragoman.testing.conformance.probe import ANSWER_TIMEOUT, SCENARIOS, Scenario
from dragoman.testing.conformance.report import Report, from_json
from dragoman.transports import spawn

REPORT_TIMEOUT: Final = 10.0
"""Seconds to wait for the report of a probe after its client has disconnected. All it still has to
do is write a file."""

POLL_INTERVAL: Final = 0.02
"""Seconds between two checks for the report. The probe is a child of the client, so we are not
notified when it ends."""

CLIENT_TIMEOUT: Final = 300.0
"""Timeout in seconds for a client run as a command, which may need user input."""

PLACE: Final = "{agent}"
"""Placeholder for the agent in the command line of a client."""

RunClient: TypeAlias = Callable[[Sequence[str]], Awaitable[object]]
"""Runs a client until it ends, given the command line of its agent."""


class ClientProbe:
    """An agent that checks its client. Use with ``with``.

    Make the client start `command`, open a session, send a prompt, send a prompt with the word
    "cancel" and cancel it, and disconnect. Then call `report`.
    """

    def __init__(self, *, scenario: Scenario = "main", timeout: float = ANSWER_TIMEOUT) -> None:
        self._scenario = scenario
        self._timeout = timeout
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="dragoman-")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def command(self) -> list[str]:
        """The command line of the probe, for the client to start."""
        # Not `-m`: a client may start its agent in an environment without dragoman.
        start = (
            f"import sys; sys.path.insert(0, {str(Path(dragoman.__file__).parents[1])!r}); "
            "from dragoman.testing.conformance.probe_agent import main; main()"
        )
        options = ["--scenario", self._scenario, "--timeout", str(self._timeout)]
        return [sys.executable, "-c", start, "--report", str(self._path), *options]

    @property
    def _path(self) -> Path:
        if self._folder is None:
            raise UsageError("use ClientProbe in a `with` statement")
        return Path(self._folder.name) / "report.json"

    async def report(self) -> Report:
        """Return the findings after the client has disconnected, or those so far if it does not
        disconnect in time. Raises `UsageError` if the client never started the probe."""
        done = self._path.with_suffix(".done")
        try:
            async with asyncio.timeout(REPORT_TIMEOUT):
                while not done.exists():  # noqa: ASYNC110 - another process makes the file
                    await asyncio.sleep(POLL_INTERVAL)
        except TimeoutError:
            if not self._path.exists():
                raise UsageError("the client never started the probe") from None
        return from_json(self._path.read_bytes())


async def check_client(run: RunClient, *, timeout: float = ANSWER_TIMEOUT) -> Report:
    """Check a client. `run` is called once for each scenario, with the command line of the agent.

    Raises `SpawnError` if the client cannot be started, and `UsageError` if it never starts the
    agent. Other exceptions from `run` are ignored: one scenario should make a client fail, and by
    then the probe has seen how it behaves.
    """
    reports: list[Report] = []
    for scenario in SCENARIOS:
        with ClientProbe(scenario=scenario, timeout=timeout) as probe:
            (ended,) = await asyncio.gather(run(probe.command), return_exceptions=True)
            if isinstance(ended, SpawnError):
                raise ended
            reports.append(await probe.report())
    return merged(reports)


def client_command(
    template: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    inherit: Iterable[str] = (),
    timeout: float = CLIENT_TIMEOUT,
) -> RunClient:
    """Return a `run` function for `check_client` that starts the client from a command line.

    The word ``{agent}`` is replaced by the words of the agent's command line. Inside a longer word,
    it is replaced by that command line, quoted for a shell. Raises `UsageError` if no word contains
    ``{agent}``.
    """
    if not any(PLACE in word for word in template):
        raise UsageError(f"the client's command line must contain {PLACE}")
    names = tuple(inherit)

    async def run(agent: Sequence[str]) -> None:
        stream = await spawn(_filled(template, agent), env=env, inherit=names)
        try:
            stream.start(_Deaf())
            async with asyncio.timeout(timeout):
                await stream.wait_exited()
        finally:
            await stream.aclose()

    return run


class _Deaf:
    """Discards the client's output."""

    def data_received(self, data: bytes) -> None:
        pass

    def stream_ended(self, failure: ConnectionLost) -> None:
        pass


def _filled(template: Sequence[str], agent: Sequence[str]) -> list[str]:
    words: list[str] = []
    for word in template:
        if word == PLACE:
            words.extend(agent)
        else:
            words.append(word.replace(PLACE, shlex.join(agent)))
    return words
