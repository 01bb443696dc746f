"""Choose the workspace directory. If the client supports roots, the directory must be inside one
of them, and if the server was started with `--root`, inside one of those directories too.

Symbolic links are resolved before the check. `tool_handlers` asks the client for its roots.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dragoman.errors import UsageError


def folder_of(uri: str) -> Path | None:
    """Return the directory that the URI of a root names, or None if it names no absolute local
    path."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path)
    if "\0" in path:
        return None
    if os.name == "nt":
        path = path.removeprefix("/")
    return Path(path) if os.path.isabs(path) else None


def choose_workspace(
    asked: str, *, cwd: Path, own: Sequence[Path] = (), named: Iterable[str] | None = None
) -> Path:
    """Return the real path of the workspace that a call asks for. If `asked` is empty, this is the
    client's first root, else the first of `own`, else `cwd`.

    `own` are the directories to which the user has restricted the server, if any. `named` are the
    URIs of the client's roots, or None if it does not support roots; if none of them is usable,
    `cwd` takes their place. Raises `UsageError` for a directory outside of these, for a relative
    path, and for a path that is not a directory.
    """
    roots = None if named is None else [path for uri in named if (path := folder_of(uri))]
    if "\0" in asked:
        raise UsageError("the workspace path contains a NUL byte")
    if roots is not None and not roots:
        # The client supports roots but has none, so only the directory it started us in is allowed.
        roots = [cwd]
    if asked:
        path = Path(os.path.expanduser(asked))
        if not path.is_absolute():
            raise UsageError(f"the workspace must be an absolute path: {asked!r}")
    else:
        path = roots[0] if roots else own[0] if own else cwd
    real = Path(os.path.realpath(path))
    if not os.path.isdir(real):
        raise UsageError(f"the workspace is not a directory: {path}")
    for bounds, whose in ((roots, "the roots of this client"), (own or None, "--root")):
        if bounds is not None and not any(_is_in(real, bound) for bound in bounds):
            listed = ", ".join(str(bound) for bound in bounds)
            raise UsageError(f"the workspace {path} is outside {whose}: {listed}")
    return real


def _is_in(real: Path, bound: Path) -> bool:
    return real.is_relative_to(os.path.realpath(bound))


def may_see(
    root: Path, *, cwd: Path, own: Sequence[Path] = (), named: Iterable[str] | None = None
) -> bool:
    """Return whether a client may see the work in the directory `root`: it must be inside one of
    the client's roots or contain one, and likewise for `own`. The parameters have the same meaning
    as in `choose_workspace`."""
    roots = None if named is None else [path for uri in named if (path := folder_of(uri))] or [cwd]
    real = Path(os.path.realpath(root))
    return all(
        any(_is_in(real, bound) or _is_in(Path(os.path.realpath(bound)), real) for bound in bounds)
        for bounds in (roots, own or None)
        if bounds is not None
    )
