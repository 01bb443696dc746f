"""Keep paths inside the workspace by comparing real paths, where directories cannot be walked.

The fallback for Windows: the system resolves the path, and the real path is compared with the roots
and used. `workspace` uses `path_walk` instead wherever it can.

The remaining race: a program that swaps a link or a junction into the workspace between the
comparison and the use. A file that was opened for reading is compared again, so only a write into a
swapped directory remains possible. Names that Windows does not take literally (devices, streams,
trailing dots and spaces) are refused before any system call.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from typing import Final

from dragoman.errors import ArgumentInvalid, FileFailed, PathRefused

MAX_PATH_SIZE: Final = 32_767
"""Maximum number of characters in a path: the limit of Windows itself."""

_DEVICES: Final = frozenset(
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"]
    + [f"{port}{digit}" for port in ("COM", "LPT") for digit in "0123456789¹²³"]
)


def find(
    text: str, roots: Sequence[Path], *, make: bool, windows: bool = os.name == "nt"
) -> tuple[Path, os.stat_result | None]:
    """Return the real path inside one of the roots, and its state (None if nothing exists there).

    With `make`, missing parent directories are created. Raises `PathRefused` for a path outside
    the roots.
    """
    if "\0" in text:
        raise ArgumentInvalid(f"the path {text[:200]!r} contains a NUL byte")
    if len(text) > MAX_PATH_SIZE:
        raise PathRefused(text, f"it is longer than {MAX_PATH_SIZE} characters")
    if windows:
        _require_literal(text)
    elif not os.path.isabs(text):
        raise ArgumentInvalid(f"the path {text[:200]!r} is not absolute")
    try:
        real = Path(os.path.realpath(text))
        _require_inside(text, real, roots)
        if make:
            real.parent.mkdir(parents=True, exist_ok=True)
            # A link placed there in the meantime would have been followed.
            _require_inside(text, Path(os.path.realpath(real)), roots)
        return real, os.lstat(real)
    except FileNotFoundError:
        return real, None
    except OSError as error:
        raise FileFailed(text, error.strerror or str(error), error.errno) from error
    except ValueError as error:
        raise ArgumentInvalid(f"the path {text[:200]!r} is not valid: {error}") from error


def require_same(text: str, real: Path, info: os.stat_result) -> None:
    """Raise `PathRefused` unless the opened file is still the one at that path, reached without a
    link."""
    try:
        same = os.path.realpath(real) == str(real) and os.path.samestat(os.lstat(real), info)
    except OSError:
        same = False
    if not same:
        raise PathRefused(text, "it was replaced while being opened")


def _require_inside(text: str, real: Path, roots: Sequence[Path]) -> None:
    name = os.path.normcase(real)
    for root in roots:
        root_name = os.path.normcase(root)
        if name == root_name or name.startswith(os.path.join(root_name, "")):
            return
    raise PathRefused(text, "it is outside the workspace")


def _require_literal(text: str) -> None:
    """Raise `PathRefused` or `ArgumentInvalid` for a path that is relative, or that Windows would
    not take literally."""
    path = PureWindowsPath(text)
    if text.replace("/", "\\").startswith(("\\\\?", "\\\\.", "\\??")):
        raise PathRefused(text, "it is a device path")
    if not path.is_absolute():
        raise ArgumentInvalid(f"the path {text[:200]!r} is not absolute")
    for part in path.parts[1:]:
        if any(char in '<>:"|?*' or char < " " for char in part):
            raise PathRefused(text, f"{part!r} in it is not a valid file name on Windows")
        if part != ".." and part.endswith((".", " ")):
            raise PathRefused(text, f"{part!r} in it ends with a dot or a space")
        if part.split(".")[0].rstrip(" ").upper() in _DEVICES:
            raise PathRefused(text, f"{part!r} in it is a device")
