"""Base class for SQLite files: opening, transactions, locks, migrations and error mapping.

Defines no table: subclasses do, and set their `Form`. Many processes may open the file. A write
transaction takes the lock at its start, every wait is bounded by a timeout, and a damaged file is
set aside and replaced (`store.damage`). Committed data survives the death of a process; a power
loss may cost the last transactions, but not the file.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import msgspec

from dragoman.client.folders import make_state
from dragoman.errors import (
    StoreBusy,
    StoreConflict,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreTooNew,
)
from dragoman.redaction.redactor import Redactor
from dragoman.store.damage import identity_of, is_damage, set_aside
from dragoman.store.schema import APPLICATION_ID, MIGRATIONS

BUSY_TIMEOUT: Final = 10.0
"""Seconds to wait for a lock. A writer holds the file for milliseconds; after ten seconds it is
stopped or stuck."""

RETRY_INTERVAL: Final = 0.02
"""Seconds between two tries when SQLite fails at once because another process opens the same
file."""

LOG_SIZE: Final = 16 * 1024 * 1024
"""Maximum size that the write-ahead log keeps on disk when it is empty."""

INCREMENTAL: Final = 2
"""SQLite's auto_vacuum mode in which a file releases the space of deleted content in steps."""

VACUUM_STEP: Final = 2048
"""Number of pages to release in one step: some megabytes, in a few milliseconds."""

VACUUM_SIZE: Final = 512 * 1024 * 1024
"""An older file with at most this many bytes of content is rewritten once, in some seconds."""

FILE_MODE: Final = 0o600

_PRIMARY: Final = 0xFF
"""The bits of SQLite's extended error codes that hold the primary code."""

_REFUSALS: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The schema of a file, and the hints for when it cannot be used."""

    application_id: int
    """Stored in the file header, so that another program's file is not mistaken for ours."""
    migrations: tuple[tuple[str, ...], ...]
    """Statements by version. The number of applied entries is the version of the file."""
    make_room: str
    """What to do when the disk is full, as a part of an error message."""
    upgraded_by: str
    """What migrates a file of an older version, as a clause of an error message."""

    @property
    def version(self) -> int:
        return len(self.migrations)


_MAKE_ROOM: Final = "free some disk space; `dragoman sessions prune` deletes old sessions"


