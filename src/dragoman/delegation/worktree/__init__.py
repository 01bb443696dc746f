"""Detect changed files, isolate an attempt in a git worktree, run the user's check command.

`snapshot` compares a workspace before and after, `changed_files` does so cheaply, `isolation` makes
the worktree, `patch` applies its changes, `sweep` removes worktrees of killed processes,
`outside_writes` finds writes elsewhere, `check` runs the check. None of them knows peers.
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
