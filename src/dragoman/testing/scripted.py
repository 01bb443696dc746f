"""A peer that follows a script, as a real child process.

Defines the steps of a script and the program that plays them: what it reads, sends and does wrong
is written in the test that uses it. It uses plain `json` and `os` and nothing of dragoman, so that
it is an independent check, and it starts as fast as the interpreter.

    stream = await spawn(command(Expect("initialize"), Reply({"ok": True}), Exit(3)))

By hand: ``python -m dragoman.testing.scripted SCRIPT``, where SCRIPT is the JSON that `dumps`
writes, or a file that contains it. After its last step a peer reads to the end of its input and
exits with 0. It never lives longer than `LIFE_LIMIT` seconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

LIFE_LIMIT = 120
"""Seconds after which a peer and its grandchildren always end, in case a test loses them."""

UNEXPECTED = 70
"""The exit code of a peer that received something its script does not expect; stderr says what."""

_READ_SIZE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Expect:
    """Read the next message, which must have this method. All later steps wait for it, so a
    test can send a notification to say "now"."""

    method: str


@dataclass(frozen=True, slots=True)
class ExpectAnswer:
    """Read the next message, which must be the response to the request with this id."""

    id: int | str


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that was expected last, or the last one with the method `to`. Use this
    step twice for a duplicate response, and after other steps for a late one."""

    result: Any = None
    to: str | None = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Notify:
    """Send a notification. If `times` is not 1, send it that often, and count in the param ``n``
    from 0."""

    method: str
    params: dict[str, Any] | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Send:
    """Send any JSON value as a line."""

    message: Any


@dataclass(frozen=True, slots=True)
class SendBytes:
    """Send these bytes, `times` times, without adding a newline."""

    data: bytes
    times: int = 1


@dataclass(frozen=True, slots=True)
class Serve:
    """Answer every request with its own params, until the end of the input."""


@dataclass(frozen=True, slots=True)
class FloodStderr:
    """Write this many bytes to stderr, in lines."""

    size: int


@dataclass(frozen=True, slots=True)
class CloseStdout:
    """Close the output and keep running."""


@dataclass(frozen=True, slots=True)
class CloseStdin:
    """Stop reading, so that a writer gets a broken pipe, and keep running."""


@dataclass(frozen=True, slots=True)
class IgnoreTerminate:
    """Ignore termination signals from now on."""


@dataclass(frozen=True, slots=True)
class SpawnGrandchild:
    """Leave a process behind that keeps stdout and stderr open, and send its pid in a
    notification ``scripted/grandchild``. Not on Windows."""

    new_session: bool = False


@dataclass(frozen=True, slots=True)
class GoSilent:
    """Stop reading and writing; the peer keeps running even when its input ends."""


@dataclass(frozen=True, slots=True)
class Exit:
    """Exit at once with this code."""

    code: int = 0


@dataclass(frozen=True, slots=True)
class Die:
    """Die from this signal."""

    signal: int = 9


Fault = FloodStderr | CloseStdout | CloseStdin | IgnoreTerminate | SpawnGrandchild | GoSilent

Step = Expect | ExpectAnswer | Reply | Notify | Send | SendBytes | Serve | Exit | Die | Fault

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in Step.__args__}


def dumps(steps: Sequence[Step]) -> str:
    """Return a script as JSON: a list of objects with the step's name next to its fields. Bytes are
    written as text, with one character for each byte."""
    script = [{"step": type(step).__name__, **asdict(step)} for step in steps]
    return json.dumps(script, default=lambda data: str(data, "latin-1"))


def loads(text: str) -> list[Step]:
    """Read the script that `dumps` wrote."""
    steps: list[Step] = []
    for fields in json.loads(text):
        kind = _KINDS[fields.pop("step")]
        if kind is SendBytes:
            fields["data"] = fields["data"].encode("latin-1")
        steps.append(kind(**fields))
    return steps


