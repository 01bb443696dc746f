"""Make a routing decision: put the candidates into the fixed order, or order them by the bandit's
scores.

Pure: the same facts, time and random source give the same decision. `filters` excludes peers
beforehand, so no score can bring one back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from dragoman.delegation.bandit import Chance, best_of
from dragoman.delegation.routing.decision import Candidate, Decision, PassedOver
from dragoman.delegation.routing.filters import is_last_resort, is_named, offers, reason_against
from dragoman.delegation.routing.inputs import Inputs, PeerFacts, TrackRecord
from dragoman.errors import UnknownPeer, UnknownRole
from dragoman.errors.usage import nearest
from dragoman.store.values import DEFAULT_TIER, Arm

MODEL_TIER: Final = "model:"
"""Prefix of the tier name for a requested model that is not a tier of the peer."""


def decide(inputs: Inputs, rng: Chance, now: float) -> Decision:
    """Make the decision, which has each peer exactly once: as a candidate, or passed over with one
    reason.

    Raises `UnknownRole` if no peer claims the role, and `UnknownPeer` if the named peer does not
    exist.
    """
    _check(inputs)
    able: list[PeerFacts] = []
    passed_over: list[PassedOver] = []
    for peer in inputs.peers:
        against = reason_against(peer, inputs, now)
        if against is None:
            able.append(peer)
        else:
            passed_over.append(against)
    peers = _in_fixed_order([peer for peer in able if not is_last_resort(peer, inputs)], inputs)
    fixed = [_candidate(peer, inputs, _fixed_tier(peer, inputs)) for peer in peers]
    last = [
        structs.replace(_candidate(peer, inputs, DEFAULT_TIER), last_resort=True)
        for peer in able
        if is_last_resort(peer, inputs)
    ]
    drawn = _drawn(peers, inputs, rng, now) if inputs.adaptive != "off" else []
    followed = inputs.adaptive == "on"
    if not followed:
        scores = {candidate.peer: candidate.score for candidate in drawn}
        fixed = [structs.replace(item, score=scores.get(item.peer)) for item in fixed]
    chosen = [*(drawn if followed else fixed), *last]
    return Decision(
        role=inputs.role,
        tier=inputs.tier,
        size=inputs.size,
        candidates=tuple(chosen),
        passed_over=tuple(passed_over),
        order="bandit" if followed else "fixed",
        adaptive=inputs.adaptive,
        shadow=() if followed else tuple(candidate.peer for candidate in drawn),
        why=_why(chosen, inputs),
    )


def _check(inputs: Inputs) -> None:
    names = [peer.name for peer in inputs.peers]
    if len(set(names)) < len(names):
        raise ValueError("two peers have the same name")
    known = sorted({role for peer in inputs.peers for role in peer.roles})
    if inputs.role not in known:
        near = nearest(inputs.role, known)
        hint = f" (did you mean {near[0]}?)" if near else ""
        roles = f"the roles are {', '.join(known)}" if known else "no peer claims any role"
        raise UnknownRole(f"no peer claims the role {inputs.role!r}{hint}; {roles}")
    if inputs.peer is not None and inputs.peer not in names:
        raise UnknownPeer(inputs.peer, nearest(inputs.peer, names))


# -- the fixed order


def _in_fixed_order(peers: Sequence[PeerFacts], inputs: Inputs) -> list[PeerFacts]:
    """Return the peers in the given order, but those known to have the requested model or tier
    first."""
    return sorted(peers, key=lambda peer: not _meets_wish(peer, inputs))


def _meets_wish(peer: PeerFacts, inputs: Inputs) -> bool:
    if inputs.model is not None:
        return offers(peer, inputs.model) is True
    return inputs.tier is None or inputs.tier in peer.tiers


def _fixed_tier(peer: PeerFacts, inputs: Inputs) -> str:
    """Return the tier to use without the bandit: that of the requested model or `model:ID` for a
    model without a tier, else the requested tier if the peer has it, else the default."""
    if inputs.model is not None:
        for tier, model in peer.tiers.items():
            if model == inputs.model:
                return tier
        return MODEL_TIER + inputs.model
    return inputs.tier if inputs.tier is not None and inputs.tier in peer.tiers else DEFAULT_TIER


# -- the bandit's order


def _drawn(peers: Sequence[PeerFacts], inputs: Inputs, rng: Chance, now: float) -> list[Candidate]:
    """Return the peers as candidates in the bandit's order: those known to have the requested model
    or tier first, and within each group the highest draw first. Ties keep the given order."""
    found = []
    for peer in peers:
        draw = best_of(
            [
                Arm(role=inputs.role, size=inputs.size, peer=peer.name, tier=tier)
                for tier in _tiers(peer, inputs)
            ],
            inputs.posteriors,
            rng,
            now,
            claims=inputs.role in peer.roles,
        )
        said = _candidate(peer, inputs, draw.arm.tier)
        candidate = structs.replace(said, score=draw.score)
        # The user's choice of model or tier outranks every score.
        found.append((not _meets_wish(peer, inputs), -draw.score, candidate))
    return [candidate for _, _, candidate in sorted(found, key=lambda item: item[:2])]


def _tiers(peer: PeerFacts, inputs: Inputs) -> list[str]:
    """Return the tiers of a peer that the bandit can choose; only one if the user has chosen."""
    if inputs.model is not None or inputs.tier is not None:
        return [_fixed_tier(peer, inputs)]
    return [DEFAULT_TIER, *sorted(set(peer.tiers) - {DEFAULT_TIER})]


# -- reasons as text


def _candidate(peer: PeerFacts, inputs: Inputs, tier: str) -> Candidate:
    model = peer.tiers.get(tier)
    if inputs.model is not None and tier != DEFAULT_TIER:
        model = inputs.model
    return Candidate(
        peer=peer.name,
        host=peer.host,
        tier=tier,
        model=model,
        why="; ".join(_merits(peer, inputs)),
        measured="" if peer.record is None else _measured(peer.record, inputs.role),
    )


def _merits(peer: PeerFacts, inputs: Inputs) -> list[str]:
    said = []
    if is_named(peer, inputs):
        said.append("it was requested by name")
    if is_last_resort(peer, inputs):
        said.append("the last resort, which answers what it can")
    elif inputs.role in peer.roles:
        said.append(f"it claims {inputs.role}")
    elif is_named(peer, inputs):
        said.append(f"it does not claim {inputs.role}")
    if peer.host is not None:
        said.append(f"on the host {peer.host}{peer.host_note and f', {peer.host_note}'}")
    if not is_last_resort(peer, inputs):
        said += _doubts(peer, inputs)
    return said


def _measured(record: TrackRecord, role: str) -> str:
    """Format a peer's record for a role."""
    if not record.finished:
        return f"no {role} was delegated to it yet"
    said = [f"{record.done} of {record.finished} done"]
    if record.priced:
        costs = sorted(record.costs.items())
        each = " + ".join(f"{total / record.priced:.4g} {unit}".strip() for unit, total in costs)
        said.append(f"{each} each on average")
    if unknown := record.finished - record.priced:
        said.append("cost unknown" if not record.priced else f"cost of {unknown} unknown")
    if record.seconds is not None:
        said.append(f"{record.seconds:.1f} s each")
    return ", ".join(said)


