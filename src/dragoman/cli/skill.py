"""`dragoman skill`: print or install the text that teaches a model to use this command line.

The text is `setup/install/skill.md`.
"""

from __future__ import annotations

import enum
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.output.terminal import put_data, put_err, put_out
from dragoman.errors import UsageError

if TYPE_CHECKING:
    from dragoman.setup.install.entries import EntryEdit

app: Final = new_app()


class SkillClient(enum.StrEnum):
    """The agents whose skills directory is known."""

    CLAUDE = "claude"
    CODEX = "codex"
    GEMINI = "gemini"
    QWEN = "qwen"
    KIMI = "kimi"


@app.command(context_settings=CONTEXT)
def skill_command(
    *,
    client: Annotated[
        SkillClient | None,
        typer.Option(
            "--client", help="Show where this agent reads skills from.", show_default=False
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="DIR",
            help="Install into this skills directory, as DIR/dragoman/SKILL.md.",
            file_okay=False,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Print or install instructions that teach a model to use dragoman.

    \b
    Examples:
      dragoman skill
      dragoman skill --client claude
      dragoman skill --write ~/.claude/skills
      dragoman skill --write .agents/skills
      dragoman skill >> AGENTS.md
    """
    from dragoman.cli.output.escape import neutral
    from dragoman.setup.install import entries

    if write is not None and client is not None:
        raise UsageError("--client and --write both choose the directory: use one of them")
    if write is None:
        put_data(sys.stdout, skill_text())
        if client is not None:
            folder = neutral(str(skills_folder(client.value)))
            put_err(
                f"{client.value} reads skills from {folder}; "
                f"--write {folder} installs this there.\n"
            )
        return
    planned = plan_skill(write)
    backup = entries.write(planned)
    where = neutral(str(planned.path))
    put_out(f"{where} {'was written' if planned.changes else 'is up to date'}.\n")
    if backup is not None:
        put_out(f"Backup: {neutral(str(backup))}\n")


FOLDER: Final = "dragoman"
"""Agents require the directory of a skill to have the skill's name."""

FILE: Final = "SKILL.md"


def skills_folder(client: str) -> Path:
    """Return the user's directory from which the agent `client` reads skills."""
    from dragoman.setup.install.clients import MCP_CLIENTS, HostEnvironment

    found = MCP_CLIENTS[client].skills
    assert found is not None
    return found(HostEnvironment.here())


def skill_text() -> str:
    """Return the full text of the skill."""
    return files("dragoman.setup.install").joinpath("skill.md").read_text(encoding="utf-8")


def plan_skill(folder: Path) -> EntryEdit:
    """Return the edit that would write the skill file into a skills directory, such as
    ``~/.claude/skills``. Writes nothing."""
    from dragoman.setup.install.entries import EntryEdit, read_file

    path = folder / FOLDER / FILE
    return EntryEdit(path, read_file(path), skill_text().encode("utf-8"))
