"""scout, the embedded agent: it answers questions about a repository by searching it.

An ordinary ACP agent on its standard input and output, written with `dragoman.agent`: no model, no
network, and it writes nothing without permission. ``python -m dragoman.scout`` runs it. `agent` has
its handlers, `questions` and `commands` what it understands, `rank` and `answers` how it finds
answers.
"""
