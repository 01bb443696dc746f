"""Track the depth of nested delegation: the chain of jobs that led to this process.

The lineage is passed to a peer in environment variables and in `_meta`. Parent processes are
examined as well, because a peer may drop the variables. This stops accidental loops, not a
malicious peer. `delegation.routing` enforces the maximum depth.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from dragoman.errors import ConfigInvalid

DEPTH: Final = "DRAGOMAN_DEPTH"
LINEAGE: Final = "DRAGOMAN_LINEAGE"
VARIABLES: Final = (DEPTH, LINEAGE)

MAX_KEPT: Final = 16
"""Maximum number of jobs to name: the nearest ones. The depth still counts the others."""

MAX_COUNTED: Final = 1000
"""Maximum depth to count, far above every limit."""

MAX_ANCESTORS: Final = 64
"""Maximum number of parent processes read: more than shells and agents ever put between two
delegations."""

PROC: Final = Path("/proc")

_JOB: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class Lineage(Struct, frozen=True, kw_only=True):
    """The chain of delegations that led to this process. Depth 0 means that there are none."""

    depth: int = 0
    jobs: tuple[str, ...] = ()
    """Their ids, outermost first. There may be fewer ids than the depth."""

    def child(self, job: str) -> Lineage:
        """Return the lineage for the peer that works on this job."""
        return Lineage(depth=min(self.depth + 1, MAX_COUNTED), jobs=(*self.jobs, job)[-MAX_KEPT:])

    def environment(self, *, warm: bool = False) -> dict[str, str]:
        """Return the variables for the peer's process.

        A warm peer works on many jobs, one after another, so it gets only the depth, which they
        share.
        """
        variables = {DEPTH: str(self.depth)}
        if self.jobs and not warm:
            variables[LINEAGE] = ",".join(self.jobs)
        return variables

    def meta(self) -> dict[str, Any]:
        """Return the lineage for `_meta.dragoman` of a prompt."""
        return {"depth": self.depth, "lineage": list(self.jobs)}


def inherited(
    environ: Mapping[str, str] | None = None,
    meta: Any = None,
    *,
    pid: int | None = None,
    proc: Path = PROC,
) -> Lineage:
    """Return the deepest lineage found in `environ`, in `meta` (the `_meta` of a request), and in
    the environments of the parent processes of `pid` (default: this process).

    Raises `ConfigInvalid` if `DRAGOMAN_DEPTH` in `environ` is not a whole number: an unreadable
    limit must not mean "no limit".
    """
    own = _from_environment(os.environ if environ is None else environ)
    told = [own, _from_meta(meta)]
    told += [_from_environment(one, strict=False) for one in ancestors(pid or os.getpid(), proc)]
    # If two are equally deep, take the one that names more jobs.
    return max(told, key=lambda one: (one.depth, len(one.jobs)))


def _from_environment(environ: Mapping[str, str], *, strict: bool = True) -> Lineage:
    text = environ.get(DEPTH, "")
    jobs = _jobs(environ.get(LINEAGE, "").split(","))
    if not text:
        return Lineage(depth=len(jobs), jobs=jobs)
    if not (text.isascii() and text.isdigit()):
        if strict:
            raise ConfigInvalid(DEPTH, f"{text[:40]!r} is not a valid depth; unset the variable")
        return Lineage()
    # `int` raises an error for a number with thousands of digits.
    depth = min(int(text), MAX_COUNTED) if len(text) < 10 else MAX_COUNTED
    return Lineage(depth=max(depth, len(jobs)), jobs=jobs)


def _from_meta(meta: Any) -> Lineage:
    """Return the lineage in a request. Anything invalid is ignored."""
    if isinstance(meta, Mapping) and isinstance(ours := meta.get("dragoman"), Mapping):
        depth, jobs = ours.get("depth"), ours.get("lineage")
        named = _jobs(jobs) if isinstance(jobs, list) else ()
        if isinstance(depth, int) and not isinstance(depth, bool) and depth >= 0:
            return Lineage(depth=max(min(depth, MAX_COUNTED), len(named)), jobs=named)
    return Lineage()


def _jobs(names: list[Any]) -> tuple[str, ...]:
    """Return the valid job ids among received names, at most `MAX_KEPT`. They are used in file
    names and on screens."""
    valid = [name for name in names if isinstance(name, str) and _JOB.match(name)]
    return tuple(valid[-MAX_KEPT:])


def ancestors(pid: int, proc: Path, names: Collection[str] = VARIABLES) -> Iterator[dict[str, str]]:
    """Yield the variables in `names` from the environment of each parent process of `pid`, the
    nearest first. Ends at one that cannot be read, and yields nothing on systems other than
    Linux."""
    if sys.platform != "linux":
        return
    for _ in range(MAX_ANCESTORS):
        try:
            text = (proc / str(pid) / "stat").read_bytes()
            pid = int(text.rpartition(b")")[2].split()[1])
            if pid <= 1:
                return
            environ = (proc / str(pid) / "environ").read_bytes()
        except (OSError, ValueError, IndexError):
            # Processes above another user's process are not ours.
            return
        yield {
            name: value
            for name, _, value in (
                entry.decode("utf-8", "replace").partition("=")
                for entry in environ.split(b"\0")
                if entry.startswith(b"DRAGOMAN_")
            )
            if name in names
        }
