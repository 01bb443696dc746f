"""Every error dragoman raises on purpose, in one tree.

It owns the classes and the three answers each gives: whose fault it is (`blame`), whether the
same thing may be tried again (`retryable`), and whether the other side may already have acted
(`may_have_run`). It imports nothing of dragoman, so every room may use it.

    DragomanError
    ├── UsageError                  the caller asked for something that cannot be done here
    │   ├── RequestInProgress       a second request on a connection that allows one at a time
    │   ├── MessageTooLong          an outbound line over the limit; nothing was written
    │   ├── AddressInUse            somebody else already listens there
    │   ├── Unsupported             the other side did not say that it can do this
    │   ├── TurnInProgress          a second prompt in a session whose turn is still running
    │   ├── SessionUnusable         the session was given up; open another
    │   ├── UnknownSession          no stored session has this name or id
    │   ├── UnknownJob              no job has this id
    │   ├── FrontMatterInvalid      a file's front matter cannot be read, or edited safely
    │   ├── ClientFileInvalid       another program's configuration cannot be edited safely
    │   ├── DelegationInvalid       a value of delegate_to names no peer with such a role
    │   ├── UnknownPeer             no peer has this name
    │   ├── UnknownRole             no peer at all claims this role
    │   ├── RoleNotClaimed          the peer does not claim this role
    │   ├── NoPeer                  nobody can be asked for a role; every peer has its reason
    │   ├── WrongLaunch             a command line that is known not to be an agent's
    │   └── ConfigInvalid           a configuration or descriptor that cannot be used
    ├── SpawnError                  a program could not be started
    │   ├── ProgramNotFound         there is no such program
    │   └── NotInstalled            none of the ways to start a peer is there, or it cannot run here
    ├── ConnectError                a connection could not be opened; nothing was sent
    ├── ConnectionLost              the connection is over; every pending call gets one of these
    │   ├── ConnectionClosed        by us
    │   ├── ConnectionEnded         by them: end of stream
    │   │   └── ProcessExited       by them: the process is gone
    │   ├── ConnectionBroken        by the world: a read or write failed
    │   ├── LineTooLong             by them: a line over the size limit
    │   └── Overflow                a bounded buffer was full and nobody emptied it
    ├── CallError                   one call failed; the connection goes on
    │   ├── CallTimeout             no answer in time
    │   │   └── BudgetExceeded      a turn used up one of its time budgets
    │   ├── RemoteError             the other side answered with an error
    │   │   ├── CallCancelled       it says that the request was cancelled
    │   │   └── AuthRequired        it wants a login first
    │   └── InvalidAnswer           the other side answered with something that is no answer
    ├── ServiceError                a file or terminal service did not do what the peer asked for
    │   ├── ArgumentInvalid         an argument that can never be right: a relative path, a NUL byte
    │   ├── NotPermitted            whoever guards what the peer may do did not allow it
    │   ├── PathRefused             the path leaves the workspace, or names no ordinary file
    │   ├── FileMissing             there is no such file in the workspace
    │   ├── NotText                 the file is not UTF-8 text
    │   ├── TooLarge                more than the service reads or writes at once
    │   ├── FileFailed              by the world: the disk is full, read-only or broken
    │   ├── TerminalUnknown         no terminal has this id, or it was released
    │   └── TooManyTerminals        the peer has as many terminals as it may have
    ├── BrokerError                 a warm broker did not do what it is for
    │   ├── BrokerBusy              as many requests wait there as may; nothing was sent on
    │   └── BrokerUnavailable       no broker can be had here; a direct start may still work
    ├── StoreError                  the file of sessions and jobs cannot be used as it stands
    │   ├── StoreConflict           what should be stored does not fit what is stored
    │   ├── StoreBusy               another process holds it for too long
    │   ├── StoreFull               by the world: no space is left, or no more may be used
    │   ├── StoreRefused            by the world: the file or its folder may not be written or read
    │   ├── StoreCorrupt            the file is damaged, or no file of ours
    │   └── StoreTooNew             a newer dragoman has written it
    ├── IsolationFailed             a worktree of its own for a job could not be made or used
    ├── ProtocolMismatch            the two sides have no common protocol version
    └── HandshakeFailed             the other side did not answer as an agent does

`error_class` is the stable name of a kind of failure: telemetry, exit codes and other languages
use it, so it never changes once published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

Blame = Literal["us", "peer", "world"]

SHOWN_DETAILS_SIZE = 500
"""Characters of what an agent adds to an error that are shown: enough for a path and a hint."""


class DragomanError(Exception):
    """The root. `str(error)` is a sentence for people; the attributes are for programs."""

    error_class: ClassVar[str] = "error"
    blame: ClassVar[Blame] = "us"
    retryable: ClassVar[bool] = False
    may_have_run: bool = False

    def fresh(self) -> Self:
        """A copy to raise elsewhere, so that tracebacks of different callers do not mix."""
        # Not `copy.copy`, which calls the constructor again with `args`: here that is the finished
        # sentence, and not what the constructors of this tree take.
        twin = type(self).__new__(type(self))
        twin.args = self.args
        twin.__dict__.update(self.__dict__)
        twin.__cause__ = self.__cause__
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


class AddressInUse(UsageError):
    """Somebody else already listens on this address. Connecting to it may be what is wanted."""

    error_class = "address_in_use"


class Unsupported(UsageError):
    """The other side did not say that it can do this, so it was not asked."""

    error_class = "unsupported"


class TurnInProgress(UsageError):
    """A session has one turn at a time: real agents do six different things with a second one."""

    error_class = "turn_in_progress"


class SessionUnusable(UsageError):
    """The session was given up after a cancel that was never answered; open another."""

    error_class = "session_unusable"


class UnknownSession(UsageError):
    """No stored session has this name or id, or what it had at its peer is gone."""

    error_class = "unknown_session"


class UnknownJob(UsageError):
    """No job has this id; it may have been pruned."""

    error_class = "unknown_job"


class FrontMatterInvalid(UsageError):
    """A file's front matter cannot be read, or not be edited safely; the file is untouched."""

    error_class = "front_matter_invalid"


