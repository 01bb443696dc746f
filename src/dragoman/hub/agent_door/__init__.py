"""The hub as an agent: any editor that speaks ACP sees one agent, and behind it all of its peers.

`door` serves one client, a `talk` is one of its sessions, a `worker` the peer that works in it.
What a session has been so far is in `runs.transcript`, its handing over in `runs.brief`, its storing in `shelf`.
`errand` shows a delegation, `asking` brings the peer's questions to the client, `listening` has the
carriers and who is let in. Nothing is decided here about who works: `dragoman.delegation.routing` does.
"""
