"""Drive an agent that speaks ACP v1, with every method of the protocol typed.

The client side: `open_agent` starts a program and does the handshake, an `AcpClient` opens
sessions, a `Session` prompts, a `Turn` streams. The conversation API (`dragoman.connect`) uses the
same sessions and turns, but there they yield events. To write an agent, see `dragoman.agent`. The
names below are imported on first use: a broker's client does not need the code that starts
programs.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dragoman.client.acp.client import AcpClient
    from dragoman.client.acp.open import open_agent, use_agent
    from dragoman.client.acp.options import ClientOptions
    from dragoman.client.acp.session import Session
    from dragoman.client.acp.turn import Turn

LATER: Final = {
    "AcpClient": "client",
    "ClientOptions": "options",
    "Session": "session",
    "Turn": "turn",
    "open_agent": "open",
    "use_agent": "open",
}

__all__ = [
    "AcpClient",
    "ClientOptions",
    "Session",
    "Turn",
    "open_agent",
    "use_agent",
]


def __getattr__(name: str) -> Any:
    if name == "TurnResult":
        from dragoman.client.results import Result

        warnings.warn(
            "TurnResult was renamed to dragoman.client.results.Result",
            DeprecationWarning,
            stacklevel=2,
        )
        return Result
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{LATER[name]}"), name)
