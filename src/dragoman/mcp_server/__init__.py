"""MCP server: tools with which a host's model delegates work to peers.

`tools` declares the tools, `tool_handlers` runs a call, `running_work` tracks running jobs,
`ask_peer` prompts one named peer, `tool_results` formats results. Transports are `stdio_entry`
with `stdio`, and `http` behind `http_guard`. Routing and permissions are decided in
`delegation` and `policy`.
"""
