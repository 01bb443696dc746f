"""The hub as an agent: any editor that speaks ACP sees one agent, and behind it all of its peers.

`acp_server.server` serves one client, a `acp_server.session` is one of its sessions, a `acp_server.peer_session` the peer that works in it.
What a session has been so far is in `runs.transcript`, its handing over in `runs.brief`, its storing in `acp_server.session_store`.
`acp_server.delegation_view` shows a delegation, `acp_server.client_requests` brings the peer's questions to the client, `acp_server.listener` has the
carriers and who is let in. Nothing is decided here about who works: `dragoman.delegation.routing` does.
"""
