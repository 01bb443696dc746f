"""A repository at a glance: its folders and languages, its size, where it begins, its tests.

Owns what can be said from the names of files and a few well-known files alone. It blocks: it is
called in a thread. How it is told is `answers`'s business.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import threading
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from dragoman.client.services.worker_thread import check
from dragoman.scout import languages, search
from dragoman.scout.file_walk import Walk
from dragoman.scout.hits import Hit
from dragoman.scout.symbols import is_test

MAX_ENTRIES: Final = 60
"""Names of a folder that are shown."""

_MAINS: Final = re.compile(
    r"(?:^|/)(?:__main__\.py|main\.\w+|Main\.(?:java|kt|scala|cs|hs)|Program\.cs|manage\.py|app\.py"
    r"|cli\.py|index\.(?:js|ts|mjs|tsx)|server\.(?:js|ts|py)|Application\.(?:java|kt))$"
)
_README: Final = re.compile(r"readme(?:\.(?:md|rst|txt|markdown|org|adoc))?", re.IGNORECASE)


@dataclass(slots=True)
class Survey:
    """What a walk saw."""

    files: int = 0
    unreadable: int = 0
    cut: bool = False
    languages: Counter[str] = field(default_factory=Counter)
    top: Counter[str] = field(default_factory=Counter)
    """Files below each name of the first level; files themselves count as one."""
    top_languages: dict[str, Counter[str]] = field(default_factory=dict)
    tests: Counter[str] = field(default_factory=Counter)
    """Test files by the folder that holds them."""
    mains: list[str] = field(default_factory=list)
    manifests: list[str] = field(default_factory=list)
    readme: str = ""


MANIFESTS: Final = (
    "pyproject.toml", "setup.py", "setup.cfg", "package.json", "Cargo.toml", "go.mod", "pom.xml",
    "build.gradle", "build.gradle.kts", "Gemfile", "composer.json", "CMakeLists.txt", "Makefile",
    "Dockerfile", "docker-compose.yml", "mix.exs", "Package.swift",
)  # fmt: skip
"""Files that say what a project is and how it is built."""


def survey(root: str, under: str, stop: threading.Event) -> Survey:
    """Look at all names below a folder."""
    walk = Walk(root, under)
    seen = Survey()
    prefix_size = len(under) + 1 if under else 0
    for path in walk.files(stop):
        seen.files += 1
        language = languages.of_path(path).name
        seen.languages[language] += 1
        inner = path[prefix_size:]
        head, slash, _ = inner.partition("/")
        if slash:
            seen.top[head] += 1
            seen.top_languages.setdefault(head, Counter())[language] += 1
        else:
            if head in MANIFESTS:
                seen.manifests.append(path)
            if _README.fullmatch(head) and (not seen.readme or head.endswith(".md")):
                seen.readme = path
        if is_test(path):
            seen.tests[_test_folder(path)] += 1
        elif _MAINS.search(path) and len(seen.mains) < MAX_ENTRIES:
            seen.mains.append(path)
    seen.unreadable, seen.cut = walk.unreadable, walk.cut
    seen.manifests.sort(key=lambda path: MANIFESTS.index(path.rpartition("/")[2]))
    # The outermost first: `src/main.rs` says more than a file of that name deep below.
    seen.mains.sort(key=lambda path: (path.count("/"), path))
    return seen


def _test_folder(path: str) -> str:
    """The outermost folder of a test file that is called after tests, else its own folder."""
    names = path.split("/")[:-1]
    for depth, name in enumerate(names, 1):
        if name.lower() in ("test", "tests", "spec", "specs", "__tests__"):
            return "/".join(names[:depth])
    return "/".join(names)


@dataclass(slots=True)
class Size:
    """How much there is of one language."""

    files: int = 0
    lines: int = 0


def measure(
    root: str, under: str, language: str, stop: threading.Event
) -> tuple[dict[str, Size], int]:
    """Files and lines by language, and how many files could not be counted."""
    walk = Walk(root, under)
    sizes: dict[str, Size] = {}
    passed_over = 0
    for number, path in enumerate(walk.files(stop)):
        if number % 256 == 0:
            check(stop)
        name = languages.of_path(path).name
        if language and name != language:
            continue
        size = sizes.setdefault(name, Size())
        size.files += 1
        if languages.ending_of(path) in languages.BINARY_ENDINGS:
            continue
        try:
            data = search.read_text(os.path.join(root, path))
        except (OSError, search.TooLargeToSearch):
            passed_over += 1
            continue
        size.lines += data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0)
    return sizes, passed_over + walk.unreadable


def find_files(
    root: str, pattern: str, language: str, stop: threading.Event, limit: int
) -> tuple[list[str], int]:
    """Files by a part of their path or a wildcard pattern, the best first, and how many fit."""
    wanted = pattern.lower().removeprefix("./")
    wild = any(sign in wanted for sign in "*?[")
    found: list[tuple[int, str]] = []
    for path in Walk(root).files(stop):
        if language:
            if languages.of_path(path).name == language:
                found.append((0, path))
            continue
        lower = path.lower()
        name = lower.rpartition("/")[2]
        if wild:
            if fnmatch.fnmatchcase(lower if "/" in wanted else name, wanted) or (
                "/" in wanted and fnmatch.fnmatchcase(lower, f"*/{wanted}")
            ):
                found.append((0, path))
        elif wanted in lower:
            exact = name == wanted or lower == wanted or lower.endswith(f"/{wanted}")
            stem = name.partition(".")[0] == wanted
            found.append((0 if exact else 1 if stem else 2 if wanted in name else 3, path))
    if found and not wild and not language and min(found)[0] == 0:
        found = [each for each in found if each[0] == 0]
    found.sort(key=lambda each: (each[0], each[1].count("/"), each[1]))
    return [path for _, path in found[:limit]], len(found)


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A name in a folder."""

    name: str
    depth: int
    is_folder: bool
    size: int
    is_link: bool = False


