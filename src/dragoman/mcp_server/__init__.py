"""dragoman as an MCP server: a host's model delegates to peers by calling tools.

A surface like `dragoman.cli`: it parses, calls the hub, and answers; it decides nothing. `tools`
has what a model is offered, `mcp_server.tool_handlers` carries a call out, `mcp_server.running_work` keeps what runs, `mcp_server.ask_peer` speaks
with one named peer, `answers` tells what came of it, `folders` says where work may be done. The two
ways in are `mcp_server.stdio_entry`, which leads to `stdio`, and `http` behind `mcp_server.http_guard`.
"""
