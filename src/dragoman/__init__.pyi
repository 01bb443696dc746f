# The names of `__init__.py` for editors and type checkers, which do not see what is loaded at its
# first use.

from dragoman import errors as errors
from dragoman import events as events
from dragoman.agent import Agent as Agent
from dragoman.agent import BlockingTurn as BlockingTurn
from dragoman.agent import Turn as Turn
from dragoman.client.budgets import Budgets as Budgets
from dragoman.client.conversation import Peer as Peer
from dragoman.client.permissions import Answer as Answer
from dragoman.client.permissions import Question as Question
from dragoman.client.permissions import approve_all as approve_all
from dragoman.client.permissions import approve_reads as approve_reads
from dragoman.client.permissions import deny_all as deny_all
from dragoman.client.results import Result as Result
from dragoman.delegation import Delegation as Delegation
from dragoman.delegation import delegate as delegate
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import AuthRequired as AuthRequired
from dragoman.errors import CallError as CallError
from dragoman.errors import CallTimeout as CallTimeout
from dragoman.errors import ConnectionLost as ConnectionLost
from dragoman.errors import DragomanError as DragomanError
from dragoman.errors import ProcessExited as ProcessExited
from dragoman.errors import RemoteError as RemoteError
from dragoman.errors import UsageError as UsageError
from dragoman.runs.connect import connect as connect
from dragoman.runs.connect import connect_sync as connect_sync
from dragoman.version import __version__ as __version__

__all__ = [
    "Agent",
    "Answer",
    "AuthRequired",
    "BlockingTurn",
    "Budgets",
    "CallError",
    "CallTimeout",
    "ConnectionLost",
    "Delegation",
    "DragomanError",
    "Peer",
    "ProcessExited",
    "Question",
    "RemoteError",
    "Result",
    "Turn",
    "UsageError",
    "acp",
    "approve_all",
    "approve_reads",
    "connect",
    "connect_sync",
    "delegate",
    "deny_all",
    "errors",
    "events",
]
