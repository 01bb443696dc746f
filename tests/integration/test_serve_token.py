"""The token files of servers that wait for a named pipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.cli_shell import cli_in

TIMEOUT = 30.0


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes of POSIX")
@pytest.mark.parametrize("words", [("mcp", "--http", "0"), ("acp", "--websocket", "0")])
def test_a_server_that_waits_for_its_token_can_be_interrupted(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    pipe = tmp_path / "token"
    os.mkfifo(pipe, 0o600)
    cli = cli_in(tmp_path)
    argv = cli.argv("serve", *words, "--token-file", str(pipe))
    with subprocess.Popen(  # noqa: TID251 - it has to be interrupted before it serves
        argv, cwd=cli.cwd, env=cli.env, stderr=subprocess.PIPE
    ) as server:
        try:
            writer = _reached(pipe)
            server.send_signal(signal.SIGINT)
            assert server.wait(TIMEOUT) == 130
            os.close(writer)
        finally:
            server.kill()


def _reached(pipe: Path) -> int:
    """Wait until a process reads the pipe, and return a descriptor that keeps it waiting."""
    give_up_at = time.monotonic() + TIMEOUT
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert time.monotonic() < give_up_at
            time.sleep(0.02)
