"""What was delegated, to whom, how it ended and what it cost, kept on this machine.

Owns one file, ``ledger.db``, and the stream of lines beside it, ``events.jsonl``. It decides
nothing: `delegation.routing`, `delegation.bandit` and `delegation.health` do, and are handed what is stored here. Prompts and
answers are not here but in `dragoman.store`.
"""

from dragoman.store.ledger.attempt_table import PROCESS_GONE
from dragoman.store.ledger.belief_table import HealthChange, Learned
from dragoman.store.ledger.events_file import (
    EventName,
    EventsFile,
    LoggedEvent,
    events_path,
    logged,
)
from dragoman.store.ledger.ledger import Ledger, ledger_path
from dragoman.store.ledger.records import (
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
    "EventsFile",
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
