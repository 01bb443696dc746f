"""Standard input and output as a stream, in real child processes: that is the only place for it."""

from __future__ import annotations

import fcntl
import os
import pty
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

import dragoman
from dragoman.transports.stdio import own_descriptor

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs descriptors of Unix")

CHILD_TIMEOUT = 30.0
"""A child here needs a fraction of a second; more means that it hangs."""

ECHO = """
import asyncio, ctypes, os, subprocess, sys
from dragoman.errors import *
from dragoman.transports.stdio import open_stdio

class Echo:
    def __init__(self, stream):
        self.stream, self.ended = stream, asyncio.Event()
    def data_received(self, data):
        self.stream.write(data)
    def stream_ended(self, failure):
        print("ended:", type(failure).__name__, file=sys.stderr)
        self.ended.set()

async def main():
    print("printed before")
    stream = await open_stdio()
    {during}
    echo = Echo(stream)
    stream.start(echo)
    await echo.ended.wait()
    await stream.aclose()
    {after}

asyncio.run(main())
"""


def code(*, during: str = "pass", after: str = "pass") -> str:
    indent = "\n    "
    return ECHO.format(
        during=indent.join(during.splitlines()), after=indent.join(after.splitlines())
    )


def run(
    program: str,
    data: bytes | None = b"",
    *,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    redirect: str = "",
) -> subprocess.CompletedProcess[bytes]:
    source = str(Path(dragoman.__path__[0]).parent)
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "$1" {redirect}', sys.executable, program],
        input=data if stdin is None else None,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        # Without the settings of whoever runs the tests: prints are to be buffered.
        env={"PATH": os.environ["PATH"], "PYTHONPATH": source},
        timeout=CHILD_TIMEOUT,
        check=False,
    )


def is_blocking(fd: int) -> bool:
    return not fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK


def test_the_stream_carries_what_came_in_and_ends_with_the_input() -> None:
    done = run(code(), b"one\ntwo\n")
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n"), done.stderr
    assert b"ended: ConnectionEnded" in done.stderr


def test_whatever_else_the_program_prints_goes_to_standard_error() -> None:
    during = """\
old = sys.__stdout__
assert sys.stdout is sys.stderr
print("printed during")
old.write("through the old object\\n")
os.write(1, b"by descriptor\\n")
libc = ctypes.CDLL(None)
libc.puts(b"by a C library")
libc.fflush(None)
subprocess.run([sys.executable, "-c", "print('by a child')"], check=True)"""
    done = run(code(during=during), b"clean\n")
    assert done.stdout == b"clean\n", done.stderr
    for text in (
        b"printed before",
        b"printed during",
        b"through the old object",
        b"by descriptor",
        b"by a C library",
        b"by a child",
    ):
        assert done.stderr.count(text) == 1


def test_no_other_reader_finds_input() -> None:
    during = """\
assert os.read(0, 10) == b""
assert sys.stdin.read() == ""
subprocess.run(["cat"], check=True)"""
    done = run(code(during=during), b"all of it\n")
    assert done.stdout == b"all of it\n", done.stderr


