"""Rungs `permission`, `files` and `terminals`: does it ask before it writes, and obey a refusal?

They also measure whether the peer uses the client's file and terminal services. Whether it wrote a
file is checked on disk, not in its answer.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from dragoman.catalogue.open import judge
from dragoman.client.permissions import Answer, Question, deny_all
from dragoman.client.results import Result
from dragoman.events.words import Outcome
from dragoman.verify import remedies
from dragoman.verify.canary_prompts import NEVER, fill
from dragoman.verify.rung import Rung, RungFinding, failed, passed, skipped, warned
from dragoman.verify.verification import Verification, allow


class _Watch:
    """Records at each permission request whether the peer has already written the file, which it
    must not do before it has asked for permission."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.there_when_asked: list[bool] = []

    def allow(self, question: Question) -> Answer:
        self.there_when_asked.append(self.path.exists())
        return allow(question)

    @property
    def asked_first(self) -> bool:
        return bool(self.there_when_asked) and not self.there_when_asked[0]


async def permission(state: Verification) -> RungFinding:
    if not state.canaries.write:
        return skipped(NEVER.format("writes files"))
    watch = _Watch(state.surroundings.workspace / "granted.txt")
    services = state.witness.services.copy()
    state.decide_with(watch.allow)
    granted = await _write(state, watch.path)
    state.wrote = watch.path.exists()
    state.wrote_through_us = state.witness.services["fs"] > services["fs"]
    if not watch.there_when_asked and not state.wrote:
        return warned(f"it neither asked nor wrote: {_end(granted)}", remedies.DID_NOTHING)
    if not watch.asked_first:
        return warned(
            f"it wrote {watch.path.name} without asking",
            remedies.SELF_APPROVING,
            asks_permission=False,
        )
    refused = state.surroundings.workspace / "refused.txt"
    state.decide_with(deny_all)
    result = await _write(state, refused)
    asked = bool(state.asked)
    there = refused.exists()
    if not asked:
        evidence = "it asked for the first write but not for the second"
        if there:
            return warned(evidence, remedies.SELF_APPROVING, asks_permission=False)
        return warned(evidence, remedies.DID_NOTHING, asks_permission=True)
    judged = judge(result, state.way.quirks)
    ends = judged.ended_by_denial or judged.outcome is Outcome.CANCELLED
    facts = {"asks_permission": True, "respects_refusal": not there, "refusal_ends_turn": ends}
    if there:
        return failed(
            f"it asked, was refused, and wrote {refused.name}", remedies.IGNORES_REFUSAL, **facts
        )
    if not state.wrote:
        return warned(
            f"it asked, was allowed, and wrote nothing: {_end(granted)}",
            remedies.DID_NOTHING,
            **facts,
        )
    evidence = "it asks before it writes, and a refusal is respected"
    if ends:
        return warned(f"a refusal ends the turn; {evidence}", remedies.REFUSAL_ENDS, **facts)
    return passed(evidence, **facts)


async def _write(state: Verification, path: Path) -> Result:
    prompt = fill(state.canaries.write, path=str(path), text=secrets.token_hex(8))
    return (await state.take_turn(await state.conversation(), prompt)).result


def _end(result: Result) -> str:
    detail = result.failure.message if result.failure is not None else result.text.strip()[:80]
    return f"the turn ended as {result.outcome.value}" + (f": {detail}" if detail else "")


async def files(state: Verification) -> RungFinding:
    if state.wrote_through_us:
        return passed("it read or wrote through the client", uses_files=True)
    if state.wrote:
        return passed("it wrote the file itself", uses_files=False)
    return skipped("it wrote nothing")


async def terminals(state: Verification) -> RungFinding:
    if not state.canaries.shell:
        return skipped(NEVER.format("runs commands"))
    mark = state.surroundings.workspace / "ran.txt"
    services = state.witness.services["terminal"]
    state.decide_with(allow)
    prompt = fill(state.canaries.shell, command=f"echo ran > {mark.name}")
    result = (await state.take_turn(await state.conversation(), prompt)).result
    if state.witness.services["terminal"] > services:
        return passed("it ran a command in the client's terminal", uses_terminals=True)
    if mark.exists():
        return passed("it ran the command itself", uses_terminals=False)
    return warned(f"it ran nothing: {_end(result)}", remedies.DID_NOTHING)


RUNGS: Final = (
    Rung(
        name="permission",
        asks="Does it ask before it writes, and respect a refusal?",
        measure=permission,
        fields=("asks_permission", "respects_refusal", "refusal_ends_turn"),
        needs=("echo",),
        turns=True,
    ),
    Rung(
        name="files",
        asks="Does it write through the client?",
        measure=files,
        fields=("uses_files",),
        needs=("echo",),
        turns=True,
    ),
    Rung(
        name="terminals",
        asks="Does it run commands through the client?",
        measure=terminals,
        fields=("uses_terminals",),
        needs=("echo",),
        turns=True,
    ),
)
