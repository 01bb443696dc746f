"""Exclude peers from a delegation: depth, name, role, model, install, card, policy, health, budget.

Each excluded peer gets one reason, the first that applies: limits of the whole delegation first,
conditions that end by themselves last. `decide` orders the remaining peers.
"""

from __future__ import annotations

from msgspec import structs

from dragoman.delegation.routing.decision import PassedOver, Reason
from dragoman.delegation.routing.inputs import Inputs, PeerFacts

_MINUTE = 60.0
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


def reason_against(peer: PeerFacts, inputs: Inputs, now: float) -> PassedOver | None:
    """Return why the peer is not a candidate, or None if it is one."""
    found = (
        _too_deep(peer, inputs)
        or _unsuited(peer, inputs)
        or _unusable(peer, inputs)
        or _unenforced(peer)
        or _unwell(peer, now)
    )
    return found if found is None or peer.host is None else structs.replace(found, host=peer.host)


def offers(peer: PeerFacts, model: str) -> bool | None:
    """Return whether the peer has the model, or None if that is unknown."""
    wanted = _parent(model)
    if wanted in map(_parent, peer.tiers.values()):
        return True
    if peer.card is None or not peer.card.models:
        return None
    return wanted in map(_parent, peer.card.models)


def is_named(peer: PeerFacts, inputs: Inputs) -> bool:
    return inputs.peer == peer.name


def is_last_resort(peer: PeerFacts, inputs: Inputs) -> bool:
    """Return whether a peer is tried only after all others.

    Naming it makes it an ordinary candidate.
    """
    return peer.always and not is_named(peer, inputs)


def _parent(model: str) -> str:
    """Return the model name without the -preview suffix, in lower case."""
    return model.casefold().removesuffix("-preview")


def _too_deep(peer: PeerFacts, inputs: Inputs) -> PassedOver | None:
    # Last resorts too: nested delegation has to end here.
    if inputs.depth < inputs.max_depth:
        return None
    return PassedOver(
        peer=peer.name,
        reason=Reason.TOO_DEEP,
        detail=f"this is delegated work already, at depth {inputs.depth}, and {inputs.max_depth} "
        "is the limit; do the work here, or raise max_depth",
    )


def _unsuited(peer: PeerFacts, inputs: Inputs) -> PassedOver | None:
    """Exclude a peer if another one was named, or if it lacks the role, the model or an option of
    the request; None if it is suited. A named peer may lack the role and the model, and a last
    resort too."""
    if inputs.peer is not None and not is_named(peer, inputs):
        return PassedOver(
            peer=peer.name,
            reason=Reason.NOT_WISHED,
            detail=f"{inputs.peer} was requested; request {peer.name}, or name no peer",
        )
    if peer.lacking:
        return PassedOver(
            peer=peer.name,
            reason=Reason.NOT_WISHED,
            detail=f"it does not support {peer.lacking}; omit it",
        )
    if peer.always:
        return None
    # A peer that is named explicitly does not have to claim the role.
    if inputs.role not in peer.roles and not is_named(peer, inputs):
        claimed = f"it claims {', '.join(peer.roles)}" if peer.roles else "it claims none"
        return PassedOver(
            peer=peer.name,
            reason=Reason.ROLE_NOT_CLAIMED,
            detail=f"it does not claim {inputs.role}; {claimed}",
        )
    # The card may be old or incomplete, so an explicitly named peer checks the model itself.
    if (
        inputs.model is not None
        and not is_named(peer, inputs)
        and offers(peer, inputs.model) is False
    ):
        return PassedOver(
            peer=peer.name,
            reason=Reason.NOT_WISHED,
            detail=f"it has no model {inputs.model}; `dragoman peers show {peer.name}` lists those "
            "it has",
        )
    return None


