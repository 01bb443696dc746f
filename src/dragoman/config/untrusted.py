"""Decide which settings of an untrusted project apply: only those that restrict what the user has
set.

The exceptions are `format` and `agent_files`. Everything else is ignored and listed with the
reason. `config.load` calls this module for each project that the user has not trusted
(`config.trust`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dragoman.config.project import UNTRUSTED, IgnoredSetting
from dragoman.config.schema import DEFAULT, LIMITS, NEVER, RULES, STRICTER

if TYPE_CHECKING:
    from dragoman.config.load import MergedValues

FALLBACKS: Final = ("none", "peers", "all")
"""Fallbacks after a failure, the strictest first."""


def restricting(
    values: Mapping[str, Any], base: Mapping[str, Any], file: Path, ignored: list[IgnoredSetting]
) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a project that apply without trust, by dotted key: `format`,
    `agent_files`, and those that are equal to the settings so far (`base`) or only restrict them.
    The others are added to `ignored`."""
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


def _is_limit(key: str) -> bool:
    words = key.split(".")
    return words[0] == "limits" or (words[0] == "peer" and words[2:3] == ["limits"])


def _limits(values: Mapping[str, Any], file: Path, ignored: list[IgnoredSetting]) -> list[Any]:
    """Return the rules of a project as limits, which can only restrict. A rule could override the
    user's settings: even ``ask`` allows more than ``deny``. Rules that allow are added to
    `ignored`."""
    rules = values.get(RULES, [])
    for number, rule in enumerate(rules):
        if rule["action"] == "allow":
            ignored.append(IgnoredSetting(file, f"{RULES}[{number}]", UNTRUSTED))
    return [rule for rule in rules if rule["action"] != "allow"] + list(values.get(LIMITS, []))


def drop_wider(
    merge: MergedValues, before: MergedValues, file: Path, ignored: list[IgnoredSetting]
) -> None:
    """Drop each permission preset that a project sets for one peer, unless it equals the user's own
    for that peer or is stricter. Restores the user's own. Without one, it is compared with the
    general preset, which a variable or a flag may have changed after the project."""
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
