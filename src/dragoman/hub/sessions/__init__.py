"""Sessions and jobs that outlive the process they were started from.

Owns what is kept of them, in one file, and what is not: secrets are taken out before anything
reaches the disk. It starts no peer and serves nobody; `dragoman.hub.broker` does. The parts:
`records`, `store`, `runs`, `writing`, `recording`, `history`.

The names below are loaded at their first use: a command that goes through a broker makes an id for
its job, and needs neither the store nor what is written to it. What `history` has is not among
them, because a module and a function of one name cannot both be loaded that way.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.hub.sessions.recording import Recorder
    from dragoman.hub.sessions.records import (
        JobRecord,
        JobState,
        Note,
        SessionRecord,
        new_job_id,
        new_session_key,
        root_of,
    )
    from dragoman.hub.sessions.retention import KEPT_AGE, Pruned
    from dragoman.hub.sessions.runs import LineRedactor
    from dragoman.hub.sessions.store import FILE_NAME, Store, store_path
    from dragoman.hub.sessions.writing import Writer
    from dragoman.redaction.redactor import Redactor

__all__ = [
    "FILE_NAME",
    "KEPT_AGE",
    "JobRecord",
    "JobState",
    "LineRedactor",
    "Note",
    "Pruned",
    "Recorder",
    "Redactor",
    "SessionRecord",
    "Store",
    "Writer",
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
    "LineRedactor": "runs",
    "Note": "records",
    "Pruned": "retention",
    "Recorder": "recording",
    "Redactor": "dragoman.redaction.redactor",
    "SessionRecord": "records",
    "Store": "store",
    "Writer": "writing",
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
