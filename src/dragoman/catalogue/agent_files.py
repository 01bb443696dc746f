"""List, set, unset and validate the ``delegate_to: <peer>-<role>`` field of agent files.

An edit changes all named files or none, and is undone if it causes a new validation problem.
`catalogue.front_matter` edits the bytes of one file.
"""

from __future__ import annotations

import difflib
import fnmatch
import glob
import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.catalogue import Catalogue, front_matter
from dragoman.config.file_transaction import Change, FileTransaction
from dragoman.config.safe_files import read_file
from dragoman.errors import ConfigInvalid, DelegationInvalid, FrontMatterInvalid, UsageError
from dragoman.errors.usage import shown

FIELD: Final = "delegate_to"
OPT_OUT: Final = "none"
"""The value for an agent that is never delegated, whatever the routing decides."""


@dataclass(frozen=True, slots=True)
class DelegationTarget:
    """The peer and role that the field of an agent file names."""

    peer: str
    role: str

    def __str__(self) -> str:
        return f"{self.peer}-{self.role}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the field of an agent file is invalid, or why the file cannot be read."""

    path: Path
    line: int | None
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line is not None else str(self.path)
        return f"{where}: {self.text}"


@dataclass(frozen=True, slots=True)
class AgentFile:
    """The current state of one agent file."""

    path: Path
    value: str | None = None
    """The field as written; None if there is none."""
    target: DelegationTarget | None = None
    """The peer and role that the value names; None without a field, for `none`, or if there is a
    problem."""
    problem: Problem | None = None

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True, slots=True)
class AgentFileEdit:
    """The result of setting or removing the field in agent files."""

    files: tuple[Path, ...]
    """All files that were selected."""
    changes: tuple[Change, ...]
    """The changes, one for each file that the edit changed."""
    problems: tuple[Problem, ...]
    """Problems that remain in the agent files. All of them existed before the edit."""


def parse_target(value: str, catalogue: Catalogue) -> DelegationTarget | None:
    """Parse the value of the field. Returns None for `none`. Raises `DelegationInvalid` if the
    value does not name a known peer and a role that it claims.

    Names of peers and roles may both contain hyphens. The peer is the one with the longest name
    that the value starts with. If a peer with a shorter name also claims the rest as a role, the
    value is ambiguous.
    """
    if value == OPT_OUT:
        return None
    readings = _readings(value, catalogue)
    if not readings:
        raise _unknown_peer(value, catalogue)
    claimed = [target for target in readings if target.role in catalogue.get(target.peer).roles]
    if len(claimed) > 1:
        pairs = " and ".join(f"{t.peer!r} with the role {t.role!r}" for t in claimed)
        raise DelegationInvalid(
            value,
            f"it is ambiguous: {pairs}",
            remedy="rename one of the peers or one of the roles",
        )
    if readings[0] in claimed:
        return readings[0]
    if value in catalogue:
        # The whole value is a peer's name without a role. A shorter peer name is not meant.
        raise _unknown_peer(value, catalogue)
    raise _not_claimed(value, readings[0], catalogue)


def _readings(value: str, catalogue: Catalogue) -> list[DelegationTarget]:
    """Return the ways to split the value into a known peer and a role, the longest name of a peer
    first."""
    cuts = [place for place, letter in enumerate(value) if letter == "-"]
    return [
        DelegationTarget(value[:cut], value[cut + 1 :])
        for cut in reversed(cuts)
        if value[:cut] in catalogue and value[cut + 1 :]
    ]


def _unknown_peer(value: str, catalogue: Catalogue) -> DelegationInvalid:
    if value in catalogue:
        roles = catalogue.get(value).roles
        wanted = " or ".join(f"{value}-{role}" for role in roles)
        remedy = f"write {wanted}" if roles else "name another peer: this one claims no role"
        return DelegationInvalid(value, "it names a peer but no role", remedy=remedy)
    known = [OPT_OUT, *(f"{p.name}-{role}" for p in catalogue for role in p.roles)]
    near = _nearest(value.lower(), known)
    peer, _, role = value.rpartition("-")
    # A value without a hyphen has no role, and one of only hyphens has no peer.
    name, role = (peer, role or "ROLE") if peer else (role or "NAME", "ROLE")
    add = f"`dragoman peers add {name} --roles {role} -- COMMAND` adds a peer"
    return DelegationInvalid(
        value,
        f"it does not start with the name of a known peer{_meant(near)}",
        remedy=f"{add}; `dragoman peers` lists the known ones",
    )


