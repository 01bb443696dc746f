"""Modes and configuration options of a session.

Owns the two ways in which a session offers choices: the older modes and the newer options, whose
types are a select and, for clients that announce it, a boolean. The requests that change them are
here too. How a change is announced is in `updates`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec

from dragoman.dialects.acp.v1.shape import FORGIVING, UNKNOWN_TAG, Family, Unknown, Wire


class SessionMode(Wire, frozen=True, kw_only=True):
    """One mode a session can be in."""

    id: str
    name: str
    description: str | None = None


class SessionModeState(Wire, frozen=True, kw_only=True):
    """The modes of a session and the current one."""

    current_mode_id: str
    available_modes: Annotated[Sequence[SessionMode], FORGIVING]


class SessionConfigOptionCategory(StrEnum):
    """The known purposes of an option, a hint for presentation; other values may come."""

    MODE = "mode"
    MODEL = "model"
    MODEL_CONFIG = "model_config"
    THOUGHT_LEVEL = "thought_level"


class SessionConfigSelectEntry(Family):
    """An entry of a select: one choice, or a named group of choices."""

    __slots__ = ()

    @staticmethod
    def member(raw: dict[str, Any]) -> type[Wire]:
        return SessionConfigSelectGroup if "group" in raw else SessionConfigSelectOption


class SessionConfigSelectOption(Wire, SessionConfigSelectEntry, frozen=True, kw_only=True):
    """One choice."""

    value: str
    name: str
    description: str | None = None


class SessionConfigSelectGroup(Wire, SessionConfigSelectEntry, frozen=True, kw_only=True):
    """A named group of choices."""

    group: str
    name: str
    options: Annotated[Sequence[SessionConfigSelectOption], FORGIVING]


if TYPE_CHECKING:
    SessionConfigSelectOptions: TypeAlias = (
        Sequence[SessionConfigSelectOption] | Sequence[SessionConfigSelectGroup]
    )
else:
    SessionConfigSelectOptions = Sequence[SessionConfigSelectEntry]


class SessionConfigSelect(Wire, frozen=True, kw_only=True, tag_field="type", tag="select"):
    """An option with a list of choices, flat or in groups."""

    id: str
    name: str
    current_value: str
    options: SessionConfigSelectOptions
    description: str | None = None
    category: str | None = None


OPEN_ENDED: dict[str, Any] = {"dragoman": {"openEnded": True}}
"""The `_meta` of a select that accepts values which it does not list, such as the models of a
provider that its agent cannot ask for a list. The protocol has no word for it."""


def is_open_ended(option: SessionConfigSelect) -> bool:
    """Whether a select says that it accepts values which it does not list."""
    ours = (option.meta or {}).get("dragoman")
    return isinstance(ours, dict) and ours.get("openEnded") is True


class SessionConfigBoolean(Wire, frozen=True, kw_only=True, tag_field="type", tag="boolean"):
    """An option that is on or off, for clients that announce `session.configOptions.boolean`."""

    id: str
    name: str
    current_value: bool
    description: str | None = None
    category: str | None = None


class UnknownConfigOption(Unknown, frozen=True, tag_field="type", tag=UNKNOWN_TAG):
    """An option of a type this version does not know; a client leaves it out."""


SessionConfigOption: TypeAlias = SessionConfigSelect | SessionConfigBoolean | UnknownConfigOption


class SetSessionModeRequest(Wire, frozen=True, kw_only=True):
    """`session/set_mode`: change the mode, even during a turn."""

    session_id: str
    mode_id: str


class SetSessionModeResponse(Wire, frozen=True, kw_only=True):
    """The mode is set."""


class SetSessionConfigOptionRequest(Wire, frozen=True, kw_only=True):
    """`session/set_config_option`: a choice's value, or a boolean.

    The protocol wants `type` beside a boolean; it is filled in when missing.
    """

    session_id: str
    config_id: str
    value: str | bool
    type: str | None = None

    def __post_init__(self) -> None:
        if self.type is None and isinstance(self.value, bool):
            msgspec.structs.force_setattr(self, "type", "boolean")


class SetSessionConfigOptionResponse(Wire, frozen=True, kw_only=True):
    """All options as they are now: one change may change others."""

    config_options: Annotated[Sequence[SessionConfigOption], FORGIVING]