class ClientFileInvalid(UsageError):
    """Another program's configuration cannot be read, or not be edited safely; it is untouched.

    `remedy` says what would help.
    """

    error_class = "client_file_invalid"

    def __init__(
        self,
        path: str,
        problem: str,
        *,
        remedy: str = "mend it by hand, or put the entry there yourself: it is what is printed "
        "without --write",
    ) -> None:
        super().__init__(f"{path}: {problem}; nothing was changed")
        self.path = path
        self.problem = problem
        self.remedy = remedy


class DelegationInvalid(UsageError):
    """A value of `delegate_to` does not name a peer and one of its roles.

    `remedy` says what would help.
    """

    error_class = "delegation_invalid"

    def __init__(self, value: str, problem: str, *, remedy: str = "") -> None:
        super().__init__(f"{_shown(value)} cannot be delegated to: {problem}")
        self.value = value
        self.remedy = remedy


class UnknownPeer(UsageError):
    """No peer has this name. `nearest` are names that look like it."""

    error_class = "unknown_peer"

    def __init__(self, name: str, nearest: Sequence[str] = ()) -> None:
        advice = (
            f"did you mean {' or '.join(nearest)}?"
            if nearest
            else "`dragoman peers` lists those there are, and `dragoman peers add` adds one"
        )
        super().__init__(f"there is no peer {_shown(name)}; {advice}")
        self.name = name
        self.nearest = tuple(nearest)


class UnknownRole(UsageError):
    """No peer at all claims this role. The sentence lists the roles that are claimed."""

    error_class = "unknown_role"


class RoleNotClaimed(UsageError):
    """The peer does not claim this role. Nothing was started."""

    error_class = "role_not_claimed"

    def __init__(self, peer: str, role: str, claimed: Sequence[str] = ()) -> None:
        super().__init__(
            f"{peer} does not claim the role {_shown(role)}; "
            f"it claims {', '.join(claimed) if claimed else 'none'}"
        )
        self.peer = peer
        self.role = role
        self.claimed = tuple(claimed)


class NoPeer(UsageError):
    """Nobody can be asked for a role. `reasons` has one for every peer. Nothing was started."""

    error_class = "no_peer"
    over_budget: bool = False
    """Whether a limit on what may be spent is all that is in the way."""

    def __init__(self, role: str, reasons: Mapping[str, str], *, over_budget: bool = False) -> None:
        told = "".join(f"; {peer}: {why}" for peer, why in reasons.items())
        super().__init__(f"nobody can be asked for {role}{told}")
        self.role = role
        self.reasons = dict(reasons)
        self.over_budget = over_budget


