"""Check the settings of one source: types, ranges, names and secrets.

`config.validate` has the checks that settings share with descriptors, `config.hosts` and
`policy.validate` those of their tables. `config.load` merges what passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dragoman.config.schema import DelegationLimits, Settings, flatten
from dragoman.config.validate import (
    ROLE,
    VARIABLE,
    convert,
    refuse_secrets,
    short,
    with_all_mistakes,
)
from dragoman.errors import ConfigInvalid, UsageError


def check_table(table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return settings as dotted keys and values. Raises `ConfigInvalid` with all mistakes."""
    times = table.get("timeouts")
    if isinstance(times, Mapping) and "spawn" in times:
        # Version 0.1 had this timeout, without an effect. Its settings files stay valid.
        table = {**table, "timeouts": {key: times[key] for key in times if key != "spawn"}}
    return with_all_mistakes(lambda left: _checked_once(left, origin), table, origin=origin)


def _checked_once(table: Mapping[str, Any], origin: str) -> dict[str, Any]:
    refuse_secrets(table, origin=origin)
    settings = convert(dict(table), Settings, origin=origin)
    try:
        settings.budgets()
    except UsageError as error:
        raise ConfigInvalid(origin, str(error), key="timeouts") from error
    if settings.max_line_size is not None and settings.max_line_size <= 0:
        raise ConfigInvalid(
            origin, "it must be a number of bytes greater than 0", key="max_line_size"
        )
    if settings.ttl < 0 or settings.max_idle_brokers < 0:
        key = "ttl" if settings.ttl < 0 else "max_idle_brokers"
        raise ConfigInvalid(origin, "it must be 0 or greater", key=key)
    for key in ("max_depth", "keep_days", "max_store_size"):
        if getattr(settings, key) < 0:
            raise ConfigInvalid(origin, "it must be 0 or greater", key=key)
    _check_limits(settings.limits, "limits", origin)
    for pattern in settings.agent_files:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ConfigInvalid(origin, f"{pattern!r} is outside the project", key="agent_files")
    for name, peer in settings.peer.items():
        if not name or "." in name:
            raise ConfigInvalid(origin, f"{short(name)!r} is not a valid peer name", key="peer")
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


def _check_limits(limits: DelegationLimits, key: str, origin: str) -> None:
    for name, value in msgspec.structs.asdict(limits).items():
        if value is not None and not value >= 0:
            raise ConfigInvalid(origin, "it must be 0 or greater", key=f"{key}.{name}")


def _check_roles(roles: Sequence[str], key: str, origin: str) -> None:
    if not roles:
        return
    for role in roles:
        if ROLE.fullmatch(role) is None:
            raise ConfigInvalid(
                origin,
                f"{short(role)!r} is not a valid role: use lower-case letters, digits and single "
                "hyphens",
                key=key,
            )
