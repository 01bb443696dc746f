"""What happens to the children when the dragoman process itself ends, however it ends.

The host of each test is a Python process of its own that starts children, says their numbers, and
is then killed or ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dragoman.errors
from dragoman.transports.process.warden import is_zombie
from tests.integration.children import TIMEOUT, wait_dead

SOURCE = Path(dragoman.errors.__file__).parents[1]

HOST = """
import asyncio, json, os, signal, sys
from dragoman.transports.process.stream import spawn, start_detached
from dragoman.transports.process.guard import guard

TREE = '''
import json, os, signal, subprocess, sys
sleep = "import signal; signal.signal(15, signal.SIG_IGN)\\\\nwhile True: signal.pause()"
command = [sys.executable, "-I", "-S", "-c", sleep]
holds = subprocess.Popen(command)
daemon = subprocess.Popen(command, start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
unmarked = subprocess.Popen(command, env={}, process_group=0)
print(json.dumps([os.getpid(), holds.pid, daemon.pid, unmarked.pid]), flush=True)
signal.signal(15, signal.SIG_IGN)
while True: signal.pause()
'''

class Inbox:
    def __init__(self):
        self.data = b""
        self.line = asyncio.get_running_loop().create_future()
    def data_received(self, data):
        self.data += data
        if b"\\n" in self.data and not self.line.done():
            self.line.set_result(self.data)
    def stream_ended(self, failure):
        if not self.line.done():
            self.line.set_exception(failure)

async def start_tree():
    stream = await spawn([sys.executable, "-I", "-S", "-c", TREE])
    inbox = Inbox()
    stream.start(inbox)
    return stream, json.loads(await inbox.line)

def say(**facts):
    print(json.dumps(facts), flush=True)