def _doubts(peer: PeerFacts, inputs: Inputs) -> list[str]:
    """Return doubts about a peer that do not exclude it."""
    said = []
    if inputs.model is not None:
        if offers(peer, inputs.model) is None:
            said.append(f"it is not known whether it has {inputs.model}")
    elif inputs.tier is not None and inputs.tier not in peer.tiers:
        said.append(f"it has no {inputs.tier} model, so it uses its default")
    if peer.card is None:
        if not peer.always and peer.host is None:
            said.append("never verified")
    elif peer.card.asks_permission is False:
        said.append("it does not ask before it writes")
    if peer.breaker == "half_open":
        said.append("a trial after repeated failures")
    return said


def _why(candidates: Sequence[Candidate], inputs: Inputs) -> str:
    if inputs.depth >= inputs.max_depth:
        return f"no peer: delegated work is nested at most {inputs.max_depth} deep"
    if not candidates:
        return f"no peer can be used for {inputs.role}"
    first = candidates[0]
    if first.last_resort:
        return f"only the last resort is left: {first.peer}"
    if inputs.peer is not None:
        return f"{first.peer} was requested"
    if len(candidates) == 1 or candidates[1].last_resort:
        return f"{first.peer} is the only one that can be used for {inputs.role}"
    if inputs.adaptive == "on":
        return f"{first.peer} drew the best score for {inputs.size} work of the role {inputs.role}"
    return f"{first.peer} is the first of your enabled peers that can be used for {inputs.role}"
