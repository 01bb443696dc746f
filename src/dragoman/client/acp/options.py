"""What an ACP client offers to the agent, and how it behaves.

The defaults are safe: nothing is permitted and no command is run. `client` sends the offered
capabilities to the agent, and `inbound` implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import field

from dragoman.client.options import DialectOptions
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import RESERVED
from dragoman.dialects.acp.v1.methods import cancel_notice
from dragoman.rpc import ConnectionSettings
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE

if TYPE_CHECKING:
    from dragoman.client.acp.inbound import Elicit, Extension


class ClientOptions(DialectOptions, frozen=True, kw_only=True):
    """What the client offers to the agent, and how it behaves."""

    elicit: Elicit | None = None
    """Callback that answers the agent's questions to its user, in the protocol's own types, instead
    of `inquire`."""
    on_url_done: Callable[[str], None] | None = None
    """Called with the id of a URL elicitation that was accepted, when the agent reports that it is
    complete."""
    extension: Extension | None = None
    """Answers the agent's extension methods (``_…``) and handles its extension notifications."""
    missing_file_is_empty: bool = False
    """Whether to answer reads of missing files with an empty text. Gemini CLI cannot create files
    otherwise."""
    starting_mode: str | None = None
    """The mode to set in every session that is opened without one, if the agent has that mode. Some
    agents start in a mode that never asks for permission."""
    session_meta: Mapping[str, Any] = field(default_factory=dict)
    """Sent as `_meta` when a peer opens a session, because some agents read settings from it. The
    metadata of the session is added, and takes precedence."""
    login_hint: str = ""
    """What to do about a missing login; replaces the hint that is made from the agent's login
    methods."""
    terminal_login: bool = False
    """Whether the caller can run a login of the agent in a terminal, as advertised to the agent."""

    def offered(self) -> acp.ClientCapabilities:
        """Return the capabilities sent in the handshake."""
        url = acp.Supported() if self.visits else None
        asks = self.elicit is not None or self.inquire is not None
        return acp.ClientCapabilities(
            fs=acp.FileSystemCapabilities(
                read_text_file=self.read_files, write_text_file=self.write_files
            ),
            terminal=self.terminals,
            session=acp.ClientSessionCapabilities(
                notices=acp.Supported(),
                compaction=acp.Supported(),
                config_options=acp.SessionConfigOptionsCapabilities(boolean=acp.Supported()),
            ),
            auth=acp.AuthCapabilities(terminal=self.terminal_login),
            elicitation=acp.ElicitationCapabilities(form=acp.Supported(), url=url)
            if asks
            else None,
        )


def connection_settings(max_line_size: int | None) -> ConnectionSettings:
    """Return the settings that ACP needs on a connection."""
    return ConnectionSettings(
        cancel_notice=cancel_notice,
        reserved=RESERVED,
        max_line_size=DEFAULT_MAX_LINE_SIZE if max_line_size is None else max_line_size,
    )
