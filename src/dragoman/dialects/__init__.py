"""What methods mean: one package per dialect.

A dialect owns the names of its methods, the shapes of their bodies, and nothing else: it opens
nothing, waits for nothing and logs nothing. It does not know how bytes travel (`transports`,
`rpc`), and no dialect imports another.
"""
