"""Add, update or remove dragoman's entry in another program's settings file, with a backup.

Only the entry changes, the BOM and line endings are kept, and a second run changes nothing. A file
that cannot be parsed is left alone. `clients` describes the programs, `config.safe_files` writes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dragoman.config import safe_files
from dragoman.errors import ClientFileInvalid, FileFailed, UsageError
from dragoman.setup.install import json_edit, jsonc, toml_edit
from dragoman.setup.install.clients import Client, HostEnvironment
from dragoman.setup.install.json_edit import Unfit, Update

MAX_FILE_SIZE: Final = 64 * 1024 * 1024
"""Maximum size of a settings file. Claude Code stores data about every project in it, so it can be
large."""

BACKUP: Final = ".before-dragoman"
"""Suffix of a backup; further ones get a number."""

BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class EntryEdit:
    """A planned edit: the content of the file before and after it. None means that there is no
    file."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def changes(self) -> bool:
        return self.before != self.after


def file_of(client: Client, *, project: Path | None = None) -> Path:
    """Return the path of a program's settings file: the user's, or the one in `project`. Raises
    `UsageError` for a project if the program reads the entry only from the user's settings."""
    if project is None:
        return client.user_file(HostEnvironment.here())
    if client.project_file is None:
        raise UsageError(
            f"{client.title} reads this entry only from your own settings: omit --project"
        )
    return project / client.project_file


def snippet(client: Client, name: str, program: Sequence[str]) -> str:
    """Return the text of a settings file that has only this entry, for the user to paste."""
    return _put("", client, name, _update(client, name, program))


def plan(client: Client, path: Path, name: str, program: Sequence[str]) -> EntryEdit:
    """Plan the edit that adds the entry to a settings file, or updates it. Nothing is written.

    Raises `ClientFileInvalid` for a file that cannot be read or has no place for the entry, and for
    an entry of this name that starts something else.
    """
    update = _update(client, name, program)
    return _edited(client, path, read_file(path), lambda text: _put(text, client, name, update))


def plan_removal(client: Client, path: Path, name: str) -> EntryEdit:
    """Plan the removal of the entry from a settings file. Nothing is written, and nothing changes
    if there is no entry.

    Raises `ClientFileInvalid` for a file that cannot be read or edited, and for an entry of this
    name that starts something else.
    """
    before = read_file(path)
    if before is None:
        return EntryEdit(path, None, None)
    edit = toml_edit if client.format == "toml" else json_edit

    def require_ours(entry: Any) -> None:
        if not isinstance(entry, Mapping) or _options(client, entry) is None:
            raise _taken(client, name)

    return _edited(
        client, path, before, lambda text: edit.remove(text, (client.section, name), require_ours)
    )


def own_entries(client: Client, path: Path) -> list[str]:
    """Return the names of the entries in a settings file that start dragoman for this client.
    Raises `ClientFileInvalid` if the file cannot be read, or if it contains the word dragoman but
    cannot be parsed."""
    data = read_file(path) or b""
    try:
        text = data.removeprefix(BOM).decode("utf-8")
        if client.format == "toml":
            value: Any = tomllib.loads(text)
        else:
            node = jsonc.read(text)
            value = None if node is None else node.value
    except ValueError as error:
        if b"dragoman" not in data:
            return []
        kind = "TOML" if client.format == "toml" else "JSON"
        raise ClientFileInvalid(str(path), f"it is not valid {kind}: {error}") from error
    section = value.get(client.section) if isinstance(value, dict) else None
    return [
        name
        for name, entry in (section.items() if isinstance(section, dict) else ())
        if isinstance(entry, dict) and _options(client, entry) is not None
    ]


