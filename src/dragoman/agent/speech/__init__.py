"""How an agent's words are put on the wire: ACP v1, or a dialect of the documents.

Owns the interface and the choice: a client's first request shows which dialect it speaks, unless
the agent names one. Each dialect is a module here, loaded for the first client that speaks it.
`dragoman.agent.server` runs the handlers of the agent.
"""

from dragoman.agent.speech.acp import AcpSpeech, Speech
from dragoman.agent.speech.choice import (
    choose,
    decode_new,
    recognise,
    refutes,
    served_dialect,
    speech_of,
)

__all__ = [
    "AcpSpeech",
    "Speech",
    "choose",
    "decode_new",
    "recognise",
    "refutes",
    "served_dialect",
    "speech_of",
]
