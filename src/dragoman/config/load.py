"""Load the settings from files, environment variables and flags, with the origin of each value.

The order is defaults, ``config.toml``, the project, the environment, flags. An untrusted project
can only restrict what the user allows, apart from `format` and `agent_files`. Tables that define
peers are passed on unchecked; `catalogue.load` turns them into descriptors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from dragoman.config.project import Project, parse, read_project
from dragoman.config.safe_files import read_file
from dragoman.config.schema import (
    NEVER,
    STRICTER,
    DelegationLimits,
    LocalModelSettings,
    PeerSettings,
    Settings,
    Timeouts,
)
from dragoman.config.validate import (
    VARIABLE,
    convert,
    refuse_secrets,
    short,
    with_all_mistakes,
)
from dragoman.errors import ConfigInvalid, UsageError
from dragoman.errors.usage import nearest
from dragoman.paths import VARIABLES, Paths

PREFIX: Final = "DRAGOMAN_"
DEFAULT: Final = "default"
PEERS: Final = "peers"
FALLBACKS: Final = ("none", "peers", "all")
"""Fallbacks after a failure, the strictest first."""
PLAIN_TABLES: Final = ("timeouts", "policy", "limits", "local_model")
TABLES: Final = (*PLAIN_TABLES, "peer")
RULES: Final = "policy.rules"
LIMITS: Final = "policy.limits"

OTHER_VARIABLES: Final = frozenset(
    {
        *VARIABLES.values(),
        *("DRAGOMAN_MARK", "DRAGOMAN_TRACE"),
        *("DRAGOMAN_DEPTH", "DRAGOMAN_LINEAGE", "DRAGOMAN_CEILING"),
    }
)
"""Variables of dragoman that are not settings."""


class PeerTable(Struct, frozen=True):
    """A descriptor as written in a file, not checked yet."""

    name: str
    table: Mapping[str, Any]
    origin: str
    folder: Path
    """The directory that relative paths in it start from."""
    key: str = ""
    """Its key in the file."""
    problem: ConfigInvalid | None = None
    """Why it could not even be read."""
    project: bool = False
    adapters: Mapping[Path, bytes] = field(default_factory=dict)
    """Trusted Python files of a project, with the bytes that were trusted."""


class IgnoredSetting(Struct, frozen=True):
    """A setting of a project that is ignored because the project is not trusted."""

    file: Path
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key} is ignored: {self.reason}"


class Config(Struct, frozen=True, kw_only=True):
    """The effective settings, with the origin of each."""

    settings: Settings
    paths: Paths
    project: Path | None = None
    """The directory of the project, if there is one."""
    project_file: Path | None = None
    trusted: bool = False
    """Whether the user has trusted the project's file as it is now."""
    peers: tuple[PeerTable, ...] = ()
    """The peers of the user and of the project, not checked yet."""
    untrusted: tuple[IgnoredSetting, ...] = ()
    """What was ignored, and why."""
    problems: tuple[ConfigInvalid, ...] = ()
    """Problems that were left out, unless `strict`."""
    origins: Mapping[str, str] = field(default_factory=dict)

    def origin(self, key: str) -> str:
        """The origin of a dotted key's value: a file, a variable, a flag or a default."""
        return self.origins.get(key, DEFAULT)

    @property
    def chosen_ttl(self) -> float | None:
        """How long an idle broker stays, if the user has set it: a running broker is updated
        then."""
        return None if self.origin("ttl") == DEFAULT else self.settings.ttl

    def values(self) -> Iterator[tuple[str, Any, str]]:
        """Every setting as dotted key, value and origin."""
        for key, value in _flatten(msgspec.to_builtins(self.settings)).items():
            yield key, list(value) if isinstance(value, tuple) else value, self.origin(key)


def load_config(
    cwd: Path,
    paths: Paths,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    *,
    strict: bool = True,
) -> Config:
    """The settings for work in a directory.

    `flags` are dotted keys with their values; None means "not given". Unless `strict`, invalid
    settings are left out and listed in `Config.problems`.
    """
    environ = os.environ if environ is None else environ
    merge = _Merge(strict)
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
        _narrow_again(merge, before, project.file, ignored)
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
    """The user's own settings, without those of any project. Raises `ConfigInvalid`."""
    merge = _Merge(strict=True)
    merge.add(lambda: _global_layer(file))
    for name, value in sorted((os.environ if environ is None else environ).items()):
        merge.add(lambda name=name, value=value: _variable(name, value))
    return merge.settings()


