"""RunRequest: what to send to which peer, in which session and on which terms.

The surfaces and `delegation` build it; `runs.run` carries it out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dragoman.catalogue.enforcement import Enforced
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Peer
from dragoman.client.options import ConnectOptions
from dragoman.events.model import Event
from dragoman.events.parts import Block, Capabilities, Failure
from dragoman.policy.approver import Approver

if TYPE_CHECKING:
    from dragoman.broker.protocol import PolicyTerms
    from dragoman.paths import Paths
    from dragoman.runs.adapter_run import AdapterWork
    from dragoman.store.records import SessionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What to send to which peer, in which session and on which terms."""

    peer: str
    enforced: Enforced
    """How the peer is started, and how the approver's policy is enforced with it."""
    adapter: AdapterWork | None
    """The peer's Python adapter, which is prompted in the place of the peer, without a broker.
    Without a default, so that no caller forgets it (`adapter_run.adapter_work`)."""
    workspace: Path
    project: Path | None = None
    """The directory that the session is recorded for, if it is not the workspace: the workspace
    may be a worktree of it."""

    prompt: Sequence[Block] = ()
    attach: Callable[[Capabilities], Sequence[Block]] | None = None
    """Further blocks of the prompt, built when it is known what the peer can take."""
    job: str = ""
    """The id of the job of the first turn; empty for a new one."""

    session: str | None = None
    """Name or key of a stored session. A name that is not in use begins a session."""
    record: SessionRecord | None = None
    """A stored session that is known already, in place of `session`."""
    fresh: bool = False
    """Whether a new session may take the place of a stored one that the peer has lost."""
    brief: bool = False
    """Whether the first prompt of such a session says in short what was said in the lost one."""
    once: bool = False
    """Whether a new session is closed after its turns, also by a broker that runs them alone."""
    keep_open: bool = False
    """Whether the session stays open when the run ends."""
    mcp_servers: Sequence[Any] = ()
    mcp_strict: bool = True
    """Whether the servers are also sent to a peer that says that it takes none; otherwise they are
    left out with a notice."""
    additional_directories: Sequence[Path] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    mode: str | None = None
    model: str | None = None
    model_strict: bool = True
    """Whether a model that the peer does not take is an error; otherwise the session opens with
    another one, and the result says why (`RunResult.model_error`)."""
    restored_as_is: bool = False
    """Whether a stored session keeps its mode and model, so that these are for a new one."""

    approver: Approver
    unattended: PolicyTerms
    """The policy for a turn that continues in a broker after this process has disconnected."""
    budgets: Budgets
    limit: Callable[[Event], Failure | None] | None = None
    """Called with every event. A failure that it returns ends the turn as truncated."""
    still_running: Callable[[Peer, str], Awaitable[str | None]] | None = None
    """Called with the peer and the id of the session after a turn that was cut off. Returns why the
    peer may still be working on it."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    """Metadata for the peer, under `dragoman`: the lineage of delegated work."""
    trace: Mapping[str, str] = field(default_factory=dict)
    """Trace context for the peer, beside `dragoman`."""

    warm: bool = True
    ttl: float | None = None
    max_idle: int | None = None
    paths: Paths | None = None
    options: ConnectOptions = field(default_factory=ConnectOptions)
    """How to talk to the peer. The approver, the budgets and the events of the run replace those
    that are in it."""
    watch_changes: bool = True
    """Whether to look for files that change in a turn although the approver did not allow it."""
    keep_tools: bool = False
    """Whether the view keeps the tool calls, and not only how the session is set up."""

    @property
    def asks(self) -> bool:
        """Whether a person is asked where the policy says no more than its preset."""
        return self.approver.policy.preset == "ask"

    def moved(self, folder: Path) -> Self:
        """The same request in another workspace: a stored session goes on where it began, because
        there is its broker, and there are its files."""
        if folder == self.workspace:
            return self
        approver = replace(self.approver, workspace=str(folder))
        return replace(self, workspace=folder, approver=approver)
