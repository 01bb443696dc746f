"""Write an agent that any ACP client can drive.

The author's side of the protocol: `Agent` collects handlers, a `Turn` answers a prompt. For driving
agents, see `dragoman.client`.
"""

from dragoman.agent.agent import Agent
from dragoman.agent.client_side import ClientSide, Terminal
from dragoman.agent.session import Session
from dragoman.agent.sync_handlers import BlockingToolCall, BlockingTurn
from dragoman.agent.tools import ToolCall
from dragoman.agent.turn import Turn

__all__ = [
    "Agent",
    "BlockingToolCall",
    "BlockingTurn",
    "ClientSide",
    "Session",
    "Terminal",
    "ToolCall",
    "Turn",
]
