"""Which language a client speaks, by its first request.

Owns the table of languages besides ACP. The rules are in `dragoman.dialects.discovery`. A language
is loaded by the first client that speaks it, so that an agent for ACP starts as fast as before.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dragoman.dialects import discovery
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
"""The class for each dialect, in the module of the dialect's name beside this one."""


def choose(server: Server, request: Request) -> DocumentSpeech | None:
    """The language of a client whose first request this is; None is ACP, or nothing we know."""
    params: Any = None
    try:
        params = msgspec.json.decode(request.params)
    except UNDECODABLE:
        pass
    dialect = discovery.of_request(request.method, params)
    if dialect not in SPEECHES:
        return None
    home = importlib.import_module(f"dragoman.agent.speech.{dialect}")
    speech: DocumentSpeech = getattr(home, SPEECHES[dialect])(server)
    return speech