def _not_claimed(value: str, target: DelegationTarget, catalogue: Catalogue) -> DelegationInvalid:
    roles = catalogue.get(target.peer).roles
    near = [f"{target.peer}-{role}" for role in _nearest(target.role, roles)]
    others = [f"{name}-{target.role}" for name in catalogue.claimants(target.role)]
    elsewhere = f"; {target.role} is claimed by {', '.join(others)}" if others else ""
    return DelegationInvalid(
        value,
        f"{target.peer} does not claim the role {target.role!r}; it claims "
        f"{', '.join(roles) or 'none'}{_meant(near)}",
        remedy=f"choose a role that {target.peer} claims{elsewhere}",
    )


def _nearest(word: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)


def _meant(near: Sequence[str]) -> str:
    return f"; did you mean {near[0]}?" if near else ""


# -- which files


def find_files(
    named: Sequence[str],
    *,
    folder: Path,
    patterns: Sequence[str],
    cwd: Path | None = None,
) -> list[Path]:
    """Return the files that `named` selects, each by a path or pattern relative to `cwd`, or by an
    agent's bare name.

    If `named` is empty, returns every file that `patterns` find in `folder`. A file is found once,
    however many names it has. Files that a relative pattern finds through a link that leads out of
    its directory are left out: a link in a checkout must not redirect an edit. Raises `UsageError`
    if one of `named` selects no file.
    """
    cwd = folder if cwd is None else cwd
    found: dict[str, Path] = {}
    for path in _by_pattern(patterns, folder) if not named else ():
        found.setdefault(os.path.realpath(path), path)
    for name in named:
        matches = list(_by_name(name, cwd, folder, patterns))
        if not matches:
            raise UsageError(
                f"no agent file {shown(name)}: it is neither a file in {cwd} nor an agent in "
                f"{', '.join(str(folder / pattern) for pattern in patterns)}"
            )
        for path in matches:
            found.setdefault(os.path.realpath(path), path)
    return sorted(found.values())


