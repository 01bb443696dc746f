"""The choices that a client has in a session: modes and config options.

Defines the choices, their allowed values, and how they look to one client. The protocol offers
modes in two ways, as modes and as an option of the category ``mode``; both are derived here from
the same value, so that they cannot differ. `server` and `turn` change a choice; the author decides
what it means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from msgspec.structs import replace

from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.session import listed_values
from dragoman.errors import UsageError
from dragoman.errors.usage import alternatives, shown

Option: TypeAlias = acp.SessionConfigSelect | acp.SessionConfigBoolean
"""An option of a session: a choice from a list of values, or a switch that is on or off."""

MODE_OPTION: Final = "mode"
"""The id of the option that also offers the mode."""


class SessionSettings:
    """The modes and config options that the sessions of an agent offer to their clients."""

    __slots__ = ("_mode_ids", "modes", "options")

    def __init__(self, modes: Sequence[acp.SessionMode], options: Sequence[Option]) -> None:
        self.modes = tuple(modes)
        self._mode_ids = {mode.id for mode in self.modes}
        self.options = tuple(options)
        names = [option.id for option in self.options]
        if self.modes:
            names.append(MODE_OPTION)
        for name in names:
            if names.count(name) > 1:
                why = ": modes are also offered as an option" if name == MODE_OPTION else ""
                raise UsageError(f"two options have the id {name!r}{why}")

    @property
    def first_mode(self) -> str | None:
        return self.modes[0].id if self.modes else None

    @property
    def first_values(self) -> dict[str, str | bool]:
        return {option.id: option.current_value for option in self.options}

    def has_mode(self, mode_id: object) -> bool:
        return mode_id in self._mode_ids

    def allows(self, option_id: str, value: object) -> bool:
        """Return whether this option exists and accepts this value."""
        option = next((each for each in self.options if each.id == option_id), None)
        if option is None:
            return False
        if isinstance(option, acp.SessionConfigBoolean):
            return isinstance(value, bool)
        return value in listed_values(option)

    def no_mode(self, mode_id: object) -> str:
        """Return the error message for a mode that does not exist."""
        instead = alternatives(str(mode_id), [mode.id for mode in self.modes])
        return f"the agent has no mode {shown(str(mode_id))}; {instead}"

    def not_allowed(self, option_id: str, value: object) -> str:
        """Return the error message for an option that does not exist, or does not accept this
        value."""
        option = next((each for each in self.options if each.id == option_id), None)
        if option is None:
            instead = alternatives(option_id, [each.id for each in self.options])
            return f"the agent has no option {shown(option_id)}; {instead}"
        if isinstance(option, acp.SessionConfigBoolean):
            return f"the option {option_id!r} takes true or false, not {shown(str(value))}"
        instead = alternatives(str(value), listed_values(option))
        return f"the option {option_id!r} has no value {shown(str(value))}; {instead}"

    def mode_state(self, mode_id: str | None) -> acp.SessionModeState | None:
        """Return the modes as a client sees them, or None if there are none."""
        if mode_id is None:
            return None
        return acp.SessionModeState(current_mode_id=mode_id, available_modes=self.modes)

    def config_options(
        self, mode_id: str | None, values: Mapping[str, str | bool], client: acp.ClientCapabilities
    ) -> list[acp.SessionConfigOption]:
        """Return the options that this client supports, with their current values, the mode
        first."""
        options: list[acp.SessionConfigOption] = []
        if mode_id is not None:
            options.append(
                acp.SessionConfigSelect(
                    id=MODE_OPTION,
                    name="Mode",
                    category="mode",
                    current_value=mode_id,
                    options=[
                        acp.SessionConfigSelectOption(
                            value=mode.id, name=mode.name, description=mode.description
                        )
                        for mode in self.modes
                    ],
                )
            )
        boolean = takes_booleans(client)
        for option in self.options:
            value = values[option.id]
            if isinstance(option, acp.SessionConfigSelect):
                options.append(replace(option, current_value=str(value)))
            elif boolean:
                options.append(replace(option, current_value=bool(value)))
        return options


def takes_booleans(capabilities: acp.ClientCapabilities) -> bool:
    """Return whether a client supports options that are on or off."""
    session = capabilities.session
    return (
        session is not None
        and session.config_options is not None
        and session.config_options.boolean is not None
    )