class WrongLaunch(UsageError):
    """A command line that people try and that does not start an agent. Nothing was started."""

    error_class = "wrong_launch"

    def __init__(self, command: str, effect: str, remedy: str) -> None:
        super().__init__(f"`{command}` was not started: {effect}. Use {remedy}")
        self.command = command
        self.effect = effect
        self.remedy = remedy


class ConfigInvalid(UsageError):
    """A configuration file, a descriptor or a setting cannot be used as it stands.

    `origin` names the file, variable or flag, and `key` the place in it.
    """

    error_class = "config_invalid"

    def __init__(self, origin: str, problem: str, *, key: str = "") -> None:
        super().__init__(f"{origin}: {key + ': ' if key else ''}{problem}")
        self.origin = origin
        self.problem = problem
        self.key = key


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


class NotInstalled(SpawnError):
    """None of the ways to start a peer is there, or what it needs to run is not.

    `looked_for` is what was looked for in vain, and `remedy` the command that helps.
    """

    error_class = "not_installed"

    def __init__(
        self, peer: str, problem: str, *, remedy: str = "", looked_for: Sequence[str] = ()
    ) -> None:
        super().__init__(f"{peer} cannot be started: {problem}{remedy and '; ' + remedy}")
        self.peer = peer
        self.remedy = remedy
        self.looked_for = tuple(looked_for)


class ConnectError(DragomanError):
    """A connection could not be opened: nobody listens, no answer in time, or not let in.

    `status` is the HTTP status of a refusal, where one was given.
    """

    error_class = "connect_failed"
    blame = "world"
    retryable = True

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


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


class BudgetExceeded(CallTimeout):
    """A turn used up one of its time budgets. `budget` names it."""

    def __init__(self, budget: str, timeout: float) -> None:
        super().__init__("the prompt", timeout)
        self.args = (f"the turn used up its budget for {budget}: {timeout:g} s",)
        self.budget = budget


class RemoteError(CallError):
    """The other side answered with an error object; a handler may raise it to send one."""

    error_class = "remote_error"

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        told = f"{message} ({code})"
        # Real agents say "Internal error" and put what happened beside it.
        details = data.get("details") if isinstance(data, dict) else None
        if isinstance(details, str) and details:
            told += f": {details[:SHOWN_DETAILS_SIZE]}"
        super().__init__(told)
        self.code = code
        self.message = message
        self.data = data


class CallCancelled(RemoteError):
    """The other side says that the request was cancelled."""

    error_class = "cancelled"


class AuthRequired(RemoteError):
    """The other side wants a login first.

    `methods` are the ways it offers, and `hint` says what to do, with the command where one is
    known. dragoman never logs in by itself and sends no secret over the protocol.
    """

    error_class = "auth_required"
    may_have_run = False

    def __init__(
        self,
        message: str = "Authentication required",
        *,
        methods: Sequence[Any] = (),
        hint: str = "",
        data: Any = None,
    ) -> None:
        super().__init__(-32000, message, data)
        if hint:
            self.args = (f"{message} ({self.code}); {hint}",)
        self.methods = tuple(methods)
        self.hint = hint


class InvalidAnswer(CallError):
    """An answer came, but it is not one that the protocol allows."""

    error_class = "invalid_answer"


class ServiceError(DragomanError):
    """A service we offer to the peer did not do what it asked for; nothing was changed."""

    error_class = "service_failed"
    blame: ClassVar[Blame] = "peer"


class ArgumentInvalid(ServiceError):
    """An argument that can never be right: a relative path, a NUL byte, a negative line."""

    error_class = "argument_invalid"


class NotPermitted(ServiceError):
    """Whoever guards what the peer may do did not allow it."""

    error_class = "not_permitted"

    def __init__(self, what: str, reason: str = "") -> None:
        super().__init__(f"{_shown(what)} is not permitted{': ' if reason else ''}{reason}")
        self.what = what
        self.reason = reason


class PathRefused(ServiceError):
    """The path leaves the workspace, or names something that is no ordinary file."""

    error_class = "path_refused"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{_shown(path)} is refused: {reason}")
        self.path = path
        self.reason = reason


class FileMissing(ServiceError):
    """There is no such file in the workspace."""

    error_class = "file_missing"

    def __init__(self, path: str) -> None:
        super().__init__(f"{_shown(path)} does not exist")
        self.path = path


class NotText(ServiceError):
    """The file, or the part of it that was asked for, is not UTF-8 text."""

    error_class = "not_text"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{_shown(path)} is not UTF-8 text: {detail}")
        self.path = path


