"""`dragoman mcp`: the entry for the dragoman MCP server in the settings of agents and editors.

The supported programs are listed in `setup.install.clients`; `cli.install` does the work.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.install import (
    NAME,
    FileOption,
    NameOption,
    RemoveOption,
    WriteOption,
    install,
    uninstall,
)
from dragoman.cli.shared_options import CwdOption

HELP: Final = """
Give other agents and editors the tools of dragoman.

An agent that can call MCP tools delegates to other agents with them. `install` makes the entry in
its settings that starts `dragoman serve mcp`, and `uninstall` takes it out.

\b
Examples:
  dragoman mcp install --client claude            show the entry
  dragoman mcp install --client claude --write    make it, with a backup
  dragoman mcp uninstall --client claude --write  take it out again
"""

app: Final = new_app(help=HELP)


class ClientName(enum.StrEnum):
    """The programs that are known."""

    CLAUDE = "claude"
    CODEX = "codex"
    CURSOR = "cursor"
    GEMINI = "gemini"
    QWEN = "qwen"
    COPILOT = "copilot"
    OPENCODE = "opencode"
    KIMI = "kimi"
    ZED = "zed"
    VSCODE = "vscode"


ClientOption = Annotated[
    ClientName,
    typer.Option(
        "--client",
        metavar="NAME",
        help=f"The program to put it into: {', '.join(ClientName)}.",
        show_default=False,
    ),
]
ProjectOption = Annotated[
    bool, typer.Option("--project", help="In the settings of this project, not in yours.")
]


@app.callback()
def _mcp() -> None: ...


@app.command("install", context_settings=CONTEXT)
def install_command(
    *,
    client: ClientOption,
    write: WriteOption = False,
    project: ProjectOption = False,
    name: NameOption = NAME,
    file: FileOption = None,
    cwd: CwdOption = None,
) -> None:
    """Show or make the entry for the MCP server of dragoman in a program's settings.

    Only the entry changes: comments, order and every other byte of the file stay. What you have
    added to the entry yourself stays, too. A file that cannot be read is left alone.

    \b
    Examples:
      dragoman mcp install --client codex
      dragoman mcp install --client codex --write
      dragoman mcp install --client vscode --write --project
      dragoman mcp install --client zed --write --file ~/dotfiles/zed/settings.json
    """
    from pathlib import Path

    from dragoman.setup.install.clients import MCP_CLIENTS

    install(
        MCP_CLIENTS[client.value],
        name=name,
        write=write,
        file=file,
        project=(cwd or Path.cwd()) if project else None,
    )


@app.command("uninstall", context_settings=CONTEXT)
def uninstall_command(
    *,
    client: ClientOption,
    write: RemoveOption = False,
    project: ProjectOption = False,
    name: NameOption = NAME,
    file: FileOption = None,
    cwd: CwdOption = None,
) -> None:
    """Show or make the removal of that entry from a program's settings.

    Only the entry goes, and a section that it leaves empty. An entry that starts another program
    stays.

    \b
    Examples:
      dragoman mcp uninstall --client codex
      dragoman mcp uninstall --client codex --write
    """
    from pathlib import Path

    from dragoman.setup.install.clients import MCP_CLIENTS

    uninstall(
        MCP_CLIENTS[client.value],
        name=name,
        write=write,
        file=file,
        project=(cwd or Path.cwd()) if project else None,
    )
