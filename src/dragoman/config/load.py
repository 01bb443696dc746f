"""Load the settings from files, environment variables and flags, with the origin of each value.

Later ones take precedence: defaults, ``config.toml``, the project, the environment, flags. An
untrusted project can only restrict what the user allows, apart from `format` and `agent_files`.
Tables that define peers are passed on unchecked; `catalogue.load` turns them into descriptors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from dragoman.config.project import (
    UNTRUSTED,
    USER_ONLY,
    IgnoredSetting,
    Project,
    parse,
    read_project,
)
from dragoman.config.safe_files import read_file
from dragoman.config.schema import (
    DEFAULT,
    HOSTS,
    LIMITS,
    NEVER,
    ON_HOST,
    RULES,
    TABLES,
    DelegationLimits,
    LocalModelSettings,
    PeerSettings,
    Settings,
    Timeouts,
    flatten,
    nest,
)
from dragoman.decoders import convert_typed
from dragoman.errors import ConfigInvalid
from dragoman.errors.usage import nearest
from dragoman.paths import VARIABLES, Paths

ENABLED: Final = "enabled_peers"

PREFIX: Final = "DRAGOMAN_"
PEERS: Final = "peers"

OTHER_VARIABLES: Final = frozenset(
    {
        *VARIABLES.values(),
        *("DRAGOMAN_MARK", "DRAGOMAN_TRACE", "DRAGOMAN_SSH", "DRAGOMAN_HOST_SILENCE"),
        *("DRAGOMAN_DEPTH", "DRAGOMAN_LINEAGE", "DRAGOMAN_CEILING"),
    }
)
"""Dragoman's environment variables that are not settings."""


class PeerTable(Struct, frozen=True):
    """A descriptor as written in a file, not checked yet."""

    name: str
    table: Mapping[str, Any]
    origin: str
    folder: Path
    """The base directory of relative paths in it."""
    key: str = ""
    """Its key in the file."""
    problem: ConfigInvalid | None = None
    """Why it could not be read."""
    project: bool = False
    adapters: Mapping[Path, bytes] = field(default_factory=dict)
    """The Python files that a trusted project's peers name, with the bytes that were read. They
    still have to be checked (`Trust.trusts_adapter`)."""


class Config(Struct, frozen=True, kw_only=True):
    """The effective settings, with the origin of each."""

    settings: Settings
    paths: Paths
    project: Path | None = None
    """The directory of the project, if there is one."""
    project_file: Path | None = None
    trusted: bool = False
    """Whether the user has trusted the current content of the project's file."""
    peers: tuple[PeerTable, ...] = ()
    """The peers of the user and of the project, not checked yet."""
    untrusted: tuple[IgnoredSetting, ...] = ()
    """The project's settings that were ignored, and why."""
    problems: tuple[ConfigInvalid, ...] = ()
    """Problems with invalid settings, which were left out. With `strict`, such a problem is raised
    instead."""
    origins: Mapping[str, str] = field(default_factory=dict)

    def origin(self, key: str) -> str:
        """Return the origin of a dotted key's value: a file, a variable, a flag or a default."""
        return self.origins.get(key, DEFAULT)

    @property
    def chosen_ttl(self) -> float | None:
        """How many seconds an idle broker keeps running, or None if nothing sets it. A value that
        was set also applies to a broker that is already running."""
        return None if self.origin("ttl") == DEFAULT else self.settings.ttl

    def values(self) -> Iterator[tuple[str, Any, str]]:
        """Yield every setting as dotted key, value and origin."""
        for key, value in flatten(msgspec.to_builtins(self.settings)).items():
            yield key, list(value) if isinstance(value, tuple) else value, self.origin(key)


def load_config(
    cwd: Path,
    paths: Paths,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    *,
    strict: bool = True,
) -> Config:
    """Return the settings for work in a directory, with those of its project.

    `flags` are dotted keys with their values; None means "not given". Unless `strict`, invalid
    settings are left out and listed in `Config.problems`.
    """
    environ = os.environ if environ is None else environ
    merge = MergedValues(strict)
    merge.add(lambda: _global_layer(paths.config_file))
    project = read_project(cwd, paths)
    ignored: list[IgnoredSetting] = []
    before = merge.copy()
    if project is not None:
        merge.add(lambda: _project_layer(project, merge.values, ignored))
    for name, value in sorted(environ.items()):
        merge.add(lambda name=name, value=value: _variable(name, value))
    merge.add(lambda: _flag_layer(flags or {}))
    if project is not None and not project.trusted:
        from dragoman.config.untrusted import drop_wider

        drop_wider(merge, before, project.file, ignored)
    tables = [*_user_peers(paths)]
    if project is not None:
        tables += _project_peers(project, ignored)
    return Config(
        settings=merge.settings(),
        paths=paths,
        project=None if project is None else project.folder,
        project_file=None if project is None else project.file,
        trusted=project is not None and project.trusted,
        peers=tuple(tables),
        untrusted=tuple(ignored),
        problems=tuple(merge.problems),
        origins=dict(merge.origins),
    )


