"""Count words that do not belong in plain technical English, per package and directory.

`scripts/english.toml` has the allowed counts. A higher count fails the check. A lower count fails
too, until `--write` has lowered the number in the file, so that no count can rise again.
`--list NAME` shows the lines of one package or directory.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / "scripts" / "english.toml"
HEAD = "# Allowed counts of marker words; see check_english.py, which lowers them with --write.\n"

MARKERS = re.compile(
    r"""\b(?:
        whoever | whomever | whom | somebody | nobody | anybody
        | (?<!there\ )(?:is|are|was|were)\ no(?!\ (?:longer|more|less|later|better|worse)\b)
        | (?:is|are|was|were|be)\ told
        | shall | whereof | thereof | of\ late
        | what\ becomes\ of | as\ far\ as\ (?:he|it)\ (?:does|is)
        | for\ ever | all\ the\ same | wants\ a\ login | (?:is|are)\ not\ let\ in
        | takes?\ the\ word\ for | the\ answer\ to\ \S+\ is\ malformed
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)

OWN = {Path(__file__).resolve(), ROOT / "tests" / "docs" / "test_english.py"}
"""Files that contain the words on purpose."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="lower the allowed counts")
    parser.add_argument("--list", metavar="NAME", help="show the lines of a package or directory")
    options = parser.parse_args()
    if options.list:
        for path, number, line in lines_of(options.list):
            print(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
        return 0
    counts = {name: sum(1 for _ in lines_of(name)) for name in sorted(areas())}
    allowed = tomllib.loads(STATE.read_text("utf-8")) if STATE.exists() else counts
    risen = [name for name in counts if counts[name] > allowed.get(name, 0)]
    for name in risen:
        print(
            f"{name}: {counts[name]} lines with marker words, {allowed.get(name, 0)} allowed:"
            f" see python scripts/check_english.py --list {name}",
            file=sys.stderr,
        )
    if risen:
        return 1
    if options.write:
        STATE.write_text(HEAD + "".join(f'"{k}" = {v}\n' for k, v in counts.items() if v), "utf-8")
    elif any(counts.get(name, 0) < number for name, number in allowed.items()):
        print("fewer marker words: run python scripts/check_english.py --write", file=sys.stderr)
        return 1
    return 0


def areas() -> dict[str, list[Path]]:
    """All checked files of the project, by package or directory."""
    found: dict[str, list[Path]] = {}
    for path in files():
        first, *rest = path.relative_to(ROOT).parts
        if first == "src":
            name = rest[1] if len(rest) > 2 else "dragoman"
        else:
            name = first if rest else "."
        found.setdefault(name, []).append(path)
    return found


def files() -> Iterator[Path]:
    for folder in ("src", "tests", "docs", "bench", "examples", "scripts"):
        for pattern in ("*.py", "*.md", "*.toml"):
            for path in (ROOT / folder).rglob(pattern):
                if path not in OWN and "fixtures" not in path.parts:
                    yield path
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"):
        yield ROOT / name


def lines_of(name: str) -> Iterator[tuple[Path, int, str]]:
    for path in sorted(areas().get(name, [])):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            # The name of a test is a sentence.
            text = line.replace("_", " ") if "def test_" in line else line
            if MARKERS.search(text):
                yield path, number, line


if __name__ == "__main__":
    sys.exit(main())