class Database:
    """An open SQLite file. Threads may share it: calls are serialized."""

    form: ClassVar[Form] = Form(
        application_id=APPLICATION_ID,
        migrations=MIGRATIONS,
        make_room=_MAKE_ROOM,
        upgraded_by="any `dragoman run` migrates it",
    )

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        redact: Redactor,
        *,
        read_only: bool = False,
        replaced: str = "",
    ) -> None:
        self.path = path
        self.redact = redact
        self.replaced = replaced
        """A message that says why the old file is no longer used: it was damaged and set aside,
        moved or deleted. Empty if that has not happened."""
        self._connection = connection
        self._read_only = read_only
        self._identity = identity_of(path)
        self._lock = threading.RLock()
        self._depth = 0

    @classmethod
    def open(cls, path: Path, redact: Redactor | None = None, *, read_only: bool = False) -> Self:
        """Open the file, and create it if it does not exist.

        Opening for reading changes nothing, except that a file of an older version is migrated; a
        missing file reads as an empty one. Opening for writing sets a damaged file aside and
        creates a new one; see `replaced`. Raises `StoreError`.
        """
        form = cls.form
        replaced = ""
        identity = identity_of(path)
        try:
            with _explained(path, form):
                connection = _open_to_read(path, form) if read_only else _open_to_write(path, form)
        except StoreCorrupt as error:
            if read_only or not error.damaged:
                raise
            connection, replaced = _replace(path, form, identity)
        return cls(path, connection, redact or Redactor(), read_only=read_only, replaced=replaced)

    def check_kept(self) -> None:
        """Raise `StoreCorrupt` if the file was damaged and replaced, for callers that must not
        mistake the new, empty file for one without records."""
        if self.replaced:
            raise StoreCorrupt(str(self.path), self.replaced, replaced=True)

    def close(self) -> None:
        with self._lock, _explained(self.path, self.form):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Context manager: store everything in the block or nothing. Blocks may be nested: an inner
        block that fails rolls back only its own part."""
        with self._lock, self._mending(), _explained(self.path, self.form):
            self._follow()
            begin, end, undo = _BRACKETS[bool(self._depth)]
            connection = self._connection
            connection.execute(begin)
            self._depth += 1
            try:
                yield connection
                connection.execute(end)
            except BaseException:
                # SQLite rolls a transaction back by itself if the disk fails.
                if connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        for statement in undo:
                            connection.execute(statement)
                raise
            finally:
                self._depth -= 1

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._mending(), _explained(self.path, self.form):
            try:
                yield self._connection
            except msgspec.ValidationError as error:
                # The file is intact, but a newer dragoman may have written it.
                raise StoreCorrupt(
                    str(self.path),
                    f"it contains a value that this version does not know ({error})",
                    remedy=f"use the version that wrote it, or {_MOVE_AWAY}",
                ) from error
            except msgspec.DecodeError as error:
                raise _damaged(self.path, error) from error

    @contextlib.contextmanager
    def _mending(self) -> Iterator[None]:
        """Context manager: if the file turns out to be damaged, set it aside and continue with a
        new one. The block is not repeated; `StoreCorrupt` reports what happened."""
        try:
            yield
        except StoreCorrupt as error:
            if not error.damaged or self._read_only or self._depth:
                raise
            self.replace()
            raise StoreCorrupt(str(self.path), self.replaced, replaced=True) from error

    def _follow(self) -> None:
        """Continue with the file that is at our path now. Another process may have set ours aside,
        or a user may have deleted it; writes to it would be lost. The operation is not repeated;
        `StoreCorrupt` reports what happened."""
        if self._depth or self._read_only or identity_of(self.path) == self._identity:
            return
        # Done first: if this fails, our file may still exist and only be unreachable.
        found = _open_to_write(self.path, self.form)
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        self._connection, self._identity = found, identity_of(self.path)
        self.replaced = "it was moved or deleted; new data goes to the file at its path now"
        raise StoreCorrupt(str(self.path), self.replaced, replaced=True)

    def replace(self) -> None:
        """Set the damaged file aside and continue with a new one. Raises `StoreError` if that
        fails; the next operation that finds the damage tries it again."""
        damaged = self._connection
        if os.name == "nt":
            # There, an open file cannot be moved.
            damaged.close()
        self._connection, self.replaced = _replace(self.path, self.form, self._identity)
        self._identity = identity_of(self.path)
        # SQLite notices that the file was moved, and leaves the new log alone.
        with contextlib.suppress(sqlite3.Error):
            damaged.close()

    def _conflict(self, problem: str) -> StoreConflict:
        return StoreConflict(str(self.path), problem)

    def _update(
        self, table: str, key: tuple[str, str], fields: Mapping[str, Any], allowed: frozenset[str]
    ) -> bool:
        """Change fields of the row with this key, which is the name of a column and its value.
        Returns whether the row exists; raises `TypeError` if a field is not in `allowed`."""
        if wrong := sorted(fields.keys() - allowed):
            raise TypeError(f"these fields of {table} cannot change: {', '.join(wrong)}")
        if not fields:
            return True
        changes = ", ".join(f"{name} = ?" for name in fields)
        column, value = key
        with self.transaction() as connection:
            changed = connection.execute(
                f"UPDATE {table} SET {changes} WHERE {column} = ?", (*fields.values(), value)
            )
            return bool(changed.rowcount)

    @property
    def used_size(self) -> int:
        """Number of bytes of the file that are in use."""
        with self._reading() as connection:
            return _used_size(connection)

    def _give_space_back(self) -> None:
        """Release the space of deleted content to the disk, and leave nothing of it in the
        write-ahead log. If another process prevents it, a later call does it."""
        with contextlib.suppress(sqlite3.Error), self._lock:
            if self._depth:
                return
            connection = self._connection
            if _pragma(connection, "auto_vacuum") != INCREMENTAL:
                # An older file: rewritten once, if that is quick and the disk has room.
                if _used_size(connection) <= min(VACUUM_SIZE, _free_size(self.path) // 2):
                    connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
                    connection.execute("VACUUM")
            else:
                free = int(_pragma(connection, "freelist_count"))
                while free:
                    # In steps, so that other writers need not wait for all of them.
                    connection.execute(f"PRAGMA incremental_vacuum({VACUUM_STEP})").fetchall()
                    before, free = free, int(_pragma(connection, "freelist_count"))
                    if free >= before:
                        break
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


_BRACKETS: Final[dict[bool, tuple[str, str, tuple[str, ...]]]] = {
    False: ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",)),
    True: ("SAVEPOINT inner", "RELEASE inner", ("ROLLBACK TO inner", "RELEASE inner")),
}


# -- opening


def _replace(
    path: Path, form: Form, identity: tuple[int, int] | None
) -> tuple[sqlite3.Connection, str]:
    """Set a damaged file aside and create a new one. Returns its connection and a message."""
    try:
        aside = set_aside(path, identity)
    except TimeoutError as error:
        raise StoreBusy(str(path), str(error.strerror), remedy=_WAIT) from error
    except OSError as error:
        raise _of_os(path, error, form) from error
    with _explained(path, form):
        connection = _open_to_write(path, form)
    where = "set aside" if aside is None else f"is now {aside}"
    return connection, f"it was damaged and {where}; a new one was created"


def _open_to_write(path: Path, form: Form) -> sqlite3.Connection:
    try:
        make_state(path.parent)
        _make_private(path)
    except OSError as error:
        raise _of_os(path, error, form) from error
    connection = _connect(f"{path.absolute().as_uri()}?mode=rw")
    try:
        if not _refuse_strangers(path, connection, form):
            # Before anything is written: setting it later would require rewriting the file.
            connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        _log_ahead(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        # Deleted content is overwritten, not only unlinked.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_SIZE}")
        _migrate(path, connection, form)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_to_read(path: Path, form: Form) -> sqlite3.Connection:
    try:
        found = path.stat()
    except FileNotFoundError:
        return _empty(form)
    except OSError as error:
        raise _of_os(path, error, form) from error
    if not stat.S_ISREG(found.st_mode):
        raise StoreCorrupt(str(path), "it is not a regular file", remedy=_MOVE_AWAY)
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = _connect(address)
    try:
        version = _refuse_strangers(path, connection, form)
    except sqlite3.OperationalError as error:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if _code(error) not in _REFUSALS or (log.exists() and log.stat().st_size):
            raise
        # Even readers write next to the file, unless it is declared immutable.
        connection = _connect(f"{address}&immutable=1")
        try:
            version = _refuse_strangers(path, connection, form)
        except BaseException:
            connection.close()
            raise
    except BaseException:
        connection.close()
        raise
    if version == form.version:
        return connection
    connection.close()
    if not version:  # Another process is creating it, or died while doing so.
        return _empty(form)
    try:  # Reading what an older version has stored must not require a write first.
        _open_to_write(path, form).close()
    except (sqlite3.Error, StoreError) as error:
        told = explain(path, error) if isinstance(error, sqlite3.Error) else error
        if not isinstance(told, StoreRefused):
            raise
        raise StoreRefused(
            str(path),
            f"it has the older schema version {version} and must be migrated before it can be read",
            remedy=form.upgraded_by,
        ) from error
    return _connect(address)


def _connect(address: str) -> sqlite3.Connection:
    return sqlite3.connect(
        address,
        uri=True,
        timeout=BUSY_TIMEOUT,
        isolation_level=None,
        check_same_thread=False,
    )


def _empty(form: Form) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    for statement in (statement for migration in form.migrations for statement in migration):
        connection.execute(statement)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _make_private(path: Path) -> None:
    """Create the file before SQLite does, so that no other user can ever read it. SQLite gives its
    companions the same mode.

    An existing file is not opened: closing it would drop the locks that SQLite holds for another
    connection of this process, and another process would then delete the log.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
        os.close(os.open(path, flags, FILE_MODE))
        found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise StoreCorrupt(str(path), "it is not a regular file", remedy=_MOVE_AWAY)
    if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
        os.chmod(path, FILE_MODE)


