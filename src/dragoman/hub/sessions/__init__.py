"""Sessions and jobs that outlive the process they were started from.

Owns what is kept of them, in one file, and what is not: secrets are taken out before anything
reaches the disk. It starts no peer and serves nobody; `dragoman.hub.broker` does. The parts:
`records`, `store`, `redacting` and `runs`, `writing`, `recording`, `history`.

`Recorder` is loaded when it is asked for: it needs the words of the bridge, and a command that goes
through a broker does not.
"""

from typing import TYPE_CHECKING

from dragoman.hub.sessions.history import history, text_of
from dragoman.hub.sessions.records import (
    JobRecord,
    JobState,
    Note,
    SessionRecord,
    new_job_id,
    new_session_key,
    root_of,
)
from dragoman.hub.sessions.redacting import Redactor
from dragoman.hub.sessions.retention import KEPT_AGE, Pruned
from dragoman.hub.sessions.runs import LineRedactor
from dragoman.hub.sessions.store import FILE_NAME, Store, store_path
from dragoman.hub.sessions.writing import Writer

if TYPE_CHECKING:
    from dragoman.hub.sessions.recording import Recorder

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
    "history",
    "new_job_id",
    "new_session_key",
    "root_of",
    "store_path",
    "text_of",
]


def __getattr__(name: str) -> object:
    if name != "Recorder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dragoman.hub.sessions.recording import Recorder

    return Recorder
