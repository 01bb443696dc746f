"""What dragoman 0.1.0 has left behind, put where this dragoman looks for it."""

from __future__ import annotations

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from tests.integration.cli_shell import Cli

PREVIOUS = Path(__file__).parents[1] / "fixtures" / "previous_state"

PROJECT = "/srv/project"
"""Where the project was when all of it was written."""

COLUMNS = (("sessions", "root"), ("sessions", "cwd"), ("jobs", "root"))
"""Where the store has the project's path and looks for it."""


def restore(cli: Cli) -> None:
    """Copy all of it into the folders of a command line, whose folder becomes the project."""
    home = cli.home
    scout = home / "state_home" / "scout"
    for name, target in (
        ("config", home / "config_home"),
        ("data", home / "data_home"),
        ("state", home / "state_home"),
        ("scout", scout),
        ("project", cli.cwd),
    ):
        shutil.copytree(PREVIOUS / name, target, dirs_exist_ok=True)
        for file in target.rglob("*.py.txt"):
            file.rename(file.with_suffix(""))
    (cli.cwd / ".git").mkdir()
    for file in (home / "data_home" / "trust.json", *scout.iterdir()):
        file.write_text(file.read_text().replace(PROJECT, str(cli.cwd)))
    with closing(sqlite3.connect(home / "state_home" / "sessions.db")) as store, store:
        for table, column in COLUMNS:
            store.execute(
                f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (PROJECT, str(cli.cwd))
            )
    # What is too old was deleted today, and the fixture grows older.
    (home / "state_home" / "retention.stamp").touch()
    # The commands of its peers begin with `python3`.
    cli.extra["PATH"] = f"{Path(sys.executable).parent}:{cli.env['PATH']}"
