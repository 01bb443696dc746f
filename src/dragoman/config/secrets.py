"""Find the secret values in environment variables, and build the redactors that remove them.

`redaction` has the patterns and the redactors and does no I/O; this module reads the environment
and checks which paths exist.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from dragoman.redaction.names import SECRET_VARIABLE, SHORTEST

if TYPE_CHECKING:
    from dragoman.redaction.redactor import Redactor, ReportRedactor

SHORTEST_HANDED: Final = 8
"""Minimum length at which the value of a variable that the user passes to an agent counts as a
secret: shorter ones are numbers, switches or ordinary words."""


def secret_values(environ: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the values of the variables that contain credentials: those in `names`, and those with
    secret-looking names. Values shorter than `SHORTEST` are left out."""
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
    """Return the values that may be secrets, of the variables that a user passes to an agent:
    `names` are their names, or patterns.

    Any variable may contain a secret. A value that is an existing path, or a list of such paths
    with the usual separator, does not count as one, because a history without directory names would
    be useless; nor does a value shorter than `SHORTEST_HANDED`. The pattern ``*`` is ignored,
    because it names no particular variable.
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
    """Return a redactor for the values of the `credentials` variables and of all variables with
    secret-looking names. `handed` are the names of the variables that the user passes to an agent;
    their values are redacted too if they may be secrets (see `handed_values`)."""
    # Not at the top: a command that goes through a broker only needs the values.
    from dragoman.redaction.redactor import Redactor

    environ = os.environ if environ is None else environ
    values = secret_values(environ, credentials)
    return Redactor((*values, *handed_values(environ, handed, workspace)))


def report_redactor(
    environ: Mapping[str, str], *, names: Iterable[str] = (), values: Iterable[str] = ()
) -> ReportRedactor:
    """Return a redactor for secrets, and for the user's name and home directory, in a report or a
    log. Secrets are `values`, and the values of the variables in `names` or with secret-looking
    names."""
    from dragoman.redaction.redactor import ReportRedactor

    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    return ReportRedactor(
        (*values, *secret_values(environ, names)),
        homes=(home, os.path.realpath(home)) if home else (),
        user=environ.get("USER") or environ.get("USERNAME") or "",
    )
