"""Rungs `handshake` and `dialect`: does the program respond, and in which dialect?

Distinguishes four failures: exit with usage text, crash, silence, and output for a person. If the
response shows another dialect or rejects the handshake, the same command is started again for
another dialect, which is safe because no prompt was sent.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from dragoman.client.acp.keyed_translation import shows_nothing
from dragoman.client.connect import GREETING_TIMEOUT
from dragoman.client.conversation import Peer
from dragoman.client.options import AUTO
from dragoman.dialects import discovery
from dragoman.dialects.discovery import DialectSearch, is_refusal
from dragoman.errors import (
    AuthRequired,
    CallTimeout,
    ConnectError,
    DragomanError,
    LineTooLong,
    ProcessExited,
    ProtocolMismatch,
    RemoteError,
    SpawnError,
)
from dragoman.verify import probes, remedies
from dragoman.verify.rung import MAX_WORD, Rung, RungFinding, failed, one_line, passed
from dragoman.verify.verification import ConnectedPeer, Verification

SHOWN_SIZE: Final = 300
"""Maximum length of a program's stderr in the evidence, in characters."""


async def handshake(state: Verification) -> RungFinding:
    fixed = state.way.protocol != AUTO
    search = DialectSearch(state.way.command or ())
    trying = state.way.protocol if fixed else search.dialect
    loop = asyncio.get_running_loop()
    answered: RungFinding | None = None
    while True:
        started_at = loop.time()
        try:
            connected = state.keep(
                await state.connect(
                    trying, proving=True, timeout=GREETING_TIMEOUT if search.answered else None
                )
            )
            if not fixed:
                await _refuse_other(connected, trying)
        except DragomanError as error:
            if answered is None and not is_refusal(error):
                return _unanswered(state, error)
            # The first rejection is the most informative: the program may speak that dialect and
            # have a problem. Another version of a dialect proves which one it speaks.
            versions = isinstance(error, ProtocolMismatch) and error.version is not None
            if answered is None or versions:
                answered = _answered(state, error, loop.time() - started_at)
            if fixed or not search.go_on(error):
                state.tried = (trying,) if fixed else tuple(search.tried)
                return answered
            trying = search.dialect
            continue
        state.first = connected
        state.dialect = trying
        state.greeting = None
        if search.answered:
            state.remember_dialect(trying)
        seconds = round(connected.seconds, 3)
        before = ", ".join(search.tried[:-1])
        refused = f"; it rejected the handshake of {before}" if before else ""
        return passed(f"answered after {seconds:.2f} s{refused}", handshake_seconds=seconds)


def _answered(state: Verification, error: DragomanError, seconds: float) -> RungFinding:
    """Return the finding for a program that answered a handshake with an error: this rung passes.
    Store the error, which the rung `dialect` judges."""
    state.greeting = error
    return passed(
        f"answered after {seconds:.2f} s, but not as expected: {error}",
        handshake_seconds=round(seconds, 3),
    )


async def _refuse_other(connected: ConnectedPeer, dialect: str) -> None:
    """If the response to an ACP handshake is valid but shows another dialect, close the peer and
    raise `ProtocolMismatch`."""
    if dialect != discovery.ACP:
        return
    found = discovery.of_text(connected.peer.client.hello)
    if found is not None and found != dialect:
        await connected.peer.aclose()
        raise ProtocolMismatch(f"it speaks {found}", dialect=found)


def _unanswered(state: Verification, error: DragomanError) -> RungFinding:
    """Return the finding for a program that did not answer."""
    noise = state.witness.noise_sample
    printed = f"; on stdout it printed {noise}, which is not a message" if noise else ""
    match error:
        case ProcessExited(signal=int(signal)):
            said = _tail(error.stderr_tail)
            return failed(
                f"it was killed by signal {signal} before it answered{said}", remedies.CRASH
            )
        case ProcessExited(exit_code=code):
            said = _tail(error.stderr_tail)
            return failed(
                f"it exited with {code} before it answered{printed}{said}", remedies.USAGE
            )
        case CallTimeout(timeout=timeout) if noise:
            return failed(f"no answer within {timeout:g} s{printed}", remedies.PERSON)
        case CallTimeout(timeout=timeout):
            return failed(
                f"no answer within {timeout:g} s; it runs and prints nothing", remedies.SILENT
            )
        case SpawnError():
            return failed(str(error), remedies.START)
        case ConnectError():
            return failed(str(error), remedies.SILENT)
        case LineTooLong():
            return failed(f"{error}{printed}", remedies.PERSON)
        case _:
            return failed(f"{error}{printed}", remedies.SILENT)


def _tail(text: str) -> str:
    text = " ".join(text.split())
    return f"; on stderr it said: {text[-SHOWN_SIZE:]}" if text else ""


async def dialect(state: Verification) -> RungFinding:
    error = state.greeting
    if error is not None:
        if isinstance(error, ProtocolMismatch) and _names_version(state, error):
            return failed(str(error), remedies.VERSION)
        if isinstance(error, AuthRequired):
            # Nothing can be measured before the login, not even whether it is an agent.
            return failed(str(error), remedies.LOGIN)
        if len(state.tried) == 1:
            return failed(
                f"it does not speak {state.tried[0]}: the response to the handshake was: {error}",
                remedies.OTHER_DIALECT,
            )
        return failed(
            f"it speaks no known protocol ({', '.join(state.tried)} were tried): the first "
            f"response to a handshake was: {error}",
            remedies.REFUSED,
        )
    assert state.first is not None
    peer = state.first.peer
    name = one_line(peer.info.name or "", MAX_WORD) or None
    version = one_line(peer.info.version or "", MAX_WORD) or None
    agreed = state.witness.protocol_version
    called = " ".join(word for word in (name, version) if word) or "it does not report its name"
    certain = state.way.protocol != AUTO or _is_shown(peer)
    doubt = "" if certain else "; it may speak keyed instead, which only a turn can show"
    return passed(
        f"{discovery.DIALECTS.get(peer.dialect, peer.dialect)}{doubt}; {called}",
        dialect=peer.dialect,
        dialect_shown=certain,
        protocol_version=agreed,
        agent_name=name,
        agent_version=version,
    )


def _is_shown(peer: Peer) -> bool:
    """Return whether the response to the handshake identifies the dialect."""
    if peer.dialect != discovery.ACP:
        return True
    answer = msgspec.json.decode(peer.client.hello)
    return not (isinstance(answer, dict) and shows_nothing(answer))


def _names_version(state: Verification, error: ProtocolMismatch) -> bool:
    """Return whether the error or the response shows that the peer speaks this protocol in another
    version."""
    refused = isinstance(error.__cause__, RemoteError)
    return refused or error.version is not None or probes.names_version(state.witness.greeting)


RUNGS: Final = (
    Rung(
        name="handshake",
        asks="Does it answer the handshake?",
        measure=handshake,
        fields=("handshake_seconds",),
        needs=("binary", "entry"),
        essential=True,
        last=True,
    ),
    Rung(
        name="dialect",
        asks="Does it speak a protocol that dragoman knows?",
        measure=dialect,
        fields=("dialect", "dialect_shown", "protocol_version", "agent_name", "agent_version"),
        needs=("handshake",),
        essential=True,
        last=True,
    ),
)
