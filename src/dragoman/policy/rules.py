"""Data types of the permission policy: rules, presets, acts and verdicts.

Defines the ``[policy]`` table of the settings. `policy.evaluation` applies the rules,
`policy.validate` checks rules from a file, and `act_from_request` builds acts.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct, structs

from dragoman.client.permissions import READING

Action: TypeAlias = Literal["allow", "ask", "escalate", "deny"]
Kind: TypeAlias = Literal[
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
]
Preset: TypeAlias = Literal["ask", "approve-reads", "approve-all", "deny-all"]
PolicyName: TypeAlias = Literal["approve-all", "approve-reads", "deny-all"]
"""A preset that decides without questions."""

Words: TypeAlias = str | tuple[str, ...]

STRICTNESS: Final[dict[str, int]] = {"allow": 0, "ask": 1, "escalate": 2, "deny": 3}
"""The actions by strictness. If several rules match, the strictest applies, so their order does not
matter."""

DEFAULT_PRESET: Final[Preset] = "approve-reads"


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: what it matches, and the action; an omitted key matches everything."""

    action: Action
    """What happens to a request that the rule matches."""
    kind: Kind | tuple[Kind, ...] = ()
    """Kinds of requests: ``read``, ``edit``, ``delete``, ``move``, ``search``, ``execute``,
    ``think``, ``fetch``, ``switch_mode`` or ``other``."""
    paths: tuple[str, ...] = ()
    """File globs, relative to the workspace unless they begin with ``/`` or ``~/``."""
    commands: tuple[str, ...] = ()
    """Command-line patterns, matched word by word, such as ``git status *``."""
    peer: Words = ()
    """Names of the peers that the rule is for."""
    role: Words = ()
    """Roles of delegated work that the rule is for."""
    why: str = ""
    """A reason, which is shown with the verdict."""

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(words(self.kind))

    @property
    def restricts(self) -> bool:
        """Whether the rule asks, escalates or denies. If in doubt, such a rule matches, and one
        that allows does not."""
        return self.action != "allow"

    def __str__(self) -> str:
        parts = [
            f"{name} {' or '.join(words(value))}"
            for name, value in (
                ("kind", self.kind),
                ("path", self.paths),
                ("command", self.commands),
                ("peer", self.peer),
                ("role", self.role),
            )
            if value
        ]
        return f"{self.action} {', '.join(parts) or 'everything'}"


class PolicySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The permission policy. If no rule matches a request, ``permissions`` decides."""

    rules: tuple[Rule, ...] = ()
    """The rules. Those of several files are combined."""
    limits: tuple[Rule, ...] = ()
    """Rules that can only restrict, whatever the other rules say."""


class Policy(Struct, frozen=True, kw_only=True):
    """Rules on top of a preset, and the parent policies that limit it."""

    preset: Preset = DEFAULT_PRESET
    rules: tuple[Rule, ...] = ()
    limits: tuple[Rule, ...] = ()
    ceilings: tuple[Policy, ...] = ()
    """Policies of the delegating agents. Each is evaluated, and the strictest applies."""


class Act(Struct, frozen=True, kw_only=True):
    """What an agent wants to do, as far as its request shows."""

    kind: str = "other"
    """The kind that the agent claims."""
    evident: tuple[str, ...] = ()
    """Kinds visible in the request, whatever the agent claims."""
    paths: tuple[str, ...] = ()
    """Every file that it names, as spelled by the agent."""
    argv: tuple[str, ...] | None = None
    """The command, if it was sent as separate words."""
    line: str | None = None
    """The command, if it was sent as a shell line."""
    hidden: bool = False
    """Whether it would run a command that the request does not completely show."""
    tainted: bool = False
    """Whether the command has its own environment or input."""
    cwd: str | None = None
    """The directory that relative paths are resolved against, if it is not the workspace."""
    title: str = ""
    peer: str = ""
    role: str = ""
    workspace: str = ""
    fingerprint: str = ""
    """A digest of the whole request, for one that has neither a path nor a command."""

    @property
    def runs(self) -> bool:
        """Whether the act runs a command."""
        return self.argv is not None or self.line is not None or self.hidden


class Verdict(Struct, frozen=True, kw_only=True):
    """The decision of a policy about an act."""

    action: Action
    rule: str
    """Which rule decided, in words."""
    why: str
    by: Literal["rule", "limit", "preset", "parent", "protected"] = "rule"

    @property
    def final(self) -> bool:
        """Whether the verdict decides by itself, so that no question is needed.

        A refusal by the preset ``approve-reads`` only counts if there is no one to ask. Any other
        refusal was configured explicitly.
        """
        if self.action == "allow":
            return True
        return self.action == "deny" and (self.by != "preset" or self.rule == "deny-all")


def preset(name: Preset) -> Policy:
    """Return the policy of a preset, without any rules."""
    return Policy(preset=name)


PRESETS: Final[dict[str, Policy]] = {
    "approve-all": preset("approve-all"),
    "approve-reads": preset("approve-reads"),
    "deny-all": preset("deny-all"),
}
"""The policies of the presets that decide without questions, by name."""


def narrowed(parent: Policy, child: Policy) -> Policy:
    """Return `child`, limited by `parent`."""
    own = structs.replace(parent, ceilings=())
    return structs.replace(child, ceilings=(*child.ceilings, own, *parent.ceilings))


def of_settings(settings: PolicySettings, preset: Preset) -> Policy:
    """Return the policy that consists of `preset` and the rules and limits of the settings."""
    return Policy(preset=preset, rules=settings.rules, limits=settings.limits)


def for_whom(policy: Policy, *, peer: str, role: str = "") -> Policy:
    """Return a policy with the same effect on this peer and role, for a process that knows neither
    of them: rules for other peers and roles are dropped, and the rest apply to all. A rule for a
    peer is also for that peer on a host (``codex@box``)."""
    names = {peer, peer.partition("@")[0]}

    def kept(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        return tuple(
            structs.replace(rule, peer=(), role=())
            for rule in rules
            if (not rule.peer or names.intersection(words(rule.peer)))
            and (not rule.role or role in words(rule.role))
        )

    return Policy(
        preset=policy.preset,
        rules=kept(policy.rules),
        limits=kept(policy.limits),
        ceilings=tuple(for_whom(each, peer=peer, role=role) for each in policy.ceilings),
    )


def unattended(policy: Policy, *, peer: str, role: str = "") -> Policy | PolicyName:
    """Return the policy for a turn that continues in a broker after its caller has disconnected,
    when no one can be asked. If it is only a preset, returns the name of the preset, with
    ``approve-reads`` in place of ``ask``."""
    if policy.rules or policy.limits or policy.ceilings:
        return for_whom(policy, peer=peer, role=role)
    return "approve-reads" if policy.preset == "ask" else policy.preset


def allows_everything(policy: Policy) -> bool:
    """Return whether a policy and all that limit it are ``approve-all`` without rules: then only
    writes to protected files need a question."""
    plain = policy.preset == "approve-all" and not policy.rules and not policy.limits
    return plain and all(map(allows_everything, policy.ceilings))


def by_preset(name: Preset, kinds: frozenset[str]) -> Action:
    """Return the action of a preset for an act of these kinds."""
    reads = bool(kinds) and kinds <= READING
    match name:
        case "approve-all":
            return "allow"
        case "approve-reads":
            return "allow" if reads else "deny"
        case "ask":
            return "allow" if reads else "ask"
        case "deny-all":
            return "deny"


def words(value: Words) -> tuple[str, ...]:
    """Return a key's value, which is one word or several, as a tuple of words."""
    return (value,) if isinstance(value, str) else value
