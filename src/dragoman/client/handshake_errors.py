"""Explain why a handshake failed: build the error with the cause, the output and a remedy.

`client.connect` and `client.acp.client` open the connection and use this when that fails.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final

from dragoman.dialects.acp import v1 as acp
from dragoman.errors import (
    AuthRequired,
    CallTimeout,
    ConnectionLost,
    DragomanError,
    HandshakeFailed,
    InvalidAnswer,
    LineTooLong,
    ProcessExited,
    ProtocolMismatch,
    RemoteError,
)
from dragoman.transports.base import Stream
from dragoman.wire import codes
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE
from dragoman.wire.peer import Noise, Stray

KEPT_NOISE: Final = 8
"""Maximum number of lines of noise to keep for the message. A program that prints its usage prints
it first."""

SHOWN_SIZE: Final = 400
"""Maximum length of a program's output in the message, in characters."""

OWN_ERROR: Final = re.compile(
    r"Traceback \(most recent call last\)|^ *File \"[^\"]+\", line \d+$|was never awaited$", re.M
)
"""Matches the stderr of a Python program that ended because of its own bug, such as a syntax error.
The command line is then not the problem."""

SHOWN_TRACEBACK_SIZE: Final = 1200
"""Maximum length of a traceback in the message, in characters: its last lines have the location and
the exception."""

_ENTRY: Final = (
    "agents speak their protocol only when they are started for it, often with an argument such as "
    "--acp, acp or app-server: see the program's own help"
)


_OWN_ERROR: Final = "The error is in the program itself."

SHOWN_LAUNCH: Final = 160
"""Maximum length of a command line in an error, in characters: enough to recognise it."""


