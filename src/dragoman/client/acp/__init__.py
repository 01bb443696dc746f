"""Drive an agent that speaks ACP v1, with every method of the protocol typed.

Owns the client's side: `open_agent` starts a program and shakes hands, an `AcpClient` opens
sessions, a `Session` prompts, a `Turn` streams. Writing an agent is `dragoman.agent`.
"""

from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.open import open_agent, use_agent
from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.session import Session
from dragoman.client.acp.turn import Turn, TurnResult

__all__ = [
    "AcpClient",
    "ClientOptions",
    "Session",
    "Turn",
    "TurnResult",
    "open_agent",
    "use_agent",
]
