"""Every error dragoman raises on purpose, in one tree.

It owns the classes and the three answers each gives: whose fault it is (`blame`), whether the
same thing may be tried again (`retryable`), and whether the other side may already have acted
(`may_have_run`). It imports nothing of dragoman, so every room may use it.

    DragomanError
    ├── UsageError                  the caller asked for something that cannot be done here
    │   ├── RequestInProgress       a second request on a connection that allows one at a time
    │   └── MessageTooLong          an outbound line over the limit; nothing was written
    ├── SpawnError                  a program could not be started
    │   └── ProgramNotFound         there is no such program
    ├── ConnectionLost              the connection is over; every pending call gets one of these
    │   ├── ConnectionClosed        by us
    │   ├── ConnectionEnded         by them: end of stream
    │   │   └── ProcessExited       by them: the process is gone
    │   ├── ConnectionBroken        by the world: a read or write failed
    │   ├── LineTooLong             by them: a line over the size limit
    │   └── Overflow                a bounded buffer was full and nobody emptied it
    ├── CallError                   one call failed; the connection goes on
    │   ├── CallTimeout             no answer in time
    │   ├── CallCancelled           the other side says it was cancelled
    │   ├── RemoteError             the other side answered with an error
    │   └── InvalidAnswer           the other side answered with something that is no answer
    └── ProtocolMismatch            the two sides have no common protocol version

`error_class` is the stable name of a kind of failure: telemetry, exit codes and other languages
use it, so it never changes once published.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Literal, Self

Blame = Literal["us", "peer", "world"]


class DragomanError(Exception):
    """The root. `str(error)` is a sentence for people; the attributes are for programs."""

    error_class: ClassVar[str] = "error"
    blame: ClassVar[Blame] = "us"
    retryable: ClassVar[bool] = False
    may_have_run: bool = False

    def fresh(self) -> Self:
        """A copy to raise elsewhere, so that tracebacks of different callers do not mix."""
        twin = copy.copy(self)
        twin.__traceback__ = None
        twin.__cause__ = self.__cause__
        twin.__context__ = None
        return twin


class UsageError(DragomanError):
    """The caller asked for something that cannot be done here; nothing was sent."""

    error_class = "usage"


class RequestInProgress(UsageError):
    """A half-duplex connection has one active request at a time, and it has one."""

    error_class = "request_in_progress"


class MessageTooLong(UsageError):
    """An outbound message is over the line limit. Nothing was written."""

    error_class = "message_too_long"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the message has {size} bytes, and the limit for a line is {limit}")
        self.size = size
        self.limit = limit


class SpawnError(DragomanError):
    """A program could not be started."""

    error_class = "spawn_failed"
    blame = "world"


class ProgramNotFound(SpawnError):
    """There is no such program on the search path."""

    error_class = "program_not_found"

    def __init__(self, program: str, detail: str = "") -> None:
        super().__init__(f"the program {program!r} was not found{detail and ': ' + detail}")
        self.program = program


class ConnectionLost(DragomanError):
    """The connection is over. A call that was waiting may or may not have run."""

    error_class = "connection_lost"
    retryable = True


class ConnectionClosed(ConnectionLost):
    """We closed it."""

    error_class = "closed"

    def __init__(self, message: str = "the connection was closed on this side") -> None:
        super().__init__(message)


class ConnectionEnded(ConnectionLost):
    """They ended it: the stream came to its end."""

    error_class = "ended"
    blame = "peer"

    def __init__(self, message: str = "the other side ended the stream") -> None:
        super().__init__(message)


class ProcessExited(ConnectionEnded):
    """The process on the other side is gone."""

    error_class = "process_exited"

    def __init__(
        self, *, exit_code: int | None, signal: int | None = None, stderr_tail: str = ""
    ) -> None:
        if signal is not None:
            how = f"was killed by signal {signal}"
        elif exit_code is not None:
            how = f"exited with code {exit_code}"
        else:
            how = "exited"
        tail = stderr_tail.strip()
        super().__init__(f"the process {how}" + (f"; it last said: {tail[-400:]}" if tail else ""))
        self.exit_code = exit_code
        self.signal = signal
        self.stderr_tail = stderr_tail


class ConnectionBroken(ConnectionLost):
    """The world broke it: reading or writing failed."""

    error_class = "broken"
    blame = "world"


class LineTooLong(ConnectionLost):
    """They sent a line over the limit. The stream cannot be trusted after it."""

    error_class = "line_too_long"
    blame = "peer"
    retryable = False

    def __init__(self, limit: int) -> None:
        super().__init__(f"the other side sent a line of more than {limit} bytes")
        self.limit = limit


class Overflow(ConnectionLost):
    """A bounded buffer was full and stayed full.

    Raised to a consumer that did not read its messages (only that consumer is cut off), and for
    the whole connection when the other side does not read what we write.
    """

    error_class = "overflow"


class CallError(DragomanError):
    """One call failed. The connection goes on."""

    error_class = "call_failed"
    blame = "peer"
    may_have_run = True


class CallTimeout(CallError):
    """No answer came in time. The other side may still be working on it."""

    error_class = "timeout"
    retryable = True

    def __init__(self, method: str, timeout: float) -> None:
        super().__init__(f"no answer to {method} within {timeout:g} s")
        self.method = method
        self.timeout = timeout


class RemoteError(CallError):
    """The other side answered with an error object; a handler may raise it to send one."""

    error_class = "remote_error"

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


class CallCancelled(RemoteError):
    """The other side says that the request was cancelled."""

    error_class = "cancelled"


class InvalidAnswer(CallError):
    """An answer came, but it is not one that the protocol allows."""

    error_class = "invalid_answer"


class ProtocolMismatch(DragomanError):
    """The two sides have no protocol version in common."""

    error_class = "protocol_mismatch"
    blame = "peer"
