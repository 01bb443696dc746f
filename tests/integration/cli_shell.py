"""The command line for integration tests: in this process, as a child, or in a terminal."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import dragoman
from dragoman.broker.client.brokers import list_brokers
from dragoman.cli.entry import run
from dragoman.paths import find_paths
from dragoman.transports.process.identity import kill
from tests.integration.pty_terminal import ROWS, Terminal, in_terminal

AGENT = (sys.executable, str(Path(__file__).with_name("cli_agent.py")))
"""The command line of the agent that the tests talk with."""

TIMEOUT = 45.0
"""Seconds until a command that does not end is a failure; the machine may be busy."""

FOLDERS = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str


@dataclass
class Cli:
    """Runs `dragoman` in a folder of its own, with no settings but its own."""

    cwd: Path
    home: Path
    extra: dict[str, str] = field(default_factory=dict)
    timeout: float = TIMEOUT
    """Seconds for a command that runs as a program of its own."""

    @property
    def env(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.home),
            "TERM": "xterm",
            "PYTHONPATH": str(Path(dragoman.__file__).parents[1]),
            # A broker would outlive its test; `warm_cli` has them and sees to it that they end.
            "DRAGOMAN_WARM": "0",
            **{f"DRAGOMAN_{name}": str(self.home / name.lower()) for name in FOLDERS},
            **self.extra,
        }

    @property
    def agent(self) -> tuple[str, ...]:
        """The tests' agent, with a word by which its processes are known."""
        return (*AGENT, str(self.home))

    def agents_left(self) -> list[str]:
        """Processes of that agent that are there."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError):
                    words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                    if os.fsencode(self.home) in words and b"dragoman" not in words:
                        found.append(name)
        return found

    def wait_for_agents(self) -> None:
        """Wait until no process of that agent is there. If its owner was killed, the warden ends it
        a moment later."""
        give_up_at = time.monotonic() + TIMEOUT
        while left := self.agents_left():
            assert time.monotonic() < give_up_at, left
            time.sleep(0.02)

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "dragoman", *words]

    def __call__(self, *words: str, stdin: str = "") -> Done:
        """Run a command in this process, which is faster and lets the tests see what is left."""
        out, err = io.StringIO(), io.StringIO()
        log = logging.getLogger("dragoman")
        logged = (log.handlers[:], log.level, log.propagate)
        environ, folder, before = dict(os.environ), os.getcwd(), sys.stdin
        surroundings = self.env
        os.environ.clear()
        os.environ.update(surroundings)
        os.chdir(self.cwd)
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        try:
            with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
                run(words)
        finally:
            os.environ.clear()
            os.environ.update(environ)
            os.chdir(folder)
            sys.stdin = before
            log.handlers[:], log.level, log.propagate = logged
        code = left.value.code
        return Done(
            code if isinstance(code, int) else int(bool(code)), out.getvalue(), err.getvalue()
        )

    def child(self, *words: str, stdin: str = "") -> Done:
        """Run a command as a program of its own."""
        done = subprocess.run(
            self.argv(*words),
            cwd=self.cwd,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=self.timeout,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ask(self, prompt: str, *options: str, agent: tuple[str, ...] = ()) -> Done:
        """Run one prompt with the tests' agent, which gets the words `agent` too."""
        return self("run", prompt, *options, "--", *AGENT, *agent)

    @contextmanager
    def terminal(self, *words: str, columns: int = 0, rows: int = ROWS) -> Iterator[Terminal]:
        """Run a command in a terminal, which has so many columns if a number is given."""
        argv = self.argv(*words)
        with in_terminal(argv, cwd=self.cwd, env=self.env, columns=columns, rows=rows) as terminal:
            yield terminal


@contextmanager
def with_open_stdin(cli: Cli, *words: str) -> Iterator[subprocess.Popen[str]]:  # noqa: TID251 - only its type
    """A command whose stdin is a pipe that stays open."""
    with subprocess.Popen(  # noqa: TID251 - its stdin has to stay open
        cli.argv(*words),
        cwd=cli.cwd,
        env=cli.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def cli_in(tmp_path: Path) -> Cli:
    cwd, home = tmp_path / "work", tmp_path / "home"
    cwd.mkdir()
    home.mkdir()
    return Cli(cwd, home)


@contextmanager
def warm_cli() -> Iterator[Cli]:
    """A command line with brokers, which are stopped at the end."""
    # The folders of pytest have paths that are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="dgm") as name:
        folder = Path(name).resolve()
        cli = cli_in(folder)
        cli.extra["DRAGOMAN_WARM"] = "1"
        try:
            yield cli
        finally:
            try:
                stopped = cli("broker", "stop", "--all")
            finally:
                brokers = list_brokers(find_paths(cli.env))
                for record in brokers:
                    kill(record.broker, signal.SIGKILL)
        assert stopped.code == 0, stopped.err
        assert brokers == []
        cli.wait_for_agents()
