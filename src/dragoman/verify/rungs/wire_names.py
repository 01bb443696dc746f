"""Rungs `params`, `methods` and `events`: the names that the peer uses on the wire.

They record what a protocol leaves open or a specification only assumes: which params a request
needs, which method names were answered, and which notifications came with which keys. Prompts are
not tried without one of their params, because a peer may call its model even then.
"""

from __future__ import annotations

from typing import Final

from dragoman.client.conversation import Peer
from dragoman.errors import CallTimeout, ConnectionLost
from dragoman.verify import probes, remedies
from dragoman.verify.rung import Rung, RungFinding, failed, passed, skipped, warned
from dragoman.verify.verification import Verification

SHOWN_NOTIFICATIONS: Final = 12
"""Maximum number of names in the evidence; the card has all of them."""


async def params(state: Verification) -> RungFinding:
    peer = await state.peer()
    questions = probes.with_all_params(peer, state.surroundings.workspace)
    if not questions:
        return skipped("its dialect has no request with params that is safe to send")
    required: dict[str, tuple[str, ...]] = {}
    optional: dict[str, tuple[str, ...]] = {}
    told: list[str] = []
    for question in questions:
        method = question[0]
        try:
            needed = await _needed(state, peer, question)
        except CallTimeout as error:
            return warned(f"no answer to {method}: {error}", remedies.UNANSWERED)
        except ConnectionLost as error:
            return failed(f"the connection ended after {method}: {error}", remedies.CRASH)
        if needed is None:
            told.append(f"{method}: refused even with all of its params")
            continue
        required[method] = tuple(name for name in question[1] if name in needed)
        optional[method] = tuple(name for name in question[1] if name not in needed)
        told.append(_described(method, required[method], optional[method]))
    facts = {"required_params": required, "optional_params": optional} if required else {}
    return passed("; ".join(told), **facts)


async def _needed(state: Verification, peer: Peer, question: probes.Question) -> set[str] | None:
    """Send a request with all its params, then without each of them in turn. Return the params
    without which it is refused; None if it is refused even with all of them."""
    timeout = state.limits.answer
    method, given = question
    if await probes.code_of(peer, question, timeout=timeout) != probes.ACCEPTED:
        return None
    needed = set()
    for name in given:
        rest = {key: value for key, value in given.items() if key != name}
        if await probes.code_of(peer, (method, rest), timeout=timeout) != probes.ACCEPTED:
            needed.add(name)
    return needed


def _described(method: str, required: tuple[str, ...], optional: tuple[str, ...]) -> str:
    needs = f"needs {', '.join(required)}" if required else "needs nothing"
    return f"{method} {needs}" + (f", takes {', '.join(optional)}" if optional else "")


async def methods(state: Verification) -> RungFinding:
    peer = (await state.successor()).peer
    names = probes.methods_of(peer, state.facts)
    if not names:
        return passed("it answered none of the known methods")
    told = ", ".join(f"{concept}: {name}" for concept, name in names.items())
    return passed(told, methods=names)


async def events(state: Verification) -> RungFinding:
    seen = state.witness.notifications
    if not seen:
        return passed("it sent no notification")
    found = {name: tuple(keys) for name, keys in seen.items()}
    shown = ", ".join(list(found)[:SHOWN_NOTIFICATIONS])
    more = ", …" if len(found) > SHOWN_NOTIFICATIONS else ""
    return passed(f"{len(found)} kinds: {shown}{more}", notifications=found)


PARAMS: Final = Rung(
    name="params",
    asks="Which params does it need to open a session?",
    measure=params,
    fields=("required_params", "optional_params"),
    needs=("session",),
)

RUNGS: Final = (
    Rung(
        name="methods",
        asks="Which method names does it answer?",
        measure=methods,
        fields=("methods",),
        needs=("session",),
    ),
    Rung(
        name="events",
        asks="Which notifications does it send, and with which keys?",
        measure=events,
        fields=("notifications",),
        needs=("dialect",),
    ),
)
