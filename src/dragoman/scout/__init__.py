"""scout, the embedded agent: it answers questions about a repository by searching it.

It is an ordinary ACP agent on standard input and output, written with `dragoman.agent`. It has no
model, uses no network and writes nothing into a workspace without permission. ``python -m
dragoman.scout`` runs it. `agent` has its handlers, `questions` and `commands` what it understands,
`rank` and `answers` how it finds answers.
"""