class TooLarge(ServiceError):
    """More than the service reads or writes at once."""

    error_class = "too_large"

    def __init__(self, path: str, limit: int, detail: str) -> None:
        super().__init__(f"{_shown(path)} is too large: {detail}, and the limit is {limit} bytes")
        self.path = path
        self.limit = limit


class FileFailed(ServiceError):
    """The operating system would not read or write: disk full, read-only, no permission."""

    error_class = "file_failed"
    blame = "world"

    def __init__(self, path: str, detail: str, errno: int | None = None) -> None:
        super().__init__(f"{_shown(path)}: {detail}")
        self.path = path
        self.errno = errno


class TerminalUnknown(ServiceError):
    """No terminal has this id: it was never made here, or it was released."""

    error_class = "terminal_unknown"

    def __init__(self, terminal_id: str) -> None:
        super().__init__(f"there is no terminal {_shown(terminal_id)}")
        self.terminal_id = terminal_id


class TooManyTerminals(ServiceError):
    """The peer has as many terminals as it may have; releasing one makes room."""

    error_class = "too_many_terminals"
    retryable = True

    def __init__(self, limit: int) -> None:
        super().__init__(f"all {limit} terminals are in use; release one first")
        self.limit = limit


class BrokerError(DragomanError):
    """A warm broker did not do what it is for. The peer behind it is not to blame."""

    error_class = "broker_failed"
    blame: ClassVar[Blame] = "world"


class BrokerBusy(BrokerError):
    """As many requests wait at the broker as may; this one was not passed on to the peer."""

    error_class = "broker_busy"
    retryable = True


class BrokerUnavailable(BrokerError):
    """No broker can be had here: it cannot be started or reached. Nothing was prompted.

    `log_tail` is what a broker that did not start last wrote into its log.
    """

    error_class = "broker_unavailable"
    retryable = True

    def __init__(self, message: str, *, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail


class StoreError(DragomanError):
    """The file in which sessions and jobs are kept cannot be used. `path` names it.

    The sentence says what happened and what to do.
    """

    error_class = "store_failed"
    blame: ClassVar[Blame] = "world"

    def __init__(self, path: str, problem: str, *, remedy: str = "") -> None:
        super().__init__(f"{path}: {problem}{remedy and '; ' + remedy}")
        self.path = path
        self.problem = problem
        self.remedy = remedy


class StoreConflict(StoreError):
    """What should be stored does not fit what is stored; nothing was changed."""

    error_class = "store_conflict"
    blame = "us"


class StoreBusy(StoreError):
    """Another process has held the file for longer than anybody should."""

    error_class = "store_busy"
    retryable = True


class StoreFull(StoreError):
    """There is no space left for it, or no more may be used."""

    error_class = "store_full"
    retryable = True


class StoreRefused(StoreError):
    """The file or its folder may not be written or read by this user."""

    error_class = "store_refused"


class StoreCorrupt(StoreError):
    """The file is damaged, or it is no file of ours. It is left as it is."""

    error_class = "store_corrupt"


class StoreTooNew(StoreError):
    """A newer dragoman has written the file. It is left as it is."""

    error_class = "store_too_new"


class IsolationFailed(DragomanError):
    """A worktree of its own for a job could not be made or used. The workspace is untouched."""

    error_class = "isolation_failed"
    blame = "world"

    def __init__(self, doing: str, problem: str) -> None:
        super().__init__(f"{doing} failed: {problem}")
        self.problem = problem


class ProtocolMismatch(DragomanError):
    """The two sides have no protocol version in common.

    `dialect` names what the other side speaks instead, where its answer shows it.
    """

    error_class = "protocol_mismatch"
    blame = "peer"

    def __init__(self, message: str, *, dialect: str | None = None) -> None:
        super().__init__(message)
        self.dialect = dialect


class HandshakeFailed(DragomanError):
    """The other side did not answer as an agent does. Nothing was prompted.

    The sentence says what happened, the likely cause and what to do. `noise` is what came instead
    of messages, and `__cause__` the error underneath.
    """

    error_class = "handshake_failed"
    blame = "peer"

    def __init__(
        self,
        message: str,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        stderr_tail: str = "",
        noise: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.signal = signal
        self.stderr_tail = stderr_tail
        self.noise = tuple(noise)


def _shown(text: str) -> str:
    """What a peer sent us, fit for a sentence: quoted, and cut where it is absurdly long."""
    return repr(text) if len(text) <= 200 else f"{text[:160]!r}… ({len(text)} characters)"
