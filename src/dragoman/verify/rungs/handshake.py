"""Rungs `handshake` and `dialect`: does the program answer, and in which dialect?

Tells four failures apart: exit with usage text, crash, silence, and output for a person. If the
answer shows another dialect, the same command is started again for that dialect, which is safe
because no prompt was sent.
"""

from __future__ import annotations

import asyncio
from typing import Final

from dragoman.client.connect import OPENERS
from dragoman.client.options import AUTO
from dragoman.dialects import discovery
from dragoman.errors import (
    AuthRequired,
    CallTimeout,
    ConnectError,
    DragomanError,
    InvalidAnswer,
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
"""Characters of a program's stderr in the evidence."""


async def handshake(state: Verification) -> RungFinding:
    fixed = state.way.protocol != AUTO
    trying = state.way.protocol if fixed else discovery.family(state.way.command or ())
    tried: list[str] = []
    loop = asyncio.get_running_loop()
    while True:
        tried.append(trying)
        started_at = loop.time()
        try:
            connected = state.keep(await state.connect(trying))
        except ProtocolMismatch as error:
            found = error.dialect
            if fixed or found not in OPENERS or found in tried:
                return _answered(state, error, loop.time() - started_at)
            trying = found
            continue
        except (RemoteError, InvalidAnswer) as error:
            if not fixed and _wants_acp(error) and discovery.ACP not in tried:
                trying = discovery.ACP
                continue
            return _answered(state, error, loop.time() - started_at)
        except DragomanError as error:
            return _unanswered(state, error)
        found = None if fixed else _shows_other(connected, trying)
        if found is not None and found not in tried:
            await connected.peer.aclose()
            trying = found
            continue
        state.first = connected
        state.dialect = trying
        seconds = round(connected.seconds, 3)
        return passed(f"answered after {seconds:.2f} s", handshake_seconds=seconds)


def _answered(state: Verification, error: DragomanError, seconds: float) -> RungFinding:
    """It answered, so this rung passes; the rung `dialect` judges the answer."""
    state.greeting = error
    return passed(
        f"answered after {seconds:.2f} s, but not as expected: {error}",
        handshake_seconds=round(seconds, 3),
    )


def _shows_other(connected: ConnectedPeer, dialect: str) -> str | None:
    """Another dialect that the answer shows, although this one accepted it."""
    if dialect != discovery.ACP:
        return None
    found = discovery.of_text(connected.peer.client.hello)
    return found if found in OPENERS and found != dialect else None


def _wants_acp(error: DragomanError) -> bool:
    """Whether the handshake was refused because it had no protocol version."""
    return isinstance(error, RemoteError) and "protocolVersion" in f"{error.message} {error.data}"


def _unanswered(state: Verification, error: DragomanError) -> RungFinding:
    """The finding for a program that did not answer."""
    noise = state.witness.noise_sample
    printed = f"; on stdout it printed {noise}, which is no message" if noise else ""
    match error:
        case ProcessExited(signal=int(signal)):
            said = _tail(error.stderr_tail)
            return failed(f"it died of signal {signal} before it answered{said}", remedies.CRASH)
        case ProcessExited(exit_code=code):
            said = _tail(error.stderr_tail)
            return failed(
                f"it exited with {code} before it answered{printed}{said}", remedies.USAGE
            )
        case CallTimeout(timeout=timeout) if noise:
            return failed(f"no answer within {timeout:g} s{printed}", remedies.PERSON)
        case CallTimeout(timeout=timeout):
            return failed(
                f"no answer within {timeout:g} s; it runs and says nothing", remedies.SILENT
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
        return failed(
            f"it speaks neither protocol: the handshake was answered with: {error}",
            remedies.REFUSED,
        )
    assert state.first is not None
    peer = state.first.peer
    name = one_line(peer.info.name or "", MAX_WORD) or None
    version = one_line(peer.info.version or "", MAX_WORD) or None
    agreed = state.witness.protocol_version
    called = " ".join(word for word in (name, version) if word) or "it does not say who it is"
    return passed(
        f"{discovery.DIALECTS.get(peer.dialect, peer.dialect)}; {called}",
        dialect=peer.dialect,
        protocol_version=agreed,
        agent_name=name,
        agent_version=version,
    )


def _names_version(state: Verification, error: ProtocolMismatch) -> bool:
    """Whether it speaks the protocol, but another version of it."""
    refused = isinstance(error.__cause__, RemoteError)
    return refused or probes.names_version(state.witness.greeting)


RUNGS: Final = (
    Rung(
        name="handshake",
        asks="Does it answer when it is greeted?",
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
        fields=("dialect", "protocol_version", "agent_name", "agent_version"),
        needs=("handshake",),
        essential=True,
        last=True,
    ),
)