class _Merge:
    """Values so far, by dotted key."""

    def __init__(self, strict: bool) -> None:
        self.values: dict[str, Any] = _flatten(msgspec.to_builtins(Settings()))
        self.origins: dict[str, str] = {}
        self.problems: list[ConfigInvalid] = []
        self._strict = strict

    def copy(self) -> _Merge:
        """The values so far."""
        copied = _Merge(self._strict)
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
                # Lists of names are merged: a project that needs one more removes none.
                self.values[key] = list(dict.fromkeys([*self.values[key], *value]))
                self.origins[key] = f"{self.origins[key]}, {origins[key]}"
            elif key in (RULES, LIMITS) and self.values.get(key):
                # Rules too; the strictest one wins, so that none can be removed.
                self.values[key] = [*self.values[key], *value]
                self.origins[key] = f"{self.origins[key]}, {origins[key]}"
            else:
                self.values[key] = value
                self.origins[key] = origins[key]

    def settings(self) -> Settings:
        if not self.origins:
            # Nothing is set, and processing the types takes longer than reading all files.
            return Settings()
        return msgspec.convert(_nest(self.values), Settings)


Layer = tuple[dict[str, Any], dict[str, str]]


def _layer(table: Mapping[str, Any], origin: str) -> Layer:
    values = _checked(table, origin)
    return values, dict.fromkeys(values, origin)


def check_settings(table: Mapping[str, Any], *, origin: str) -> dict[str, Any]:
    """The settings of one source as dotted keys and values, or an error that names the source."""
    return _checked(table, origin)


