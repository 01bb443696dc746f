"""ACP server for editors: one agent, with every enabled peer behind it.

`listener` accepts connections, `server` serves one client, `session` is one of its sessions and
`peer_session` the chosen peer's side of it. `session_store` persists sessions, `delegation_view`
shows a delegation. The package does not choose peers: `delegation.routing` does.
"""
