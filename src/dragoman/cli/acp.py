"""`dragoman acp`: the entry for dragoman as an agent in the settings of editors.

The supported editors are listed in `setup.install.clients`; `cli.install` does the work.
"""

from __future__ import annotations

import enum
import sys
from typing import Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.install import (
    NAME,
    FileOption,
    NameOption,
    RemoveOption,
    WriteOption,
    check_name,
    install,
    uninstall,
)
from dragoman.cli.output.terminal import put_data, put_err

HELP: Final = """
Put dragoman into editors as an agent.

An editor that speaks the Agent Client Protocol sees one agent, and behind it all of yours.
`install` makes the entry in its settings that starts `dragoman serve acp`, and `uninstall` takes it
out.

\b
Examples:
  dragoman acp install --client zed               show the entry
  dragoman acp install --client zed --write       make it, with a backup
  dragoman acp uninstall --client zed --write     take it out again
"""

app: Final = new_app(help=HELP)


class EditorName(enum.StrEnum):
    """The editors that are known."""

    ZED = "zed"
    JETBRAINS = "jetbrains"
    NEOVIM = "neovim"
    EMACS = "emacs"


ClientOption = Annotated[
    EditorName | None,
    typer.Option("--client", help="The editor to put it into.  [required]", show_default=False),
]
EditorOption = Annotated[EditorName | None, typer.Option("--editor", hidden=True)]
"""The name of ``--client`` in earlier versions."""


@app.callback()
def _acp() -> None: ...


@app.command("install", context_settings=CONTEXT)
def install_command(
    *,
    client: ClientOption = None,
    editor: EditorOption = None,
    write: WriteOption = False,
    name: NameOption = NAME,
    file: FileOption = None,
) -> None:
    """Show or make the entry for dragoman as an agent in an editor's settings.

    Only the entry changes: comments, order and every other byte of the file stay. The settings of
    Neovim and Emacs are programs, so the entry for them is only shown.

    \b
    Examples:
      dragoman acp install --client zed
      dragoman acp install --client jetbrains --write
      dragoman acp install --client neovim >> ~/.config/nvim/init.lua
    """
    from dragoman.errors import UsageError
    from dragoman.setup.install.clients import ACP_EDITORS, SCRIPTED_EDITORS
    from dragoman.setup.install.program import this_program

    chosen = _chosen(client, editor)
    script = SCRIPTED_EDITORS.get(chosen)
    if script is None:
        install(ACP_EDITORS[chosen], name=name, write=write, file=file, project=None)
        return
    if write or file is not None:
        raise UsageError(
            f"the settings of {script.title} are a program, and no program is edited here; "
            "call it without --write and paste what it shows"
        )
    check_name(name)
    put_data(sys.stdout, script.text(name, (*this_program(), "serve", "acp")))
    put_err(f"For {script.title}: paste this into {script.place}\n")


@app.command("uninstall", context_settings=CONTEXT)
def uninstall_command(
    *,
    client: ClientOption = None,
    editor: EditorOption = None,
    write: RemoveOption = False,
    name: NameOption = NAME,
    file: FileOption = None,
) -> None:
    """Show or make the removal of that entry from an editor's settings.

    Only the entry goes, and a section that it leaves empty. An entry that starts another program
    stays. What you pasted into the settings of Neovim or Emacs is yours to remove.

    \b
    Examples:
      dragoman acp uninstall --client zed
      dragoman acp uninstall --client jetbrains --write
    """
    from dragoman.errors import UsageError
    from dragoman.setup.install.clients import ACP_EDITORS, SCRIPTED_EDITORS

    chosen = _chosen(client, editor)
    if (script := SCRIPTED_EDITORS.get(chosen)) is not None:
        raise UsageError(
            f"the settings of {script.title} are a program, and no program is edited here; "
            f"take what you pasted out of {script.place}"
        )
    uninstall(ACP_EDITORS[chosen], name=name, write=write, file=file, project=None)


def _chosen(client: EditorName | None, editor: EditorName | None) -> str:
    from dragoman.errors import UsageError

    chosen = client or editor
    if chosen is None:
        raise UsageError(f"say which editor with --client: {', '.join(EditorName)}")
    return chosen.value
