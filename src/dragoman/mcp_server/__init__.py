"""dragoman as an MCP server: a host's model delegates to peers by calling tools.

A surface like `dragoman.cli`: it parses, calls the hub, and answers; it decides nothing. `tools`
has what a model is offered, `front` carries a call out, `errands` keeps what runs, `asking` speaks
with one named peer, `answers` tells what came of it, `folders` says where work may be done. The two
ways in are `entrance`, which leads to `stdio`, and `http` behind `door`.
"""
