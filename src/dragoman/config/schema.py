"""Schema of the settings: every key of ``config.toml`` and ``dragoman.toml``, its type and default.

`config.load` reads and merges the files, and `config.untrusted` decides what an untrusted project
may set. `flatten` and `nest` convert between tables and dotted keys.

The annotations are values, not text (no `from __future__ import annotations`): every command loads
settings, and msgspec would have to compile each annotation first.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, field, structs

from dragoman.client.budgets import Budgets
from dragoman.policy.rules import PolicySettings

Permissions: TypeAlias = Literal["ask", "approve-reads", "approve-all", "deny-all"]
Format: TypeAlias = Literal["text", "json", "quiet"]
Seconds: TypeAlias = float | Literal["never"]
"""A time in seconds, or ``"never"`` for no limit."""

NEVER: Final = "never"

DEFAULT: Final = "default"
"""The origin of a setting that was not set."""

ON_HOST: Final = "@"
"""Separates the name of a peer from the name of its host, as in ``codex@box``."""

Adaptive: TypeAlias = Literal["off", "shadow", "on"]
Fallback: TypeAlias = Literal["all", "peers", "none"]


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many seconds to wait for an agent. The defaults are those of
    `dragoman.client.budgets`."""

    initialize: float | None = None
    """The agent's response to the handshake."""
    session: float | None = None
    """Opening a session, during which agents connect to their MCP servers."""
    request: float | None = None
    """Any other single request, such as setting a mode."""
    first_event: Seconds | None = None
    """From the prompt to the first event; ``"never"`` means no limit."""
    silence: Seconds | None = None
    """Between two events of a turn; ``"never"`` means no limit."""
    tool_silence: Seconds | None = None
    """Between two events while a tool call runs, such as a silent test suite; ``"never"`` means no
    limit. If `silence` is longer, that applies."""
    total: Seconds | None = None
    """The whole turn; ``"never"`` means no limit."""
    cancel_grace: float | None = None
    """From a cancellation to the end of the turn."""


class DelegationLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits for delegated work. A limit that is not set does not apply. A day means the last 24
    hours."""

    turn_cost: float | None = None
    """Maximum cost of one turn in US dollars, if the peer reports its cost while it works."""
    turn_tokens: int | None = None
    """Maximum number of tokens in one turn, if the peer reports them while it works."""
    turn_seconds: float | None = None
    """Maximum duration of one turn in seconds."""
    silence: float | None = None
    """Maximum number of seconds without an event in a turn, even while a tool call runs."""
    day_cost: float | None = None
    """Maximum cost in US dollars over the last 24 hours. Turns of unknown cost are not counted."""
    day_tokens: int | None = None
    """Maximum number of tokens over the last 24 hours."""
    day_seconds: float | None = None
    """Maximum total duration of turns over the last 24 hours, in seconds."""
    day_turns: int | None = None
    """Maximum number of turns over the last 24 hours."""


class LocalModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model behind an API, used if no peer can answer. Without ``api``, there is none."""

    api: Literal["anthropic", "openai"] | None = None
    """The protocol of the API: Anthropic's, or the OpenAI chat completions that most servers
    support."""
    model: str = ""
    """The id of the model in the API. Required if ``api`` is set."""
    base_url: str | None = None
    """The address of the API. For ``openai``, it includes the version, such as
    http://127.0.0.1:11434/v1."""
    key_variable: str | None = None
    """The name of the environment variable that contains the API key."""
    max_tokens: int | None = None
    """Maximum number of tokens in an answer."""
    system: str = ""
    """The system prompt."""
    competes: bool = False
    """Whether it competes with the peers, instead of being used only if none of them can answer."""


class PeerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for one peer."""

    env: tuple[str, ...] = ()
    """Names of additional variables that the peer may see. A ``*`` at the end matches any
    suffix."""
    model: str | None = None
    """The model to use, unless a command names another."""
    mode: str | None = None
    """The mode to open sessions in, unless a command names another."""
    roles: tuple[str, ...] | None = None
    """Its roles in delegation, in place of those that it claims: ``execute``, ``research``,
    ``exploration``, ``debug``, ``plan``, ``review``, ``write``, or a name of your own."""
    permissions: Permissions | None = None
    """The permission preset for this peer, in place of the general one."""
    allow_unenforced: bool = False
    """Whether it may be used under a restrictive policy although it does not ask for permission."""
    limits: DelegationLimits = DelegationLimits()
    """``[peer.NAME.limits]``: limits of delegated work for this peer."""


class HostSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another machine, reached over SSH. Allowed only in your own settings; in a project's file it
    is ignored, trusted or not."""

    destination: str | None = None
    """The destination passed to `ssh`; the name of the host if it is not set."""
    dragoman: str | None = None
    """The absolute path of the `dragoman` command there."""
    ssh_options: tuple[str, ...] = ()
    """Additional arguments for `ssh`, one per entry. Your SSH configuration applies too."""
    workspace: str | None = None
    """The absolute path of the directory to work in on that machine, unless a command names
    another."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings, merged."""

    enabled_peers: tuple[str, ...] = ()
    """The peers that delegation may use, besides scout and the local model. `run` and `chat` also
    run a peer that is not enabled, if you name it. ``codex@box`` is codex on the host box; only
    your own settings can enable it."""
    default_peer: str | None = None
    """The peer that `run` and `chat` use if you name none."""
    permissions: Permissions = "ask"
    """The permission preset. ``ask`` means ``approve-reads`` if you cannot be asked: without a
    terminal, an editor or an open console."""
    format: Format = "text"
    """The output format."""
    max_line_size: int | None = None
    """Maximum size of a message from an agent, in bytes; at least 4096."""
    warm: bool = True
    """Whether a broker keeps peers running between calls. Otherwise each call starts its own."""
    ttl: float = 1800.0
    """How many seconds an idle broker keeps running."""
    question_timeout: float = 3600.0
    """How many seconds a permission request of a job from another machine waits while that machine
    is not connected. Then it is denied."""
    max_idle_brokers: int = 4
    """Maximum number of idle brokers; the one that has been idle longest stops first."""
    keep_days: float = 90.0
    """How many days closed sessions, jobs and attempts are kept after their last use; 0 keeps them
    forever."""
    max_store_size: int = 2 * 1024**3
    """Maximum size of the session store, in bytes. Above it, the oldest closed sessions are
    deleted; 0 means no limit."""
    agent_files: tuple[str, ...] = ("agents/*.md", ".claude/agents/*.md")
    """Where a project's agent files are, relative to its directory."""
    adaptive: Adaptive = "shadow"
    """Whether measured success determines the order of peers; ``"shadow"`` only shows what would
    change."""
    fallback: Fallback = "all"
    """What is tried after a failure: other peers, the local model and scout (``"all"``), only other
    ``"peers"``, or ``"none"``."""
    max_depth: int = 1
    """Maximum depth of nested delegations. With 1, a peer cannot delegate further."""
    require_card: bool = False
    """Whether delegation uses only peers that were verified."""
    check: str = ""
    """A command that checks delegated work; exit code 0 means that the work is good."""
    limits: DelegationLimits = DelegationLimits()
    """``[limits]``: limits of delegated work. Those for a day apply to all peers together."""
    local_model: LocalModelSettings = LocalModelSettings()
    """``[local_model]``: a model behind an API, used if no peer can answer."""
    timeouts: Timeouts = Timeouts()
    """``[timeouts]``: how many seconds to wait for an agent."""
    peer: dict[str, PeerSettings] = field(default_factory=dict)
    """``[peer.NAME]``: settings for one peer."""
    hosts: dict[str, HostSettings] = field(default_factory=dict)
    """``[hosts.NAME]``: another machine, reached over SSH."""
    policy: PolicySettings = PolicySettings()
    """Rules about what agents may do, which override ``permissions``; see the policy page."""

    def budgets(self, base: Budgets | None = None) -> Budgets:
        """Return the budgets for a client: `base` (without it, the defaults), overridden by the
        timeouts that are set here."""
        chosen: dict[str, float | None] = {}
        for name in structs.asdict(self.timeouts):
            value = getattr(self.timeouts, name)
            if value == NEVER:
                chosen[name] = None
            elif value is not None:
                chosen[name] = float(value)
        return structs.replace(base or Budgets(), **chosen)

    def for_peer(self, name: str) -> PeerSettings:
        """Return the settings of a peer. A peer on a host without its own settings has those of the
        local peer."""
        own = self.peer.get(name)
        return own or self.peer.get(name.partition(ON_HOST)[0], PeerSettings())

    def permissions_for(self, name: str) -> Permissions:
        return self.for_peer(name).permissions or self.permissions


STRICTER: Final[dict[Permissions, frozenset[Permissions]]] = {
    "approve-all": frozenset({"ask", "approve-reads", "deny-all"}),
    "ask": frozenset({"deny-all"}),
    "approve-reads": frozenset({"deny-all"}),
    "deny-all": frozenset(),
}
"""For each preset, the presets that are stricter in every respect. Neither of `ask` and
`approve-reads` is stricter than the other: each allows something, without a question or after one,
that the other does not."""


PLAIN_TABLES: Final = ("timeouts", "policy", "limits", "local_model")
HOSTS: Final = "hosts"
TABLES: Final = (*PLAIN_TABLES, "peer", HOSTS)
RULES: Final = "policy.rules"
LIMITS: Final = "policy.limits"


def flatten(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings as dotted keys. A value may be a list of tables but never a table."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if key in PLAIN_TABLES:
            flat.update({f"{key}.{name}": each for name, each in value.items()})
        elif key == "peer":
            for peer, settings in value.items():
                for name, each in settings.items():
                    if name == "limits":
                        limits = {f"peer.{peer}.limits.{limit}": n for limit, n in each.items()}
                        flat.update(limits)
                    else:
                        flat[f"peer.{peer}.{name}"] = each
        elif key == HOSTS:
            for host, settings in value.items():
                # An empty table also defines a host.
                entries = settings or {"destination": None}
                flat.update({f"{HOSTS}.{host}.{name}": each for name, each in entries.items()})
        else:
            flat[key] = value
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with dotted keys as nested tables."""
    table: dict[str, Any] = {}
    for key, value in flat.items():
        head, *rest = key.split(".")
        place = table
        if rest:
            place = table.setdefault(head, {})
            for word in rest[:-1]:
                place = place.setdefault(word, {})
            place[rest[-1]] = value
        else:
            place[head] = value
    return table
