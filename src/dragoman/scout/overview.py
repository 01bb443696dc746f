"""Survey a repository: its files by name, its directories and languages, its entry points.

Uses file names and a few well-known files. Blocking: call it in a thread. `answers.folders`
presents the result.
"""

from __future__ import annotations

import json
import re
import threading
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from dragoman.scout import languages
from dragoman.scout.file_walk import Walk, read_text
from dragoman.scout.hits import Hit
from dragoman.scout.symbols import is_test

MAX_MAINS: Final = 60
"""Maximum number of files to list whose names suggest a program."""

MANIFESTS: Final = ("pyproject.toml", "package.json", "Cargo.toml", "Makefile")
"""Files that list programs."""

_MAINS: Final = re.compile(
    r"(?:^|/)(?:__main__\.py|main\.\w+|Main\.(?:java|kt|scala|cs|hs)|Program\.cs|manage\.py|app\.py"
    r"|cli\.py|index\.(?:js|ts|mjs|tsx)|server\.(?:js|ts|py)|Application\.(?:java|kt))$"
)
_README: Final = re.compile(r"readme(?:\.(?:md|rst|txt|markdown|org|adoc))?", re.IGNORECASE)


@dataclass(slots=True)
class Survey:
    """What the file names below a directory show about it."""

    files: int = 0
    complete: bool = True
    languages: Counter[str] = field(default_factory=Counter)
    top: Counter[str] = field(default_factory=Counter)
    """Number of files below each top-level directory; a top-level file counts as one."""
    tests: Counter[str] = field(default_factory=Counter)
    """Number of test files by the outermost directory named after tests, or else by their own
    directory."""
    mains: list[str] = field(default_factory=list)
    manifests: list[str] = field(default_factory=list)
    readme: str = ""


def survey(root: str, under: str, stop: threading.Event) -> Survey:
    """Survey all files below a directory by their names."""
    walk = Walk(root, under)
    seen = Survey()
    for path in walk.files(stop):
        seen.files += 1
        seen.languages[languages.of_path(path).name] += 1
        head, slash, _ = path.removeprefix(f"{under}/").partition("/")
        seen.top[head + slash] += 1
        if head in MANIFESTS and not slash:
            seen.manifests.append(path)
        elif _README.fullmatch(head) and not slash and (not seen.readme or head.endswith(".md")):
            seen.readme = path
        if is_test(path):
            outermost = re.match(r"(?:.*?/)??(?:tests?|specs?|__tests__)(?=/)", path)
            seen.tests[outermost[0] if outermost else path.rpartition("/")[0]] += 1
        elif _MAINS.search(path) and len(seen.mains) < MAX_MAINS:
            seen.mains.append(path)
    seen.complete = not walk.unreadable and not walk.cut
    seen.manifests.sort(key=lambda path: MANIFESTS.index(path.rpartition("/")[2]))
    # The outermost first: `src/main.rs` is more relevant than a file of that name deep below.
    seen.mains.sort(key=lambda path: (path.count("/"), path))
    return seen


def find_files(root: str, name: str, stop: threading.Event) -> list[str]:
    """Return the files whose path ends with `name`, ignoring case. If there are none, return those
    whose path without its ending does."""
    wanted = f"/{name.lower().removeprefix('./')}"
    found = [(f"/{path.lower()}", path) for path in Walk(root).files(stop)]
    exact = [path for lower, path in found if lower.endswith(wanted)]
    return exact or [path for lower, path in found if lower.rpartition(".")[0].endswith(wanted)]


def entry_points(root: str, seen: Survey) -> list[tuple[Hit, str]]:
    """Return the entry points, each with a note: those that manifests name, then the files whose
    names suggest a program."""
    found: list[tuple[Hit, str]] = []
    for path in seen.manifests:
        try:
            text = read_text(root, path).decode("utf-8", "replace")
            named = list(_named(path.rpartition("/")[2], text))
        except (OSError, ValueError, RecursionError):
            continue  # The content does not match the name, so it names no programs.
        lines = text.splitlines()
        for needle, what in named:
            at = next((number for number, line in enumerate(lines, 1) if needle in line), 1)
            found.append((Hit(path, at, lines[at - 1]), what))
    return found + [(Hit(path, 1, ""), "by its name") for path in seen.mains]


def _named(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield, for each program in a manifest, a text that occurs in its line, and a note."""
    if name == "Makefile":
        for target in re.findall(r"^([A-Za-z][\w-]*)\s*:(?!=)", text, re.MULTILINE)[:15]:
            yield f"{target}:", f"make target `{target}`"
    elif name == "package.json":
        package = json.loads(text)
        for script in _table(package, "bin"):
            yield f'"{script}"', f"program `{script}`"
        for script in _table(package, "scripts"):
            yield f'"{script}"', f"npm script `{script}`"
    else:
        manifest = tomllib.loads(text)
        for script, target in _table(_table(manifest, "project"), "scripts").items():
            yield script, f"script `{script}` = `{target}`"
        for program in manifest.get("bin", []):
            if isinstance(program, dict):
                yield str(program.get("name", "")), f"program `{program.get('name', '')}`"


def _table(value: Any, key: str) -> dict[str, Any]:
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}
