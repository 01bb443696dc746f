"""Find the secret values in environment variables, and build the redactors that remove them.

`redaction` has the patterns and the redactors and does no I/O; this module reads the environment
and checks paths on the disk.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from dragoman.redaction.names import SECRET_VARIABLE, SHORTEST

if TYPE_CHECKING:
    from dragoman.redaction.redactor import Redactor
    from dragoman.redaction.reports import ReportRedactor

SHORTEST_HANDED: Final = 8
"""Characters from which on a value that a user hands to an agent by its name is taken for a secret:
what is shorter is a number, a switch or an ordinary word."""


def secret_values(environ: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    """The values of the variables that hold credentials, by their names or as they look."""
    known = set(names)
    found = {
        value
        for name, value in environ.items()
        if (name in known or SECRET_VARIABLE.search(name)) and len(value) >= SHORTEST
    }
    return tuple(sorted(found))


def handed_values(
    environ: Mapping[str, str], names: Iterable[str], workspace: str | os.PathLike[str]
) -> tuple[str, ...]:
    """The values of the variables that a user hands to an agent, by these names or patterns, that
    may be secrets: whoever names a variable may have named it anything.

    A value that is a place on this machine, or several with the usual mark between them, is none:
    a history without the names of its folders is of no use. Nor is any value if everything is
    handed over, because then nobody has named it.
    """
    patterns = [name for name in names if name != "*"]
    found = {
        value
        for name, value in environ.items()
        if len(value.strip()) >= SHORTEST_HANDED
        and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        and not _is_place(value, workspace)
    }
    return tuple(sorted(found))


def _is_place(value: str, workspace: str | os.PathLike[str]) -> bool:
    parts = [part for part in value.split(os.pathsep) if part]
    return bool(parts) and all(os.path.exists(os.path.join(workspace, part)) for part in parts)


def redactor(
    credentials: Iterable[str],
    environ: Mapping[str, str] | None = None,
    *,
    handed: Iterable[str] = (),
    workspace: str | os.PathLike[str] = ".",
) -> Redactor:
    """What cuts the values of these variables, and of all that look like it, out of texts."""
    # Not at the top: a command that goes through a broker only needs the values.
    from dragoman.redaction.redactor import Redactor

    environ = os.environ if environ is None else environ
    values = secret_values(environ, credentials)
    return Redactor((*values, *handed_values(environ, handed, workspace)))


def report_redactor(
    environ: Mapping[str, str], *, names: Iterable[str] = (), values: Iterable[str] = ()
) -> ReportRedactor:
    """What takes secrets and the user's name out of a report or a log. Secrets are these values and
    those of the variables of these names and of all whose names look like it."""
    from dragoman.redaction.reports import ReportRedactor

    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    return ReportRedactor(
        (*values, *secret_values(environ, names)),
        homes=(home, os.path.realpath(home)) if home else (),
        user=environ.get("USER") or environ.get("USERNAME") or "",
    )
