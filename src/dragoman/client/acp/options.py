"""What a client of an ACP agent offers to it, and how it behaves.

Owns the choices of whoever drives an agent, with defaults that are safe to forget: nothing is
permitted, no command is run. It does nothing itself: `client` tells the agent what is offered, and
`inbound` carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragoman.client.budgets import Budgets
from dragoman.client.permissions import Permit, deny_all
from dragoman.dialects.acp import v1 as acp

if TYPE_CHECKING:
    from dragoman.client.acp.inbound import Elicit, Extension
    from dragoman.wire.peer import Noise, Stray


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What the client offers to the agent, and how it behaves."""

    permit: Permit = deny_all
    """Who decides about permissions. The default refuses everything, so nothing is lost by
    forgetting it."""
    guard: Permit | None = None
    """Who decides about files and commands that the agent has us read, write and run without a
    question (`dragoman.client.file_guard`); None: what is offered here is done."""
    elicit: Elicit | None = None
    """Who answers questions with a form or a URL; without it the agent is told that nobody does."""
    elicit_url: bool = False
    """Whether `elicit` can also send its user to a URL."""
    on_url_done: Callable[[str], None] | None = None
    """Told the id of a question with a URL that was accepted and whose business is done now."""
    extension: Extension | None = None
    """Who answers the agent's own methods (``_…``) and hears its own notifications."""
    read_files: bool = True
    """Whether the agent may read text files through us, inside the workspace."""
    write_files: bool = True
    """Whether the agent may write text files through us, inside the workspace."""
    missing_file_is_empty: bool = False
    """Answer reads of missing files with nothing: one real agent cannot create files otherwise."""
    starting_mode: str | None = None
    """The mode to set in every session that is opened without one, where the agent has it: one real
    agent starts in a mode that never asks."""
    login_hint: str = ""
    """What to do about a missing login, where the caller knows it better than the agent."""
    terminals: bool = False
    """Whether the agent may run commands through us."""
    terminal_login: bool = False
    """Whether the caller can run the agent's login in a terminal."""
    on_noise: Callable[[Noise | Stray], None] | None = None
    """Told about lines that are no messages."""
    name: str = "dragoman"
    """What the client calls itself in the handshake."""
    title: str | None = None
    """The same for people."""
    version: str | None = None
    """The client's version; dragoman's own if it is not given."""
    budgets: Budgets = Budgets()
    """How long to wait for what."""
    unstable: bool = False
    """Allow methods that are not stable in the protocol, such as forking a session."""
    max_line_size: int | None = None
    """The longest message in bytes; a longer one ends the connection."""

    def offered(self) -> acp.ClientCapabilities:
        """What the agent is told in the handshake."""
        url = acp.Supported() if self.elicit_url else None
        asks = self.elicit is not None
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