def _checked(table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Settings as dotted keys and values. Raises `ConfigInvalid` with all mistakes."""
    return with_all_mistakes(lambda left: _checked_once(left, origin), table, origin=origin)


def _checked_once(table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    refuse_secrets(table, origin=origin)
    settings = convert(dict(table), Settings, origin=origin)
    try:
        settings.budgets()
    except UsageError as error:
        raise ConfigInvalid(origin, str(error), key="timeouts") from error
    if settings.max_line_size is not None and settings.max_line_size <= 0:
        raise ConfigInvalid(origin, "it must be a number of bytes above 0", key="max_line_size")
    if settings.ttl < 0 or settings.max_idle_brokers < 0:
        key = "ttl" if settings.ttl < 0 else "max_idle_brokers"
        raise ConfigInvalid(origin, "it must be a number of 0 or more", key=key)
    for key in ("max_depth", "keep_days", "max_store_size"):
        if getattr(settings, key) < 0:
            raise ConfigInvalid(origin, "it must be a number of 0 or more", key=key)
    _check_limits(settings.limits, "limits", origin)
    for pattern in settings.agent_files:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ConfigInvalid(origin, f"{pattern!r} is outside the project", key="agent_files")
    for name, peer in settings.peer.items():
        if not name or "." in name:
            raise ConfigInvalid(origin, f"{short(name)!r} is not the name of a peer", key="peer")
        _check_limits(peer.limits, f"peer.{name}.limits", origin)
        for variable in peer.env:
            if variable != "*" and VARIABLE.fullmatch(variable.removesuffix("*")) is None:
                raise ConfigInvalid(
                    origin, f"{variable!r} is not the name of a variable", key=f"peer.{name}.env"
                )
        _check_roles(peer.roles or (), f"peer.{name}.roles", origin)
    if settings.policy.rules or settings.policy.limits:
        from dragoman.policy.validate import check_policy

        check_policy(settings.policy, origin=origin)
    return _flatten(table)


def _check_limits(limits: DelegationLimits, key: str, origin: str) -> None:
    for name, value in msgspec.structs.asdict(limits).items():
        if value is not None and not value >= 0:
            raise ConfigInvalid(origin, "it must be a number of 0 or more", key=f"{key}.{name}")


def _global_layer(file: Path) -> Layer:
    data = read_file(file)
    if data is None:
        return {}, {}
    table = parse(data, origin=str(file))
    if PEERS in table:
        raise ConfigInvalid(
            str(file), f"each peer has its own file: {file.parent / PEERS}/NAME.toml", key=PEERS
        )
    return _layer(table, str(file))


def _project_layer(
    project: Project, base: Mapping[str, Any], ignored: list[IgnoredSetting]
) -> Layer:
    if project.problem is not None:
        raise project.problem
    table = {key: value for key, value in project.table.items() if key != PEERS}
    origin = str(project.file)
    values = _checked(table, origin)
    if not project.trusted:
        values = dict(_narrowing(values, base, project.file, ignored))
    return values, dict.fromkeys(values, origin)


ROLE: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
"""The form of a role's name."""

UNTRUSTED: Final = "this project is not trusted (`dragoman config trust` shows what it wants)"


def _narrowing(
    values: Mapping[str, Any], base: Mapping[str, Any], file: Path, ignored: list[IgnoredSetting]
) -> Iterator[tuple[str, Any]]:
    """The part of a project's settings that only restricts what the user has set."""
    limits = _limits(values, file, ignored)
    if limits:
        yield LIMITS, limits
    for key, value in values.items():
        table, _, _ = key.partition(".")
        if key in (RULES, LIMITS):
            continue
        if key == "enabled_peers":
            kept = [name for name in value if name in base[key]]
            if added := [name for name in value if name not in kept]:
                ignored.append(IgnoredSetting(file, f"{key}: {', '.join(added)}", UNTRUSTED))
            yield key, kept
        elif key == "agent_files" or (key == "permissions" and value in STRICTER[base[key]]):
            yield key, value
        elif table == "timeouts" and _shorter(value, base.get(key), key):
            yield key, value
        elif key == "warm" and value is False:
            # Without a broker nothing outlives the call.
            yield key, value
        elif key in ("ttl", "max_idle_brokers", "max_depth") and value <= base[key]:
            yield key, value
        elif _is_limit(key) and (base.get(key) is None or value <= base[key]):
            yield key, value
        elif (key, value) in (("adaptive", "off"), ("require_card", True)):
            yield key, value
        elif key == "fallback" and FALLBACKS.index(value) <= FALLBACKS.index(base[key]):
            yield key, value
        elif key == "max_line_size" and (base.get(key) is None or value < base[key]):
            yield key, value
        elif key == "format" or value == base.get(key):
            yield key, value
        elif table == "peer" and key.endswith(".permissions"):
            current = base.get(key) or base["permissions"]
            if value in STRICTER[current]:
                yield key, value
            else:
                ignored.append(IgnoredSetting(file, key, UNTRUSTED))
        else:
            ignored.append(IgnoredSetting(file, key, UNTRUSTED))


def _check_roles(roles: Sequence[str], key: str, origin: str) -> None:
    if not roles:
        return
    for role in roles:
        if ROLE.fullmatch(role) is None:
            raise ConfigInvalid(
                origin,
                f"{short(role)!r} is not a role: lower case letters, digits, single hyphens",
                key=key,
            )


def _is_limit(key: str) -> bool:
    words = key.split(".")
    return words[0] == "limits" or (words[0] == "peer" and words[2:3] == ["limits"])


def _limits(values: Mapping[str, Any], file: Path, ignored: list[IgnoredSetting]) -> list[Any]:
    """The rules of a project as limits: as a rule, even ``ask`` could allow more than before."""
    rules = values.get(RULES, [])
    for number, rule in enumerate(rules):
        if rule["action"] == "allow":
            ignored.append(IgnoredSetting(file, f"{RULES}[{number}]", UNTRUSTED))
    return [rule for rule in rules if rule["action"] != "allow"] + list(values.get(LIMITS, []))


def _narrow_again(merge: _Merge, before: _Merge, file: Path, ignored: list[IgnoredSetting]) -> None:
    """Drop a project's value for one peer if it is wider than a variable or a flag, which came
    later, says for all peers."""
    for key in [key for key, origin in merge.origins.items() if origin == str(file)]:
        if not (key.startswith("peer.") and key.endswith(".permissions")):
            continue
        wanted = before.values.get(key) or merge.values["permissions"]
        if merge.values[key] == wanted or merge.values[key] in STRICTER[wanted]:
            continue
        ignored.append(IgnoredSetting(file, key, UNTRUSTED))
        del merge.values[key], merge.origins[key]
        if key in before.values:
            merge.values[key] = before.values[key]
            merge.origins[key] = before.origins.get(key, DEFAULT)


def _shorter(value: Any, current: Any, key: str) -> bool:
    if current is None:
        from dragoman.client.budgets import Budgets

        current = getattr(Budgets(), key.partition(".")[2])
    if value == NEVER:
        return current is None or current == NEVER
    return current is None or current == NEVER or value <= current


# -- variables and flags


def _scalar_keys() -> dict[str, tuple[str, type]]:
    """Variables that are settings, with their dotted key and the type that has it."""
    found: dict[str, tuple[str, type]] = {}
    for name in Settings.__struct_fields__:
        if name not in TABLES:
            found[PREFIX + name.upper()] = (name, Settings)
    tables = {"timeouts": Timeouts, "limits": DelegationLimits, "local_model": LocalModelSettings}
    for table, kind in tables.items():
        for name in kind.__struct_fields__:
            found[f"{PREFIX}{table.upper()}_{name.upper()}"] = (f"{table}.{name}", Settings)
    return found


KEYS: Final = _scalar_keys()

NUMBERS: Final[Mapping[str, Callable[[str], float]]] = {
    "max_line_size": int,
    "max_idle_brokers": int,
    "max_depth": int,
    "max_store_size": int,
    "keep_days": float,
    "ttl": float,
    **{f"limits.{name}": float for name in DelegationLimits.__struct_fields__},
    **{f"limits.{name}": int for name in ("turn_tokens", "day_tokens", "day_turns")},
    "local_model.max_tokens": int,
}
"""Numeric settings, and how to parse them."""

SWITCHES: Final = frozenset({"warm", "require_card", "local_model.competes"})

WORDS: Final = {"1": True, "true": True, "0": False, "false": False}
"""The words for true and false in a variable."""


def _variable(name: str, text: str) -> Layer:
    if not name.startswith(PREFIX) or name in OTHER_VARIABLES or not text:
        return {}, {}
    if name not in KEYS:
        # Not an error: other parts of dragoman, and other programs, may have variables.
        close = nearest(name, KEYS)
        if close and _only_misspelt(name, close[0]):
            raise ConfigInvalid(name, f"there is no such variable; did you mean {close[0]}?")
        return {}, {}
    key, _ = KEYS[name]
    value: Any = text
    if key in ("enabled_peers", "agent_files"):
        value = [word.strip() for word in text.split(",") if word.strip()]
    elif key in SWITCHES:
        if text.lower() not in WORDS:
            raise ConfigInvalid(name, f"{text!r} is neither {' nor '.join(WORDS)}")
        value = WORDS[text.lower()]
    elif key in NUMBERS or (key.startswith("timeouts.") and text != NEVER):
        try:
            value = NUMBERS.get(key, float)(text)
        except ValueError as error:
            raise ConfigInvalid(name, f"{text!r} is not a number") from error
    return _layer(_nest({key: value}), name)


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
        values.update(_checked(_nest({key: plain}), f"the flag for {key}"))
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


# -- dotted keys


def _flatten(table: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings as dotted keys. A value may be a list of tables but never a table."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if key in PLAIN_TABLES:
            flat.update({f"{key}.{name}": each for name, each in value.items()})
        elif key == "peer":
            for peer, settings in value.items():
                for name, each in settings.items():
                    if name == "limits":
                        limits = {f"peer.{peer}.limits.{limit}": n for limit, n in each.items()}
                        flat.update(limits)
                    else:
                        flat[f"peer.{peer}.{name}"] = each
        else:
            flat[key] = value
    return flat


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in flat.items():
        head, *rest = key.split(".")
        place = table
        if rest:
            place = table.setdefault(head, {})
            for word in rest[:-1]:
                place = place.setdefault(word, {})
            place[rest[-1]] = value
        else:
            place[head] = value
    return table


__all__ = ["Config", "IgnoredSetting", "PeerSettings", "PeerTable", "check_settings", "load_config"]
