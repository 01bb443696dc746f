"""Errors of services: files and terminals for a peer, brokers, the store and worktrees.

The whole tree is drawn in `dragoman.errors`.
"""

from __future__ import annotations

from dragoman.errors.usage import Blame, DragomanError, shown


class BrokerError(DragomanError):
    """A broker failed. The peer behind it is not to blame."""

    error_class = "broker_failed"
    blame: Blame = "world"


class BrokerBusy(BrokerError):
    """The broker's queue is full; the request was not passed on to the peer."""

    error_class = "broker_busy"
    retryable = True


class BrokerUnavailable(BrokerError):
    """A broker cannot be started or reached. No prompt was sent.

    `log_tail` is the end of the log of a broker that did not start, and `hint` says what to do.
    """

    error_class = "broker_unavailable"
    retryable = True

    def __init__(self, message: str, *, log_tail: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail
        self.hint = hint


class StoreError(DragomanError):
    """The database of sessions and jobs cannot be used. `path` names it.

    The message says what happened and what to do.
    """

    error_class = "store_failed"
    blame: Blame = "world"

    def __init__(self, path: str, problem: str, *, remedy: str = "") -> None:
        super().__init__(f"{path}: {problem}{remedy and '; ' + remedy}")
        self.path = path
        self.problem = problem
        self.remedy = remedy


class StoreConflict(StoreError):
    """The new data conflicts with what is stored; nothing was changed."""

    error_class = "store_conflict"
    blame = "us"


class StoreBusy(StoreError):
    """Another process has locked the file for too long."""

    error_class = "store_busy"
    retryable = True


class StoreFull(StoreError):
    """The disk is full, or a quota is used up."""

    error_class = "store_full"
    retryable = True


class StoreRefused(StoreError):
    """The current user may not read or write the file or its directory."""

    error_class = "store_refused"


class StoreCorrupt(StoreError):
    """The file is damaged, or belongs to another program. It is left as it is, or moved aside.

    `damaged` is False for a file of another program. With `replaced` the damaged file was moved
    aside and a new one created: the operation can be tried again.
    """

    error_class = "store_corrupt"

    def __init__(
        self,
        path: str,
        problem: str,
        *,
        remedy: str = "",
        damaged: bool = False,
        replaced: bool = False,
    ) -> None:
        super().__init__(path, problem, remedy=remedy)
        self.damaged = damaged
        self.replaced = replaced
        self.retryable = replaced


class StoreTooNew(StoreError):
    """The file was written by a newer version of dragoman. It is left as it is."""

    error_class = "store_too_new"


class FleetError(DragomanError):
    """The fleet's server or coordinator failed. No peer is to blame.

    `may_have_run` is True if a message was sent and its acknowledgement did not arrive: a job may
    have been accepted. `remedy` says what would help, if that is known.
    """

    error_class = "fleet_failed"
    blame: Blame = "world"

    def __init__(self, *message: object, remedy: str = "", may_have_run: bool = False) -> None:
        super().__init__(*message)
        self.remedy = remedy
        self.may_have_run = may_have_run


class FleetUnreachable(FleetError):
    """The fleet's server or coordinator does not answer."""

    error_class = "fleet_unreachable"
    retryable = True


class FleetRefused(FleetError):
    """The fleet's server refused the credentials (revoked, expired, or lacking a right), or its
    certificate is not the expected one."""

    error_class = "fleet_refused"


class FleetFull(FleetError):
    """The fleet's server has no room left; nothing was accepted."""

    error_class = "fleet_full"
    retryable = True


class FleetConflict(FleetError):
    """A record of the fleet was changed by another process since it was read."""

    error_class = "fleet_conflict"


class IsolationFailed(DragomanError):
    """A separate worktree for a job could not be created or used. The workspace is unchanged,
    unless `may_have_run` is set."""

    error_class = "isolation_failed"
    blame = "world"

    def __init__(self, doing: str, problem: str) -> None:
        super().__init__(f"{doing} failed: {problem}")
        self.problem = problem


class FilterFailed(IsolationFailed):
    """A git filter that a file needs failed, or was refused because only the repository defines
    it. The workspace is unchanged."""

    error_class = "filter_failed"

    def __init__(self, doing: str, problem: str, name: str) -> None:
        super().__init__(doing, problem)
        self.name = name


class ServiceError(DragomanError):
    """A service offered to the peer failed. Nothing was changed, unless `may_have_run` is set."""

    error_class = "service_failed"
    blame: Blame = "peer"


class ArgumentInvalid(ServiceError):
    """An argument that can never be valid was passed, such as a relative path, a NUL byte or a
    negative line."""

    error_class = "argument_invalid"


class NotPermitted(ServiceError):
    """The permission policy or the user did not allow the action."""

    error_class = "not_permitted"

    def __init__(self, what: str, reason: str = "") -> None:
        super().__init__(f"{shown(what)} is not permitted{': ' if reason else ''}{reason}")
        self.what = what
        self.reason = reason


class PathRefused(ServiceError):
    """The path leaves the workspace, or is not a regular file."""

    error_class = "path_refused"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{shown(path)} is refused: {reason}")
        self.path = path
        self.reason = reason


class FileMissing(ServiceError):
    """There is no such file in the workspace."""

    error_class = "file_missing"

    def __init__(self, path: str) -> None:
        super().__init__(f"{shown(path)} does not exist")
        self.path = path


class NotText(ServiceError):
    """The file, or the requested part of it, is not UTF-8 text."""

    error_class = "not_text"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{shown(path)} is not UTF-8 text: {detail}")
        self.path = path


class TooLarge(ServiceError):
    """The text is larger than the service reads or writes at once."""

    error_class = "too_large"

    def __init__(self, path: str, limit: int, detail: str) -> None:
        super().__init__(f"{shown(path)} is too large: {detail}, and the limit is {limit} bytes")
        self.path = path
        self.limit = limit


class FileFailed(ServiceError):
    """The operating system reported an error, such as a full or read-only disk, or did not answer
    in time."""

    error_class = "file_failed"
    blame = "world"

    def __init__(self, path: str, detail: str, errno: int | None = None) -> None:
        super().__init__(f"{shown(path)}: {detail}")
        self.path = path
        self.errno = errno


class TerminalUnknown(ServiceError):
    """No terminal has this id: it was never created here, or it was released."""

    error_class = "terminal_unknown"

    def __init__(self, terminal_id: str) -> None:
        super().__init__(f"there is no terminal {shown(terminal_id)}")
        self.terminal_id = terminal_id


class TooManyTerminals(ServiceError):
    """The peer has the maximum number of terminals; it can release one."""

    error_class = "too_many_terminals"
    retryable = True

    def __init__(self, limit: int) -> None:
        super().__init__(f"all {limit} terminals are in use; release one first")
        self.limit = limit
