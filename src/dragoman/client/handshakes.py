"""Why a handshake failed, for the person who has to mend it.

Owns the sentence: what happened, what the program said, what is probably wrong and what to do.
It opens nothing: `connecting` does, and asks here when that fails.
"""

from __future__ import annotations

from typing import Final

from dragoman.errors import (
    AuthRequired,
    CallTimeout,
    ConnectionLost,
    DragomanError,
    HandshakeFailed,
    InvalidAnswer,
    LineTooLong,
    ProcessExited,
    RemoteError,
)
from dragoman.transports.base import Stream
from dragoman.wire.peer import Noise, Stray

KEPT_NOISE: Final = 8
"""Lines of noise that are kept for the sentence. A program that shows its usage shows it first."""

SHOWN_SIZE: Final = 400
"""Characters of a program's own words in the sentence."""

_ENTRY: Final = (
    "agents speak their protocol only when they are started for it, often with an argument such as "
    "--acp, acp or app-server: look into the program's own help"
)


class Eavesdropper:
    """Remembers what a program printed that is no message, while it should shake hands."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def hear(self, noise: Noise | Stray) -> None:
        if len(self.lines) < KEPT_NOISE:
            self.lines.append(noise.line.decode("utf-8", "replace")[:SHOWN_SIZE])


def explain(
    error: DragomanError, what: str, stream: Stream | None, noise: list[str]
) -> DragomanError:
    """The error to raise instead of `error`; the same where it is clear by itself."""
    match error:
        case AuthRequired():
            return error
        case ProcessExited():
            happened = f"{what} {_end(error)} before it answered"
            cause = f"It was probably started in the wrong way: {_ENTRY}."
            if error.signal is not None:
                cause = "Somebody ended it, or it crashed: start it by hand to see more."
        case CallTimeout():
            happened = f"{what} did not answer within {error.timeout:g} s"
            cause = _silence(noise)
        case LineTooLong():
            happened = f"{what} sent a line that is too long to be an answer"
            cause = f"It is probably no agent, or was started in the wrong way: {_ENTRY}."
        case ConnectionLost():
            happened = f"{what} ended the connection before it answered"
            cause = "Whoever listens there is probably no agent."
        case RemoteError():
            happened = f"{what} refused the handshake: {error}"
            cause = "It probably speaks another dialect: name it with `dialect`."
        case InvalidAnswer():
            happened = f"{what} answered with something that is no answer: {error}"
            cause = "It is probably no agent."
        case _:
            return error
    tail = _tail(error, stream)
    said = f"; on stderr it last said: {tail.strip()[-SHOWN_SIZE:]}" if tail.strip() else ""
    printed = f"; it printed, which is no message: {' / '.join(noise)[:SHOWN_SIZE]}"
    exited = error if isinstance(error, ProcessExited) else None
    return HandshakeFailed(
        f"{happened}{printed if noise else ''}{said}. {cause}",
        exit_code=exited.exit_code if exited else None,
        signal=exited.signal if exited else None,
        stderr_tail=tail,
        noise=noise,
    )


def _end(error: ProcessExited) -> str:
    if error.signal is not None:
        return f"was killed by signal {error.signal}"
    return "exited" if error.exit_code is None else f"exited with code {error.exit_code}"


def _silence(noise: list[str]) -> str:
    if noise:
        return f"It talks to a person and not to a program: {_ENTRY}."
    return (
        "Either it waits for something, such as a login, or it was started in a way in which it "
        f"does not listen: {_ENTRY}. If it is only slow, give it more time: "
        "`budgets=Budgets(initialize=…)`."
    )


def _tail(error: DragomanError, stream: Stream | None) -> str:
    if isinstance(error, ProcessExited):
        return error.stderr_tail
    # Only a program has one, and a stream to it knows it also when something else went wrong.
    tail = getattr(stream, "stderr_tail", None)
    return str(tail()) if callable(tail) else ""
