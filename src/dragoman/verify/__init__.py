"""What a peer can really do, measured: the ladder, its rungs, and the card that comes of it.

This package owns the measuring and the keeping of what was measured. What a peer claims of itself
is in `catalogue`; who uses the cards is routing. `ladder.climb` does it all, `catalogue.card` is the
result, `catalogue.card_store` keeps it, `delegation.report` prints it.
"""
