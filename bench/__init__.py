"""Benchmarks: dragoman, the official SDK and a bare Python loop on the same workloads.

`python -m bench` runs everything and prints the table. `lineup` lists the contestants, `works` the
workloads, `programme` what is measured and the goals, and `measure` reads the clocks. Nothing here
is part of the package.
"""
