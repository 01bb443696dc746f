"""How an agent's words are put on the wire: ACP v1, or a dialect of the documents.

Owns the interface and the choice: a client's first request says which dialect it speaks. Each
dialect is a module here, loaded when somebody speaks it. It does not know what an agent does;
`dragoman.agent.server` runs its handlers.
"""

from dragoman.agent.speech.acp import AcpSpeech, Speech
from dragoman.agent.speech.choice import choose

__all__ = ["AcpSpeech", "Speech", "choose"]
