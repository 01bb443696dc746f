"""Validate command-line values of any option: UTF-8 text, finite numbers, non-empty paths, `--cwd`.

Used by both parsers, `typer_without_pydantic` (typer) and `cli.fast_parser`. Each command validates
the meaning of its own options.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Final

from dragoman.errors import UsageError
from dragoman.errors.base import shown

MAX_NUMBER: Final = 10**18
"""Whole numbers below it fit into every library that gets them: the database has 64 bits."""


def checked(value: Any, word: object) -> Any:
    """The value that was made of a word. Raises `ValueError` if no command can use it.

    Text has to be UTF-8, as messages and the database are; paths may be any bytes but not empty.
    """
    if isinstance(value, Path):
        if word == "":
            raise ValueError("an empty path")
    elif isinstance(value, str):
        value.encode()
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("not a finite number")
    elif isinstance(value, int) and not -MAX_NUMBER < value < MAX_NUMBER:
        raise ValueError("too large a number")
    return value


def workspace_of(cwd: Path | None) -> Path:
    """The folder that a command works in. Raises `UsageError` if it cannot be one."""
    path = (cwd or Path.cwd()).absolute()
    # Unlike `Path.is_dir`, it takes names that are too long for what they are.
    if not os.path.isdir(path):
        raise UsageError(f"{_named(path)} is no folder, and --cwd has to be one")
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"the path of the workspace is not UTF-8 text, and an agent has to be told it: {path}"
        ) from None
    return path


def _named(path: Path) -> str:
    return str(path) if len(str(path)) <= 200 else shown(str(path))
