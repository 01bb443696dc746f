"""Warm brokers: a process of its own that keeps a peer alive between calls.

The outside: `broker.spec` says all that a broker needs to know, `broker.endpoint` where it listens, `broker.client.find_or_start`
finds or starts one, `broker.server.process` is the broker's own process, `broker.records` and `broker.client.reap` see to it that
nothing is left behind, `broker.client.connect` is what callers use. The inside, what happens on the socket,
begins at `broker.server.broker`.

Nothing is imported here: a caller must not load what only the broker's own process needs.
"""
