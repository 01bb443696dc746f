"""The rungs of the ladder, a few in each module, in the order in which they are climbed.

Each rung is one function from the state of a climb to a finding. It knows what it asks and what the
answer means; the order, the stopping and the clock are in `ladder`.
"""
