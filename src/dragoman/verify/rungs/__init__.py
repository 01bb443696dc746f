"""The checks of the verification ladder.

A rung is one function from a `Verification` to a `RungFinding`. `verify.ladder` defines the order,
skips, stops and timeouts.
"""
