"""JSON-RPC as bytes and values: a quiet room.

Owns framing, the kinds of message, and the state of one end of a conversation. Nothing here opens,
waits, logs or looks at a clock; `dragoman.rpc` puts it on a transport.
"""