def test_everything_is_given_back_at_the_end() -> None:
    # Open, the stream holds four descriptors: the two true ones and two of its own.
    during = "before = len(os.listdir('/proc/self/fd')) - 4"
    after = """\
assert sys.stdout is sys.__stdout__
print("printed after", flush=True)
subprocess.run(["echo", "by a child after"], check=True)
again = await open_stdio()
await again.aclose()
assert len(os.listdir("/proc/self/fd")) == before"""
    done = run(code(during=during, after=after), b"x\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"x\nprinted after\nby a child after\n"


def test_a_second_stream_at_the_same_time_is_refused() -> None:
    during = """\
try:
    await open_stdio()
except UsageError as error:
    print("refused:", error)"""
    done = run(code(during=during), b"x\n")
    assert b"refused: standard input and output are already in use" in done.stderr
    assert done.stdout == b"x\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_closed_standard_descriptors_are_a_clear_error(closed: str) -> None:
    done = run(code(), redirect=closed)
    assert b"UsageError: standard input or output is closed" in done.stderr


def test_a_closed_standard_error_neither_breaks_the_stream_nor_gets_its_bytes() -> None:
    done = run(code(during='os.write(1, b"lost")'), b"x\n", redirect="2>&-")
    assert (done.returncode, done.stdout) == (0, b"x\n")


def test_a_regular_file_works_on_both_sides(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"line\n" * 50_000)
    with open(tmp_path / "in", "rb") as source, open(tmp_path / "out", "wb") as target:
        done = run(code(), stdin=source, stdout=target)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_bytes() == b"line\n" * 50_000


def test_an_empty_input_is_an_end() -> None:
    done = run(code(), stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    assert b"ended: ConnectionEnded" in done.stderr


def test_a_socket_works_on_both_sides_and_blocks_again_afterwards() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"through a socket\n")
        ours.shutdown(socket.SHUT_WR)
        done = run(code(), stdin=theirs.fileno(), stdout=theirs.fileno())
        assert done.returncode == 0, done.stderr
        assert ours.recv(100) == b"through a socket\n"
        assert is_blocking(theirs.fileno())


def test_a_pipe_with_a_name_whose_writer_is_gone_still_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    # Opened for both, so that neither end waits for the other.
    writer = os.open(tmp_path / "fifo", os.O_RDWR)
    with open(os.open(tmp_path / "fifo", os.O_RDONLY), "rb") as reader:
        os.write(writer, b"by name\n")
        os.close(writer)
        done = run(code(), stdin=reader)
    assert (done.returncode, done.stdout) == (0, b"by name\n"), done.stderr


def test_errors_still_block_when_they_share_the_pipe_with_the_output() -> None:
    during = "assert os.get_blocking(2)"
    done = run(code(during=during), b"x\n", stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    assert b"x\n" in done.stdout


def test_errors_still_block_when_they_share_the_socket_with_the_output() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        done = run(
            code(during="assert os.get_blocking(2)"),
            b"shared\n",
            stdout=theirs.fileno(),
            stderr=theirs.fileno(),
        )
        theirs.close()
        with ours.makefile("rb") as file:
            everything = file.read()
        assert done.returncode == 0, everything
    assert b"shared\n" in everything


@pytest.mark.parametrize("death", ["pass", "os.kill(os.getpid(), 9)"])
def test_a_terminal_works_and_blocks_for_others_even_if_we_are_killed(death: str) -> None:
    master, slave = pty.openpty()
    try:
        os.write(master, b"typed\n\x04")
        done = run(code(during=death), stdin=slave, stdout=slave)
        assert is_blocking(slave)
        if death == "pass":
            assert done.returncode == 0, done.stderr
            # The terminal echoes what is typed, then comes what the program echoes.
            shown = os.read(master, 1000)
            assert shown.count(b"typed\r\n") == 2
        else:
            assert done.returncode == -9
    finally:
        os.close(master)
        os.close(slave)


def test_output_that_is_no_longer_read_is_noticed() -> None:
    during = """\
try:
    while True:
        stream.write(b"x" * 65536)
        await stream.drain()
except ConnectionBroken as failure:
    print("noticed:", failure)"""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run(code(during=during), b"", stdout=writer)
    finally:
        os.close(writer)
    assert b"noticed: writing failed: Broken pipe" in done.stderr
    assert done.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux opens a pipe again")
def test_a_pipe_gets_an_open_file_of_its_own_and_elsewhere_a_copy() -> None:
    reader, writer = os.pipe()
    own, threaded = own_descriptor(reader, os.O_RDONLY)
    assert (is_blocking(own), is_blocking(reader), threaded) == (False, True, False)
    copy, threaded = own_descriptor(reader, os.O_RDONLY, platform="darwin")
    assert (is_blocking(copy), threaded) == (True, False)
    windows, threaded = own_descriptor(reader, os.O_RDONLY, platform="win32")
    assert threaded
    for fd in (reader, writer, own, copy, windows):
        os.close(fd)


def test_a_terminal_gets_a_thread_where_it_cannot_be_opened_again() -> None:
    master, slave = pty.openpty()
    copy, threaded = own_descriptor(slave, os.O_RDONLY, platform="darwin")
    assert threaded
    assert stat.S_ISCHR(os.fstat(copy).st_mode)
    for fd in (master, slave, copy):
        os.close(fd)
