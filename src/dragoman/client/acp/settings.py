"""The modes, models and config options of a session, and how to change them.

The values are those last reported. A change is sent to the agent and read back from its response.
`session` has the session itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.client.base import WorkspaceServices
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.session import is_open_ended, listed_values
from dragoman.errors import Unsupported
from dragoman.errors.usage import alternatives, no_such
from dragoman.events.parts import Choice

if TYPE_CHECKING:
    from dragoman.client.acp.client import AcpClient


class AcpSettings(WorkspaceServices):
    """The modes, models and config options of a session."""

    __slots__ = ("client", "config_options", "id", "models", "modes")

    def __init__(
        self, client: AcpClient, id: str, cwd: Path, additional_directories: Sequence[Path] = ()
    ) -> None:
        WorkspaceServices.__init__(self, cwd, additional_directories)
        self.client = client
        self.id = id
        """The agent's id of the session."""
        self.modes: acp.SessionModeState | None = None
        """The modes and the current one, if the agent has modes."""
        self.models: acp.SessionModelState | None = None
        """The models and the current one, if the agent reports them separately from options."""
        self.config_options: Sequence[acp.SessionConfigOption] | None = None
        """The config options with their current values."""

    @property
    def model_choices(self) -> Sequence[Choice]:
        """The models, if the agent reports them separately from its options; otherwise empty."""
        models = () if self.models is None else self.models.available_models
        return [Choice(each.model_id, each.name, each.description) for each in models]

    async def set_mode(self, mode_id: str) -> None:
        """Switch the mode. Uses a config option of category ``mode`` if there is one."""
        await self._set_mode(mode_id)
        self.settings_changed()

    async def switch_mode(self, mode_id: str) -> None:
        """Switch the mode with `session/set_mode`, even if a config option could do it too."""
        before = self.modes
        await self._switch_mode(mode_id)
        if self.modes is not before:
            self.settings_changed()

    async def set_model(self, model_id: str) -> None:
        """Switch the model with a config option of category ``model``, or else with
        `session/set_model`, which is no longer in any schema but which real agents still offer."""
        await self._set_model(model_id)
        self.settings_changed()

    async def set_option(self, option_id: str, value: str | bool) -> None:
        """Change a config option. The agent responds with all options and their values, which
        replace `config_options`."""
        await self._set_option(option_id, value)
        self.settings_changed()

    async def set_config_option(self, config_id: str, value: str | bool) -> None:
        """Deprecated: the former name of `set_option`."""
        warnings.warn(
            "set_config_option was renamed to set_option", DeprecationWarning, stacklevel=2
        )
        await self.set_option(config_id, value)

    # -- for the client

    def opened(self, modes: Any, models: Any, config_options: Any) -> None:
        """Take the settings from the response that opened the session."""
        self.modes = modes
        self.models = models
        self.config_options = config_options

    async def prepare(self, *, mode: str | None, model: str | None) -> None:
        """Set the model and mode that the session starts with. Without `mode`, the `starting_mode`
        of the client's options is used if the agent has it."""
        if model is not None:
            await self._set_model(model)
        if mode is None:
            mode = self._starting_mode()
        if mode is not None:
            await self._set_mode(mode)
        if mode is not None or model is not None:
            self.settings_changed()

    def settings_changed(self, native: str = "", line: bytes | None = None) -> None:
        """Called when a setting may have changed. Does nothing here; a session that makes events
        emits its current settings."""

    # -- inside

    async def _set_mode(self, mode_id: str) -> None:
        option = self._option("mode")
        if option is not None:
            await self._set_option(option.id, mode_id)
        else:
            await self._switch_mode(mode_id)

    async def _switch_mode(self, mode_id: str) -> None:
        known = [mode.id for mode in self.modes.available_modes] if self.modes else []
        if mode_id not in known:
            raise no_such("mode", mode_id, known)
        before = self.modes

        def switched(_: acp.SetSessionModeResponse) -> None:
            # A mode that the agent reported in the meantime wins.
            if self.modes is before:
                self._switched(mode_id)

        await self.client.ask_then(
            acp.SESSION_SET_MODE,
            acp.SetSessionModeRequest(session_id=self.id, mode_id=mode_id),
            switched,
        )

    def _switched(self, mode_id: str) -> None:
        if self.modes is None or self.modes.current_mode_id == mode_id:
            return
        self.modes = replace(self.modes, current_mode_id=mode_id)
        # Keep the config option equal to the mode.
        option = self._option("mode")
        if option is not None and mode_id in _values(option):
            changed = replace(option, current_value=mode_id)
            self.config_options = [
                changed if each is option else each for each in self.config_options or ()
            ]

    async def _set_model(self, model_id: str) -> None:
        option = self._option("model")
        if option is not None:
            await self._set_option(option.id, model_id)
            return
        known = [model.model_id for model in self.models.available_models] if self.models else []
        if model_id not in known:
            raise no_such("model", model_id, known)

        def switched(_: acp.SetSessionModelResponse) -> None:
            if self.models is not None:
                self.models = replace(self.models, current_model_id=model_id)

        await self.client.ask_then(
            acp.SESSION_SET_MODEL,
            acp.SetSessionModelRequest(session_id=self.id, model_id=model_id),
            switched,
        )

    async def _set_option(self, option_id: str, value: str | bool) -> None:
        options = [
            o for o in self.config_options or () if not isinstance(o, acp.UnknownConfigOption)
        ]
        option = next((o for o in options if o.id == option_id), None)
        if option is None:
            known = [o.id for o in options]
            raise Unsupported(
                f"the agent has no option {option_id!r}; {alternatives(option_id, known)}"
            )
        values = _values(option)
        open_ended = (
            isinstance(value, str)
            and isinstance(option, acp.SessionConfigSelect)
            and is_open_ended(option)
        )
        # In Python 1 == True, but not for an agent.
        if not open_ended and (value not in values or type(value) is not type(values[0])):
            if option.category in ("mode", "model"):
                raise no_such(option.category, str(value), map(str, values))
            offered = alternatives(str(value), map(str, values))
            raise Unsupported(f"the option {option_id!r} has no value {value!r}; {offered}")

        def changed(response: acp.SetSessionConfigOptionResponse) -> None:
            self.config_options = response.config_options
            if option.category == "mode" and isinstance(value, str):
                told = self._option("mode")
                self._switched(value if told is None else told.current_value)

        await self.client.ask_then(
            acp.SESSION_SET_CONFIG_OPTION,
            acp.SetSessionConfigOptionRequest(session_id=self.id, config_id=option_id, value=value),
            changed,
        )

    def _option(self, category: str) -> acp.SessionConfigSelect | None:
        for option in self.config_options or ():
            if isinstance(option, acp.SessionConfigSelect) and option.category == category:
                return option
        return None

    def _starting_mode(self) -> str | None:
        """Return the `starting_mode` of the client's options if the agent has it and it is not
        current, else None."""
        wanted = self.client.options.starting_mode
        option = self._option("mode")
        if option is not None:
            known, current = _values(option), option.current_value
        elif self.modes is not None:
            known = [mode.id for mode in self.modes.available_modes]
            current = self.modes.current_mode_id
        else:
            return None
        return wanted if wanted in known and wanted != current else None


def _values(option: acp.SessionConfigSelect | acp.SessionConfigBoolean) -> list[str | bool]:
    """Return the possible values of an option."""
    if isinstance(option, acp.SessionConfigBoolean):
        return [False, True]
    return [*listed_values(option)]
