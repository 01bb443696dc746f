"""`dragoman skill`: print or install the text that teaches a model to use this command line.

The text is `setup/install/skill.md`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_data, put_out

app: Final = new_app()


@app.command(context_settings=CONTEXT)
def skill_command(
    *,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="DIR",
            help="Install it into this folder of skills, as DIR/dragoman/SKILL.md.",
            file_okay=False,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print a text that teaches a model to use dragoman, or install it as a skill.

    \b
    Examples:
      dragoman skill
      dragoman skill --write ~/.claude/skills
      dragoman skill --write .agents/skills
      dragoman skill >> AGENTS.md
    """
    from dragoman.cli.output.escape import neutral
    from dragoman.setup.install import entries
    from dragoman.setup.install.skill import plan_skill, skill_text

    if write is None:
        put_data(sys.stdout, skill_text())
        return
    planned = plan_skill(write)
    backup = entries.write(planned)
    where = neutral(str(planned.path))
    put_out(f"{where} is {'there now' if planned.changes else 'up to date'}.\n")
    if backup is not None:
        put_out(f"As it was before: {neutral(str(backup))}\n")