def load_own(file: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """Return the user's own settings, from ``config.toml`` (`file`) and the environment, without
    those of any project. Raises `ConfigInvalid`."""
    merge = MergedValues(strict=True)
    merge.add(lambda: _global_layer(file))
    for name, value in sorted((os.environ if environ is None else environ).items()):
        merge.add(lambda name=name, value=value: _variable(name, value))
    return merge.settings()


class MergedValues:
    """The settings merged so far and the origin of each, by dotted key."""

    def __init__(self, strict: bool) -> None:
        self.values: dict[str, Any] = flatten(msgspec.to_builtins(Settings()))
        self.origins: dict[str, str] = {}
        self.problems: list[ConfigInvalid] = []
        self._strict = strict

    def copy(self) -> MergedValues:
        """Return a copy of the values and origins merged so far."""
        copied = MergedValues(self._strict)
        copied.values, copied.origins = dict(self.values), dict(self.origins)
        return copied

    def add(self, layer: Any) -> None:
        try:
            values, origins = layer()
        except ConfigInvalid as error:
            if self._strict:
                raise
            self.problems.append(error)
            return
        for key, value in values.items():
            if key.startswith("peer.") and key.endswith(".env") and self.values.get(key):
                # Lists of names are merged: a project that adds a name removes none.
                self.values[key] = list(dict.fromkeys([*self.values[key], *value]))
                self.origins[key] = f"{self.origins[key]}, {origins[key]}"
            elif key in (RULES, LIMITS) and self.values.get(key):
                # Rules are merged as well. The strictest one applies, so that none can be removed.
                self.values[key] = [*self.values[key], *value]
                self.origins[key] = f"{self.origins[key]}, {origins[key]}"
            else:
                self.values[key] = value
                self.origins[key] = origins[key]

    def settings(self) -> Settings:
        if not self.origins:
            # Nothing is set, and processing the types takes longer than reading all files.
            return Settings()
        return convert_typed(nest(self.values), Settings)


Layer = tuple[dict[str, Any], dict[str, str]]


def check_settings(table: Mapping[str, Any], *, origin: str) -> dict[str, Any]:
    """Return the settings of one source as dotted keys and values. Raises one `ConfigInvalid` for
    all mistakes."""
    # Not at the top: without settings there is nothing to check.
    from dragoman.config.settings_check import check_table

    return check_table(table, origin)


def _layer(table: Mapping[str, Any], origin: str) -> Layer:
    values = check_settings(table, origin=origin)
    return values, dict.fromkeys(values, origin)


def _global_layer(file: Path) -> Layer:
    data = read_file(file)
    if data is None:
        return {}, {}
    table = parse(data, origin=str(file))
    if PEERS in table:
        raise ConfigInvalid(
            str(file), f"move each peer to its own file: {file.parent / PEERS}/NAME.toml", key=PEERS
        )
    return _layer(table, str(file))


def _project_layer(
    project: Project, base: Mapping[str, Any], ignored: list[IgnoredSetting]
) -> Layer:
    if project.problem is not None:
        raise project.problem
    table = {key: value for key, value in project.table.items() if key not in (PEERS, HOSTS)}
    if HOSTS in project.table:
        ignored.append(IgnoredSetting(project.file, HOSTS, USER_ONLY))
    origin = str(project.file)
    values = check_settings(table, origin=origin)
    if not project.trusted:
        from dragoman.config.untrusted import restricting

        values = dict(restricting(values, base, project.file, ignored))
    elif added := [n for n in values.get(ENABLED, ()) if ON_HOST in n and n not in base[ENABLED]]:
        # A project must not decide that its files are sent to another machine.
        ignored.append(IgnoredSetting(project.file, f"{ENABLED}: {', '.join(added)}", USER_ONLY))
        values[ENABLED] = [name for name in values[ENABLED] if name not in added]
    return values, dict.fromkeys(values, origin)


# -- variables and flags


def _scalar_keys() -> dict[str, str]:
    """Return the dotted keys of the settings, by the name of their environment variable."""
    found = {
        PREFIX + name.upper(): name for name in Settings.__struct_fields__ if name not in TABLES
    }
    tables = {"timeouts": Timeouts, "limits": DelegationLimits, "local_model": LocalModelSettings}
    for table, kind in tables.items():
        for name in kind.__struct_fields__:
            found[f"{PREFIX}{table.upper()}_{name.upper()}"] = f"{table}.{name}"
    return found


KEYS: Final = _scalar_keys()

NUMBERS: Final[Mapping[str, Callable[[str], float]]] = {
    "max_line_size": int,
    "max_idle_brokers": int,
    "max_depth": int,
    "max_store_size": int,
    "keep_days": float,
    "ttl": float,
    "question_timeout": float,
    **{f"limits.{name}": float for name in DelegationLimits.__struct_fields__},
    **{f"limits.{name}": int for name in ("turn_tokens", "day_tokens", "day_turns")},
    "local_model.max_tokens": int,
}
"""Numeric settings other than timeouts, and how to parse them in a variable."""

SWITCHES: Final = frozenset({"warm", "require_card", "local_model.competes"})

WORDS: Final = {"1": True, "true": True, "0": False, "false": False}
"""The words for true and false in a variable."""


def _variable(name: str, text: str) -> Layer:
    if not name.startswith(PREFIX) or name in OTHER_VARIABLES or not text:
        return {}, {}
    if name not in KEYS:
        # Unknown variables are allowed, unless the name looks like a misspelt setting: other
        # programs may use the prefix too.
        close = nearest(name, KEYS)
        if close and _only_misspelt(name, close[0]):
            raise ConfigInvalid(name, f"there is no such variable; did you mean {close[0]}?")
        return {}, {}
    key = KEYS[name]
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigInvalid(name, f"{text!r} is not UTF-8 text") from error
    value: Any = text
    if key in ("enabled_peers", "agent_files"):
        value = [word.strip() for word in text.split(",") if word.strip()]
    elif key in SWITCHES:
        if text.lower() not in WORDS:
            raise ConfigInvalid(name, f"{text!r} is not valid; use {' or '.join(WORDS)}")
        value = WORDS[text.lower()]
    elif key in NUMBERS or (key.startswith("timeouts.") and text != NEVER):
        try:
            value = NUMBERS.get(key, float)(text)
        except ValueError as error:
            raise ConfigInvalid(name, f"{text!r} is not a valid number here") from error
    return _layer(nest({key: value}), name)


def _only_misspelt(name: str, known: str) -> bool:
    import difflib

    return difflib.SequenceMatcher(None, name, known).ratio() > 0.9


def _flag_layer(flags: Mapping[str, object]) -> Layer:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for key, value in flags.items():
        if value is None:
            continue
        plain = list(value) if isinstance(value, tuple) else value
        values.update(check_settings(nest({key: plain}), origin=f"the flag for {key}"))
        origins[key] = "flag"
    return values, origins


# -- peers


def _user_peers(paths: Paths) -> Iterator[PeerTable]:
    folder = paths.peers_folder
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        problem = ConfigInvalid(str(folder), f"it cannot be read: {error.strerror}")
        yield PeerTable("", {}, str(folder), folder, problem=problem)
        return
    for file in files:
        if file.name.startswith("."):
            continue
        try:
            data = read_file(file)
            if data is None:
                continue
            yield PeerTable(file.stem, parse(data, origin=str(file)), str(file), folder)
        except ConfigInvalid as error:
            yield PeerTable(file.stem, {}, str(file), folder, problem=error)


def _project_peers(project: Project, ignored: list[IgnoredSetting]) -> Iterator[PeerTable]:
    peers = project.table.get(PEERS)
    if peers is None:
        return
    origin = str(project.file)
    if not isinstance(peers, Mapping):
        yield PeerTable(
            "",
            {},
            origin,
            project.folder,
            problem=ConfigInvalid(origin, "expected tables such as [peers.mine]", key=PEERS),
            project=True,
        )
        return
    for name, table in peers.items():
        key = f"{PEERS}.{name}"
        if not project.trusted:
            ignored.append(IgnoredSetting(project.file, key, UNTRUSTED))
        elif not isinstance(table, Mapping):
            problem = ConfigInvalid(origin, "expected a table", key=key)
            yield PeerTable(name, {}, origin, project.folder, key, problem, True)
        else:
            named = {"name": name, **table}
            yield PeerTable(
                name,
                named,
                origin,
                project.folder,
                key,
                project=True,
                adapters=project.adapters,
            )


__all__ = ["Config", "IgnoredSetting", "PeerSettings", "PeerTable", "check_settings", "load_config"]