def list_folder(root: str, under: str, depth: int, stop: threading.Event) -> list[FolderEntry]:
    """What is in a folder, links told and never followed, folders first; `Walk` is for the rest."""
    entries: list[FolderEntry] = []

    def look(folder: str, level: int) -> None:
        check(stop)
        with os.scandir(os.path.join(root, folder)) as found:
            names = sorted(found, key=lambda e: (not e.is_dir(follow_symlinks=False), e.name))
        for number, entry in enumerate(names):
            if number >= MAX_ENTRIES or len(entries) > MAX_ENTRIES * 6:
                entries.append(FolderEntry(f"… and {len(names) - number} more", level, False, -1))
                return
            is_folder = entry.is_dir(follow_symlinks=False)
            try:
                size = entry.stat(follow_symlinks=False).st_size
            except OSError:
                size = 0
            entries.append(FolderEntry(entry.name, level, is_folder, size, entry.is_symlink()))
            hidden = entry.name.startswith(".") or entry.name in ("node_modules", "__pycache__")
            if is_folder and level + 1 < depth and not hidden:
                try:
                    look(f"{folder}/{entry.name}" if folder else entry.name, level + 1)
                except OSError:
                    entries.append(FolderEntry("cannot be read", level + 1, False, -1))

    look(under, 0)
    return entries


def entry_points(root: str, seen: Survey) -> list[tuple[Hit, str]]:
    """Where programs begin: what manifests name, then files that are called so."""
    found: list[tuple[Hit, str]] = []
    for path in seen.manifests:
        try:
            text = search.read_text(os.path.join(root, path)).decode("utf-8", "replace")
        except (OSError, search.TooLargeToSearch):
            continue
        found += [(_locate(path, text, needle), what) for needle, what in _named(path, text)]
    found += [(Hit(path, 1, ""), "by its name") for path in seen.mains]
    return found


def _locate(path: str, text: str, needle: str) -> Hit:
    for number, line in enumerate(text.splitlines(), 1):
        if needle in line:
            return Hit(path, number, line)
    return Hit(path, 1, "")


def _named(path: str, text: str) -> Iterable[tuple[str, str]]:
    """What a manifest names as programs: a text of the line that does so, and a note."""
    name = path.rpartition("/")[2]
    try:
        if name == "pyproject.toml":
            project = _table(tomllib.loads(text), "project")
            for script, target in _table(project, "scripts").items():
                yield script, f"script `{script}` = `{target}`"
        elif name == "Cargo.toml":
            for program in tomllib.loads(text).get("bin", []):
                if isinstance(program, dict):
                    yield str(program.get("name", "")), f"program `{program.get('name', '')}`"
        elif name == "package.json":
            package = json.loads(text)
            bins = package.get("bin") if isinstance(package, dict) else None
            if isinstance(bins, dict):
                for script in bins:
                    yield f'"{script}"', f"program `{script}`"
            for script in _table(package, "scripts"):
                yield f'"{script}"', f"npm script `{script}`"
        elif name == "Makefile":
            for target in re.findall(r"^([A-Za-z][\w-]*)\s*:(?!=)", text, re.MULTILINE)[:15]:
                yield f"{target}:", f"make target `{target}`"
    except (ValueError, RecursionError):
        return  # Not what its name says; then it names nothing.


def _table(value: Any, key: str) -> dict[str, Any]:
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}
