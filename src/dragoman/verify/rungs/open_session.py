"""Rungs `login`, `session`, `models` and `parallel`: open a session, list models, open two at once.

Never logs in: a missing login appears as an error or in the peer's account status.
"""

from __future__ import annotations

from typing import Any, Final

from dragoman.catalogue.descriptor import Quirks
from dragoman.client.conversation import Peer
from dragoman.errors import AuthRequired, DragomanError
from dragoman.rpc.tasks import together
from dragoman.runs.model_choice import PREVIEW
from dragoman.transports.process.query import ask_program
from dragoman.verify import probes, remedies
from dragoman.verify.canary_prompts import fill
from dragoman.verify.rung import Rung, RungFinding, failed, one_line, passed, skipped, warned, words
from dragoman.verify.verification import Verification

SHOWN_MODELS: Final = 6


async def login(state: Verification) -> RungFinding:
    """Open the first session, which fails for most peers if a login is missing."""
    peer = await state.peer()
    try:
        missing = await probes.needs_login(peer)
        await state.conversation()
    except AuthRequired as error:
        return _missing(state, str(error), error.hint or _offered(state, peer))
    except DragomanError as error:
        state.refusal = error
        return skipped(f"unknown, because no session could be opened: {error}")
    if missing:
        return _missing(state, "it reports that no user is logged in", _offered(state, peer))
    if missing is None and _shown_later(state.way.quirks, peer, known=state.way.descriptor):
        return passed("a session opens; only a turn shows whether a prompt needs a login")
    return passed("a session opens without a login", authenticated=True)


def _missing(state: Verification, evidence: str, how: str) -> RungFinding:
    facts = {"authenticated": False, "login": one_line(how) or None}
    if state.careful:
        return warned(evidence, f"{remedies.LOGIN_CAREFUL} {_sentence(how)}".rstrip(), **facts)
    return failed(evidence, f"{remedies.LOGIN} {_sentence(how)}".rstrip(), **facts)


def _sentence(how: str) -> str:
    return f"How: {how}." if how else ""


def _offered(state: Verification, peer: Peer) -> str:
    """Return how to log in, from the descriptor or else from the peer's auth methods; empty if
    neither says it."""
    descriptor = state.way.descriptor
    if descriptor is not None and descriptor.credentials.login:
        return descriptor.credentials.login
    ways = [method.command or method.name for method in peer.auth_methods]
    return " or ".join(ways)


def _shown_later(quirks: Quirks, peer: Peer, *, known: object) -> bool:
    """Return whether an open session does not prove a login, because a missing login may show only
    in a turn. `known` is the peer's descriptor, if it has one."""
    if known is None:
        return bool(peer.auth_methods)
    return quirks.login_shown_in != "session"


async def session(state: Verification) -> RungFinding:
    if state.refusal is not None:
        return failed(
            f"no session could be opened: {state.refusal}", remedies.SESSION, sessions=False
        )
    if state.session_id is None:
        return skipped("a login is needed first", remedies.LOGIN)
    return passed(f"opened the session {state.session_id}", sessions=True)


async def models(state: Verification) -> RungFinding:
    conversation = await state.conversation()
    peer = await state.peer()
    named = await probes.models_of(peer, conversation, state.settings)
    if named is None:
        named = await _listed(state)
    modes = probes.modes_of(state.settings)
    modes = None if modes is None else words(modes)
    facts: dict[str, Any] = {} if modes is None else {"modes": modes}
    shown = f"; modes: {', '.join(modes)}" if modes else "; no modes"
    if named is None:
        return passed(f"it lists no models{shown}", **facts)
    in_use = probes.model_in_use(state.settings)
    facts |= {} if in_use is None else {"model": one_line(in_use)}
    named = words(named)
    parents = tuple(dict.fromkeys(name.removesuffix(PREVIEW) for name in named))
    listed = ", ".join(named[:SHOWN_MODELS]) + (", …" if len(named) > SHOWN_MODELS else "")
    evidence = f"{len(named)} models: {listed}{shown}"
    previews = [name for name in named if name.endswith(PREVIEW)]
    if previews:
        evidence = f"some models are previews, such as {previews[0]}; {evidence}"
        return warned(evidence, remedies.PREVIEW, models=named, parent_models=parents, **facts)
    return passed(evidence, models=named, parent_models=parents, **facts)


async def _listed(state: Verification) -> tuple[str, ...] | None:
    """Return the ids of the models that the peer's own command lists, each at the start of a line.
    None if its descriptor names no such command, or the command fails."""
    descriptor = state.way.descriptor
    if descriptor is None or not descriptor.models.command:
        return None
    where = state.surroundings
    said = await ask_program(
        descriptor.models.command,
        timeout=state.limits.answer,
        env=where.env,
        inherit=where.inherit,
    )
    if said is None or said.exit_code != 0:
        return None
    lines = (line.split() for line in said.text.splitlines())
    return tuple(dict.fromkeys(each[0] for each in lines if each))


async def parallel(state: Verification) -> RungFinding:
    one = await state.conversation()
    peer = await state.peer()
    try:
        other = await state.open(peer)
    except DragomanError as error:
        return warned(
            f"it opens no second session: {error}", remedies.PARALLEL, parallel_sessions=False
        )
    if one.id == other.id:
        return warned("both sessions have the same id", remedies.PARALLEL, parallel_sessions=False)
    if other.implicit:
        return warned(
            "its dialect has no sessions: all prompts are one conversation to it",
            remedies.PARALLEL,
            parallel_sessions=False,
        )
    if peer.client.connection.settings.half_duplex:
        return warned(
            "its dialect allows one request at a time", remedies.PARALLEL, parallel_sessions=False
        )
    if not (state.turns and state.held("echo")):
        return passed("two sessions are open at once", parallel_sessions=True)
    prompts = [fill(state.canaries.echo, token=token) for token in ("harbour", "lighthouse")]
    told = await together(state.take_turn(one, prompts[0]), state.take_turn(other, prompts[1]))
    ends = [each.result for each in told]
    if all(end.ok for end in ends):
        return passed("two sessions answered at once", parallel_sessions=True)
    outcomes = ", ".join(end.outcome.value for end in ends)
    return warned(
        f"two prompts at once ended as {outcomes}", remedies.PARALLEL, parallel_sessions=False
    )


RUNGS: Final = (
    Rung(
        name="login",
        asks="Can it be used without logging in first?",
        measure=login,
        fields=("authenticated", "login"),
        needs=("dialect",),
    ),
    Rung(
        name="session",
        asks="Can a session be opened?",
        measure=session,
        fields=("sessions",),
        needs=("dialect",),
        essential=True,
    ),
    Rung(
        name="models",
        asks="Which models and modes does it list?",
        measure=models,
        fields=("models", "model", "parent_models", "modes"),
        needs=("session",),
    ),
    Rung(
        name="parallel",
        asks="Can two sessions run at once?",
        measure=parallel,
        fields=("parallel_sessions",),
        needs=("session",),
    ),
)
