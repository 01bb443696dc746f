"""Verify a peer: run the ladder of checks (rungs) against it and write its card.

`ladder.climb` runs the verification. `catalogue.card` defines and stores the card, `verify.report`
formats it, and `delegation.routing` uses it.
"""
