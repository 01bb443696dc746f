"""The command line checks an agent and says with its exit code how it went."""

from __future__ import annotations

import json

import pytest

from dragoman.testing.conformance import agents, client_checks
from dragoman.testing.conformance.__main__ import main
from dragoman.testing.scripted import Expect, Reply, SendBytes, command

GOOD = command(
    Expect("initialize"),
    Reply({"protocolVersion": 1, "agentInfo": {"name": "n", "version": "1"}}),
)
NOISY = command(SendBytes(b"Hi!\n"), Expect("initialize"), Reply({"protocolVersion": 1}))
ONLY = ["--only", "initialize_is_answered", "--only", "ACP1-TRN-03", "--timeout", "20"]


def test_an_agent_that_conforms_gives_zero_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ONLY, "--", *GOOD]) == 0
    out = capsys.readouterr().out
    assert "calls itself n 1" in out
    assert out.endswith("2 passed, 0 failed, 0 warned, 0 skipped: conforms\n")


def test_an_agent_that_does_not_gives_one_and_json_on_demand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--json", *ONLY, "--", *NOISY]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["conforms"] is False
    assert report["counts"]["failed"] == 1
    assert [f["evidence"] for f in report["findings"] if f["verdict"] == "failed"] == ["Hi!"]


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--", "/no/such/program"],
        ["--only", "no-such-check", "--", *GOOD],
        ["--client", "--", "a-client-without-a-place-for-its-agent"],
    ],
)
def test_a_wrong_command_line_gives_two(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err


def test_an_interrupt_gives_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(agents, "check_agent", interrupted)
    assert main(["--", *GOOD]) == 130
    assert capsys.readouterr() == ("", "")


def test_an_unknown_option_gives_two() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--no-such-option"])
    assert caught.value.code == 2


def test_the_list_has_every_check_and_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    for check in agents.ALL:
        assert f"agent {check.check.name} (" in out
    for name in client_checks.CHECKS:
        assert f"client {name} (" in out
    assert out.count("calls the model") == sum(check.turns for check in agents.ALL)
