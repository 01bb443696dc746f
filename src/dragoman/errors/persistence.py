"""Errors of brokers, the session store and worktrees.

The whole tree is drawn in `dragoman.errors`.
"""

from __future__ import annotations

from typing import ClassVar

from dragoman.errors.base import Blame, DragomanError


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
    """The file is damaged, or it is no file of ours. It is left as it is, or set aside.

    `damaged` is False for a file of another program. With `replaced` the damaged file was set aside
    and a new one begun: what failed may be tried again.
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


class FilterFailed(IsolationFailed):
    """A filter of git that a file needs failed, or was refused because only the repository defines
    it. The workspace is untouched."""

    error_class = "filter_failed"

    def __init__(self, doing: str, problem: str, name: str) -> None:
        super().__init__(doing, problem)
        self.name = name
