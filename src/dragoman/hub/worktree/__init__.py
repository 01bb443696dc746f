"""What really happened on the disk: snapshots of a workspace, a copy of its own, and checks.

This package owns the proof of which files an attempt changed (`snapshot`), the git worktree in
which an attempt can run without touching the workspace (`isolation`, cleaned up after a sudden
death by `sweeping`), the writes outside that tool calls tell of (`outside`), and the user's own
check (`check`). It does not know who worked there or why; that is decided above.
"""

from dragoman.hub.worktree.check import CheckResult, run_check
from dragoman.hub.worktree.isolation import Isolation
from dragoman.hub.worktree.look import Look
from dragoman.hub.worktree.outside import outside_writes
from dragoman.hub.worktree.patching import Applied, Conflict
from dragoman.hub.worktree.snapshot import Changed, Snapshot, changes
from dragoman.hub.worktree.sweeping import Swept, sweep

__all__ = [
    "Applied",
    "Changed",
    "CheckResult",
    "Conflict",
    "Isolation",
    "Look",
    "Snapshot",
    "Swept",
    "changes",
    "outside_writes",
    "run_check",
    "sweep",
]
