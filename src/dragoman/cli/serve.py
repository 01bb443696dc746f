"""`dragoman serve`: the table of server subcommands, loaded lazily.

Each subcommand is a module `dragoman.cli.serve_NAME` with one function in its `app`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup

from dragoman.cli.command_module import fold_help, new_app
from dragoman.cli.typer_without_pydantic import quicken

DOORS: Final = {
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


class ServerGroup(TyperGroup):
    """Loads the module of a subcommand when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(DOORS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in DOORS:
            return None
        if cmd_name not in self.commands:
            module = import_module(f"dragoman.cli.serve_{cmd_name}")
            self.commands[cmd_name] = typer.main.get_command(module.app)
            quicken(self.commands[cmd_name])
            fold_help(self.commands[cmd_name])
        command = self.commands[cmd_name]
        command.short_help = DOORS[cmd_name]
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # Without loading any of them.
        with formatter.section("Commands"):
            formatter.write_dl(list(DOORS.items()))


app: Final = new_app(help=HELP)
app.info.cls = ServerGroup


@app.callback()
def _serve() -> None: ...
