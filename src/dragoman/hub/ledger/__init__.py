"""What was delegated, to whom, how it ended and what it cost, kept on this machine.

Owns one file, ``ledger.db``, and the stream of lines beside it, ``events.jsonl``. It decides
nothing: `routing`, `bandit` and `health` do, and are handed what is stored here. Prompts and
answers are not here but in `dragoman.hub.sessions`.
"""

from dragoman.hub.ledger.attempt_table import PROCESS_GONE
from dragoman.hub.ledger.belief_table import HealthChange, Learned
from dragoman.hub.ledger.eventlog import EventLog, EventName, LoggedEvent, events_path, logged
from dragoman.hub.ledger.ledger import Ledger, ledger_path
from dragoman.hub.ledger.records import (
    AttemptRecord,
    Ending,
    Spent,
    StatRow,
    Tokens,
    new_decision_id,
    tokens_of,
)

__all__ = [
    "PROCESS_GONE",
    "AttemptRecord",
    "Ending",
    "EventLog",
    "EventName",
    "HealthChange",
    "Learned",
    "Ledger",
    "LoggedEvent",
    "Spent",
    "StatRow",
    "Tokens",
    "events_path",
    "ledger_path",
    "logged",
    "new_decision_id",
    "tokens_of",
]
