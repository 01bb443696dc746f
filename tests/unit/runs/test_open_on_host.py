"""`connect(host=…)` without a connection: names, directories, and errors of ssh."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from dragoman import connect
from dragoman.client.budgets import Budgets
from dragoman.client.options import ConnectOptions
from dragoman.errors import HostUnavailable, Unsupported, UsageError
from dragoman.runs import open_on_host
from dragoman.transports.process.environment import owner
from dragoman.transports.process.strays import find_owned
from tests.aio import aio
from tests.unit.broker.client.fake_ssh import fake_ssh


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_CONFIG_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text('[hosts.box]\ndragoman = "/opt/dragoman"\n')


@aio
async def test_an_unknown_host_is_rejected() -> None:
    with pytest.raises(UsageError, match="no host"):
        async with connect("codex", host="elsewhere", workspace="/srv"):
            pass


@aio
async def test_the_workspace_must_be_an_absolute_path_on_the_host() -> None:
    for folder in (".", "src"):
        with pytest.raises(UsageError, match="absolute path on box"):
            async with connect("codex", host="box", workspace=folder):
                pass


@aio
async def test_only_a_peer_name_can_be_opened_on_a_host() -> None:
    with pytest.raises(UsageError, match="name of a peer on that host"):
        async with connect(["my-agent"], host="box", workspace="/srv"):
            pass


@aio
async def test_the_error_contains_the_message_of_ssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\necho 'me@box: Permission denied (publickey).' >&2; exit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("DRAGOMAN_SSH", str(program))
    with pytest.raises(HostUnavailable, match="does not accept your key"):
        async with connect("codex", host="box", workspace="/srv"):
            pass


@aio
async def test_a_missing_ssh_program_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRAGOMAN_SSH", "/nowhere/ssh")
    with pytest.raises(HostUnavailable, match="nowhere") as refused:
        async with connect("codex", host="box", workspace="/srv"):
            pass
    assert "install the OpenSSH client" in refused.value.remedy


@pytest.mark.parametrize(
    "noise", ["while echo noise; do :; done", "head -c 90000000 /dev/zero | tr '\\0' x; sleep 60"]
)
@aio
async def test_too_much_shell_output_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    fake_ssh(tmp_path, monkeypatch, noise)
    with pytest.raises(HostUnavailable, match="prints too much") as refused:
        async with connect("codex", host="box", workspace="/srv"):
            pass
    assert "[ -t 1 ]" in refused.value.remedy


@aio
async def test_a_host_that_does_not_answer_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(open_on_host, "LOGIN_TIMEOUT", 0.0)
    with pytest.raises(HostUnavailable, match="box: no answer to initialize") as refused:
        async with connect("codex", host="box", workspace="/srv", budgets=Budgets(initialize=0.05)):
            pass
    assert "try it manually" in refused.value.remedy and refused.value.retryable


@aio
async def test_the_limits_of_nested_delegation_are_passed_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_DEPTH", "2")
    fake_ssh(tmp_path, monkeypatch, f'printf %s "$last" > {tmp_path}/command; exit 127')
    with pytest.raises(HostUnavailable):
        async with connect("codex", host="box", workspace="/srv"):
            pass
    words = shlex.split((tmp_path / "command").read_text())
    assert words[:3] == ["sh", "-c", 'echo; exec env "$@"']
    assert words[4:6] == ["DRAGOMAN_DEPTH=2", "DRAGOMAN_HOST_SILENCE=180"]
    assert words[6:] == ["/opt/dragoman", "broker", "attach", "codex", "--cwd", "/srv"]


def test_files_and_commands_are_not_served_locally() -> None:
    options = open_on_host._options(ConnectOptions(terminals=True))
    assert not (options.read_files or options.write_files or options.terminals)


@aio
async def test_an_invalid_option_is_refused_before_a_connection_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch, f"touch {tmp_path}/connected; exec sleep 60")
    with pytest.raises(Unsupported, match="no option sandbox"):
        async with connect("codex", host="box", workspace="/srv", details={"sandbox": "x"}):
            pass
    assert find_owned(owner()) == []
    assert not (tmp_path / "connected").exists()
