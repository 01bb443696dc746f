"""Brokers: background processes that keep a peer alive between calls.

`broker.client` finds or starts a broker and connects to it; `broker.server` is the broker process.
Both use `broker.spec`, `broker.endpoint`, `broker.protocol`, `broker.lock` and `broker.records`.
This module imports nothing, so that a caller does not load the server's code.
"""
