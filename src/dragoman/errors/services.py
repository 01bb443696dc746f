"""Errors of the services that a client offers to a peer: permissions, files and terminals.

The whole tree is drawn in `dragoman.errors`.
"""

from __future__ import annotations

from typing import ClassVar

from dragoman.errors.base import Blame, DragomanError, shown

SHOWN_DETAILS_SIZE = 500
"""Characters of what an agent adds to an error that are shown: enough for a path and a hint."""


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
        super().__init__(f"{shown(what)} is not permitted{': ' if reason else ''}{reason}")
        self.what = what
        self.reason = reason


class PathRefused(ServiceError):
    """The path leaves the workspace, or names something that is no ordinary file."""

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
    """The file, or the part of it that was asked for, is not UTF-8 text."""

    error_class = "not_text"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{shown(path)} is not UTF-8 text: {detail}")
        self.path = path


class TooLarge(ServiceError):
    """More than the service reads or writes at once."""

    error_class = "too_large"

    def __init__(self, path: str, limit: int, detail: str) -> None:
        super().__init__(f"{shown(path)} is too large: {detail}, and the limit is {limit} bytes")
        self.path = path
        self.limit = limit


class FileFailed(ServiceError):
    """The operating system would not read or write: disk full, read-only, no permission."""

    error_class = "file_failed"
    blame = "world"

    def __init__(self, path: str, detail: str, errno: int | None = None) -> None:
        super().__init__(f"{shown(path)}: {detail}")
        self.path = path
        self.errno = errno


class TerminalUnknown(ServiceError):
    """No terminal has this id: it was never made here, or it was released."""

    error_class = "terminal_unknown"

    def __init__(self, terminal_id: str) -> None:
        super().__init__(f"there is no terminal {shown(terminal_id)}")
        self.terminal_id = terminal_id


class TooManyTerminals(ServiceError):
    """The peer has as many terminals as it may have; releasing one makes room."""

    error_class = "too_many_terminals"
    retryable = True

    def __init__(self, limit: int) -> None:
        super().__init__(f"all {limit} terminals are in use; release one first")
        self.limit = limit
