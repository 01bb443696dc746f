"""`dragoman acp`: add dragoman as an agent to the settings of an editor, or remove it.

The supported editors are listed in `setup.install.clients`; `cli.install` edits their settings.
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
Add dragoman to editors as an agent.

An editor that speaks the Agent Client Protocol sees one agent, with all of your peers behind it.
`install` adds an entry to its settings that starts `dragoman serve acp`; `uninstall` removes it.

\b
Examples:
  dragoman acp install --client zed             show the entry
  dragoman acp install --client zed --write     write it, with a backup
  dragoman acp uninstall --client zed --write   remove it again
"""

app: Final = new_app(help=HELP)


class EditorName(enum.StrEnum):
    """The supported editors, as values of ``--client``."""

    ZED = "zed"
    JETBRAINS = "jetbrains"
    NEOVIM = "neovim"
    EMACS = "emacs"


ClientOption = Annotated[
    EditorName | None,
    typer.Option("--client", help="The editor to configure.  [required]", show_default=False),
]
EditorOption = Annotated[EditorName | None, typer.Option("--editor", hidden=True)]
"""The old name of ``--client``."""


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
    """Show the entry for an editor's settings, or write it with --write.

    Only the entry changes: comments, order and every other byte of the file are kept. Neovim and
    Emacs are configured in code, so their entry is only shown.

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
            f"{script.title} is configured in code, which dragoman does not edit; run this "
            f"without --write and --file, then paste the output into {script.place}"
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
    """Show how the entry is removed from an editor's settings, or remove it with --write.

    Only the entry is removed, and its section if that becomes empty. An entry that starts another
    program is kept. Remove what you pasted into your Neovim or Emacs configuration yourself.

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
            f"{script.title} is configured in code, which dragoman does not edit; "
            f"remove the entry from {script.place} yourself"
        )
    uninstall(ACP_EDITORS[chosen], name=name, write=write, file=file, project=None)


def _chosen(client: EditorName | None, editor: EditorName | None) -> str:
    from dragoman.errors import UsageError

    chosen = client or editor
    if chosen is None:
        raise UsageError(f"name the editor with --client: {', '.join(EditorName)}")
    return chosen.value