def _refuse_strangers(path: Path, connection: sqlite3.Connection, form: Form) -> int:
    """Return the schema version of the file.

    Raises `StoreTooNew` if this dragoman does not support that version, and `StoreCorrupt` if the
    file belongs to another program or lacks a table.
    """
    with _at_one_moment(connection):
        version = int(_pragma(connection, "user_version"))
        owner = int(_pragma(connection, "application_id"))
        if owner == form.application_id and version > form.version:
            # Before its tables are read: an older SQLite may not know their syntax, and reports
            # that as damage.
            raise StoreTooNew(
                str(path),
                f"a newer version of dragoman wrote it (schema version {version}, "
                f"this one knows {form.version})",
                remedy="use that version, or set DRAGOMAN_STATE_HOME to another directory",
            )
        if owner and owner != form.application_id:
            raise StoreCorrupt(str(path), _STRANGER, remedy=_MOVE_AWAY)
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if owner != form.application_id and (names or version):
        raise StoreCorrupt(str(path), _STRANGER, remedy=_MOVE_AWAY)
    if version == form.version and (missing := _tables(form) - names):
        raise _damaged(path, sqlite3.DatabaseError(f"no table {', '.join(sorted(missing))}"))
    return version


@functools.cache
def _tables(form: Form) -> frozenset[str]:
    """Return the names of the tables in a file of the current version."""
    connection = _empty(form)
    try:
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        return frozenset(name for (name,) in connection.execute(query))
    finally:
        connection.close()


