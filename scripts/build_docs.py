"""Builds the documentation as a site of plain HTML: `make docs`, and then build/docs/index.html.

    python scripts/build_docs.py [FOLDER]

Owns the shape of the site. It needs no network while it builds, and neither do its pages: no font,
script or style comes from elsewhere. It is strict: a link that leads nowhere, a heading that does
not exist or a page that nobody can reach is an error, and nothing is left half built. The Markdown
is read by markdown-it, which comes with what dragoman needs anyway.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parents[1]
SITE: Final = ROOT / "build" / "docs"

PARTS: Final = {
    "Tutorial": "docs/tutorial",
    "How to": "docs/how-to",
    "Reference": "docs/reference",
    "Explanation": "docs/explanation",
}
"""The groups of the navigation, and the folders that fill them."""

HOME: Final = ("README.md", "docs/README.md")
PROJECT: Final = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")

STYLE: Final = """\
:root { --ink: #1f2328; --faint: #59636e; --line: #d1d9e0; --ground: #fff; --box: #f6f8fa;
  --link: #0b57a4; }
@media (prefers-color-scheme: dark) { :root { --ink: #d5dbe3; --faint: #8a94a1; --line: #3d444d;
  --ground: #15191f; --box: #1c2128; --link: #79b8ff; } }
body { margin: 0; color: var(--ink); background: var(--ground);
  font: 16px/1.55 system-ui, sans-serif; display: flex; }
nav { flex: 0 0 16rem; height: 100vh; overflow: auto; position: sticky; top: 0; padding: 1rem;
  box-sizing: border-box; border-right: 1px solid var(--line); font-size: 0.9rem; }
nav h2 { font-size: 0.8rem; color: var(--faint); margin: 1.2rem 0 0.3rem; }
nav a { display: block; padding: 0.1rem 0; } nav a.here { font-weight: bold; }
main { flex: 1 1 auto; min-width: 0; max-width: 54rem; padding: 1rem 2rem 4rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
pre, code { font: 0.87em/1.45 ui-monospace, Menlo, Consolas, monospace; background: var(--box); }
pre { padding: 0.8rem; overflow: auto; border-radius: 6px; } code { padding: 0.1em 0.3em; }
pre code { padding: 0; font-size: 1em; } img { max-width: 100%; }
table { border-collapse: collapse; display: block; overflow: auto; }
th, td { border: 1px solid var(--line); padding: 0.3rem 0.6rem; text-align: left; }
@media (max-width: 48rem) { body { display: block; }
  nav { height: auto; position: static; border: 0; } main { padding: 1rem; } }
"""


class Broken(Exception):
    """The documents do not fit together. Every problem is told."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass
class Page:
    """One document on its way into the site."""

    source: Path
    """Relative to the root of the project, as is everything here."""
    title: str
    tokens: list[Token]
    anchors: set[str] = field(default_factory=set)

    @property
    def target(self) -> Path:
        return Path("index.html") if self.source == Path("README.md") else _html(self.source)


def build(site: Path = SITE, root: Path = ROOT) -> list[Path]:
    """Build the whole site and return its pages. `Broken` if it cannot be right."""
    reader = _reader()
    pages = {page.source: page for page in (_read(reader, root, path) for path in _sources(root))}
    problems: list[str] = []
    copied: set[Path] = set()
    for page in pages.values():
        problems += _link(page, pages, copied, root)
    problems += [f"{path}: nobody can reach it" for path in pages if not _is_listed(path)]
    if problems:
        raise Broken(problems)
    site.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that the old site stays whole until the new one is.
    with tempfile.TemporaryDirectory(prefix="docs-", dir=site.parent) as folder:
        fresh = Path(folder) / "site"
        fresh.mkdir(mode=0o755)
        for page in pages.values():
            _write(fresh / page.target, _html_of(reader, page, pages))
        for path in copied:
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / path, fresh / path)
        _write(fresh / "style.css", STYLE)
        if site.exists():
            shutil.rmtree(site)
        os.replace(fresh, site)
    return [page.target for page in pages.values()]


# -- reading


def _sources(root: Path) -> Iterator[Path]:
    for name in (*HOME, *PROJECT):
        if (root / name).exists():
            yield Path(name)
    for path in sorted((root / "docs").rglob("*.md")):
        if (found := path.relative_to(root)).as_posix() not in HOME:
            yield found


def _is_listed(path: Path) -> bool:
    name = path.as_posix()
    return name in (*HOME, *PROJECT) or path.parent.as_posix() in PARTS.values()


def _reader() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


def _read(reader: MarkdownIt, root: Path, path: Path) -> Page:
    page = Page(path, path.stem, reader.parse((root / path).read_text("utf-8")))
    titled = False
    for token, inline in zip(page.tokens, page.tokens[1:], strict=False):
        if token.type == "heading_open":
            anchor = _anchor(inline.content)
            token.attrSet("id", anchor)
            page.anchors.add(anchor)
            if not titled:
                page.title, titled = _plain(inline.content), True
    return page


def _anchor(heading: str) -> str:
    """The fragment by which a heading is reached, as it is where the sources are looked at."""
    words = re.sub(r"[^\w\- ]", "", heading.lower())
    return words.replace(" ", "-")


def _plain(markdown: str) -> str:
    return re.sub(r"[`*]", "", markdown)


# -- links


def _link(page: Page, pages: dict[Path, Page], copied: set[Path], root: Path) -> list[str]:
    """Let the links of a page lead to pages; what else they lead to is copied."""
    problems: list[str] = []
    for token in _inside(page.tokens):
        name = {"link_open": "href", "image": "src"}.get(token.type)
        if name is None:
            continue
        link = str(token.attrGet(name))
        if re.match(r"[a-z]+:", link):
            if name == "src":
                problems.append(f"{page.source}: {link} is fetched from elsewhere")
            continue
        path, _, fragment = link.partition("#")
        target = _target(page.source, path, root) if path else page.source
        if target is None:
            problems.append(f"{page.source}: {link} leads nowhere")
            continue
        other = pages.get(target)
        if fragment and (other is None or fragment not in other.anchors):
            problems.append(f"{page.source}: {link} leads to no heading")
        if other is None:
            copied.add(target)
        place = target if other is None else other.target
        if path:
            token.attrSet(name, _from(page, place) + (f"#{fragment}" if fragment else ""))
    return problems


def _target(source: Path, path: str, root: Path) -> Path | None:
    target = Path(os.path.normpath(source.parent / path))
    if target.parts[:1] == ("..",) or not (root / target).is_file():
        return None
    return target


def _inside(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _inside(token.children or [])


def _from(page: Page, target: Path) -> str:
    return Path(os.path.relpath(target, page.target.parent)).as_posix()


def _html(source: Path) -> Path:
    return source.with_suffix(".html")


# -- writing


def _html_of(reader: MarkdownIt, page: Page, pages: dict[Path, Page]) -> str:
    body = reader.renderer.render(page.tokens, reader.options, {})
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(page.title)} - dragoman</title>",
            f'<link rel="stylesheet" href="{_from(page, Path("style.css"))}">',
            "</head><body>",
            f"<nav>{''.join(_navigation(page, pages))}</nav>",
            f"<main>{body}</main>",
            "</body></html>",
            "",
        ]
    )


def _navigation(page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    groups = {"": [Path(name) for name in HOME]}
    for part, folder in PARTS.items():
        groups[part] = [path for path in pages if path.parent.as_posix() == folder]
    groups["Project"] = [Path(name) for name in PROJECT]
    for name, paths in groups.items():
        if name:
            yield f"<h2>{name}</h2>"
        for other in (pages[path] for path in paths if path in pages):
            here = ' class="here"' if other is page else ""
            title = re.sub(r"^(Reference|How to|Tutorial): ", "", other.title)
            yield f'<a{here} href="{_from(page, other.target)}">{escape(title)}</a>'


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def main() -> None:
    site = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else SITE
    try:
        pages = build(site)
    except Broken as broken:
        sys.exit(f"The documentation was not built:\n{broken}")
    sys.stdout.write(f"{len(pages)} pages: {site / 'index.html'}\n")


if __name__ == "__main__":
    main()
