"""The Codex app-server protocol: what `codex app-server` says and what it means.

Owns the shapes of the messages that driving a conversation needs, and their mapping to events. It
sends nothing and waits for nothing: `dragoman.client.codex` does. On the wire this dialect is
JSON-RPC without the `jsonrpc` member, and a turn ends by a notification, not by an answer.
"""
