"""`dragoman acp`: add dragoman as an agent to the settings of editors.

The supported editors are listed in `setup.install.clients`; `cli.install` does the work.
"""

from __future__ import annotations

import enum
import sys
from typing import Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.install import NAME, FileOption, NameOption, WriteOption, check_name, install
from dragoman.cli.output.terminal import put_data, put_err

HELP: Final = """
Put dragoman into editors as an agent.

An editor that speaks the Agent Client Protocol sees one agent, and behind it all of yours.
`install` makes the entry in its settings that starts `dragoman serve acp`.

\b
Examples:
  dragoman acp install --editor zed               show the entry
  dragoman acp install --editor zed --write       make it, with a backup
"""

app: Final = new_app(help=HELP)


class EditorName(enum.StrEnum):
    """The editors that are known."""

    ZED = "zed"
    JETBRAINS = "jetbrains"
    NEOVIM = "neovim"
    EMACS = "emacs"


@app.callback()
def _acp() -> None: ...


@app.command("install", context_settings=CONTEXT)
def install_command(
    *,
    editor: Annotated[
        EditorName, typer.Option("--editor", help="The editor to put it into.", show_default=False)
    ],
    write: WriteOption = False,
    name: NameOption = NAME,
    file: FileOption = None,
) -> None:
    """Show or make the entry for dragoman as an agent in an editor's settings.

    Only the entry changes: comments, order and every other byte of the file stay. The settings of
    Neovim and Emacs are programs, so the entry for them is only shown.

    \b
    Examples:
      dragoman acp install --editor zed
      dragoman acp install --editor jetbrains --write
      dragoman acp install --editor neovim >> ~/.config/nvim/init.lua
    """
    from dragoman.errors import UsageError
    from dragoman.setup.install.clients import ACP_EDITORS, SCRIPTED_EDITORS
    from dragoman.setup.install.program import this_program

    script = SCRIPTED_EDITORS.get(editor.value)
    if script is None:
        install(ACP_EDITORS[editor.value], name=name, write=write, file=file, project=None)
        return
    if write or file is not None:
        raise UsageError(
            f"the settings of {script.title} are a program, and no program is edited here; "
            "call it without --write and paste what it shows"
        )
    check_name(name)
    put_data(sys.stdout, script.text(name, (*this_program(), "serve", "acp")))
    put_err(f"For {script.title}: paste this into {script.place}\n")