def _unusable(peer: PeerFacts, inputs: Inputs) -> PassedOver | None:
    """Exclude a peer that is not installed or not enabled, or that its host, its adapter or its
    verification rules out; None if it is usable."""
    if not peer.installed:
        return PassedOver(
            peer=peer.name,
            reason=Reason.NOT_INSTALLED,
            detail=f"it is not installed{'' if peer.host is None else f' on {peer.host}'}"
            + _advice(peer.hint, f"dragoman peers show {peer.name}"),
        )
    if peer.always:
        return None
    if not peer.enabled:
        return PassedOver(
            peer=peer.name,
            reason=Reason.NOT_ENABLED,
            detail="it is not enabled" + _advice(peer.hint, f"dragoman peers enable {peer.name}"),
        )
    if peer.host_problem:
        return PassedOver(peer=peer.name, reason=Reason.HOST_UNUSABLE, detail=peer.host_problem)
    if peer.adapter_problem:
        return PassedOver(
            peer=peer.name,
            reason=Reason.ADAPTER_INVALID,
            detail=f"its adapter cannot be used: {peer.adapter_problem}; `dragoman doctor` checks "
            "adapters",
        )
    verify = f"dragoman peers verify {peer.name}"
    if peer.card is None:
        if not inputs.require_card:
            return None
        return PassedOver(
            peer=peer.name,
            reason=Reason.NO_CARD,
            detail="it was never verified" + _advice("", verify)
            if peer.host is None
            else f"require_card is set, and a card of {peer.host} cannot be read from here",
        )
    if not peer.card.usable or peer.card.turns_ok is False:
        problem = peer.card.problem or (
            "a turn produced no text" if peer.card.usable else "it failed when it was verified"
        )
        return PassedOver(
            peer=peer.name,
            reason=Reason.CARD_SAYS_NO,
            detail=f"its card says that it cannot be used: {problem}" + _advice("", verify),
        )
    return None


def _unenforced(peer: PeerFacts) -> PassedOver | None:
    """Exclude a peer for which the policy is known not to be enforced; None for any other."""
    if not peer.unenforced:
        return None
    return PassedOver(
        peer=peer.name,
        reason=Reason.NOT_ENFORCED,
        detail=f"the policy would not restrict it: {peer.unenforced}; `--allow-unenforced` uses it "
        "anyway",
    )


def _unwell(peer: PeerFacts, now: float) -> PassedOver | None:
    """Exclude a peer that is parked, failing or over budget; None if it is none of these."""
    until = peer.parked_until
    unpark = f"dragoman peers unpark {peer.name}"
    if until is not None and until > now:
        why = peer.parked_why or "it is parked"
        return PassedOver(
            peer=peer.name,
            reason=Reason.PARKED,
            detail=f"{why}; parked for another {_lasting(until - now)}"
            + _advice(peer.hint, unpark),
            until=until,
        )
    if until is None and peer.parked_why is not None:
        return PassedOver(
            peer=peer.name,
            reason=Reason.PARKED,
            detail=f"{peer.parked_why or 'it is parked'}; parked until you unpark it"
            + _advice(peer.hint),
        )
    if peer.breaker == "open":
        return PassedOver(
            peer=peer.name,
            reason=Reason.BROKEN,
            detail="it failed too often recently and is not used for a while" + _advice("", unpark),
        )
    if peer.over_budget is not None:
        return PassedOver(
            peer=peer.name,
            reason=Reason.OVER_BUDGET,
            detail=f"{peer.over_budget or 'its budget is used up'}; wait, or raise the limit",
        )
    return None


def _advice(hint: str, otherwise: str = "") -> str:
    command = hint or otherwise
    return f": `{command}`" if command else ""


def _lasting(seconds: float) -> str:
    """Format a rough duration, rounded up so that no retry comes too early."""
    for unit, name, below in ((_MINUTE, "min", _HOUR), (_HOUR, "h", 2 * _DAY)):
        # Compared after rounding, or the last minute of an hour would read "60 min".
        if (count := -(-seconds // unit)) * unit < below:
            return f"{count:.0f} {name}"
    return f"{-(-seconds // _DAY):.0f} days"
