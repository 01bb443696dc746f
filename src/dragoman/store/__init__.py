"""The session store: sessions, jobs and events in SQLite that outlive the process that made them.

Secrets are redacted before anything reaches the disk. `store.ledger` is a second database, for
delegations. The names below are loaded on first use: a command that goes through a broker needs
only a job id. `store.history` is not among them, because the module and its function share a name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.redaction.redactor import Redactor
    from dragoman.store.recorder import StoreRecorder
    from dragoman.store.records import (
        JobRecord,
        JobState,
        Note,
        SessionRecord,
        new_job_id,
        new_session_key,
        root_of,
    )
    from dragoman.store.retention import KEPT_AGE, Pruned
    from dragoman.store.store import FILE_NAME, Store, store_path
    from dragoman.store.stream_redaction import LineRedactor
    from dragoman.store.writer import StoreWriter

__all__ = [
    "FILE_NAME",
    "KEPT_AGE",
    "JobRecord",
    "JobState",
    "LineRedactor",
    "Note",
    "Pruned",
    "Redactor",
    "SessionRecord",
    "Store",
    "StoreRecorder",
    "StoreWriter",
    "new_job_id",
    "new_session_key",
    "root_of",
    "store_path",
]

_HOMES = {
    "FILE_NAME": "store",
    "KEPT_AGE": "retention",
    "JobRecord": "records",
    "JobState": "records",
    "LineRedactor": "stream_redaction",
    "Note": "records",
    "Pruned": "retention",
    "Redactor": "dragoman.redaction.redactor",
    "SessionRecord": "records",
    "Store": "store",
    "StoreRecorder": "recorder",
    "StoreWriter": "writer",
    "new_job_id": "records",
    "new_session_key": "records",
    "root_of": "records",
    "store_path": "store",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = home if "." in home else f"{__name__}.{home}"
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
