"""Legacy dialects, known only from their specifications: oneshot, threads, tagged, keyed, chained.

Each is a table of method names, message shapes and losses, with its own event translations; `base`
has what they share.
"""
