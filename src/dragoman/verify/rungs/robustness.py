"""Rungs for protocol robustness: error codes, oversized line, exit, leftover processes, ids, noise.

The rungs are `codes`, `oversized`, `exit`, `survivors`, `ids`, `noise` and `answers`. None of them
spends a model call.
"""

from __future__ import annotations

from typing import Final

from dragoman.client.conversation import Peer
from dragoman.errors import CallTimeout, ConnectionLost, DragomanError
from dragoman.verify import probes, remedies
from dragoman.verify.rung import Rung, RungFinding, failed, passed, skipped, warned
from dragoman.verify.verification import Verification

NONE_SEEN: Final = "none seen"

USUAL: Final = {"unknown_method_code": (-32601,), "bad_params_code": (-32602,)}
"""The standard JSON-RPC error codes. For an unknown session every peer has its own code."""


async def codes(state: Verification) -> RungFinding:
    peer = await state.peer()
    workspace = state.surroundings.workspace
    asked = {
        "unknown_method_code": probes.unknown_method(),
        "unknown_session_code": probes.unknown_session(peer, workspace),
        "bad_params_code": probes.bad_params(peer),
    }
    found: dict[str, int] = {}
    told: list[str] = []
    fine = True
    for name, question in asked.items():
        what = name.removesuffix("_code").replace("_", " ")
        if question is None:
            told.append(f"{what}: cannot be requested in this dialect")
            continue
        try:
            code = await probes.code_of(peer, question, timeout=state.limits.answer)
        except CallTimeout:
            fine = False
            told.append(f"{what}: no answer to {question[0]}")
            continue
        except ConnectionLost as error:
            return failed(
                f"the connection ended after {what} ({question[0]}): {error}",
                remedies.CRASH,
                **found,
            )
        found[name] = code
        if code == probes.ACCEPTED:
            fine = False
            told.append(f"{what}: {question[0]} was accepted")
        else:
            fine = fine and code in USUAL.get(name, (code,))
            told.append(f"{what}: {code}")
    evidence = "; ".join(told)
    if fine:
        return passed(evidence, **found)
    anything = found.get("unknown_session_code") == probes.ACCEPTED
    return warned(evidence, remedies.LOADS_ANYTHING if anything else remedies.CODES, **found)


async def oversized(state: Verification) -> RungFinding:
    size = state.limits.oversized_size
    what = f"a line of {size:,} bytes"
    timeout = state.limits.answer
    async with state.victim() as peer:
        question = _answered_before(state, peer)
        if question is None:
            return skipped("it answered none of the requests without side effects")
        try:
            await probes.code_of(peer, probes.oversized(question, size), timeout=timeout)
            return passed(f"it answered {what}", survives_oversized_line=True)
        except CallTimeout:
            pass
        except ConnectionLost as error:
            return warned(
                f"the connection ended after {what}: {error}",
                remedies.OVERSIZED,
                survives_oversized_line=False,
            )
        try:
            await probes.code_of(peer, question, timeout=timeout)
        except DragomanError as error:
            return warned(
                f"it stopped answering after {what}: {error}",
                remedies.OVERSIZED,
                survives_oversized_line=False,
            )
        return warned(
            f"it ignored {what} and continues", remedies.OVERSIZED, survives_oversized_line=True
        )


def _answered_before(state: Verification, peer: Peer) -> probes.Question | None:
    """Return an invalid request that this peer has answered in an earlier rung; None if there is
    none.

    A request that the peer never answers proves nothing about the length of a line.
    """
    if "bad_params_code" in state.facts:
        return probes.bad_params(peer)
    return probes.unknown_method() if "unknown_method_code" in state.facts else None


async def exit(state: Verification) -> RungFinding:
    if not state.way.command:
        return skipped("it is reached at an address, so dragoman must not end it")
    connected = await state.successor()
    ended = connected.exit = await connected.running.end_input(state.limits.exit)
    await connected.peer.aclose()
    if not ended.exited:
        return warned(
            f"it still ran {state.limits.exit:g} s after the end of its input",
            remedies.STAYS,
            clean_exit=False,
        )
    if ended.signal is not None:
        return warned(
            f"it was killed by signal {ended.signal} when its input ended",
            remedies.CRASH,
            clean_exit=False,
        )
    return passed(f"it exited with {ended.code} when its input ended", clean_exit=True)


async def survivors(state: Verification) -> RungFinding:
    ended = state.second.exit if state.second is not None else None
    if ended is None or not ended.exited:
        return skipped("it did not exit by itself")
    if ended.survivors is None:
        return skipped(f"it cannot be determined on {state.platform}")
    if count := ended.survivors:
        left = "1 process" if count == 1 else f"{count} processes"
        return warned(f"it left {left} running", remedies.SURVIVORS, survivors=count)
    return passed("it left no process running", survivors=0)


async def ids(state: Verification) -> RungFinding:
    formats = sorted(state.witness.id_formats)
    found = " and ".join(formats) or NONE_SEEN
    evidence = f"its requests have ids of this form: {found}" if formats else "it sent no request"
    return passed(evidence, id_format=found)


async def noise(state: Verification) -> RungFinding:
    if not (count := state.witness.noise_lines):
        return passed("every line on stdout was a message", noise_lines=0)
    found = f"{count} lines on stdout were not messages, such as {state.witness.noise_sample}"
    return warned(found, remedies.NOISE, noise_lines=count)


async def answers(state: Verification) -> RungFinding:
    if not (count := state.witness.stray_answers):
        return passed("every request was answered at most once", duplicate_answers=0)
    found = f"{count} responses matched no open request, such as {state.witness.stray_sample}"
    return warned(found, remedies.STRAYS, duplicate_answers=count)


CODES: Final = Rung(
    name="codes",
    asks="How does it answer invalid requests?",
    measure=codes,
    fields=("unknown_method_code", "unknown_session_code", "bad_params_code"),
    needs=("dialect",),
)

RUNGS: Final = (
    Rung(
        name="oversized",
        asks="Does it survive a line that is longer than it expects?",
        measure=oversized,
        fields=("survives_oversized_line",),
        needs=("dialect",),
    ),
    Rung(
        name="exit",
        asks="Does it exit when its input ends?",
        measure=exit,
        fields=("clean_exit",),
        needs=("dialect",),
    ),
    Rung(
        name="survivors",
        asks="Does it exit without leaving processes behind?",
        measure=survivors,
        fields=("survivors",),
        needs=("exit",),
    ),
    Rung(
        name="ids",
        asks="How does it number its own requests?",
        measure=ids,
        fields=("id_format",),
        needs=("dialect",),
    ),
    Rung(
        name="noise",
        asks="Is everything on its stdout a message?",
        measure=noise,
        fields=("noise_lines",),
        needs=("dialect",),
    ),
    Rung(
        name="answers",
        asks="Does it answer every request exactly once?",
        measure=answers,
        fields=("duplicate_answers",),
        needs=("dialect",),
    ),
)
