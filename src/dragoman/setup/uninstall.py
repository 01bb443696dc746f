"""Find and remove what dragoman has installed on this machine: directories, brokers, entries,
skills.

Project files are not searched, and the package itself is left to the program that installed it.
`install.entries` edits the settings of other programs; `cli.uninstall` asks and reports.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dragoman.broker.client.brokers import list_brokers, stop_broker
from dragoman.broker.records import BrokerRecord
from dragoman.errors import ClientFileInvalid, FileFailed, UsageError
from dragoman.paths import Paths
from dragoman.setup.install import entries
from dragoman.setup.install.clients import ACP_EDITORS, MCP_CLIENTS, Client, HostEnvironment

SETTINGS = "settings and your own peers"


@dataclass(frozen=True, slots=True)
class InstalledEntry:
    """An entry that starts dragoman, in the settings file of another program."""

    client: Client
    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """One of dragoman's directories."""

    path: Path
    holds: str
    size: int
    """Total size in bytes of all files in it."""
    kept: str = ""
    """Why it is not removed; empty if it is."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What dragoman has installed on this machine."""

    brokers: tuple[BrokerRecord, ...]
    entries: tuple[InstalledEntry, ...]
    skills: tuple[Path, ...]
    folders: tuple[OwnFolder, ...]
    left: tuple[Path, ...]
    """Files that dragoman created and that are kept: backups of settings, shell completion."""
    unread: tuple[ClientFileInvalid, ...]
    """An error for each settings file of another program that may have an entry and cannot be
    read."""

    @property
    def is_empty(self) -> bool:
        folders = [each for each in self.folders if not each.kept]
        return not (self.brokers or self.entries or self.skills or folders)


def take_inventory(paths: Paths, around: HostEnvironment, *, keep_config: bool) -> Inventory:
    """Find everything that dragoman has installed. Changes nothing. With `keep_config`, the
    directory of the settings is marked as kept."""
    unread: dict[Path, ClientFileInvalid] = {}
    return Inventory(
        brokers=tuple(list_brokers(paths)),
        entries=tuple(_entries(around, unread)),
        skills=tuple(_skills(around)),
        folders=tuple(_folders(paths, around, keep_config=keep_config)),
        left=tuple(_left(around)),
        unread=tuple(unread.values()),
    )


def _clients() -> Iterator[Client]:
    yield from MCP_CLIENTS.values()
    yield from ACP_EDITORS.values()


def _entries(
    around: HostEnvironment, unread: dict[Path, ClientFileInvalid]
) -> Iterator[InstalledEntry]:
    for client in _clients():
        path = client.user_file(around)
        if not os.path.exists(path):
            continue
        try:
            names = entries.own_entries(client, path)
        except ClientFileInvalid as error:
            unread[path] = error
            continue
        for name in names:
            yield InstalledEntry(client, path, name)


def _skills(around: HostEnvironment) -> Iterator[Path]:
    for client in MCP_CLIENTS.values():
        if client.skills is not None:
            file = client.skills(around) / "dragoman" / "SKILL.md"
            if os.path.isfile(file) and not file.is_symlink():
                yield file


def _folders(paths: Paths, around: HostEnvironment, *, keep_config: bool) -> Iterator[OwnFolder]:
    what = {
        paths.config: SETTINGS,
        paths.data: "cards of peers, trusted projects",
        paths.cache: "cache",
        paths.state: "sessions, jobs, the ledger, logs",
        paths.runtime: "sockets and locks",
    }
    for path, holds in what.items():
        # Unlike `Path.is_dir`, it does not raise for a path that cannot be examined.
        if not os.path.isdir(path):
            continue
        kept = _protected(path, around)
        if keep_config and path == paths.config:
            kept = "--keep-config"
        yield OwnFolder(path, holds, _size(path), kept)


def _protected(path: Path, around: HostEnvironment) -> str:
    """Return why a directory must not be removed entirely, or an empty string if it may be. The
    check is needed because an environment variable may make any directory one of dragoman's."""
    real = path.resolve()
    if path.is_symlink():
        return "it is a symbolic link"
    for place in (around.home.resolve(), Path.cwd().resolve()):
        if place == real or place.is_relative_to(real):
            return f"it contains {place}"
    if os.path.exists(real / ".git"):
        return "it is a git repository"
    return ""


def _size(path: Path) -> int:
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total


def _left(around: HostEnvironment) -> Iterator[Path]:
    for path in dict.fromkeys(client.user_file(around) for client in _clients()):
        if os.path.isdir(path.parent):
            yield from sorted(path.parent.glob(f"{path.name}{entries.BACKUP}*"))
    config = around.folder("XDG_CONFIG_HOME", ".config")
    for path in (
        around.home / ".bash_completions" / "dragoman.sh",
        around.home / ".zfunc" / "_dragoman",
        config / "fish" / "completions" / "dragoman.fish",
    ):
        if os.path.isfile(path):
            yield path


async def remove(inventory: Inventory) -> list[str]:
    """Remove what was found, except directories marked as kept. Brokers are stopped first, so that
    nothing is written in the meantime. Returns a message for each thing that could not be removed.
    Raises `BrokerUnavailable` if a broker cannot be stopped; in this case no file is removed."""
    for broker in inventory.brokers:
        await stop_broker(broker)
    return list(_remove(inventory))


def _remove(inventory: Inventory) -> Iterator[str]:
    for entry in inventory.entries:
        try:
            entries.write(entries.plan_removal(entry.client, entry.path, entry.name))
        except (ClientFileInvalid, FileFailed, UsageError) as error:
            yield str(error)
    for skill in inventory.skills:
        try:
            skill.unlink(missing_ok=True)
            # A directory that contains other files of the user is kept.
            if not any(skill.parent.iterdir()):
                skill.parent.rmdir()
        except OSError as error:
            yield f"{skill}: {error.strerror or error}"
    for folder in inventory.folders:
        if folder.kept:
            continue
        try:
            shutil.rmtree(folder.path)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield f"{folder.path}: {error.strerror or error}"


def package_command() -> str:
    """Return the command that removes the package with the program that installed it: pipx, uv or
    pip."""
    parts = Path(sys.prefix).parts
    if "pipx" in parts:
        return "pipx uninstall dragoman"
    if "uv" in parts and "tools" in parts:
        return "uv tool uninstall dragoman"
    return f"{sys.executable} -m pip uninstall dragoman"
