"""Edit the user's ``config.toml``: create it, set values, enable peers, add and remove hosts.

Comments, order and layout are kept (tomlkit). An edit holds the file lock and is validated before
it is written. A project's ``dragoman.toml`` is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from dragoman.config.load import check_settings
from dragoman.config.project import parse
from dragoman.config.safe_files import locked, read_file, write_file
from dragoman.config.schema import Settings
from dragoman.errors import ConfigInvalid
from dragoman.paths import Paths

TEMPLATE: Final = """\
# Settings of dragoman. `dragoman config show` prints all of them with their origin.

# The peers that routing and delegation may use. A peer that you name need not be enabled.
enabled_peers = []

# What happens when an agent asks for permission: "ask", "approve-reads", "approve-all", "deny-all".
# permissions = "ask"

# Names of additional environment variables that one peer may see. Never put secrets in this file.
# [peer.codex]
# env = ["MY_PROVIDER_KEY"]

# Seconds; "never" means no limit.
# [timeouts]
# total = 600
"""


def init_config(paths: Paths) -> bool:
    """Write an initial ``config.toml`` with explanations. Returns False, and writes nothing, if it
    exists."""
    with locked(paths.config_file):
        if read_file(paths.config_file) is not None:
            return False
        write_file(paths.config_file, TEMPLATE.encode())
        return True


def enable_peers(paths: Paths, names: Iterable[str]) -> tuple[str, ...]:
    """Add peers to `enabled_peers`, and return those that were not in it before."""
    return _change_enabled(paths, add=tuple(names))


def disable_peers(paths: Paths, names: Iterable[str]) -> tuple[str, ...]:
    """Remove peers from `enabled_peers`, and return those that were in it before."""
    return _change_enabled(paths, remove=tuple(names))


def value_of(text: str, key: str = "") -> Any:
    """Parse `text` as a TOML value for the setting `key`; text that is not valid TOML is returned
    as it is. For a setting that is a list of strings, anything but a TOML array is split at commas
    instead."""
    try:
        value = tomlkit.value(text).unwrap()
    except TOMLKitError:
        value = text
    if isinstance(value, list) or not _takes_texts(key):
        return value
    return [part.strip() for part in text.split(",") if part.strip()]


def _takes_texts(key: str) -> bool:
    """Return whether a setting is a list of strings."""
    from msgspec import inspect

    kind: Any = inspect.type_info(Settings)
    for word in key.split("."):
        if isinstance(kind, inspect.DictType):
            kind = kind.value_type
        elif isinstance(kind, inspect.StructType):
            kind = next((each.type for each in kind.fields if each.encode_name == word), None)
        else:
            return False
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return any(
        isinstance(each, inspect.VarTupleType) and isinstance(each.item_type, inspect.StrType)
        for each in kinds
    )


def check_config(paths: Paths) -> None:
    """Raise `ConfigInvalid` if the user's ``config.toml`` is not valid."""
    text = _text(paths.config_file)
    check_settings(
        parse(text.encode(), origin=str(paths.config_file)), origin=str(paths.config_file)
    )


def set_value(paths: Paths, key: str, value: Any) -> bool:
    """Set one setting of the user's ``config.toml`` by its dotted key; None removes it. Returns
    whether the file changed."""
    words = key.split(".")

    def change(document: tomlkit.TOMLDocument) -> None:
        table: Any = document
        for word in words[:-1]:
            if word not in table:
                if value is None:
                    return
                table[word] = tomlkit.table(is_super_table=word in ("peer", "hosts"))
            table = table[word]
            if not isinstance(table, MutableMapping):
                raise ConfigInvalid(str(paths.config_file), f"{word} is not a table", key=key)
        if value is None:
            table.pop(words[-1], None)
        else:
            table[words[-1]] = list(value) if isinstance(value, tuple) else value

    before, after = edit_config(paths, change)
    return before != after


def set_host(paths: Paths, name: str, values: Mapping[str, Any]) -> bool:
    """Set keys of ``[hosts.NAME]``. A value of None removes its key; keys that are not in `values`
    stay. Returns whether the file changed."""

    def change(document: tomlkit.TOMLDocument) -> None:
        hosts: Any = document.setdefault("hosts", tomlkit.table(is_super_table=True))
        table = hosts.setdefault(name, tomlkit.table())
        for key, value in values.items():
            if value is None:
                table.pop(key, None)
            else:
                table[key] = list(value) if isinstance(value, tuple) else value

    before, after = edit_config(paths, change)
    return before != after


def remove_host(paths: Paths, name: str) -> bool:
    """Remove ``[hosts.NAME]``. Returns whether it was there."""

    def change(document: tomlkit.TOMLDocument) -> None:
        hosts: Any = document.get("hosts")
        if isinstance(hosts, MutableMapping):
            hosts.pop(name, None)
            if not hosts:
                document.pop("hosts")

    before, after = edit_config(paths, change)
    return before != after


def edit_config(
    paths: Paths, change: Callable[[tomlkit.TOMLDocument], None], *, needs: str = ""
) -> tuple[str, str]:
    """Change the user's ``config.toml``, and return its text before and after.

    `change` edits the parsed document. The line `needs` is added at the top if its key is missing:
    after a table header it would belong to that table. The result is validated before it is
    written.
    """
    file = paths.config_file
    with locked(file):
        before = _text(file)
        try:
            document = tomlkit.parse(before)
            if needs and needs.partition(" ")[0] not in document:
                document = tomlkit.parse(f"{needs}\n\n{before}" if before else f"{needs}\n")
        except TOMLKitError as error:
            raise ConfigInvalid(str(file), f"it is not valid TOML: {error}") from error
        change(document)
        after = tomlkit.dumps(document)
        if after != before:
            check_settings(parse(after.encode(), origin=str(file)), origin=str(file))
            write_file(file, after.encode())
    return before, after


def _text(file: Path) -> str:
    data = read_file(file)
    if data is None:
        return ""
    try:
        # Without a byte order mark, which tomlkit does not accept.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigInvalid(
            str(file), f"it is not UTF-8 text: invalid byte at offset {error.start}"
        ) from error


def _change_enabled(
    paths: Paths, *, add: tuple[str, ...] = (), remove: tuple[str, ...] = ()
) -> tuple[str, ...]:
    changed: list[str] = []

    def change(document: tomlkit.TOMLDocument) -> None:
        enabled = document["enabled_peers"]
        if not isinstance(enabled, tomlkit.items.Array):
            raise ConfigInvalid(str(paths.config_file), "expected a list", key="enabled_peers")
        for name in dict.fromkeys(add):
            if name not in enabled:
                enabled.append(name)
                changed.append(name)
        for name in dict.fromkeys(remove):
            while name in enabled:
                enabled.remove(name)
                if name not in changed:
                    changed.append(name)

    edit_config(paths, change, needs="enabled_peers = []")
    return tuple(changed)
