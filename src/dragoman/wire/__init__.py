"""JSON-RPC framing, messages and the state machine of one peer. Pure: no I/O.

Nothing here opens anything, waits, logs or reads a clock; `dragoman.rpc` puts it on a transport.
"""
