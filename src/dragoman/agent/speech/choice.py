"""Choose a client's dialect, from its first request or from the agent's setting.

Has the table of dialects other than ACP. The rules are in `dragoman.dialects.discovery`. A dialect
is loaded for the first client that speaks it, so that it does not slow down the start of an ACP
agent.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from dragoman.dialects import discovery
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.codec import decoder
from dragoman.errors import UsageError
from dragoman.wire.messages import UNDECODABLE, Request

if TYPE_CHECKING:
    from dragoman.agent.server import Server
    from dragoman.agent.speech.base import DocumentSpeech

SPEECHES: Final = {
    discovery.ONESHOT: "OneshotSpeech",
    discovery.THREADS: "ThreadsSpeech",
    discovery.TAGGED: "TaggedSpeech",
    discovery.KEYED: "KeyedSpeech",
    discovery.CHAINED: "ChainedSpeech",
}
"""The class for each dialect, in the module with the dialect's name in this package."""


def choose(server: Server, request: Request) -> DocumentSpeech | None:
    """Return the `DocumentSpeech` for a client with this first request; None for ACP or an unknown
    dialect."""
    dialect = discovery.of_request(request.method, _params(request))
    return speech_of(server, dialect) if dialect in SPEECHES else None


def recognise(
    server: Server, request: Request, session_ids: Iterable[str]
) -> DocumentSpeech | None:
    """Return a `DocumentSpeech` of the keyed dialect if this request, from a client whose handshake
    looked like ACP, is in that dialect. None if that is not certain, or the agent names a dialect.

    The client keeps its sessions, whose ids are `session_ids`.
    """
    if server.agent.dialect is not None:
        return None
    if not discovery.is_keyed(request.method, _params(request)):
        return None
    speech = speech_of(server, discovery.KEYED)
    speech.take_over(session_ids)
    return speech


def decode_new(params: Raw) -> acp.NewSessionRequest:
    """Decode the params of `session/new` in ACP. Raises `msgspec.ValidationError` also for those of
    the keyed dialect, which could be decoded, but would lose their model, mode or servers."""
    request = _decode_new(params)
    if discovery.is_keyed(acp.SESSION_NEW.name, msgspec.json.decode(params)):
        raise msgspec.ValidationError("Object has fields of another dialect")
    return request


_decode_new: Final = decoder(acp.NewSessionRequest)


def refutes(speech: DocumentSpeech, request: Request) -> bool:
    """Return whether this request shows that a client speaks ACP, although the keyed dialect was
    presumed when it opened a session.

    Only its first prompt can show that; it also ends the presumption (`speech.presumed`).
    """
    if request.method != acp.SESSION_PROMPT.name:
        return False
    speech.presumed = False
    return not discovery.is_keyed(request.method, _params(request))


def speech_of(server: Server, dialect: str) -> DocumentSpeech:
    """Create the `DocumentSpeech` of a dialect other than ACP, for one client."""
    home = importlib.import_module(f"dragoman.agent.speech.{dialect}")
    speech: DocumentSpeech = getattr(home, SPEECHES[dialect])(server)
    return speech


def served_dialect(word: str) -> str:
    """Return the dialect that a user's `word` means. Raises `UsageError` unless it means exactly
    one in which clients can be served."""
    served = [discovery.ACP, *SPEECHES]
    if word == discovery.CODEX:
        raise UsageError(
            f"clients cannot be served in the dialect {word!r}: name one of {', '.join(served)}"
        )
    return discovery.dialect_named(word, served)


def _params(request: Request) -> Any:
    try:
        return msgspec.json.decode(request.params)
    except UNDECODABLE:
        return None
