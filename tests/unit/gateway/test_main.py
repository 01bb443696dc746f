"""The command line of the bridge."""

from __future__ import annotations

import pytest

from dragoman.errors import UsageError
from dragoman.gateway.__main__ import address_of, main, parser, target_of


def test_what_stands_behind_the_dashes_is_the_agents_command() -> None:
    arguments = parser().parse_args(
        ["--raw", "--inherit", "KEY", "--", "codex", "app-server", "-c"]
    )
    assert arguments.target == ["codex", "app-server", "-c"]
    assert (arguments.raw, arguments.inherit, arguments.dialect) == (True, ["KEY"], "auto")


def test_one_word_may_be_an_address() -> None:
    assert target_of(["unix:/a"]) == "unix:/a"
    assert target_of(["wss://x"]) == "wss://x"
    assert target_of(["gemini"]) == ["gemini"]
    assert target_of(["unix:/a", "x"]) == ["unix:/a", "x"]


def test_a_websocket_listens_on_this_machine_unless_told_otherwise() -> None:
    assert address_of(":80") == ("127.0.0.1", 80)
    assert address_of("80") == ("127.0.0.1", 80)
    assert address_of("0.0.0.0:8080") == ("0.0.0.0", 8080)
    with pytest.raises(UsageError):
        address_of("localhost")


def test_a_bridge_serves_in_one_place() -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--unix", "a", "--websocket", "b", "--", "x"])


def test_a_dialect_that_no_client_can_be_served_in_ends_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--client-dialect", "codex", "--", "no-such-program"]) == 1
    assert "clients cannot be served in the dialect 'codex'" in capsys.readouterr().err


def test_an_invalid_address_ends_the_program_before_the_agent_is_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--websocket", "localhost", "--", "no-such-program"]) == 1
    assert "--websocket" in capsys.readouterr().err