def command(*steps: Step) -> list[str]:
    """Return the command that plays these steps, for `dragoman.transports.spawn`.

    The file is run by its path, so neither dragoman nor anything else needs to be installed.
    """
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), dumps(steps)]


class _Peer:
    def __init__(self) -> None:
        self._lines = self._read_lines()
        self._asked: dict[str | None, Any] = {}

    def play(self, steps: Sequence[Step]) -> NoReturn:
        try:
            for step in steps:
                self._do(step)
            for _ in self._lines:
                pass
        except (BrokenPipeError, EOFError):
            # The other side disconnected, so the script ends.
            pass
        os._exit(0)

    def _do(self, step: Step) -> None:
        match step:
            case Expect(method=method):
                message = self._next()
                if not isinstance(message, dict) or message.get("method") != method:
                    _complain(f"expected {method}, got {message!r}")
                if "id" in message:
                    self._asked[method] = self._asked[None] = message["id"]
            case ExpectAnswer(id=id):
                message = self._next()
                if not isinstance(message, dict) or "method" in message or message.get("id") != id:
                    _complain(f"expected the answer to {id!r}, got {message!r}")
            case Reply(result=result, to=to, error=error):
                body = {"result": result} if error is None else {"error": error}
                _send({"jsonrpc": "2.0", "id": self._asked[to], **body})
            case Notify(method=method, params=params, times=times):
                for n in range(times):
                    _tell(method, params if times == 1 else {**(params or {}), "n": n})
            case Send(message=message):
                _send(message)
            case SendBytes(data=data, times=times):
                _write(1, data * times)
            case Serve():
                for message in map(json.loads, self._lines):
                    if "id" in message and "method" in message:
                        answer = {"id": message["id"], "result": message.get("params")}
                        _send({"jsonrpc": "2.0", **answer})
            case FloodStderr(size=size):
                line = b"the same complaint once more\n"
                _write(2, (line * (size // len(line) + 1))[:size])
            case CloseStdout():
                os.close(1)
            case CloseStdin():
                os.close(0)
            case IgnoreTerminate():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            case SpawnGrandchild(new_session=new_session):
                _tell("scripted/grandchild", {"pid": _leave_grandchild(new_session=new_session)})
            case GoSilent():
                _stay()
            case Exit(code=code):
                os._exit(code)
            case Die(signal=number):
                os.kill(os.getpid(), number)

    def _next(self) -> Any:
        for line in self._lines:
            return json.loads(line)
        raise EOFError

    def _read_lines(self) -> Iterator[bytes]:
        held = b""
        while data := os.read(0, _READ_SIZE):
            *lines, held = (held + data).split(b"\n")
            yield from lines


def _send(message: Any) -> None:
    _write(1, json.dumps(message).encode() + b"\n")


def _tell(method: str, params: dict[str, Any] | None) -> None:
    body = {} if params is None else {"params": params}
    _send({"jsonrpc": "2.0", "method": method, **body})


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _complain(text: str) -> NoReturn:
    _write(2, text[:500].encode() + b"\n")
    os._exit(UNEXPECTED)


def _limit_life() -> None:
    if hasattr(signal, "alarm"):
        signal.alarm(LIFE_LIMIT)


def _stay() -> NoReturn:
    while True:
        signal.pause()


def _leave_grandchild(*, new_session: bool) -> int:
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Alarms are not inherited.
        _limit_life()
        if new_session:
            os.setsid()
        for fd in (0, ready, done):
            os.close(fd)
        _stay()
    os.close(done)
    # Its pid is reported when it has its session, and not before.
    os.read(ready, 1)
    os.close(ready)
    return pid


def main(script: str) -> NoReturn:
    """Play a script given as JSON or as the path of a file that contains it."""
    _limit_life()
    if not script.lstrip().startswith("["):
        with open(script, encoding="utf-8") as file:
            script = file.read()
    _Peer().play(loads(script))


if __name__ == "__main__":
    main(sys.argv[1])
