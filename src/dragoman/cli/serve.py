"""`dragoman serve`: the table of server subcommands, loaded lazily.

Each subcommand is a module `dragoman.cli.serve_NAME` with one function in its `app`.
"""

from __future__ import annotations

from typing import Final

from dragoman.cli.command_module import LazyGroup, new_app

COMMANDS: Final = {
    "acp": "Serve all of your peers to an editor as one agent.",
    "mcp": "Let MCP hosts and agents delegate to your peers.",
}
"""Every subcommand with its line in `dragoman serve --help`."""

HELP: Final = """
Serve your peers to editors, MCP hosts and other agents.

\b
Examples:
  dragoman serve acp                  for an editor that starts its agents
  dragoman serve mcp                  for a host that starts its MCP servers
  dragoman serve mcp --http 8720      for hosts that connect to an address
"""


class ServerGroup(LazyGroup):
    """The subcommands of `dragoman serve`."""

    lines = COMMANDS
    prefix = "dragoman.cli.serve_"


app: Final = new_app(help=HELP)
app.info.cls = ServerGroup


@app.callback()
def _serve() -> None: ...
