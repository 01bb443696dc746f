"""Another machine on loopback: a real sshd with its own port, keys, configuration and HOME.

When run as root, the remote side is another user, who is created for the tests and removed
afterwards; otherwise it is the same user with another HOME. `FarMachine.cli` is the command line of
this side, whose settings name the machine `box`.
"""

from __future__ import annotations

import itertools
import json
import os
import pwd
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import dragoman
from tests.integration.cli_shell import Cli, Done

AGENT = Path(__file__).with_name("far_agent.py")
REPOSITORY = Path(dragoman.__file__).parents[2]
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
TIMEOUT = 60.0
"""Seconds for anything on the far machine: a bootstrap on a busy machine takes a while."""
GONE_TIMEOUT = 20.0
"""Seconds for processes to end: less than the silence timeout after which the far side exits."""

CUTS = int(os.environ.get("HOST_CUTS", "20"))
"""How often the tests cut the connection at random."""
SEED = int(os.environ.get("HOST_SEED", random.SystemRandom().randrange(10**6)))
"""Random seed of the cuts."""

SSHD_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PubkeyAuthentication yes
AllowUsers {user}
SetEnv HOME={folder}/home
MaxStartups 200
LogLevel VERBOSE
"""

SSH_CONFIG = """\
Host {name}
  HostName {address}
  Port {port}
  User {user}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
  ConnectTimeout 10
