"""Session settings that not every peer supports: a system prompt, tools that need no permission,
and a limit on model calls.

The descriptor says how each of them is passed to a peer: as an option of its dialect's client, or
as an argument on its command line. Both are part of the `LaunchSpec`, so a broker is shared only by
callers with the same settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, structs

from dragoman.catalogue.descriptor import Descriptor, SettingWay
from dragoman.catalogue.launch import LaunchSpec
from dragoman.errors import Unsupported

VALUE: Final = "{value}"
"""Placeholder for the value in the arguments of a command line."""


class WantedSettings(Struct, frozen=True, kw_only=True):
    """The settings that a user requests. An empty value means the peer's own default."""

    system_prompt: str = ""
    allow_tool: tuple[str, ...] = ()
    max_turns: int | None = None

    def given(self) -> Iterator[tuple[str, Any]]:
        """Yield the settings that are not empty, by name."""
        for name, value in structs.asdict(self).items():
            if value:
                yield name, value


def lacking(descriptor: Descriptor | None, settings: WantedSettings) -> str:
    """Return the command-line option of the first setting that the user requests and the peer does
    not support, or an empty string if the peer supports all of them."""
    for name, _ in settings.given():
        if _way(descriptor, name) is None:
            return option(name)
    return ""


def option(name: str) -> str:
    """Return the command-line option for a setting."""
    return "--" + name.replace("_", "-")


def with_settings(
    spec: LaunchSpec, settings: WantedSettings, *, others: Iterable[Descriptor] = ()
) -> LaunchSpec:
    """Return the launch spec of a peer whose sessions have these settings.

    Raises `Unsupported` if the peer lacks one of them; the error names those of the `others` that
    support them all.
    """
    missing = lacking(spec.descriptor, settings)
    if missing:
        able = [each.name for each in others if not lacking(each, settings)]
        instead = (
            f"{', '.join(able)} {'do' if len(able) > 1 else 'does'}"
            if able
            else "none of the enabled peers does"
        )
        raise Unsupported(f"{spec.name} does not support {missing}; {instead}")
    details: dict[str, Any] = dict(spec.details)
    words: list[str] = []
    for name, value in settings.given():
        way = _way(spec.descriptor, name)
        assert way is not None
        if way.detail:
            details = _put(details, way.detail.split("."), value)
        for each in value if isinstance(value, tuple) else (value,):
            words += [word.replace(VALUE, str(each)) for word in way.arguments]
    command = None if spec.command is None else (*spec.command, *words)
    return structs.replace(spec, command=command, details=details)


def _way(descriptor: Descriptor | None, name: str) -> SettingWay | None:
    found = None if descriptor is None else getattr(descriptor.session, name)
    return found if isinstance(found, SettingWay) else None


def _put(table: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    head, *rest = path
    inner = _put(table.get(head, {}), rest, value) if rest else value
    return {**table, head: list(inner) if isinstance(inner, tuple) else inner}
