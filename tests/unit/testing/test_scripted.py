"""The scripted peer does what its steps say, seen with nothing but pipes and `json`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from dragoman.testing import scripted
from dragoman.testing.scripted import (
    CloseStdin,
    CloseStdout,
    Die,
    Exit,
    Expect,
    ExpectAnswer,
    FloodStderr,
    GoSilent,
    IgnoreTerminate,
    Notify,
    Reply,
    Send,
    SendBytes,
    Serve,
    SpawnGrandchild,
    Step,
    command,
    dumps,
    loads,
)

WAIT_TIMEOUT = 20.0

EVERY_STEP: list[Step] = [
    Expect("a"),
    ExpectAnswer("x"),
    Reply({"r": 1}, to="a"),
    Reply(error={"code": 1, "message": "no"}),
    Notify("n", {"p": [1]}, times=3),
    Send([None]),
    SendBytes(bytes(range(256)), times=2),
    Serve(),
    FloodStderr(9),
    CloseStdout(),
    CloseStdin(),
    IgnoreTerminate(),
    SpawnGrandchild(new_session=True),
    GoSilent(),
    Exit(4),
    Die(signal.SIGTERM),
]


class Child:
    def __init__(self, argv: list[str]) -> None:
        self.process = subprocess.Popen(  # noqa: TID251 - a witness that shares no code with it
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def say(self, *messages: Any) -> None:
        stdin = self._pipe(self.process.stdin)
        stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        stdin.flush()

    def line(self) -> bytes:
        return self._pipe(self.process.stdout).readline()

    def hear(self) -> Any:
        return json.loads(self.line())

    def end(self) -> tuple[bytes, bytes, int]:
        """Close the input and wait: the rest of stdout, stderr, and how it ended."""
        out, err = self.process.communicate(timeout=WAIT_TIMEOUT)
        return out, err, self.process.returncode

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe


@contextmanager
def playing(*steps: Step, argv: list[str] | None = None) -> Iterator[Child]:
    child = Child(argv or command(*steps))
    try:
        yield child
    finally:
        child.process.kill()
        child.process.wait(WAIT_TIMEOUT)
        for pipe in (child.process.stdin, child.process.stdout, child.process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


def test_a_script_survives_being_written_and_read() -> None:
    assert {type(step) for step in EVERY_STEP} == set(scripted._KINDS.values())
    assert loads(dumps(EVERY_STEP)) == EVERY_STEP


def test_a_request_is_expected_and_answered() -> None:
    with playing(Expect("ask"), Reply({"a": 1}), Expect("more"), Reply(error={"code": 5})) as child:
        child.say({"id": 7, "method": "ask"})
        assert child.hear() == {"jsonrpc": "2.0", "id": 7, "result": {"a": 1}}
        child.say({"id": "x", "method": "more"})
        assert child.hear() == {"jsonrpc": "2.0", "id": "x", "error": {"code": 5}}
        assert child.end() == (b"", b"", 0)


def test_an_earlier_request_may_be_answered_later_and_twice() -> None:
    steps = (Expect("a"), Expect("b"), Reply(1), Reply(2, to="a"), Reply(3, to="a"))
    with playing(*steps) as child:
        child.say({"id": 1, "method": "a"}, {"id": 2, "method": "b"})
        answers = [child.hear() for _ in range(3)]
    assert [(answer["id"], answer["result"]) for answer in answers] == [(2, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize("message", [{"method": "other"}, 42, {"id": 1, "result": None}])
@pytest.mark.parametrize("step", [Expect("ask"), ExpectAnswer("x")])
def test_something_unexpected_ends_the_peer_with_a_complaint(step: Step, message: Any) -> None:
    with playing(step) as child:
        child.say(message)
        _, err, code = child.end()
    assert code == scripted.UNEXPECTED
    assert err.startswith(b"expected ")


def test_a_scripted_agent_can_ask_and_wait_for_the_answer() -> None:
    with playing(Send({"id": "q", "method": "ask"}), ExpectAnswer("q"), Exit(3)) as child:
        assert child.hear() == {"id": "q", "method": "ask"}
        child.say({"id": "q", "result": True})
        assert child.end()[2] == 3


def test_many_notifications_are_counted() -> None:
    with playing(Notify("one"), Notify("n", {"x": 1}, times=3), Notify("m", times=2)) as child:
        told = [child.hear() for _ in range(6)]
    assert told[0] == {"jsonrpc": "2.0", "method": "one"}
    assert [message["params"] for message in told[1:]] == [
        {"x": 1, "n": 0},
        {"x": 1, "n": 1},
        {"x": 1, "n": 2},
        {"n": 0},
        {"n": 1},
    ]


def test_bytes_are_sent_as_they_are() -> None:
    every = bytes(range(256))
    with playing(SendBytes(every, times=1000), Exit()) as child:
        assert child.end()[0] == every * 1000


def test_serving_echoes_requests_and_takes_notifications_silently() -> None:
    with playing(Serve()) as child:
        for n in range(3):
            child.say({"method": "news"}, {"id": n, "method": "echo", "params": [n]})
            assert child.hear() == {"jsonrpc": "2.0", "id": n, "result": [n]}
        assert child.end() == (b"", b"", 0)


def test_stderr_is_flooded_to_the_byte() -> None:
    with playing(FloodStderr(300_000), Exit()) as child:
        _, err, _ = child.end()
    assert len(err) == 300_000
    assert b"\n" in err


def test_a_closed_output_ends_while_the_peer_lives_on() -> None:
    with playing(CloseStdout(), Expect("die"), Exit(9)) as child:
        assert child.line() == b""
        assert child.process.poll() is None
        child.say({"method": "die"})
        assert child.end()[2] == 9


def test_a_closed_input_breaks_the_pipe_of_the_writer() -> None:
    with playing(CloseStdin(), Notify("closed"), GoSilent()) as child:
        child.hear()
        with pytest.raises(BrokenPipeError):
            child.say({"method": "anybody there"})


def test_a_silent_peer_outlives_its_input_but_not_a_signal() -> None:
    with playing(Notify("ready"), GoSilent()) as child:
        child.hear()
        stdin = child.process.stdin
        assert stdin is not None
        stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            child.process.wait(0.05)
        child.process.terminate()
        assert child.process.wait(WAIT_TIMEOUT) == -signal.SIGTERM


def test_a_peer_may_ignore_the_signal_to_end() -> None:
    with playing(IgnoreTerminate(), Notify("ready"), Serve()) as child:
        child.hear()
        child.process.terminate()
        child.say({"id": 1, "method": "still there"})
        assert child.hear()["id"] == 1


@pytest.mark.parametrize("step", [Die(), Die(signal.SIGSEGV)])
def test_a_peer_dies_of_the_signal_in_its_script(step: Die) -> None:
    with playing(Notify("last"), step) as child:
        out, _, code = child.end()
    assert b"last" in out
    assert code == -step.signal


@pytest.mark.parametrize("new_session", [True, False])
def test_a_grandchild_holds_the_output_open_after_the_death_of_the_peer(new_session: bool) -> None:
    with playing(SpawnGrandchild(new_session=new_session), Exit(1)) as child:
        pid = child.hear()["params"]["pid"]
        watch = os.pidfd_open(pid)
        try:
            assert child.process.wait(WAIT_TIMEOUT) == 1
            signal.pidfd_send_signal(watch, 0)
            assert (os.getsid(pid) == pid) is new_session
            signal.pidfd_send_signal(watch, signal.SIGKILL)
            assert child.line() == b""
        finally:
            os.close(watch)


@pytest.mark.parametrize("steps", [[Notify("n", times=100_000)], [Expect("never")]])
def test_a_peer_whose_other_side_has_gone_ends_in_peace(steps: list[Step]) -> None:
    with playing(*steps) as child:
        stdout, stdin = child.process.stdout, child.process.stdin
        assert stdout is not None and stdin is not None
        stdout.close()
        stdin.close()
        assert child.process.wait(WAIT_TIMEOUT) == 0
        stderr = child.process.stderr
        assert stderr is not None
        assert stderr.read() == b""


def test_a_scripted_agent_runs_as_a_module_and_reads_its_script_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(dumps([Notify("hello"), Exit(5)]))
    source = Path(scripted.__file__).parents[2]
    argv = [sys.executable, "-m", "dragoman.testing.scripted", str(path)]
    done = subprocess.run(
        argv,
        env={**os.environ, "PYTHONPATH": str(source)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=WAIT_TIMEOUT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (5, b"")
    assert json.loads(done.stdout)["method"] == "hello"


def test_a_lost_peer_ends_by_itself() -> None:
    program = (
        "import runpy, sys; m = runpy.run_path(sys.argv[1]);"
        "m['main'].__globals__['LIFE_LIMIT'] = 1; m['main'](sys.argv[2])"
    )
    argv = [sys.executable, "-I", "-S", "-c", program, scripted.__file__, dumps([GoSilent()])]
    with playing(argv=argv) as child:
        assert child.process.wait(WAIT_TIMEOUT) == -signal.SIGALRM
