"""Put an agent's output on the wire in ACP v1 or a legacy dialect.

Defines the interface and chooses the dialect: a client's first request shows it, unless the agent
names one. Each dialect is a module here, loaded for the first client that speaks it.
`dragoman.agent.server` runs the agent's handlers.
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
