"""First-time setup: find installed agents, verify them, choose which to enable, run a first prompt.

The result of each step is stored when the step is done, so a later failure loses nothing. `cli`
asks and prints, `verify` measures, `add_peer` enables.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from dragoman.catalogue.card import Card, RungResult, RungVerdict
from dragoman.catalogue.launch import current_platform, resolve
from dragoman.catalogue.roles import ROLES
from dragoman.delegation import Delegation, DelegationRequest
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.peer_status import PeerStatus, overview, row_of
from dragoman.errors import DragomanError, UsageError
from dragoman.rpc.tasks import together
from dragoman.runs.context import ALWAYS_ENABLED, RunContext
from dragoman.setup.add_peer import Climber, measure
from dragoman.verify.ladder import RUNGS, climb

AT_ONCE: Final = max(2, (os.cpu_count() or 1) // 2)
"""Number of peers to verify in parallel. They mostly wait, but agents need a lot of CPU when they
start, and too many at once would time out on a small machine."""

PROMPTED: Final = frozenset({"binary", "entry", "handshake", "dialect", "login", "session", "echo"})
"""The rungs of the verification that `try_prompt` runs: `echo`, which sends one prompt, and the
rungs that it needs."""

PROMPT: Final = "What can you do?"
"""The first prompt: it needs no tool and no permission, and scout understands it too."""

SUGGESTED: Final = ("codex", "gemini", "qwen", "copilot")
"""Agents to suggest if none is installed: the ones that dragoman is always tested with."""

HARMLESS: Final = ("exploration", "research", "review", "plan", "debug", "write", "execute")
"""Roles for the first prompt, the preferred ones first: those that only read before those that
change files."""


@dataclass(frozen=True, slots=True)
class InstalledAgents:
    """The agents that `look` examined, divided into installed and missing ones. Scout, which is
    part of dragoman, is in neither."""

    installed: tuple[PeerStatus, ...]
    missing: tuple[PeerStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPeer:
    """Result of verifying an installed peer."""

    name: str
    card: Card | None = None
    """The card; None if an error kept the verification from producing one."""
    kept: bool = False
    """Whether the card is from an earlier verification and still valid."""
    trouble: str = ""
    """Why nothing should be delegated to it; empty if it is ready."""
    cure: str = ""
    """The command or step that fixes the trouble; empty if there is none or none is known."""

    @property
    def ready(self) -> bool:
        return not self.trouble


# -- finding


def look(place: RunContext, names: Sequence[str] = ()) -> InstalledAgents:
    """Find out which agents are installed. Nothing is started.

    If `names` are given, only these agents are looked for; in this case, raises `UnknownPeer` for a
    name that no peer has, and `NotInstalled` for an agent that is not installed.
    """
    if names:
        for name in names:
            resolve(place.catalogue.get(name), environ=place.environ)
        rows = [row_of(name, place) for name in dict.fromkeys(names)]
    else:
        rows = overview(place)
    others = [row for row in rows if row.descriptor.name not in ALWAYS_ENABLED]
    return InstalledAgents(
        tuple(row for row in others if row.installed),
        tuple(row for row in others if not row.installed),
    )


def suggestions(found: InstalledAgents) -> list[str]:
    """Return, for each missing agent in `SUGGESTED`, the command or hint that installs it."""
    missing = {row.descriptor.name: row.descriptor.install.hint for row in found.missing}
    return [missing[name] for name in SUGGESTED if missing.get(name)]


# -- verifying


def kept_card(row: PeerStatus, *, turns: bool) -> Card | None:
    """Return the stored card if the peer need not be verified again, else None. The card must be
    for the installed version and this platform, say that the peer is ready and, if `turns` is set,
    have the results of turns."""
    card = row.card
    if card is None or card.version != row.version or card.platform != current_platform():
        return None
    if (turns and not card.turns) or not judged(row, card).ready:
        return None
    return card


async def prove(
    rows: Sequence[PeerStatus],
    place: RunContext,
    *,
    turns: bool = False,
    again: bool = False,
    on_rung: Callable[[str, RungResult], None] = lambda name, rung: None,
    on_proof: Callable[[VerifiedPeer], None] = lambda proof: None,
    climb: Climber = climb,
) -> list[VerifiedPeer]:
    """Verify peers in parallel, store each card as soon as it is complete, and return the results
    in the order of the rows.

    A peer with a valid stored card (see `kept_card`) is not verified, unless `again` is set.
    `on_rung` is called with each rung of a peer, and `on_proof` with the result of each peer.
    """
    proofs: dict[str, VerifiedPeer] = {}
    room = asyncio.Semaphore(AT_ONCE)

    async def one(row: PeerStatus) -> None:
        name = row.descriptor.name
        async with room:
            proof = await _prove(
                row, place, turns, again, lambda rung: on_rung(name, rung), climb=climb
            )
        proofs[name] = proof
        on_proof(proof)

    await together(*map(one, rows))
    return [proofs[row.descriptor.name] for row in rows]


async def _prove(
    row: PeerStatus,
    place: RunContext,
    turns: bool,
    again: bool,
    on_rung: Callable[[RungResult], None],
    *,
    climb: Climber,
) -> VerifiedPeer:
    name = row.descriptor.name
    card = None if again else kept_card(row, turns=turns)
    if card is not None:
        return VerifiedPeer(name=name, card=card, kept=True)
    assert row.way is not None
    try:
        card = await measure(
            row.way, peer=name, turns=turns, paths=place.paths, on_rung=on_rung, climb=climb
        )
    except DragomanError as error:
        # A peer that cannot be verified does not affect the others.
        return VerifiedPeer(name=name, trouble=str(error), cure=f"dragoman peers verify {name}")
    return judged(row, card)


def untried(proofs: Sequence[VerifiedPeer]) -> list[str]:
    """Return the names of the ready peers for which only a prompt can show whether they are logged
    in, and that were not sent one."""
    return [
        proof.name
        for proof in proofs
        if proof.ready
        and proof.card is not None
        and proof.card.facts.authenticated is None
        and proof.card.facts.echo is None
    ]


async def try_prompt(
    row: PeerStatus, proof: VerifiedPeer, place: RunContext, *, climb: Climber = climb
) -> VerifiedPeer:
    """Send a peer one short prompt, which shows whether it is logged in, and store its updated
    card. Returns the new result. After an error, this has no card, and the stored card stays as it
    was."""
    name = row.descriptor.name
    assert row.way is not None and proof.card is not None
    rungs = [rung for rung in RUNGS if rung.name in PROMPTED]
    try:
        found = await climb(row.way, peer=name, turns=True, rungs=rungs)
    except DragomanError as error:
        return VerifiedPeer(
            name=name, trouble=str(error), cure=f"dragoman peers verify {name} --turns"
        )
    tried = {one.rung: one for one in found.rungs if one.rung == "echo"}
    facts = replace(
        proof.card.facts,
        echo=found.facts.echo,
        authenticated=found.facts.authenticated,
        login=found.facts.login or proof.card.facts.login,
    )
    rest = tuple(tried.get(one.rung) or _measurable(one, name) for one in proof.card.rungs)
    card = replace(proof.card, rungs=rest, facts=facts)
    place.cards().save(card)
    return judged(row, card)


def _measurable(result: RungResult, peer: str) -> RungResult:
    """Return the result of a rung of `peer`. If it was skipped because `echo` had not been run, its
    evidence is replaced by the command that measures it."""
    if result.verdict is not RungVerdict.SKIPPED or not result.evidence.startswith("it needs echo"):
        return result
    return replace(result, evidence=f"not measured: `dragoman peers verify {peer} --turns`")


def judged(row: PeerStatus, card: Card) -> VerifiedPeer:
    """Judge by its card whether a peer is ready: it must be usable, need no login, and have
    answered if it was prompted. If it is not ready, the result says why and what to do."""
    name = row.descriptor.name
    failed = next((rung for rung in card.rungs if rung.verdict is RungVerdict.FAIL), None)
    if card.facts.authenticated is False:
        how = card.facts.login or row.descriptor.credentials.login
        return VerifiedPeer(name=name, card=card, trouble="it requires a login", cure=how)
    if not card.usable or card.facts.echo is False:
        why = f"{failed.rung}: {failed.evidence}" if failed else "it cannot be used"
        cure = failed.remedy if failed and failed.remedy else f"dragoman peers verify {name}"
        return VerifiedPeer(name=name, card=card, trouble=why, cure=cure)
    return VerifiedPeer(name=name, card=card)


# -- choosing


def chosen(answer: str, ready: Sequence[str]) -> tuple[str, ...]:
    """Parse the user's choice among the ready peers: all for yes or empty input, none for no,
    otherwise the named ones. Raises `UsageError` for an unknown name."""
    words = [word for word in re.split(r"[\s,]+", answer.strip().lower()) if word]
    match words:
        case [] | ["y"] | ["yes"] | ["all"]:
            return tuple(ready)
        case ["n"] | ["no"] | ["none"]:
            return ()
    unknown = [word for word in words if word not in ready]
    if unknown:
        raise UsageError(f"{', '.join(unknown)} cannot be chosen; choose from {', '.join(ready)}")
    return tuple(dict.fromkeys(words))


# -- the first piece of work


def first_wish(place: RunContext, enabled: Sequence[str]) -> DelegationRequest:
    """Return the first request: a harmless prompt in the least harmful role (see `HARMLESS`) that
    an enabled peer claims. If none claims a role, the role is exploration, for scout."""
    claimed = [role for name in enabled for role in place.role_catalogue().get(name).roles]
    role = min(claimed, key=_harm) if claimed else HARMLESS[0]
    return DelegationRequest(
        role=role, prompt=PROMPT, workspace=place.cwd, permissions="approve-reads"
    )


def _harm(role: str) -> int:
    return HARMLESS.index(role) if role in HARMLESS else len(ROLES)


def let_down(done: Delegation, enabled: Sequence[str]) -> AttemptReport | None:
    """If no enabled peer did the work, return the report of the attempt whose failure is to be
    shown: the first one of an enabled peer, or else the first of all. Return None if an enabled
    peer did the work or no peer is enabled.

    An answer from scout does not count, because the first prompt tests the enabled peers.
    """
    if done.answered in enabled or not enabled:
        return None
    return next((report for report in done.attempts if report.peer in enabled), done.attempts[0])
