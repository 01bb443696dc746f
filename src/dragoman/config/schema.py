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


class DelegationLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What delegated work may use up; what is not set has no limit. A day is the last 24 hours."""

    turn_cost: float | None = None
    """Dollars of one turn, where the peer tells them while it works."""
    turn_tokens: int | None = None
    """Tokens of one turn, where the peer tells them while it works."""
    turn_seconds: float | None = None
    """The time of one turn."""
    silence: float | None = None
    """The time without a sign of life in a turn."""
    day_cost: float | None = None
    """Dollars of a day. What nobody knows is not in the sum."""
    day_tokens: int | None = None
    """Tokens of a day."""
    day_seconds: float | None = None
    """The time of all turns of a day."""
    day_turns: int | None = None
    """Turns of a day."""


class LocalModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model behind an API that is asked where no peer could answer; none without an ``api``."""

    api: Literal["anthropic", "openai"] | None = None
    """What it speaks: Anthropic's API, or the chat completions that most servers have."""
    model: str = ""
    """The id by which the API knows it."""
    base_url: str | None = None
    """Where the API is. For ``openai`` with its version, such as http://127.0.0.1:11434/v1."""
    key_variable: str | None = None
    """The variable that holds the key, if it is another than usual."""
    max_tokens: int | None = None
    """Tokens of an answer, at most."""
    system: str = ""
    """What the model is told before the question."""
    competes: bool = False
    """Whether it stands beside the peers as one of them, and not behind them."""


class PeerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user wants of one peer."""

    env: tuple[str, ...] = ()
    """Names of further variables that the peer may see. A ``*`` at the end stands for any rest."""
    model: str | None = None
    """The model to ask for, unless a command names another."""
    mode: str | None = None
    """The mode to open sessions in, unless a command names another."""
    roles: tuple[str, ...] | None = None
    """The roles that it is asked for in delegation, in place of those that it claims by itself."""
    permissions: Permissions | None = None
    """Who decides about permissions for this peer."""
    allow_unenforced: bool = False
    """Whether it is used under a policy that restricts it although it does not ask."""
    limits: DelegationLimits = DelegationLimits()
    """``[peer.NAME.limits]``: what delegated work may use up at this peer."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings, merged."""

    enabled_peers: tuple[str, ...] = ()
    """The peers that routing and delegation may use. A peer that is named needs no enabling."""
    default_peer: str | None = None
    """The peer that `run` and `chat` ask if they name none."""
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
    keep_days: float = 90.0
    """How many days closed sessions, jobs and attempts are kept after their last use; 0: all."""
    max_store_size: int = 2 * 1024**3
    """How many bytes the session store may have; the oldest closed sessions go; 0: no limit."""
    agent_files: tuple[str, ...] = ("agents/*.md",)
    """Where a project has its agent files, relative to its folder."""
    adaptive: Adaptive = "shadow"
    """Whether measured success decides the order of peers; ``"shadow"`` only compares."""
    fallback: Fallback = "all"
    """Who is asked after a failure: all, only other ``"peers"``, or ``"none"``."""
    max_depth: int = 1
    """How many delegations may stand in one line: 1 lets no peer delegate in turn."""
    require_card: bool = False
    """Whether a peer that was never verified gets no delegated work."""
    check: str = ""
    """A command that says whether delegated work is good, by its exit code."""
    limits: DelegationLimits = DelegationLimits()
    """See `DelegationLimits`."""
    local_model: LocalModelSettings = LocalModelSettings()
    """See `LocalModelSettings`."""
    timeouts: Timeouts = Timeouts()
    """See `Timeouts`."""
    peer: dict[str, PeerSettings] = field(default_factory=dict)
    """``[peer.NAME]``: settings for one peer."""
    policy: PolicySettings = PolicySettings()
    """Rules about what agents may do, over what ``permissions`` says: see the policy page."""

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
"""What takes something away from each preset and adds nothing. `ask` and `approve-reads` each let
pass something without a question or by one that the other does not."""
