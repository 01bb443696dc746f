"""The ledger of delegations: decisions, attempts, outcomes and cost, in ``ledger.db``.

Next to it, ``events.jsonl`` is a log for other programs. `delegation.routing`, `delegation.bandit`
and `delegation.health` make decisions from these records. Prompts and answers are in `store`.
"""

from dragoman.store.ledger.attempt_table import PROCESS_GONE
from dragoman.store.ledger.events_file import (
    EventName,
    EventsFile,
    LoggedEvent,
    events_path,
    logged,
)
from dragoman.store.ledger.ledger import Ledger, ledger_path
from dragoman.store.ledger.posterior_table import HealthChange, Learned
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