"""


def missing() -> str:
    """Return why a far machine cannot be created here; empty if it can."""
    for program in (SSHD, "ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"{program} is not installed: apt install openssh-server openssh-client"
    return ""


SETTINGS = 'enabled_peers = ["far"]\npermissions = "ask"\n'
"""The settings of the remote side. A test that replaces them restores them."""


@dataclass
class FarMachine:
    """A running far machine. `home` is the home of its user, `work` a workspace in it."""

    folder: Path
    """Keys and configuration of both sides."""
    user: str
    uid: int
    gid: int
    python: str
    """A Python that the far user can run."""
    port: int
    cli: Cli
    """The command line of this side, with `box` in its settings."""
    address: str = "127.0.0.1"
    sshd: Any = None
    within: tuple[str, ...] = ()
    """A command that runs sshd, such as one that enters a network namespace."""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def work(self) -> Path:
        return self.home / "work"

    @property
    def dragoman(self) -> Path:
        """The program on the remote side."""
        return self.home / ".local" / "bin" / "dragoman"

    @property
    def python_program(self) -> Path:
        """A Python on the remote side that finds dragoman."""
        return self.home / "venv" / "bin" / "python"

    @property
    def ssh_config(self) -> Path:
        return self.folder / "ssh_config"

    @property
    def is_other_user(self) -> bool:
        return self.uid != os.getuid()

    # -- the remote side

    def as_far(
        self, *words: str, stdin: str = "", check: bool = True, cwd: Path | None = None
    ) -> Done:
        """Run a program as the far user, in the workspace or another directory, without ssh."""
        done = subprocess.run(
            words,
            cwd=cwd or self.work,
            env=self.far_env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            **self.as_user,
        )
        assert done.returncode == 0 or not check, (words, done.stdout, done.stderr)
        return Done(done.returncode, done.stdout, done.stderr)

    @property
    def as_user(self) -> dict[str, Any]:
        """Arguments for `subprocess` to run a program as the far user."""
        if not self.is_other_user:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    @property
    def far_env(self) -> dict[str, str]:
        path = os.environ.get("PATH", os.defpath)
        return {"HOME": str(self.home), "USER": self.user, "PATH": path, "LANG": "C.UTF-8"}

    def far_dragoman(self, *words: str, check: bool = True) -> Done:
        """Run the far dragoman on the far machine itself."""
        return self.as_far(str(self.dragoman), *words, check=check)

    def write(self, path: Path, text: str, *, mode: int = 0o644) -> Path:
        """Write a file that belongs to the far user."""
        missing = [each for each in (path, *path.parents) if not each.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        for each in missing:
            os.chown(each, self.uid, self.gid)
        return path

    def settings(self, text: str) -> None:
        """Replace the settings of the remote side."""
        self.write(self.home / ".config" / "dragoman" / "config.toml", text)

    def add_peer(self, name: str, *, roles: str = '["review"]') -> None:
        """Add the agent of the tests to the remote side under a name."""
        command = [str(self.python_program), str(AGENT), str(self.home)]
        self.write(
            self.home / ".config" / "dragoman" / "peers" / f"{name}.toml",
            f'name = "{name}"\ntitle = "{name}"\nprotocol = "acp"\nroles = {roles}\n'
            f"[[launch]]\ncommand = {json.dumps(command)}\n",
        )

    def processes(self, *, containing: str = "") -> dict[int, str]:
        """The command lines of the processes on the remote side, except those of sshd."""
        found: dict[int, str] = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with suppress(OSError):
                if not self._is_far(Path("/proc", name)):
                    continue
                words = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if words and "sshd" not in words.partition(" ")[0] and containing in words:
                    found[int(name)] = words.strip()
        return found

    def wait_until_gone(self, containing: str = "") -> dict[int, str]:
        """Wait until such processes have ended. Returns those that are left."""
        until = time.monotonic() + GONE_TIMEOUT
        while (left := self.processes(containing=containing)) and time.monotonic() < until:
            time.sleep(0.05)
        return left

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds on the remote side."""
        until = time.monotonic() + TIMEOUT
        while not holds():
            assert time.monotonic() < until, "it never held"
            time.sleep(0.02)

    def ssh_processes(self) -> dict[int, str]:
        """The command lines of the ssh clients on this side."""
        found: dict[int, str] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError):
                    words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                    if os.fsencode(self.ssh_config) in words and name_of(int(name)) == "ssh\n":
                        found[int(name)] = b" ".join(words).decode().strip()
        return found

    def wait_until_ssh_gone(self) -> dict[int, str]:
        """Wait until the ssh clients have ended. Returns those that are left."""
        until = time.monotonic() + GONE_TIMEOUT
        while (left := self.ssh_processes()) and time.monotonic() < until:
            time.sleep(0.05)
        return left

    def _is_far(self, process: Path) -> bool:
        if self.is_other_user:
            return process.stat().st_uid == self.uid
        return f"HOME={self.home}\0".encode() in (process / "environ").read_bytes()

    def prompts(self) -> list[str]:
        """The prompts that the far agent received, in order."""
        file = self.work / "prompts"
        return file.read_text().splitlines() if file.exists() else []

    # -- sshd

    def start_sshd(self) -> None:
        log = (self.folder / "sshd.log").open("ab")
        with log:
            self.sshd = subprocess.Popen(  # noqa: TID251 - ended in `stop_sshd`
                [*self.within, SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.home)},
                start_new_session=True,
            )
        until = time.monotonic() + TIMEOUT
        while True:
            try:
                with socket.create_connection((self.address, self.port), timeout=1.0) as peer:
                    assert peer.recv(4) == b"SSH-"
                    return
            except OSError:
                assert self.sshd.poll() is None, (self.folder / "sshd.log").read_text()
                assert time.monotonic() < until, "sshd does not answer"
                time.sleep(0.02)

    def sessions(self) -> list[int]:
        """The sshd processes that serve a connection."""
        return [pid for pid in below(self.sshd.pid) if "sshd" in name_of(pid)]

    def stop_sshd(self) -> None:
        if self.sshd is None:
            return
        for pid in [*self.sessions(), self.sshd.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.sshd.wait(TIMEOUT)
        self.sshd = None

    @contextmanager
    def other_sshd(self, *, added: str = "", within: tuple[str, ...] = ()) -> Iterator[None]:
        """Run sshd with an added line of configuration, or within another command."""
        config, before = self.folder / "sshd_config", (self.within, self.sshd_config)
        self.stop_sshd()
        config.write_text(f"{before[1]}\n{added}\n")
        self.within = (*before[0], *within)
        try:
            self.start_sshd()
            yield
        finally:
            self.stop_sshd()
            self.within, text = before
            config.write_text(text)
            self.start_sshd()

    @property
    def sshd_config(self) -> str:
        return (self.folder / "sshd_config").read_text()

    @contextmanager
    def talkative_shell(self, script: str, *, at_exit: str = "") -> Iterator[None]:
        """Let the login shell run a script before each command, and another one after it."""
        shell = self.folder / "talkative"
        command = 'sh -c "$SSH_ORIGINAL_COMMAND"'
        rest = f"{command}\ncode=$?\n{at_exit}\nexit $code" if at_exit else f"exec {command}"
        shell.write_text(f"#!/bin/sh\n{script}\n{rest}\n")
        shell.chmod(0o755)
        with self.other_sshd(added=f"ForceCommand {shell}"):
            yield

    @contextmanager
    def only_programs(self, *names: str) -> Iterator[None]:
        """Let the far machine have no programs but these: its logins see the directories of
        programs with nothing else in them. Skips the test where nothing can be mounted."""
        if reason := no_mounts():
            pytest.skip(reason)
        programs, mount = self.folder / "programs", self.folder / "mount"
        programs.mkdir()
        for name in names:
            found = shutil.which(name, path=f"{Path(self.python).parent}:{os.defpath}:/usr/bin")
            assert found, name
            shutil.copy(os.path.realpath(found), programs / os.path.basename(found))
        # It is not among the programs after the first directory was replaced.
        shutil.copy(shutil.which("mount") or "", mount)
        usual = ("/bin", "/usr/bin", "/usr/local/bin", os.path.dirname(self.base_python))
        folders = {os.path.realpath(each) for each in usual if os.path.isdir(each)}
        binds = [f"{mount} --bind {programs} {shlex.quote(each)}" for each in folders]
        script = " && ".join([*binds, 'exec "$@"'])
        within = ("unshare", "--mount", "sh", "-c", script, "sh")
        try:
            with self.other_sshd(within=within):
                yield
        finally:
            shutil.rmtree(programs)
            mount.unlink()

    @property
    def base_python(self) -> str:
        """The program behind the Python of the far machine."""
        return os.path.realpath(self.python)

    def write_configs(self, name: str = "box") -> None:
        values = {
            "port": self.port,
            "address": self.address,
            "folder": self.folder,
            "user": self.user,
            "name": name,
        }
        (self.folder / "sshd_config").write_text(SSHD_CONFIG.format(**values))
        self.ssh_config.write_text(SSH_CONFIG.format(**values))
        host_key = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[{self.address}]:{self.port} {host_key}")

    def name_host(self, name: str = "box", **more: str) -> None:
        """Write the settings of this side, which give the machine a name."""
        values = {
            "destination": "box",
            "workspace": str(self.work),
            "dragoman": str(self.dragoman),
            "ssh_options": ["-F", str(self.ssh_config)],
            **more,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        config = self.cli.home / "config_home"
        config.mkdir(exist_ok=True)
        (config / "config.toml").write_text("\n".join([f"[hosts.{name}]", *lines, ""]))


def no_mounts() -> str:
    """Return why nothing can be mounted here; empty if it can."""
    if os.getuid() != 0 or shutil.which("mount") is None or shutil.which("unshare") is None:
        return "file systems can only be mounted by root"
    words = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"mount is not allowed here: {tried.stderr.strip()}" if tried.returncode else ""


@contextmanager
def mounted(at: Path, *words: str) -> Iterator[None]:
    """Mount a file system with these options of `mount`. Skips the test where that is not
    allowed."""
    if reason := no_mounts():
        pytest.skip(reason)
    subprocess.run(["mount", *words, str(at)], check=True, capture_output=True)
    try:
        yield
    finally:
        # Without waiting for processes that still have a file open.
        subprocess.run(["umount", "--lazy", str(at)], check=True, capture_output=True)


def below(pid: int) -> list[int]:
    """The descendants of a process, children before their parents."""
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found += [*below(int(child)), int(child)]
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as taken:
        taken.bind((address, 0))
        return int(taken.getsockname()[1])


_numbers = itertools.count(1)


class FarUser(NamedTuple):
    """The user of the remote side and a Python that it can run."""

    name: str
    uid: int
    gid: int
    python: str


LIBRARIES = f"{REPOSITORY / 'src'}:{sysconfig.get_path('purelib')}"
"""The import path of the far Python: this checkout and its dependencies."""


@contextmanager
def far_user(folder: Path) -> Iterator[FarUser]:
    """The user of the remote side: as root, a new user, if one can be created who can read this
    checkout."""
    here = pwd.getpwuid(os.getuid())
    same = FarUser(here.pw_name, here.pw_uid, here.pw_gid, sys.executable)
    if os.getuid() != 0 or shutil.which("useradd") is None:
        yield same
        return
    name = f"dgmfar{os.getpid()}x{next(_numbers)}"
    words = ["--no-create-home", "--home-dir", str(folder / "home"), "--user-group"]
    # Not locked, because sshd rejects locked accounts, and without a valid password.
    words += ["--shell", "/bin/sh", "--password", "*", name]
    added = subprocess.run(["useradd", *words], capture_output=True, check=False)
    if added.returncode != 0:
        yield same
        return
    try:
        entry = pwd.getpwnam(name)
        python = _python_for(entry.pw_uid, entry.pw_gid)
        yield FarUser(name, entry.pw_uid, entry.pw_gid, python) if python else same
    finally:
        subprocess.run(["userdel", "--force", name], capture_output=True, check=False)


def _python_for(uid: int, gid: int) -> str | None:
    """Find a Python of the version that runs these tests and that the user can run. The one of the
    tests may be in the home of root."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        with suppress(OSError):
            tried = subprocess.run(
                [python, "-c", "import dragoman.cli.entry, msgspec"],
                env={"PYTHONPATH": LIBRARIES, "PATH": os.defpath},
                user=uid,
                group=gid,
                extra_groups=[],
                cwd="/",
                capture_output=True,
                check=False,
            )
            if tried.returncode == 0:
                return python
    return None


@contextmanager
def far_machine(
    *, address: str = "127.0.0.1", within: tuple[str, ...] = ()
) -> Iterator[FarMachine]:
    """Run a far machine with the peer `far` and the permission preset `ask`."""
    # pytest's own directories are readable only by their owner, and their paths are too long for a
    # socket.
    folder = Path(tempfile.mkdtemp(prefix="dgh")).resolve()
    try:
        folder.chmod(0o755)
        with far_user(folder) as user:
            near = folder / "near"
            near.mkdir()
            cli = Cli(near / "work", near / "home", timeout=2 * TIMEOUT)
            cli.cwd.mkdir()
            cli.home.mkdir()
            far = FarMachine(folder, *user, free_port(), cli, address, within=within)
            _furnish(far)
            far.start_sshd()
            try:
                yield far
            finally:
                try:
                    far.far_dragoman("broker", "stop", "--all", check=False)
                finally:
                    far.stop_sshd()
                    left = far.wait_until_gone()
                    for pid in left:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
        assert not left, f"processes of the far machine were left: {left}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _furnish(far: FarMachine) -> None:
    for name in ("key", "host_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(far.folder / name)],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    shutil.copy(far.folder / "key.pub", far.folder / "authorized_keys")
    (far.folder / "authorized_keys").chmod(0o644)
    for made in (far.home, far.work):
        made.mkdir()
        os.chown(made, far.uid, far.gid)
    # Not with an environment variable: brokers and agents inherit few of them.
    venv = far.home / "venv"
    base = far.base_python
    far.write(venv / "pyvenv.cfg", f"home = {Path(base).parent}\n")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = venv / "lib" / version / "site-packages" / "far.pth"
    far.write(libraries, LIBRARIES.replace(":", "\n") + "\n")
    far.python_program.parent.mkdir()
    far.python_program.symlink_to(base)
    far.write(
        far.dragoman, f"#!/bin/sh\nexec '{far.python_program}' -m dragoman \"$@\"\n", mode=0o755
    )
    far.settings(SETTINGS)
    far.add_peer("far")
    if os.getuid() == 0:
        # The directory that sshd uses for privilege separation.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    far.write_configs()
    far.name_host()
