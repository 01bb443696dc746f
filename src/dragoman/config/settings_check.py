"""Check the settings of one source: types, ranges, names and secrets.

`config.validate` has the checks that settings share with descriptors, `config.hosts` and
`policy.validate` those of their tables. `config.load` merges what passed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.config.schema import NEVER, DelegationLimits, Settings, Timeouts, flatten
from dragoman.config.validate import (
    ROLE,
    VARIABLE,
    convert,
    refuse_secrets,
    short,
    with_all_mistakes,
)
from dragoman.errors import ConfigInvalid
from dragoman.wire.framing import MIN_LINE_SIZE

AT_LEAST_0: Final = (
    *("ttl", "max_idle_brokers", "max_depth", "keep_days", "max_store_size", "question_timeout"),
)
"""Numeric settings that must not be negative."""

ENDLESS: Final = (
    *("timeouts.first_event", "timeouts.silence", "timeouts.tool_silence", "timeouts.total"),
)
"""Timeouts that can be switched off."""


def check_table(table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the settings of a parsed file as dotted keys and values. Raises one `ConfigInvalid`
    for all mistakes."""
    times = table.get("timeouts")
    if isinstance(times, Mapping) and "spawn" in times:
        # Version 0.1 had this timeout, without an effect. Its settings files stay valid.
        table = {**table, "timeouts": {key: times[key] for key in times if key != "spawn"}}
    return with_all_mistakes(lambda left: _checked_once(left, origin), table, origin=origin)


def _checked_once(table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    refuse_secrets(table, origin=origin)
    settings = convert(dict(table), Settings, origin=origin)
    _check_finite(table, origin)
    _check_timeouts(settings.timeouts, origin)
    if settings.max_line_size is not None and settings.max_line_size < MIN_LINE_SIZE:
        raise ConfigInvalid(
            origin, f"it must be {MIN_LINE_SIZE} bytes or greater", key="max_line_size"
        )
    for key in AT_LEAST_0:
        if getattr(settings, key) < 0:
            raise ConfigInvalid(origin, "it must be 0 or greater", key=key)
    if settings.local_model.max_tokens is not None and settings.local_model.max_tokens <= 0:
        raise ConfigInvalid(origin, "it must be greater than 0", key="local_model.max_tokens")
    _check_limits(settings.limits, "limits", origin)
    for pattern in settings.agent_files:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ConfigInvalid(
                origin,
                f"{pattern!r} must be relative to the project, without `..`",
                key="agent_files",
            )
    for name, peer in settings.peer.items():
        if not name or "." in name:
            raise ConfigInvalid(
                origin,
                f"{short(name)!r} is not a valid peer name: it must not be empty or contain a dot",
                key="peer",
            )
        _check_limits(peer.limits, f"peer.{name}.limits", origin)
        for variable in peer.env:
            if variable != "*" and VARIABLE.fullmatch(variable.removesuffix("*")) is None:
                raise ConfigInvalid(
                    origin,
                    f"{variable!r} is not a valid name of an environment variable",
                    key=f"peer.{name}.env",
                )
        _check_roles(peer.roles or (), f"peer.{name}.roles", origin)
    if settings.hosts:
        from dragoman.config.hosts import check_host

        for name, host in settings.hosts.items():
            check_host(name, host, origin=origin)
    if settings.policy.rules or settings.policy.limits:
        from dragoman.policy.validate import check_policy

        check_policy(settings.policy, origin=origin)
    return flatten(table)


def _check_finite(table: Mapping[str, Any], origin: str) -> None:
    """Reject ``inf`` and ``nan``: TOML has them, but the messages to a broker cannot contain
    them."""
    for key, value in flatten(table).items():
        if isinstance(value, float) and not math.isfinite(value):
            advice = f'; use "{NEVER}" for no limit' if key in ENDLESS else ""
            raise ConfigInvalid(origin, f"it must be a finite number{advice}", key=key)


def _check_timeouts(timeouts: Timeouts, origin: str) -> None:
    for name, value in msgspec.structs.asdict(timeouts).items():
        if value is None or value == NEVER:
            continue
        key = f"timeouts.{name}"
        if key in ENDLESS and value <= 0:
            problem = f'it must be greater than 0; use "{NEVER}" for no limit'
            raise ConfigInvalid(origin, problem, key=key)
        if value < 0:
            raise ConfigInvalid(origin, "it must be 0 or greater", key=key)


def _check_limits(limits: DelegationLimits, key: str, origin: str) -> None:
    for name, value in msgspec.structs.asdict(limits).items():
        if value is not None and value < 0:
            raise ConfigInvalid(origin, "it must be 0 or greater", key=f"{key}.{name}")


def _check_roles(roles: Sequence[str], key: str, origin: str) -> None:
    if not roles:
        return
    for role in roles:
        if ROLE.fullmatch(role) is None:
            raise ConfigInvalid(
                origin,
                f"{short(role)!r} is not a valid role: use lower-case letters, digits and single "
                "hyphens, starting with a letter",
                key=key,
            )
