"""Cut the connection at random during a turn: every event arrives once, no prompt runs twice, and
no process is left.

HOST_CUTS is the number of cuts (20, and 100 in `make soak`); HOST_SEED repeats a run. As root,
every third cut takes the link of a network namespace down and up again; the others kill ssh or
sshd.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker import host_protocol
from dragoman.broker.client.ssh_command import Host
from dragoman.broker.host_protocol import HostPrompt
from dragoman.config.schema import HostSettings
from dragoman.events.model import MessageDelta
from dragoman.runs.host_link import FollowedJob, HostLink
from dragoman.store.records import new_job_id
from tests.aio import aio
from tests.hosts.far_machine import (
    CUTS,
    SEED,
    FarMachine,
    below,
    far_machine,
    missing,
    name_of,
)
from tests.hosts.test_hosts_files import repo as repo

WORDS = 250
PAUSE = 0.02
TIMEOUT = 90.0


IN_A_ROW = 3
"""Maximum number of cuts without an event in between. On a busy machine, a login takes longer than
the time between two cuts, and the command gives up after three minutes without a connection."""


class Command:
    """A command in a child process, with its output so far."""

    def __init__(self, far: FarMachine, *words: str) -> None:
        words = tuple(far.cli.argv(*words, "--format", "json"))
        self.process = subprocess.Popen(  # noqa: TID251 - a test's own child, ended below
            words,
            cwd=far.cli.cwd,
            env=far.cli.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_out, daemon=True),
            threading.Thread(target=self._read_err, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def connections(self) -> list[int]:
        """The ssh processes of the command."""
        return [pid for pid in below(self.process.pid) if name_of(pid).strip() == "ssh"]

    def wait(self) -> int:
        code = self.process.wait(TIMEOUT)
        for reader in self._readers:
            reader.join(TIMEOUT)
        return code

    def said(self) -> str:
        return "".join(line["text"] for line in self.lines if line["type"] == "MessageDelta")

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(TIMEOUT)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def cut(far: FarMachine, command: Command, kind: str) -> bool:
    """Kill the connection on one side. Returns False if there is none at the moment."""
    pids = command.connections() if kind == "ssh" else far.sessions()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def take_down(link: str, seconds: float) -> None:
    """Take a link down for a time, as a cable or a radio network does."""
    ip("link", "set", link, "down")
    try:
        time.sleep(seconds)
    finally:
        ip("link", "set", link, "up")


class Cuts:
    """Cuts connections at random moments, each kind equally often."""

    def __init__(self, far: FarMachine, link: str, *, seed: int, limit: int) -> None:
        self._far = far
        self._link = link
        self._dice = dice = random.Random(seed)
        kinds = ("ssh", "sshd", "link") if link else ("ssh", "sshd")
        self._ahead = [kinds[number % len(kinds)] for number in range(limit)]
        dice.shuffle(self._ahead)
        self.done: list[str] = []
        """The kinds of the cuts so far."""

    @property
    def is_over(self) -> bool:
        return not self._ahead

    def during(self, command: Command, *, first: float) -> None:
        """Cut the connection of a command until it has ended, or there were enough cuts. The first
        one comes within so many seconds."""
        dice = self._dice
        until = time.monotonic() + dice.uniform(0.0, first)
        in_a_row = seen = 0
        while self._ahead and command.process.poll() is None:
            if len(command.lines) > seen:
                seen, in_a_row = len(command.lines), 0
            if time.monotonic() >= until and in_a_row < IN_A_ROW:
                if self._cut(command, self._ahead[-1]):
                    self.done.append(self._ahead.pop())
                    in_a_row += 1
                until = time.monotonic() + dice.uniform(0.05, 1.5)
            time.sleep(0.005)

    def _cut(self, command: Command, kind: str) -> bool:
        if kind != "link":
            return cut(self._far, command, kind)
        if not command.connections():
            return False
        # A short one is only a delay; a long one ends the connection, on both sides.
        dice = self._dice
        take_down(self._link, dice.choice((dice.uniform(0.2, 1.0), dice.uniform(3.5, 6.0))))
        return True


def whole(count: int) -> str:
    return "".join(f"<{number}> " for number in range(1, count + 1))


def assert_nothing_was_lost(far: FarMachine, command: Command, prompt: str, count: int) -> None:
    code = command.wait()
    assert code == 0, "".join(command.errors)
    assert command.said() == whole(count), f"HOST_SEED={SEED}"
    assert command.lines[-1]["type"] == "Result" and command.lines[-1]["text"] == whole(count)
    assert far.prompts().count(prompt) == 1
    assert not far.wait_until_gone("broker stdio")
    assert not far.wait_until_ssh_gone()


@pytest.mark.timeout(120 + 12 * CUTS)
def test_every_event_arrives_once_no_matter_how_often_the_connection_is_cut(
    reached: tuple[FarMachine, str],
) -> None:
    far, link = reached
    cuts, turn = Cuts(far, link, seed=SEED, limit=CUTS), 0
    while not cuts.is_over:
        turn += 1
        prompt = f"count {WORDS + turn} {PAUSE}"
        command = Command(far, "run", "far", prompt, "--host", "box")
        try:
            # In some turns, the first cut comes before the job is confirmed.
            cuts.during(command, first=2.0)
            assert_after_cuts(far, command, prompt, WORDS + turn)
        finally:
            command.close()
    assert len(cuts.done) == CUTS
    assert bool(link) == ("link" in cuts.done)


def assert_after_cuts(far: FarMachine, command: Command, prompt: str, count: int) -> None:
    code = command.wait()
    if code != 0 and not command.lines[:-1] and prompt not in far.prompts():
        # Cut before the first connection was established: nothing was sent, and the error says so.
        assert command.lines[-1]["type"] == "Error", command.errors
        return
    assert_nothing_was_lost(far, command, prompt, count)


@pytest.mark.timeout(60 + 12 * CUTS)
def test_a_delegation_to_a_host_survives_connection_cuts(far: FarMachine, repo: Path) -> None:
    assert far.cli.child("hosts", "check", "box").code == 0
    assert far.cli.child("peers", "enable", "far@box").code == 0
    cuts, turn = Cuts(far, "", seed=SEED + 1, limit=CUTS // 2), 0
    while not cuts.is_over:
        turn += 1
        prompt = f"count {WORDS + turn} {PAUSE}"
        command = Command(far, "delegate", "review", prompt, "--no-fallback", "--cwd", str(repo))
        try:
            cuts.during(command, first=4.0)
            code = command.wait()
            said = "".join(command.errors)
            if code != 0 and "job j-" not in said.replace("dragoman: job", ""):
                # Cut before the first connection was established: nothing was sent.
                assert command.lines[-1]["attempts"][0]["errorClass"] == "host_unavailable", said
                assert far.cli.child("peers", "unpark", "far@box").code == 0
                continue
            assert code == 0, said
            assert command.said() == whole(WORDS + turn), f"HOST_SEED={SEED}"
            (attempt,) = command.lines[-1]["attempts"]
            assert attempt["ok"] and attempt["text"] == whole(WORDS + turn)
            assert (repo / "prompts").read_text().splitlines() == [prompt]
            (repo / "prompts").unlink()
            assert not far.wait_until_gone("broker stdio")
            assert not far.wait_until_ssh_gone()
        finally:
            command.close()


def test_an_unreachable_host_error_names_the_command_that_shows_the_job(
    far: FarMachine,
) -> None:
    prompt = "count 300 0.01"
    command = Command(far, "run", "far", prompt, "--host", "box")
    try:
        while not any(line["type"] == "MessageDelta" for line in command.lines):
            assert command.process.poll() is None, command.errors
            time.sleep(0.01)
        known_hosts = far.folder / "known_hosts"
        before = known_hosts.read_text()
        # From now on, the machine seems to be a different one.
        other = far.folder / "other_key"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True
        )
        known_hosts.write_text(
            f"[{far.address}]:{far.port} {other.with_suffix('.pub').read_text()}"
        )
        try:
            assert cut(far, command, "ssh")
            assert command.wait() == 1
        finally:
            known_hosts.write_text(before)
            for file in (other, other.with_suffix(".pub")):
                file.unlink()
    finally:
        command.close()
    error = command.lines[-1]
    assert error["error"] == "host_unavailable" and "the job continues there" in error["message"]
    assert "jobs watch" in error["what_next"]
    job = error["what_next"].split()[6]
    watched = far.cli.child("jobs", "watch", job, "--host", "box", "--format", "quiet")
    assert watched.out.strip() == whole(300).strip()
    assert far.prompts() == [prompt]


def test_the_newest_job_is_followed_to_its_end_although_a_newer_one_begins(
    far: FarMachine,
) -> None:
    (go := far.work / "go").unlink(missing_ok=True)
    started = far.cli.child("run", "far", "held 200", "--no-wait", "--host", "box")
    assert started.code == 0, started.err
    command = Command(far, "jobs", "watch", "last", "--host", "box")
    try:
        while not any(line["type"] == "MessageDelta" for line in command.lines):
            assert command.process.poll() is None, command.errors
            time.sleep(0.01)
        newer = far.cli.child("run", "far", "hello", "--no-wait", "--host", "box")
        assert newer.code == 0, newer.err
        assert cut(far, command, "ssh")
        far.write(go, "")
        assert command.wait() == 0, command.errors
    finally:
        command.close()
        far.write(go, "").unlink()
    assert command.said() == whole(200)
    assert command.lines[-1]["job"] == started.out.strip()


@aio
async def test_a_remote_dragoman_that_is_stopped_is_replaced_and_nothing_is_lost(
    far: FarMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only on this side, and long enough for a login on a busy machine.
    monkeypatch.setattr(host_protocol, "PING_INTERVAL", 0.2)
    monkeypatch.setattr(host_protocol, "PING_TIMEOUT", 3.0)
    settings = HostSettings(
        destination="box",
        dragoman=str(far.dragoman),
        ssh_options=("-F", str(far.ssh_config)),
    )
    notices: list[str] = []
    link = HostLink(Host("box", settings), on_notice=notices.append)
    prompt = f"count {WORDS} {PAUSE}"
    stopped: list[int] = []
    said = ""
    try:
        async with asyncio.timeout(TIMEOUT):
            asked = HostPrompt(job=new_job_id(), peer="far", words=[prompt], cwd=str(far.work))
            await link.submit(asked)
            followed = FollowedJob(link, asked.job)
            async for _, event in followed.events():
                said += event.text if isinstance(event, MessageDelta) else ""
                if said and not stopped:
                    stopped += far.processes(containing="broker stdio")
                    for pid in stopped:
                        os.kill(pid, signal.SIGSTOP)
    finally:
        await link.aclose()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert stopped and followed.ended is not None
    assert said == whole(WORDS) and far.prompts() == [prompt]
    assert "was lost" in notices[-2] and "reconnected to box" in notices[-1]


# -- a link that is down

NAMESPACE = f"dgh{os.getpid()}"
NET = f"10.{200 + os.getpid() // 250 % 50}.{os.getpid() % 250}"
"""Another one for each test run on this machine."""
NEAR, FAR = f"{NET}.1", f"{NET}.2"


IFF_UP = 1


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def no_links() -> str:
    """Why there can be no namespace with a link here; empty if there can be one."""
    if os.getuid() != 0 or shutil.which("ip") is None:
        return "a network namespace needs root and `ip` (apt install iproute2)"
    try:
        with linked():
            return ""
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.decode().strip()}"


@pytest.fixture
def reached(request: pytest.FixtureRequest) -> Iterator[tuple[FarMachine, str]]:
    """A far machine and the name of the link to it, or the usual one and no name."""
    if reason := missing():
        pytest.skip(reason)
    if no_links():
        yield request.getfixturevalue("far"), ""
        return
    within = ("ip", "netns", "exec", NAMESPACE)
    with linked() as link, far_machine(address=FAR, within=within) as far:
        options = ["-F", str(far.ssh_config), "-oServerAliveInterval=1", "-oServerAliveCountMax=2"]
        far.name_host(ssh_options=options)  # type: ignore[arg-type]
        yield far, link


@contextmanager
def linked() -> Iterator[str]:
    """Create a network namespace with a link to this one. Yields the local name of the link."""
    link = f"{NAMESPACE[:10]}v"
    try:
        ip("netns", "add", NAMESPACE)
        ip("link", "add", link, "type", "veth", "peer", "name", "far0", "netns", NAMESPACE)
        ip("addr", "add", f"{NEAR}/30", "dev", link)
        ip("link", "set", link, "up")
        ip("-n", NAMESPACE, "addr", "add", f"{FAR}/30", "dev", "far0")
        ip("-n", NAMESPACE, "link", "set", "far0", "up")
        ip("-n", NAMESPACE, "link", "set", "lo", "up")
        yield link
    finally:
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)


def test_a_link_can_be_taken_down_and_up_again() -> None:
    """Skipped, with the reason, where no cut above was one of a link."""
    if reason := no_links():
        pytest.skip(reason)
    with linked() as link:
        take_down(link, 0.0)
        assert int(Path("/sys/class/net", link, "flags").read_text(), 16) & IFF_UP


def test_the_network_namespace_is_removed() -> None:
    assert not Path("/run/netns", NAMESPACE).exists()
