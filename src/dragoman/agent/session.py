"""A session as the author of an agent sees it.

Holds the state of one conversation: its working directory, its mode, its options, and whatever the
author puts into `state`. `turn` sends to the client; the author decides what a mode means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dragoman.agent.settings import SessionSettings
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.agent.turn import Turn


class Session:
    """One conversation with a client."""

    __slots__ = (
        "_meta",
        "_options",
        "_state",
        "additional_directories",
        "choices",
        "client",
        "cwd",
        "id",
        "mcp_servers",
        "mode",
        "turn",
    )

    def __init__(
        self,
        id: str,
        cwd: Path,
        *,
        additional_directories: Sequence[Path] = (),
        mcp_servers: Sequence[acp.McpServer] = (),
        meta: Mapping[str, Any] | None = None,
        client: acp.InitializeRequest,
        settings: SessionSettings | None = None,
    ) -> None:
        self.id = id
        """The id of the session, which the client uses too."""
        self.cwd = cwd
        """The working directory."""
        self.additional_directories: tuple[Path, ...] = tuple(additional_directories)
        """Further directories that the client allows."""
        self.mcp_servers: tuple[acp.McpServer, ...] = tuple(mcp_servers)
        """The MCP servers that the client wants the agent to use."""
        # Created on first use: most sessions need none of them, and they take a third of a
        # session's memory.
        self._meta = dict(meta) if meta else None
        self._options: dict[str, str | bool] | None = None
        self._state: Any = None
        self.client = client
        """The client's `initialize` request, with its `client_info` and capabilities."""
        self.choices: SessionSettings = settings or SessionSettings((), ())
        """The modes and config options that the client can choose from."""
        self.mode: str | None = self.choices.first_mode
        """The current mode, if the agent has modes. `Turn.mode` changes it."""
        self.turn: Turn | None = None
        """The running turn, if any."""

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` that the client sent when it opened the session."""
        if self._meta is None:
            self._meta = {}
        return self._meta

    @property
    def options(self) -> dict[str, str | bool]:
        """The current values of the agent's config options. `Turn.option` changes one."""
        if self._options is None:
            self._options = self.choices.first_values
        return self._options

    @property
    def state(self) -> Any:
        """Anything the author wants to keep with the session: attributes can be set on it, and it
        can be replaced."""
        if self._state is None:
            self._state = SimpleNamespace()
        return self._state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state

    def __repr__(self) -> str:
        return f"<Session {self.id!r} in {str(self.cwd)!r}>"

    @property
    def roots(self) -> tuple[Path, ...]:
        """The directories that file tools should stay in."""
        return (self.cwd, *self.additional_directories)

    # -- modes and options

    def choose_from(self, settings: SessionSettings) -> None:
        """Replace the modes and options that this session offers, and set the mode and all options
        to their initial values."""
        self.choices = settings
        self.mode = settings.first_mode
        self._options = None

    def switch_mode(self, mode_id: str) -> None:
        """Change the mode without notifying the client. Raises `UsageError` for an unknown mode."""
        if not self.choices.has_mode(mode_id):
            raise UsageError(self.choices.no_mode(mode_id))
        self.mode = mode_id

    def set_option(self, option_id: str, value: str | bool) -> None:
        """Change a config option without notifying the client. Raises `UsageError` for an unknown
        option or value."""
        if not self.choices.allows(option_id, value):
            raise UsageError(self.choices.not_allowed(option_id, value))
        self.options[option_id] = value

    def mode_state(self) -> acp.SessionModeState | None:
        """Return the modes as the client sees them, or None if there are none."""
        return self.choices.mode_state(self.mode)

    def config_options(self) -> list[acp.SessionConfigOption]:
        """Return the config options as the client sees them, including the mode."""
        values = self.options if self.choices.options else {}
        return self.choices.config_options(self.mode, values, self.client.client_capabilities)
