"""`dragoman mcp`: add the dragoman MCP server to the settings of an agent or editor, or remove it.

The supported programs are listed in `setup.install.clients`; `cli.install` edits their settings.
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
from dragoman.cli.output.terminal import put_err
from dragoman.cli.shared_options import CwdOption

HELP: Final = """
Add dragoman's MCP server to other agents and editors.

With its tools an agent can delegate to other agents. `install` adds an entry to the agent's
settings that starts `dragoman serve mcp`; `uninstall` removes it.

\b
Examples:
  dragoman mcp install --client claude             show the entry
  dragoman mcp install --client claude --write     write it, with a backup
  dragoman mcp uninstall --client claude --write   remove it again
"""

app: Final = new_app(help=HELP)


class ClientName(enum.StrEnum):
    """The supported programs, as values of ``--client``."""

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
        help=f"The program to configure: {', '.join(ClientName)}.",
        show_default=False,
    ),
]
ProjectOption = Annotated[
    bool, typer.Option("--project", help="Use the settings of this project, not yours.")
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
    """Show the MCP entry for a program's settings, or write it with --write.

    Only the entry changes: comments, order and every other byte of the file are kept, and so is
    what you added to the entry yourself. A file that cannot be parsed is not changed.

    \b
    Examples:
      dragoman mcp install --client codex
      dragoman mcp install --client codex --write
      dragoman mcp install --client vscode --write --project
      dragoman mcp install --client zed --write --file ~/dotfiles/zed/settings.json
    """
    from importlib.util import find_spec
    from pathlib import Path

    from dragoman.setup.install.clients import MCP_CLIENTS

    install(
        MCP_CLIENTS[client.value],
        name=name,
        write=write,
        file=file,
        project=(cwd or Path.cwd()) if project else None,
    )
    if find_spec("mcp") is None:
        from dragoman.cli.serve_mcp import INSTALL

        put_err(f"`dragoman serve mcp` does not work yet: the MCP SDK is missing; {INSTALL}\n")


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
    """Show how the entry is removed from a program's settings, or remove it with --write.

    Only the entry is removed, and its section if that becomes empty. An entry that starts another
    program is kept.

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
