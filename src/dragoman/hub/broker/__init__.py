"""Warm brokers: a process of its own that keeps a peer alive between calls.

The outside: `spec` says all that a broker needs to know, `endpoint` where it listens, `starting`
finds or starts one, `process` is the broker's own process, `records` and `reaping` see to it that
nothing is left behind, `calling` is what callers use. The inside, what happens on the socket,
begins at `serving`.

Nothing is imported here: a caller must not load what only the broker's own process needs.
"""
