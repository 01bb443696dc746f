"""Add or update dragoman's entry in another program's settings file, with a backup.

Only the entry changes, BOM and line endings stay, and a second run changes nothing. A file that
cannot be parsed is left alone. `clients` describes the programs, `config.safe_files` writes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dragoman.config import safe_files
from dragoman.errors import ClientFileInvalid, FileFailed, UsageError
from dragoman.setup.install import json_edit, toml_edit
from dragoman.setup.install.clients import Client, HostEnvironment
from dragoman.setup.install.json_edit import Unfit, Update
from dragoman.setup.install.jsonc import InvalidJsonc

MAX_FILE_SIZE: Final = 64 * 1024 * 1024
"""Claude Code stores data of every project in its settings file, so it can be large."""

BACKUP: Final = ".before-dragoman"
"""Suffix of a backup; further ones get a number."""

BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class EntryEdit:
    """A file before and after the edit. None: there is no file."""

    path: Path
    before: bytes | None
    after: bytes

    @property
    def changes(self) -> bool:
        return self.before != self.after


def file_of(client: Client, *, project: Path | None = None) -> Path:
    """The settings file of a program: the user's, or that of a project."""
    if project is None:
        return client.user_file(HostEnvironment.here())
    if client.project_file is None:
        raise UsageError(f"{client.title} reads this from its user's settings only")
    return project / client.project_file


def snippet(client: Client, name: str, program: Sequence[str]) -> str:
    """The entry as a complete settings file, to paste by hand."""
    return _put("", client, name, _update(client, name, program))


def plan(client: Client, path: Path, name: str, program: Sequence[str]) -> EntryEdit:
    """Plan the edit of a settings file. Nothing is written.

    Raises `ClientFileInvalid` for a file that cannot be read or has no place for the entry, and for
    an entry of this name that starts something else.
    """
    before = read_file(path)
    data = before or b""
    bom = BOM if data.startswith(BOM) else b""
    try:
        text = data[len(bom) :].decode("utf-8")
        done = _put(text, client, name, _update(client, name, program))
        return EntryEdit(path, before, bom + done.encode("utf-8"))
    except UnicodeDecodeError as error:
        raise ClientFileInvalid(str(path), "it is not UTF-8 text") from error
    except UnicodeEncodeError as error:
        raise UsageError(
            "the path of dragoman is not UTF-8 text, so no file can hold it"
        ) from error
    except (InvalidJsonc, tomllib.TOMLDecodeError) as error:
        kind = "TOML" if client.format == "toml" else "JSON"
        raise ClientFileInvalid(
            str(path), f"it is not {kind} that can be edited: {error}"
        ) from error
    except NameTaken as error:
        remedy = "give the entry another name with --name, or take the old one out"
        raise ClientFileInvalid(str(path), str(error), remedy=remedy) from error
    except Unfit as error:
        raise ClientFileInvalid(str(path), str(error)) from error


def write(planned: EntryEdit) -> Path | None:
    """Write the edit. Returns the path of the backup; None if there was no file or no change."""
    if not planned.changes:
        return None
    if read_file(planned.path) != planned.before:
        raise UsageError(f"{planned.path} was changed by another program meanwhile; try again")
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
    """An entry of this name starts something else."""


def _update(client: Client, name: str, program: Sequence[str]) -> Update:
    words = ("serve", client.server)

    def update(old: Mapping[str, Any] | None) -> Mapping[str, Any]:
        if old is None:
            args = [*program[1:], *words]
            return {**client.fixed, "command": program[0], "args": args, **client.initial}
        own = _options(old, words)
        if own is None:
            raise NameTaken(
                f"its entry `{client.section}.{name}` does not start "
                f"`dragoman serve {client.server}`"
            )
        return {**client.fixed, "command": program[0], "args": [*program[1:], *words, *own]}

    return update


def _options(entry: Mapping[str, Any], words: tuple[str, str]) -> list[str] | None:
    """The extra arguments of an entry for our command; None if it starts something else."""
    args = entry.get("args")
    if not isinstance(entry.get("command"), str) or not isinstance(args, list):
        return None
    for at in range(len(args) - 1):
        if tuple(args[at : at + 2]) == words:
            return list(args[at + 2 :])
    return None


def _put(text: str, client: Client, name: str, update: Update) -> str:
    if client.format == "toml":
        return toml_edit.put(text, (client.section, name), update)
    return json_edit.put(text, (client.section, name), update)


def read_file(path: Path) -> bytes | None:
    """The bytes of an ordinary file; None if there is none."""
    return safe_files.read_file(path, max_size=MAX_FILE_SIZE, invalid=ClientFileInvalid)


def _back_up(path: Path, data: bytes) -> Path:
    """Copy a file to an unused name beside it, with the same mode."""
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
        raise FileFailed(str(path), f"no backup can be made: {error}", error.errno) from error
    raise AssertionError("numbers do not end")