def _edited(
    client: Client, path: Path, before: bytes | None, edit: Callable[[str], str]
) -> EntryEdit:
    data = before or b""
    bom = BOM if data.startswith(BOM) else b""
    try:
        text = data[len(bom) :].decode("utf-8")
        return EntryEdit(path, before, bom + edit(text).encode("utf-8"))
    except UnicodeDecodeError as error:
        raise ClientFileInvalid(str(path), "it is not UTF-8 text") from error
    except UnicodeEncodeError as error:
        raise UsageError(
            "the path of dragoman is not UTF-8 text, so it cannot be written to a settings file"
        ) from error
    except NameTaken as error:
        remedy = "choose another name with --name, or remove this entry by hand"
        raise ClientFileInvalid(str(path), str(error), remedy=remedy) from error
    except Unfit as error:
        remedy = "fix the file, or edit this entry by hand"
        raise ClientFileInvalid(str(path), str(error), remedy=remedy) from error
    except ValueError as error:
        # The parsers raise their own errors, and Python one for a number with thousands of digits.
        kind = "TOML" if client.format == "toml" else "JSON"
        raise ClientFileInvalid(str(path), f"it cannot be edited as {kind}: {error}") from error


def write(planned: EntryEdit) -> Path | None:
    """Write the planned edit. Returns the path of the backup, or None if there was no file or no
    change. Raises `UsageError` if another program has changed the file since the edit was planned,
    and `FileFailed` if the backup or the file cannot be written."""
    if not planned.changes or planned.after is None:
        return None
    if read_file(planned.path) != planned.before:
        raise UsageError(f"{planned.path} was changed by another program; try again")
    backup = None if planned.before is None else _back_up(planned.path, planned.before)
    try:
        safe_files.write_file(planned.path, planned.after)
    except BaseException:
        if backup is not None:
            with contextlib.suppress(OSError):
                backup.unlink()
        raise
    return backup


class NameTaken(Unfit):
    """The entry of this name does not start ``dragoman serve`` with the server for this client."""


def _update(client: Client, name: str, program: Sequence[str]) -> Update:
    words = ("serve", client.server)

    def update(old: Mapping[str, Any] | None) -> Mapping[str, Any]:
        if old is None:
            return {**client.fixed, **client.command([*program, *words]), **client.initial}
        own = _options(client, old)
        if own is None:
            raise _taken(client, name)
        return {**client.fixed, **client.command([*program, *words, *own])}

    return update


def _taken(client: Client, name: str) -> NameTaken:
    return NameTaken(
        f"its entry `{client.section}.{name}` does not start `dragoman serve {client.server}`"
    )


def _options(client: Client, entry: Mapping[str, Any]) -> list[str] | None:
    """Return the arguments in an entry that follow ``serve mcp`` or ``serve acp``, or None if the
    entry starts something else."""
    words = client.words(entry) or []
    for at in range(1, len(words) - 1):
        if words[at : at + 2] == ["serve", client.server]:
            return list(words[at + 2 :])
    return None


def _put(text: str, client: Client, name: str, update: Update) -> str:
    if client.format == "toml":
        return toml_edit.put(text, (client.section, name), update)
    return json_edit.put(text, (client.section, name), update)


def read_file(path: Path) -> bytes | None:
    """Return the bytes of a regular file, or None if it does not exist. Raises `ClientFileInvalid`
    if it cannot be read."""
    return safe_files.read_file(path, max_size=MAX_FILE_SIZE, invalid=ClientFileInvalid)


def _back_up(path: Path, data: bytes) -> Path:
    """Write `data`, the content of a file, to an unused name next to the file, with its mode."""
    mode = stat.S_IMODE(os.stat(path).st_mode)
    try:
        for number in itertools.count(1):
            backup = path.with_name(path.name + BACKUP + (f"-{number}" if number > 1 else ""))
            try:
                safe_files.create_file(backup, [data], mode=mode)
            except FileExistsError:
                continue
            return backup
    except OSError as error:
        raise FileFailed(str(path), f"cannot create a backup: {error}", error.errno) from error
    raise AssertionError("numbers do not end")
