"""The proof of speed: dragoman, the official SDK and the ceiling for Python on the same work.

`python -m bench` runs everything and prints the table. `lineup` says who takes part, `works` what
is done, `goals` what is claimed, `measure` how it is timed. Nothing here is part of the package.
"""
