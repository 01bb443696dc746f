"""The Codex app-server protocol: message shapes and their translation to events.

Covers the messages needed to drive a conversation. No I/O here: `dragoman.client.codex` sends and
waits. On the wire this dialect is JSON-RPC without the `jsonrpc` member, and a turn ends with a
notification, not with a response.
"""
