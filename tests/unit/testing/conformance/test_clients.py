"""A client is run once for each scenario with a command that works in any environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dragoman.errors import ProgramNotFound, UsageError
from dragoman.testing.conformance import ClientProbe, Verdict, check_client
from dragoman.testing.conformance import clients as module
from dragoman.testing.conformance.clients import client_command
from dragoman.testing.scripted import Exit, Expect, Reply, Send, Step, command
from dragoman.transports import spawn
from tests.aio import aio
from tests.unit.rpc.other_side import OtherSide

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientInfo": {"name": "c", "version": "1"}},
}


async def say_hello(argv: Sequence[str]) -> None:
    """A client that shakes hands and goes."""
    stream = await spawn(argv)
    other = OtherSide(stream)
    stream.start(other)
    other.say(HELLO)
    await other.next()
    await stream.aclose()


@aio
async def test_every_scenario_is_played_and_their_reports_put_together() -> None:
    runs: list[str] = []

    async def run(argv: Sequence[str]) -> None:
        runs.append(argv[argv.index("--scenario") + 1])
        await say_hello(argv)

    report = await check_client(run)
    assert runs == ["main", "version", "noise"]
    assert report.subject == "c"
    assert report.finding("unknown_version_ends_it").verdict is Verdict.PASSED
    assert report.finding("client_names_itself").verdict is Verdict.PASSED
    assert report.finding("end_of_input_ends_the_agent").verdict is Verdict.PASSED


@aio
async def test_what_a_client_raises_does_not_lose_its_report() -> None:
    async def run(argv: Sequence[str]) -> None:
        await say_hello(argv)
        raise RuntimeError("the client gives up")

    assert (await check_client(run)).conforms


@aio
async def test_a_client_that_cannot_be_started_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFound, match="no-such-client"):
        await check_client(client_command([str(tmp_path / "no-such-client"), "{agent}"]))


@aio
async def test_a_client_that_never_starts_its_agent_is_said_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "REPORT_TIMEOUT", 0.05)

    async def run(argv: Sequence[str]) -> None:
        pass

    with pytest.raises(UsageError, match="never started"):
        await check_client(run)


def test_a_probe_has_a_command_only_while_it_has_a_folder() -> None:
    probe = ClientProbe()
    with pytest.raises(UsageError):
        _ = probe.command
    with probe:
        report = Path(probe.command[probe.command.index("--report") + 1])
        assert report.parent.is_dir()
    assert not report.parent.exists()


@aio
async def test_a_client_can_be_a_command_line_in_which_the_agent_is_put() -> None:
    # This one is started with the agent's words, and goes at once.
    run = client_command([*command(Exit(0)), "{agent}"])
    await run(["some-agent", "--acp"])
    words = module._filled(["x", "{agent}", "--agent={agent}"], ["a", "b c"])
    assert words == ["x", "a", "b c", "--agent=a 'b c'"]


@aio
async def test_a_command_line_without_a_place_for_the_agent_is_refused() -> None:
    with pytest.raises(UsageError, match="{agent}"):
        client_command(["client"])


@aio
async def test_a_client_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Step] = [Send({"jsonrpc": "2.0", "method": "x"}), Expect("never"), Reply()]
    run = client_command([*command(*steps), "{agent}"], timeout=0.1)
    with pytest.raises(TimeoutError):
        await run(["agent"])
