"""Build the documentation site: `make docs`, then open build/docs/index.html.

    python scripts/build_docs.py [DIRECTORY]

Zensical renders the pages; docs/zensical.toml has its settings and the menu. Zensical reads a
single source directory, so this script copies docs/ and the documents in the project root into one
and rewrites the links between them. It needs no network. The build is strict: a broken link is an
error, and the old site stays.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SITE: Final = ROOT / "build" / "docs"

PROJECT: Final = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Documents in the project root that become pages of the site, in its directory `project`."""

_LINK: Final = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
_FENCE: Final = re.compile(r"^( *```\w*)(.*)")
"""A line that opens or closes a code block. The text after the language is only for the tests."""


class BuildError(Exception):
    """The site cannot be built from these documents."""


def build(site: Path = SITE, root: Path = ROOT) -> list[Path]:
    """Build the site in `site` and return its pages. Raises `BuildError`."""
    site.parent.mkdir(parents=True, exist_ok=True)
    # In a directory next to it, so that the old site stays until the new one is complete.
    with tempfile.TemporaryDirectory(prefix="docs-", dir=site.parent) as folder:
        work = Path(folder)
        shutil.copyfile(root / "docs" / "zensical.toml", work / "zensical.toml")
        copy_sources(root, work / "source")
        done = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict"],
            cwd=work,
            env={**os.environ, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BuildError(_problems(done.stdout + done.stderr))
        if site.exists():
            shutil.rmtree(site)
        os.replace(work / "site", site)
    return sorted(path.relative_to(site) for path in site.rglob("*.html"))


def copy_sources(root: Path, source: Path) -> None:
    """Copy every page, and every file that a page links to, into `source`."""
    places = dict(_places(root))
    for path in sorted(places):
        target = source / places[path]
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copyfile(path, target)
            continue
        target.write_text(_relinked(path, root, places, source), "utf-8")


def _places(root: Path) -> Iterator[tuple[Path, str]]:
    """Each file of the site and its path in the source directory."""
    docs = root / "docs"
    for path in docs.rglob("*"):
        if path.is_file() and path.name != "zensical.toml":
            yield path, path.relative_to(docs).as_posix()
    for name in PROJECT:
        if (root / name).exists():
            yield root / name, f"project/{name}"


def _relinked(page: Path, root: Path, places: dict[Path, str], source: Path) -> str:
    """The text of a page, with its links changed to the paths of the files in the site."""
    here = Path(places[page]).parent

    def link(match: re.Match[str]) -> str:
        path, hash_sign, fragment = match[2].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        target = Path(os.path.normpath(page.parent / path))
        if target == root / "README.md":
            target = root / "docs" / "README.md"  # the home page of the site
        if target.is_file() and target.is_relative_to(root) and target not in places:
            places[target] = f"files/{target.relative_to(root).as_posix()}"
            copy = source / places[target]
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, copy)
        if target not in places:
            raise BuildError(f"{page.relative_to(root)}: broken link: {match[2]}")
        moved = Path(os.path.relpath(places[target], here)).as_posix()
        return f"{match[1]}{moved}{hash_sign}{fragment}{match[3]}"

    lines, is_code = [], False
    for line in page.read_text("utf-8").splitlines(keepends=True):
        if fence := _FENCE.match(line):
            is_code = not is_code
            lines.append(f"{fence[1]}\n")
        else:
            lines.append(line if is_code else _LINK.sub(link, line))
    return "".join(lines)


def _problems(output: str) -> str:
    """The output of Zensical without its traceback."""
    return output.partition("Traceback (most recent call last)")[0].strip() or output.strip()


def main() -> None:
    site = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else SITE
    try:
        pages = build(site)
    except BuildError as error:
        sys.exit(f"cannot build the documentation:\n{error}")
    sys.stdout.write(f"{len(pages)} pages: {site / 'index.html'}\n")


if __name__ == "__main__":
    main()