def _by_name(name: str, cwd: Path, folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    path = cwd / name
    # Unlike `Path.is_file`, this accepts names that are too long.
    if os.path.isfile(path):
        yield path
    elif glob.has_magic(name):
        yield from _by_pattern([name], cwd)
    elif os.sep not in name and "/" not in name:
        yield from (
            path for path in _by_pattern(patterns, folder) if name in (path.stem, path.name)
        )


def _by_pattern(patterns: Sequence[str], folder: Path) -> Iterator[Path]:
    root = os.path.realpath(folder)
    for pattern in patterns:
        if os.path.isabs(pattern):
            # Only a user can name such a pattern, not a project.
            found: Iterable[Path] = map(Path, glob.glob(pattern, recursive=True))
        else:
            found = _matches(pattern, folder, root)
        yield from sorted(path for path in found if os.path.isfile(path))


def _matches(pattern: str, folder: Path, root: str) -> Iterator[Path]:
    """Yield the paths in a directory that match a relative pattern. Unlike `glob`, this visits
    every real directory only once for each part of the pattern, and none outside `root`: links in a
    checkout may lead in circles, or anywhere."""
    if "\0" in pattern:
        return
    parts = pattern.replace(os.sep, "/").split("/")
    todo = deque([(folder, 0)])
    seen: set[tuple[str, int]] = set()
    while todo:
        place, at = todo.popleft()
        real = os.path.realpath(place)
        if at and not (real + os.sep).startswith(root.rstrip(os.sep) + os.sep):
            continue
        if at == len(parts):
            yield place
            continue
        if (real, at) in seen:
            continue
        seen.add((real, at))
        part = parts[at]
        if part == "**":
            todo.append((place, at + 1))
            inner = _entries(place, "*")
            found = [(each, at) for each in inner if os.path.isdir(each)]
            if at + 1 == len(parts):
                found += [(each, at + 1) for each in inner if not os.path.isdir(each)]
        elif glob.has_magic(part):
            found = [(each, at + 1) for each in _entries(place, part)]
        else:
            found = [(place / part, at + 1)]
        # Links come last, so that a file is found by its own path first.
        todo.extendleft(each for each in found[::-1] if not os.path.islink(each[0]))
        todo.extend(each for each in found if os.path.islink(each[0]))


def _entries(folder: Path, pattern: str) -> list[Path]:
    """Return the entries of a directory that match one part of a pattern, in order. Names that
    begin with a dot match only a part that does too."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    hidden = pattern.startswith(".")
    return [
        folder / name
        for name in fnmatch.filter(names, pattern)
        if hidden or not name.startswith(".")
    ]


# -- reading


def list_files(paths: Iterable[Path], catalogue: Catalogue) -> list[AgentFile]:
    """Return the state of each agent file."""
    return [_look(path, catalogue) for path in paths]


def validate(paths: Iterable[Path], catalogue: Catalogue) -> list[Problem]:
    """Return all problems with the field in these files."""
    return [file.problem for file in list_files(paths, catalogue) if file.problem is not None]


def _look(path: Path, catalogue: Catalogue) -> AgentFile:
    try:
        found = front_matter.read(_read(path), FIELD)
    except (FrontMatterInvalid, ConfigInvalid) as error:
        return AgentFile(path, problem=Problem(path, None, _without_path(error, path)))
    if found is None:
        return AgentFile(path)
    if not found.value:
        advice = f"give it a value, or remove it: `dragoman agents unset {path}`"
        return AgentFile(path, "", problem=Problem(path, found.line, f"{FIELD} is empty", advice))
    try:
        target = parse_target(found.value, catalogue)
    except DelegationInvalid as error:
        problem = Problem(path, found.line, str(error), error.remedy)
        return AgentFile(path, found.value, problem=problem)
    return AgentFile(path, found.value, target)


def _read(path: Path) -> bytes:
    data = read_file(path)
    if data is None:
        raise ConfigInvalid(str(path), "there is no such file")
    return data


def _without_path(error: FrontMatterInvalid | ConfigInvalid, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ")


# -- changing


def set_target(
    paths: Sequence[Path], value: str, catalogue: Catalogue, *, others: Collection[Path] = ()
) -> AgentFileEdit:
    """Set the field to `value` in all of these files.

    The value is checked first (`parse_target`). `others` are further agent files to validate. If
    there is a problem afterwards that did not exist before, all files are restored and `UsageError`
    is raised.
    """
    parse_target(value, catalogue)
    return _edit(paths, value, catalogue, others)


def unset_target(
    paths: Sequence[Path], catalogue: Catalogue, *, others: Collection[Path] = ()
) -> AgentFileEdit:
    """Remove the field from all of these files. `others` are validated as in `set_target`."""
    return _edit(paths, None, catalogue, others)


def preview(paths: Sequence[Path], value: str | None) -> list[Change]:
    """Return the changes that setting the field to `value` would make; nothing is written. None
    removes the field."""
    return [change for change in _planned(paths, value) if change.before != change.after]


def _planned(paths: Sequence[Path], value: str | None) -> list[Change]:
    planned: list[Change] = []
    for path in paths:
        data = _read(path)
        try:
            if value is None:
                edited = front_matter.drop(data, FIELD)
            else:
                edited = front_matter.put(data, FIELD, value)
        except FrontMatterInvalid as error:
            raise FrontMatterInvalid(f"{path}: {error}; no file was changed") from error
        planned.append(Change(path, data, edited))
    return planned


def _edit(
    paths: Sequence[Path], value: str | None, catalogue: Catalogue, others: Collection[Path]
) -> AgentFileEdit:
    everything = sorted({*paths, *others})
    before = validate(everything, catalogue)
    planned = _planned(paths, value)
    with FileTransaction() as changes:
        for change in planned:
            assert change.after is not None
            changes.write(change.path, change.after, expected=change.before)
        after = validate(everything, catalogue)
        refuse_new_problems(before, after)
        made = tuple(changes.made())
    return AgentFileEdit(tuple(paths), made, tuple(after))


def refuse_new_problems(before: Iterable[Problem], after: Iterable[Problem]) -> None:
    """Raise `UsageError` if `after` has a problem that `before` does not have. Its message says
    that the change was undone, which is up to the caller. Existing problems do not block an edit:
    otherwise two broken files could never be fixed."""
    known = {(problem.path, problem.text) for problem in before}
    fresh = [problem for problem in after if (problem.path, problem.text) not in known]
    if fresh:
        raise UsageError(
            "the change was undone, because it would have introduced problems: "
            + "; ".join(str(problem) for problem in fresh)
        )
