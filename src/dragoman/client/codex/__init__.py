"""Drive `codex app-server`.

Owns the client's side of the app-server protocol: `CodexClient` is the connection, `CodexPeer` the
conversation API over it. What the messages mean is in `dragoman.dialects.codex`.
"""

from dragoman.client.codex.client import CodexClient, CodexOptions
from dragoman.client.codex.peer import CodexPeer
from dragoman.client.codex.thread import CodexConversation
from dragoman.client.codex.turn import CodexTurn

__all__ = ["CodexClient", "CodexConversation", "CodexOptions", "CodexPeer", "CodexTurn"]
