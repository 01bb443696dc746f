"""One command on another machine: its input, its output, and why it failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.broker.client.ssh_command import SSH_VARIABLE, Host
from dragoman.broker.client.ssh_once import failure, run_on_host
from dragoman.config.schema import HostSettings
from dragoman.errors import HostUnavailable
from tests.aio import aio
from tests.unit.broker.client.fake_ssh import fake_ssh

HOST = Host("box", HostSettings(dragoman="/opt/dragoman"))
LIMIT = 10_000


@aio
async def test_words_are_passed_unchanged_and_bytes_go_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch)
    words = ["sh", "-c", 'printf "%s\\n" "$1"; head -c 3', "sh", "a 'b' $HOME; *"]
    data = [b"\0\1\xff"]
    done = await run_on_host(HOST, words, timeout=30, limit_size=LIMIT, input=data)
    assert done.ok and done.output == b"a 'b' $HOME; *\n\0\1\xff"


@pytest.mark.parametrize(
    ("body", "words", "remedy"),
    [
        ("exit 255", "ssh exited without a message", "manually"),
        (
            "echo 'sh: 1: /opt/dragoman: not found' >&2; exit 127",
            "/opt/dragoman or its Python",
            "bootstrap",
        ),
        ("echo strange; exit 1", "the command failed there: strange", "hosts check box"),
        (
            "echo 'dragoman: no room' >&2; echo Goodbye >&2; exit 1",
            "the command failed there: no room",
            "hosts check box",
        ),
        ("yes", "prints too much", "startup files"),
    ],
)
@aio
async def test_a_failure_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str, remedy: str
) -> None:
    fake_ssh(tmp_path, monkeypatch, body)
    done = await run_on_host(HOST, ["true"], timeout=30, limit_size=LIMIT)
    error = failure(HOST, done, timeout=30, limit_size=LIMIT)
    assert words in str(error) and remedy in error.remedy


@aio
async def test_without_ssh_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SSH_VARIABLE, "/nowhere/ssh")
    with pytest.raises(HostUnavailable, match="nowhere") as refused:
        await run_on_host(HOST, ["true"], timeout=30, limit_size=LIMIT)
    assert "install the OpenSSH client" in refused.value.remedy
