"""scout, the embedded agent: it answers questions about a repository by looking.

An ordinary ACP agent on its standard input and output, written with `dragoman.agent`: no model, no
network, and nothing is written without permission. ``python -m dragoman.scout`` runs it. `agent`
has its handlers, `questions` and `commands` what it understands, `rank` and `answers` how it finds
out.
"""
