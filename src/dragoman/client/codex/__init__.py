"""Drive `codex app-server`.

The client side of the app-server protocol: `CodexClient` is the connection, `CodexPeer` the
conversation API over it. `dragoman.dialects.codex` defines the messages.
"""

from dragoman.client.codex.client import CodexClient, CodexOptions
from dragoman.client.codex.peer import CodexPeer
from dragoman.client.codex.thread import CodexConversation
from dragoman.client.codex.turn import CodexTurn

__all__ = ["CodexClient", "CodexConversation", "CodexOptions", "CodexPeer", "CodexTurn"]
