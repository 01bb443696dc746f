"""What really happened on the disk: snapshots of a workspace, a copy of its own, and checks.

This package owns the proof of which files an attempt changed (`snapshot`), the git worktree in
which an attempt can run without touching the workspace (`isolation`, cleaned up after a sudden
death by `worktree.sweep`), the writes outside that tool calls tell of (`worktree.outside_writes`), and the user's own
check (`check`). It does not know who worked there or why; that is decided above.
"""

from dragoman.delegation.worktree.changed_files import ChangeWatch
from dragoman.delegation.worktree.check import CheckResult, run_check
from dragoman.delegation.worktree.isolation import Isolation
from dragoman.delegation.worktree.outside_writes import outside_writes
from dragoman.delegation.worktree.patch import Applied, Conflict
from dragoman.delegation.worktree.snapshot import Changed, Snapshot, changes
from dragoman.delegation.worktree.sweep import Swept, sweep

__all__ = [
    "Applied",
    "Changed",
    "CheckResult",
    "Conflict",
    "Isolation",
    "ChangeWatch",
    "Snapshot",
    "Swept",
    "changes",
    "outside_writes",
    "run_check",
    "sweep",
]
