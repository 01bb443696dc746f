"""Schema of the settings: every key of ``config.toml`` and ``dragoman.toml``, its type and default.

`config.load` reads and merges the files and decides what an untrusted project may set.

The annotations are values, not text (no `from __future__ import annotations`): every command reads
settings, and msgspec would compile each of them first.
"""

from typing import Final, Literal, TypeAlias

from msgspec import Struct, field, structs

from dragoman.client.budgets import Budgets
from dragoman.policy.rules import PolicySettings

Permissions: TypeAlias = Literal["ask", "approve-reads", "approve-all", "deny-all"]
Format: TypeAlias = Literal["text", "json", "quiet"]
Seconds: TypeAlias = float | Literal["never"]
"""A time in seconds, or ``"never"`` for no limit."""

NEVER: Final = "never"

Adaptive: TypeAlias = Literal["off", "shadow", "on"]
Fallback: TypeAlias = Literal["all", "peers", "none"]


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timeouts in seconds; those not set are as in `dragoman.client.budgets`."""

    spawn: float | None = None
    """Starting the program."""
    initialize: float | None = None
    """The first response of the agent."""
    session: float | None = None
    """Opening a session."""
    request: float | None = None
    """Any other single request."""
    first_event: Seconds | None = None
    """From the prompt to the first event; ``"never"`` means no limit."""
    silence: Seconds | None = None
    """Between two events; ``"never"`` means no limit."""
    total: Seconds | None = None
    """The whole turn; ``"never"`` is the default."""
    cancel_grace: float | None = None
    """From a cancel to the end of the turn."""


class DelegationLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of delegated work; what is not set has no limit. A day is the last 24 hours."""

    turn_cost: float | None = None
    """US dollars per turn, if the peer reports them while it works."""
    turn_tokens: int | None = None
    """Tokens per turn, if the peer reports them while it works."""
    turn_seconds: float | None = None
    """Duration of one turn."""
    silence: float | None = None
    """Time without an event in a turn."""
    day_cost: float | None = None
    """US dollars per day. Turns of unknown cost are not counted."""
    day_tokens: int | None = None
    """Tokens per day."""
    day_seconds: float | None = None
    """Duration of all turns per day."""
    day_turns: int | None = None
    """Turns per day."""


class LocalModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model behind an API, used if no peer could answer; none without an ``api``."""

    api: Literal["anthropic", "openai"] | None = None
    """Its protocol: Anthropic's API, or the chat completions that most servers have."""
    model: str = ""
    """The model's id in the API."""
    base_url: str | None = None
    """The address of the API. For ``openai`` with its version, such as
    http://127.0.0.1:11434/v1."""
    key_variable: str | None = None
    """The variable that holds the key, if it is not the usual one."""
    max_tokens: int | None = None
    """Maximum tokens of an answer."""
    system: str = ""
    """The system prompt."""
    competes: bool = False
    """Whether it is routed to like a peer, instead of only after the peers."""


class PeerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for one peer."""

    env: tuple[str, ...] = ()
    """Names of further variables that the peer may see. A ``*`` at the end matches any suffix."""
    model: str | None = None
    """The model to use, unless a command names another."""
    mode: str | None = None
    """The mode to open sessions in, unless a command names another."""
    roles: tuple[str, ...] | None = None
    """The roles that it has in delegation, replacing those that it claims by itself."""
    permissions: Permissions | None = None
    """The permission policy for this peer."""
    allow_unenforced: bool = False
    """Whether it may be used under a restrictive policy although it does not ask for permission."""
    limits: DelegationLimits = DelegationLimits()
    """``[peer.NAME.limits]``: limits of delegated work for this peer."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings, merged."""

    enabled_peers: tuple[str, ...] = ()
    """The peers that routing and delegation may use. A peer named in a command needs no
    enabling."""
    default_peer: str | None = None
    """The peer that `run` and `chat` use by default."""
    permissions: Permissions = "ask"
    """The permission policy; without a terminal ``ask`` means ``approve-reads``."""
    format: Format = "text"
    """How results are printed."""
    max_line_size: int | None = None
    """The longest message of an agent in bytes."""
    warm: bool = True
    """Whether a broker keeps peers alive between calls; otherwise each call starts its own."""
    ttl: float = 1800.0
    """How many seconds an idle broker keeps running."""
    max_idle_brokers: int = 4
    """Maximum number of idle brokers; the one that has been idle longest stops first."""
    keep_days: float = 90.0
    """How many days closed sessions, jobs and attempts are kept after their last use; 0:
    forever."""
    max_store_size: int = 2 * 1024**3
    """Maximum size of the session store in bytes; the oldest closed sessions are deleted; 0: no
    limit."""
    agent_files: tuple[str, ...] = ("agents/*.md", ".claude/agents/*.md")
    """Where a project has its agent files, relative to its directory."""
    adaptive: Adaptive = "shadow"
    """Whether measured success decides the order of peers; ``"shadow"`` only compares."""
    fallback: Fallback = "all"
    """Who is tried after a failure: all, only other ``"peers"``, or ``"none"``."""
    max_depth: int = 1
    """Maximum depth of nested delegations: 1 lets no peer delegate further."""
    require_card: bool = False
    """Whether a peer that was never verified gets no delegated work."""
    check: str = ""
    """A command whose exit code says whether delegated work is good."""
    limits: DelegationLimits = DelegationLimits()
    """See `DelegationLimits`."""
    local_model: LocalModelSettings = LocalModelSettings()
    """See `LocalModelSettings`."""
    timeouts: Timeouts = Timeouts()
    """See `Timeouts`."""
    peer: dict[str, PeerSettings] = field(default_factory=dict)
    """``[peer.NAME]``: settings for one peer."""
    policy: PolicySettings = PolicySettings()
    """Rules about what agents may do, which override ``permissions``: see the policy page."""

    def budgets(self, base: Budgets | None = None) -> Budgets:
        """The budgets for a client: `base` with what is set here."""
        chosen: dict[str, float | None] = {}
        for name in structs.asdict(self.timeouts):
            value = getattr(self.timeouts, name)
            if value == NEVER:
                chosen[name] = None
            elif value is not None:
                chosen[name] = float(value)
        return structs.replace(base or Budgets(), **chosen)

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
"""Presets that are stricter than each preset in every respect. Neither of `ask` and
`approve-reads` is stricter: each allows something without asking, or by asking, that the other
does not."""
