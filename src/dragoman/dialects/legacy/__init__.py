"""Legacy dialects, known only from documents: oneshot, threads, tagged, keyed, chained.

Each is a table of method names, message shapes and event translations; `base` has their interface.
"""
