"""Detect changed files, isolate an attempt in a git worktree, run the user's check command.

`snapshot` compares a workspace before and after, `isolation` makes the worktree, `patch` applies
its changes, `sweep` removes worktrees of killed processes, `outside_writes` finds writes elsewhere,
`check_command` runs the check. `bundle` packs a workspace for another machine, `sent_tree` unpacks
it there, `received_patch` applies the result. None of them deals with peers; `runs.git` runs git.
"""