class HandshakeWatch:
    """Remembers, during the handshake, the first lines of the program's output that are not
    messages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def hear(self, noise: Noise | Stray) -> None:
        if len(self.lines) < KEPT_NOISE:
            self.lines.append(noise.line.decode("utf-8", "replace")[:SHOWN_SIZE])


def shown(command: Sequence[str]) -> str:
    """Return a command line as shown in errors: quoted, and shortened to `SHOWN_LAUNCH`."""
    words = shlex.join(command)
    return f"`{words if len(words) <= SHOWN_LAUNCH else f'{words[:SHOWN_LAUNCH]}…'}`"


def explain(
    error: DragomanError, what: str, stream: Stream | None, noise: list[str], *, named: str = ""
) -> DragomanError:
    """Return the error to raise instead of `error`, or `error` itself if it needs no explanation.
    `what` names the agent, `noise` has the lines of its output that are not messages, and `named`
    is the dialect that the caller named, if any."""
    match error:
        case AuthRequired():
            return error
        case ProcessExited():
            happened = f"{what} {_end(error)} before it answered"
            cause = f"It was probably started incorrectly: {_ENTRY}."
            if OWN_ERROR.search(error.stderr_tail):
                cause = _OWN_ERROR
            elif error.exit_code == 0 and "python" in what:
                cause += " If it is an agent made with dragoman, `agent.run()` is missing."
            if error.signal is not None:
                cause = "It was killed, or it crashed: start it by hand to see more."
        case CallTimeout():
            happened = f"{what} did not answer within {error.timeout:g} s"
            cause = _silence(noise)
        case LineTooLong():
            happened = f"{what} answered with a line of more than {error.limit} bytes, the limit"
            cause = f"It is probably not an agent, or was started incorrectly: {_ENTRY}."
            if error.limit < DEFAULT_MAX_LINE_SIZE:
                cause = (
                    "It may need a larger `max_line_size`, which sets this limit: in the settings, "
                    "in the peer's descriptor, or as an option in a program. The default is "
                    f"{DEFAULT_MAX_LINE_SIZE}."
                )
        case ConnectionLost():
            happened = f"{what} ended the connection before it answered"
            cause = "The program that listens there is probably not an agent."
        case RemoteError(code=codes.INTERNAL_ERROR):
            happened = f"{what} answered the handshake with an error: {error}"
            cause = ""
        case RemoteError() if named:
            happened = f"{what} refused the handshake: {error}"
            cause = (
                f"If it does not speak {named}, name another dialect, with --dialect NAME on the "
                "command line, or none, so that it is detected."
            )
        case RemoteError():
            happened = f"{what} refused the handshake: {error}"
            cause = (
                "It probably speaks another dialect: name it, as dialect=NAME in a program or with "
                "--dialect NAME on the command line."
            )
        case InvalidAnswer():
            happened = f"{what} failed the handshake: {error}"
            cause = "It is probably not an agent."
        case _:
            return error
    tail = _tail(error, stream)
    shown_size = SHOWN_TRACEBACK_SIZE if OWN_ERROR.search(tail) else SHOWN_SIZE
    end = tail.strip()[-shown_size:].rstrip(".")
    said = f"; the end of its stderr: {end}" if end else ""
    printed = f"; it printed text that is not a message: {' / '.join(noise)[:SHOWN_SIZE]}"
    exited = error if isinstance(error, ProcessExited) else None
    failed = HandshakeFailed(
        f"{happened}{printed if noise else ''}{said}. {cause}".rstrip(),
        exit_code=exited.exit_code if exited else None,
        signal=exited.signal if exited else None,
        stderr_tail=tail,
        noise=noise,
        timed_out=isinstance(error, CallTimeout),
    )
    if cause == _OWN_ERROR:
        failed.hint = "fix the program: its stderr above says where"
    return failed


def greeted_in_vain(
    error: DragomanError, refused: Sequence[str], unanswered: Sequence[str]
) -> DragomanError:
    """Return the error of the first handshake, with the names of the other dialects whose
    handshakes the program refused or did not answer. An error that is not a `HandshakeFailed` is
    returned unchanged."""
    if not isinstance(error, HandshakeFailed):
        return error
    message = str(error)
    if refused:
        message += f" It also refused the handshakes of {', '.join(refused)}."
    if unanswered:
        message += f" It did not answer the handshakes of {', '.join(unanswered)}."
    told = HandshakeFailed(
        message,
        exit_code=error.exit_code,
        signal=error.signal,
        stderr_tail=error.stderr_tail,
        noise=error.noise,
        timed_out=error.timed_out,
    )
    told.hint = error.hint
    return told


_VERSIONS: Final = (
    f"use a version of the agent that speaks ACP {acp.PROTOCOL_VERSION}, or a newer dragoman; "
    "`--any-version` tries this agent anyway"
)
"""The remedy if the agent speaks a newer version of the protocol than we do, or refuses ours."""


def other_version(version: str, dialect: str | None) -> ProtocolMismatch:
    """Return the error for an agent that responded with another version of ACP. If the response is
    invalid, `version` is not a number but the reason. `dialect` is the dialect that the response
    shows, if any."""
    ours = acp.PROTOCOL_VERSION
    if not version.isdecimal():
        return ProtocolMismatch(
            f"the agent's response to the handshake is not that of ACP version {ours}: {version}",
            dialect=dialect,
        )
    if int(version) < ours:
        return ProtocolMismatch(
            f"the agent answered with ACP version {version}, but dragoman speaks version {ours}",
            dialect=dialect,
            version=version,
        )
    return ProtocolMismatch(
        f"this agent speaks only ACP version {version}, but dragoman speaks version {ours}",
        dialect=dialect,
        version=version,
        remedy=_VERSIONS,
    )


def refused_version(error: RemoteError) -> ProtocolMismatch:
    """Return the error for an agent that refuses our version of ACP."""
    return ProtocolMismatch(
        f"the agent refused ACP version {acp.PROTOCOL_VERSION}, the only one that dragoman "
        f"speaks: {error}",
        remedy=_VERSIONS,
    )


def only_repeats() -> HandshakeFailed:
    """Return the error for a program that sent our request back to us."""
    return HandshakeFailed(
        "the program sent the handshake request back instead of answering it: it only repeats its "
        "input and is not an agent"
    )


def _end(error: ProcessExited) -> str:
    if error.signal is not None:
        return f"was killed by signal {error.signal}"
    return "exited" if error.exit_code is None else f"exited with code {error.exit_code}"


def _silence(noise: list[str]) -> str:
    if noise:
        return f"It probably expects a person at a terminal, not a program: {_ENTRY}."
    return (
        "Either it is waiting for something, such as a login, or it was not started as an agent: "
        f"{_ENTRY}. If it is only slow, give it more time: `timeouts.initialize` in the settings, "
        "or `budgets=Budgets(initialize=…)` in a program."
    )


def _tail(error: DragomanError, stream: Stream | None) -> str:
    if isinstance(error, ProcessExited):
        return error.stderr_tail
    # Any other error: only the stream to a program has a stderr.
    tail = getattr(stream, "stderr_tail", None)
    return str(tail()) if callable(tail) else ""