"""


@contextlib.contextmanager
def host(program: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:  # noqa: TID251
    """A host that runs, and the facts it said on its first line."""
    process = subprocess.Popen(  # noqa: TID251 - the process that is to be killed
        [sys.executable, "-c", HOST + textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        # A dragoman process that was itself started by dragoman has our mark, which is not its.
        start_new_session=True,
    )
    assert process.stdout is not None
    facts: dict[str, Any] = {}
    with process:
        try:
            assert select.select([process.stdout], [], [], TIMEOUT)[0], "the host says nothing"
            facts = json.loads(process.stdout.readline())
            yield process, facts
        finally:
            process.kill()
            # What a failed test proved to be left shall not be left forever.
            for pid in facts.get("pids", []):
                if not is_zombie(pid):
                    os.kill(pid, signal.SIGKILL)


def assert_all_die(pids: list[int]) -> None:
    assert len(pids) >= 4
    for pid in pids:
        wait_dead(pid)


def test_nothing_outlives_a_host_that_is_killed() -> None:
    with host(
        """
        async def main():
            _, first = await start_tree()
            _, second = await start_tree()
            say(pids=first + second, warden=guard.warden_pid)
            await asyncio.sleep(3600)
        asyncio.run(main())
        """
    ) as (process, facts):
        assert not any(is_zombie(pid) for pid in facts["pids"])
        process.kill()
        process.wait(TIMEOUT)
        assert_all_die(facts["pids"])
        wait_dead(facts["warden"])


def test_nothing_outlives_a_host_that_is_killed_while_the_warden_is_asked_to_end() -> None:
    with host(
        """
        async def main():
            _, pids = await start_tree()
            say(pids=pids, warden=guard.warden_pid)
            await asyncio.sleep(3600)
        asyncio.run(main())
        """
    ) as (process, facts):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(facts["warden"], number)
        process.kill()
        process.wait(TIMEOUT)
        assert_all_die(facts["pids"])
        wait_dead(facts["warden"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_nothing_outlives_a_host_that_a_signal_ends(number: signal.Signals) -> None:
    with host(
        """
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        async def main():
            _, pids = await start_tree()
            say(pids=pids)
            await asyncio.sleep(3600)
        asyncio.run(main())
        """
    ) as (process, facts):
        process.send_signal(number)
        process.wait(TIMEOUT)
        assert_all_die(facts["pids"])


def test_the_end_of_an_interpreter_ends_what_was_never_closed() -> None:
    with host(
        """
        loop = asyncio.new_event_loop()
        stream, pids = loop.run_until_complete(start_tree())
        say(pids=pids, warden=guard.warden_pid)
        sys.stdin.read()
        """
    ) as (process, facts):
        assert not any(is_zombie(pid) for pid in facts["pids"])
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(TIMEOUT) == 0
        assert_all_die(facts["pids"])
        wait_dead(facts["warden"])


def test_the_end_of_an_interpreter_needs_no_warden_to_end_what_was_never_closed() -> None:
    with host(
        """
        sys.frozen = True
        loop = asyncio.new_event_loop()
        stream, pids = loop.run_until_complete(start_tree())
        say(pids=pids, warden=guard.warden_pid)
        sys.stdin.read()
        """
    ) as (process, facts):
        assert facts["warden"] == 0
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(TIMEOUT) == 0
        assert_all_die(facts["pids"])


def test_an_orderly_end_ends_the_warden_and_kills_no_other_process() -> None:
    with host(
        """
        async def main():
            stream, pids = await start_tree()
            await stream.aclose()
            detached = start_detached([sys.executable, "-I", "-S", "-c", "input()"],
                                      stdin=os.dup(0))
            say(pids=pids, warden=guard.warden_pid, detached=detached)
        asyncio.run(main())
        """
    ) as (process, facts):
        assert process.wait(TIMEOUT) == 0
        assert_all_die(facts["pids"])
        wait_dead(facts["warden"])
        assert not is_zombie(facts["detached"])
        assert process.stdin is not None
        process.stdin.close()
        wait_dead(facts["detached"])


def test_a_warden_that_died_is_replaced_and_knows_the_children_of_the_first() -> None:
    with host(
        """
        async def main():
            stream, first = await start_tree()
            warden = guard.warden_pid
            os.kill(warden, signal.SIGKILL)
            os.waitid(os.P_PID, warden, os.WEXITED | os.WNOWAIT)
            _, second = await start_tree()
            assert guard.warden_pid != warden
            say(pids=first + second, warden=guard.warden_pid)
            await asyncio.sleep(3600)
        asyncio.run(main())
        """
    ) as (process, facts):
        process.kill()
        process.wait(TIMEOUT)
        assert_all_die(facts["pids"])
        wait_dead(facts["warden"])


def test_a_fork_of_the_host_neither_kills_its_children_nor_keeps_them_alive() -> None:
    with host(
        """
        async def main():
            _, pids = await start_tree()
            fork = os.fork()
            if fork == 0:
                # The copy ends in an orderly way, exit hooks included.
                sys.exit(0)
            os.waitpid(fork, 0)
            lives = os.fork()
            if lives == 0:
                signal.pause()
            say(pids=pids, lives=lives, warden=guard.warden_pid)
            await asyncio.sleep(3600)
        asyncio.run(main())
        """
    ) as (process, facts):
        try:
            assert not any(is_zombie(pid) for pid in facts["pids"]), "the fork killed them"
            process.kill()
            process.wait(TIMEOUT)
            assert_all_die(facts["pids"])
            wait_dead(facts["warden"])
            assert not is_zombie(facts["lives"]), "the fork is not a child of dragoman"
        finally:
            os.kill(facts["lives"], signal.SIGKILL)


def test_a_dragoman_process_below_a_killed_one_cleans_up_for_itself() -> None:
    inner = HOST + textwrap.dedent(
        """
        async def main():
            _, pids = await start_tree()
            say(pids=pids, inner=os.getpid(), warden=guard.warden_pid)
            await asyncio.sleep(3600)
        asyncio.run(main())
        """
    )
    with host(
        f"""
        async def main():
            stream = await spawn([sys.executable, "-c", {inner!r}], inherit=["PYTHONPATH"])
            inbox = Inbox()
            stream.start(inbox)
            say(**json.loads(await inbox.line))
            await asyncio.sleep(3600)
        asyncio.run(main())
        """
    ) as (process, facts):
        process.kill()
        process.wait(TIMEOUT)
        wait_dead(facts["inner"])
        assert_all_die(facts["pids"])
        wait_dead(facts["warden"])


def test_no_warden_is_started_before_the_first_child() -> None:
    with host("say(warden=guard.warden_pid)") as (process, facts):
        assert facts["warden"] == 0
        assert process.wait(TIMEOUT) == 0
