"""Every setting there is, with its type and its default.

Owns the shape of ``config.toml`` and of a project's ``dragoman.toml``, key by key, and which of
the keys a project may set before it is trusted. It does not read or merge anything (`merging`).
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct, field, structs

from dragoman.client.budgets import Budgets
from dragoman.hub.policy.rules import PolicySettings

Permissions: TypeAlias = Literal["ask", "approve-reads", "approve-all", "deny-all"]
Format: TypeAlias = Literal["text", "json", "quiet"]
Seconds: TypeAlias = float | Literal["never"]
"""A time in seconds, or ``"never"`` for no limit."""

NEVER: Final = "never"


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait for what, in seconds; what is not set is as in `dragoman.client.budgets`."""

    spawn: float | None = None
    """Starting the program."""
    initialize: float | None = None
    """The first answer of the agent."""
    session: float | None = None
    """Opening a session."""
    request: float | None = None
    """Any other single question."""
    first_event: Seconds | None = None
    """From the prompt to the first sign of life; ``"never"`` waits for ever."""
    silence: Seconds | None = None
    """Between two signs of life; ``"never"`` waits for ever."""
    total: Seconds | None = None
    """The whole turn; ``"never"`` is the default."""
    cancel_grace: float | None = None
    """From a cancel to the end of the turn."""


class PeerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user wants of one peer."""

    env: tuple[str, ...] = ()
    """Names of further variables that the peer may see. A ``*`` at the end stands for any rest."""
    model: str | None = None
    """The model to ask for, unless a command names another."""
    mode: str | None = None
    """The mode to open sessions in, unless a command names another."""
    permissions: Permissions | None = None
    """Who decides about permissions for this peer."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings, merged."""

    enabled_peers: tuple[str, ...] = ()
    """The peers that routing and delegation may use. A peer that is named needs no enabling."""
    permissions: Permissions = "ask"
    """Who decides when an agent asks; without a terminal ``ask`` is ``approve-reads``."""
    format: Format = "text"
    """How results are printed."""
    max_line_size: int | None = None
    """The longest message of an agent in bytes."""
    warm: bool = True
    """Whether peers are kept alive between calls, by a broker; else each call starts its own."""
    ttl: float = 1800.0
    """How many seconds an idle broker stays."""
    max_idle_brokers: int = 4
    """How many idle brokers stay at once; the one that has been idle for longest stops first."""
    agent_files: tuple[str, ...] = ("agents/*.md",)
    """Where a project has its agent files, relative to its folder."""
    timeouts: Timeouts = Timeouts()
    """See `Timeouts`."""
    peer: dict[str, PeerSettings] = field(default_factory=dict)
    """``[peer.NAME]``: settings for one peer."""
    policy: PolicySettings = PolicySettings()
    """Rules about what agents may do, over what ``permissions`` says: see the policy page."""

    def budgets(self, base: Budgets | None = None) -> Budgets:
        """The budgets for a client: `base` with what is set here."""
        base = base or Budgets()
        chosen: dict[str, float | None] = {}
        for name in structs.asdict(self.timeouts):
            value = getattr(self.timeouts, name)
            if value == NEVER:
                chosen[name] = None
            elif value is not None:
                chosen[name] = float(value)
        values = {name: getattr(base, name) for name in Budgets.__dataclass_fields__}
        return Budgets(**{**values, **chosen})

    def for_peer(self, name: str) -> PeerSettings:
        return self.peer.get(name, PeerSettings())

    def permissions_for(self, name: str) -> Permissions:
        return self.for_peer(name).permissions or self.permissions


STRICTER: Final[dict[Permissions, frozenset[Permissions]]] = {
    "approve-all": frozenset({"ask", "approve-reads", "deny-all"}),
    "ask": frozenset({"deny-all"}),
    "approve-reads": frozenset({"deny-all"}),
    "deny-all": frozenset(),
}
"""What takes something away from each preset and adds nothing. `ask` and `approve-reads` each let
pass something without a question or by one that the other does not."""
