"""Legacy dialects, known only from documents: oneshot, threads, tagged, keyed, chained.

Each is a table of method names, message shapes and losses, with what is its own in the translation
of events; `base` is the engine that they share.
"""