@contextlib.contextmanager
def _at_one_moment(connection: sqlite3.Connection) -> Iterator[None]:
    """Context manager: make all reads in the block see the same snapshot, because another process
    may be creating the file."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _log_ahead(connection: sqlite3.Connection) -> None:
    # SQLite does not wait here: two processes that open a new file at once would wait for each
    # other.
    give_up_at = time.monotonic() + BUSY_TIMEOUT
    while _pragma(connection, "journal_mode") != "wal":
        try:
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
                # A file system without shared memory. The rollback journal is slower, and as safe.
                return
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                raise
            time.sleep(RETRY_INTERVAL)


def _migrate(path: Path, connection: sqlite3.Connection, form: Form) -> None:
    if _pragma(connection, "user_version") == form.version:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it while we waited for the lock.
        done = _refuse_strangers(path, connection, form)
        for migration in form.migrations[done:]:
            for statement in migration:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {form.application_id}")
        connection.execute(f"PRAGMA user_version = {form.version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _used_size(connection: sqlite3.Connection) -> int:
    pages = int(_pragma(connection, "page_count")) - int(_pragma(connection, "freelist_count"))
    return pages * int(_pragma(connection, "page_size"))


def _free_size(path: Path) -> int:
    """Return the number of free bytes on the disk of a file, or 0 if unknown."""
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return 0


def _pragma(connection: sqlite3.Connection, name: str) -> int | str:
    value: int | str = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


# -- what went wrong

_MOVE_AWAY: Final = "move it away, and a new one will be created"
_WAIT: Final = "check for a stopped dragoman process, and try again"
_STRANGER: Final = "it belongs to another program"


@contextlib.contextmanager
def _explained(path: Path, form: Form) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise explain(path, error, make_room=form.make_room) from error


def explain(path: Path, error: sqlite3.Error, *, make_room: str = _MAKE_ROOM) -> StoreError:
    """Convert a SQLite error to a `StoreError` that says what to do about it, if anything is
    known."""
    code = _code(error)
    where = str(path)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return StoreFull(where, "the disk is full", remedy=make_room)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            where,
            f"another process has held it for more than {BUSY_TIMEOUT:g} s",
            remedy=_WAIT,
        )
    if code in _REFUSALS:
        return StoreRefused(
            where,
            f"it cannot be opened or written ({error})",
            remedy="make it writable, or set DRAGOMAN_STATE_HOME to another directory",
        )
    if is_damage(error):
        return _damaged(path, error)
    if code == sqlite3.SQLITE_CONSTRAINT:
        return StoreConflict(where, f"it conflicts with stored data ({error})")
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            where,
            f"disk I/O failed ({error})",
            remedy="check whether the disk is full, over quota or broken",
        )
    return StoreError(where, f"{error}")


def _damaged(path: Path, error: Exception) -> StoreCorrupt:
    return StoreCorrupt(str(path), f"it is damaged ({error})", remedy=_MOVE_AWAY, damaged=True)


FULL_SIZE: Final = 64 * 1024
"""A disk with less free space than this is full for a file that grows by pages."""


def _is_full(path: Path) -> bool:
    try:
        found = os.statvfs(path.parent)
    except (OSError, AttributeError):
        return False
    return found.f_bavail * found.f_frsize < FULL_SIZE


def _of_os(path: Path, error: OSError, form: Form) -> StoreError:
    detail = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(str(path), detail, remedy=form.make_room)
    return StoreRefused(
        str(path),
        f"it or its directory cannot be used ({detail})",
        remedy="make both writable, or set DRAGOMAN_STATE_HOME to another directory",
    )


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code; SQLITE_ERROR for errors of the Python module, which have
    none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
