"""The documentation builds as a site, strictly and without a network.

`test_site_in_browser` checks the same site in Chromium.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from scripts.build_docs import PROJECT, BuildError, build, copy_sources
from tests.docs.markdown import ROOT, documents

DOCS = ROOT / "docs"
SETTINGS = DOCS / "zensical.toml"


class Reader(HTMLParser):
    """What a page links to, loads and contains."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.content: list[str] = []
        """The tags inside the article."""
        self._is_article = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_article = self._is_article or tag == "article"
        if self._is_article:
            self.content.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if name == "href" and tag == "a" and value:
                self.targets.append(value)
            if (name == "src" or (name == "href" and tag == "link")) and value:
                self.loaded.append(value)

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._is_article = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built once."""
    folder = tmp_path_factory.mktemp("built") / "site"
    build(folder)
    return folder


def pages(site: Path) -> Iterator[tuple[Path, Reader]]:
    for path in site.rglob("*.html"):
        if path.name != "404.html":  # Its links are for a server.
            yield path, Reader(path.read_text("utf-8"))


def place(document: Path) -> str:
    """Return the page of a document."""
    if document == DOCS / "README.md":
        return "index.html"
    if document.parent == ROOT:
        return f"project/{document.stem}.html"
    return document.relative_to(DOCS).with_suffix(".html").as_posix()


DOCUMENTS = [path for path in documents() if path != ROOT / "README.md"]


def test_every_document_has_its_page(site: Path) -> None:
    expected = {place(path) for path in DOCUMENTS}
    assert {path.relative_to(site).as_posix() for path, _ in pages(site)} == expected


def test_every_document_is_in_the_menu_once() -> None:
    def flat(items: list[Any]) -> Iterator[str]:
        for item in items:
            if isinstance(item, str):
                yield item
            else:
                for below in item.values():
                    yield from flat(below if isinstance(below, list) else [below])

    menu = list(flat(tomllib.loads(SETTINGS.read_text("utf-8"))["project"]["nav"]))
    expected = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(menu) == sorted([*expected, *(f"project/{name}" for name in PROJECT)])
    assert menu[:3] == ["README.md", "tutorial/install.md", "tutorial/first-hour.md"]


def test_every_link_of_the_site_leads_to_a_file_and_a_heading(site: Path) -> None:
    ids = {path: page.ids for path, page in pages(site)}
    broken, followed = [], 0
    for path, page in pages(site):
        for target in page.targets:
            if re.match("[a-z]+:", target):
                continue
            name, _, fragment = target.partition("#")
            other = (path.parent / name).resolve() if name else path
            followed += 1
            if not other.is_file() or (fragment and fragment not in ids.get(other, ())):
                broken.append(f"{path.relative_to(site)} -> {target}")
    assert broken == [] and followed > 1000


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for path, page in pages(site):
        assert page.loaded, path
        for target in page.loaded:
            assert (path.parent / target).resolve().is_file(), (path, target)
    for style in site.rglob("*.css"):
        text = style.read_text("utf-8")
        assert not re.search(r"""(url\(["']?|@import ["'])https?:""", text), style


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_site_reads_markdown_as_github_does(site: Path, document: Path) -> None:
    # Python-Markdown needs a blank line before a list, and four spaces before the content of an
    # item.
    tokens = MarkdownIt("commonmark").enable("table").parse(document.read_text("utf-8"))
    written = [token.tag for token in tokens if token.nesting >= 0]
    content = Reader((site / place(document)).read_text("utf-8")).content
    for tag in ("h2", "h3", "ul", "ol", "li", "table", "tr"):
        assert content.count(tag) == written.count(tag), tag
    assert content.count("pre") == sum(token.type in ("fence", "code_block") for token in tokens)


def test_tables_code_and_pictures_are_there(site: Path) -> None:
    routing = (site / "explanation/routing-and-bandit.html").read_text("utf-8")
    assert 'src="../images/bandit.svg"' in routing and (site / "images/bandit.svg").is_file()
    assert "<table>" in (site / "reference/exit-codes.html").read_text("utf-8")
    assert (site / "search.js").is_file(), "the search does not work where pages are files"


def small(folder: Path, text: str) -> Path:
    root = folder / "project"
    (root / "docs" / "how-to").mkdir(parents=True)
    shutil.copytree(DOCS / "assets", root / "docs" / "assets")
    settings = SETTINGS.read_text("utf-8")
    (root / "docs" / "zensical.toml").write_text(
        re.sub(
            r"^nav = \[.*?^\]", 'nav = ["README.md", "how-to/a.md"]', settings, flags=re.M | re.S
        )
    )
    (root / "README.md").write_text("# Project\n")
    (root / "docs" / "README.md").write_text("# Home\n\n[there](how-to/a.md#second-part)\n")
    (root / "docs" / "how-to" / "a.md").write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# A\n\n## Second\n", "README.md"),
        ("# A\n\n## Second part\n\n[x](gone.md)\n", "docs/how-to/a.md: broken link: gone.md"),
        ("# A\n\n## Second part\n\n[x](../../../x)\n", "a.md: broken link: ../../../x"),
    ],
)
def test_a_broken_link_is_an_error_and_the_old_site_stays(
    tmp_path: Path, text: str, problem: str
) -> None:
    root = small(tmp_path, text)
    site = tmp_path / "site"
    site.mkdir()
    (site / "old").touch()
    with pytest.raises(BuildError, match=re.escape(problem)):
        build(site, root)
    assert [path.name for path in site.iterdir()] == ["old"]


def test_a_new_site_replaces_the_old_one(tmp_path: Path) -> None:
    root = small(tmp_path, "# A `b`\n\n## Second part\n\n[me](#a-b) [home](../../README.md)\n")
    site = tmp_path / "site"
    site.mkdir()
    (site / "old").touch()
    build(site, root)
    assert not (site / "old").exists()
    page = (site / "how-to" / "a.html").read_text("utf-8")
    assert '<a href="../index.html">home</a>' in page and '<a href="#a-b">me</a>' in page


def test_links_in_code_are_left_and_linked_files_are_copied(tmp_path: Path) -> None:
    root = small(tmp_path, "# A\n\n```text\n[x](../../LICENSE)\n```\n\n[y](../../LICENSE#l1)\n")
    (root / "LICENSE").write_text("free\n")
    copy_sources(root, tmp_path / "source")
    page = (tmp_path / "source" / "how-to" / "a.md").read_text("utf-8")
    assert "[x](../../LICENSE)" in page and "[y](../files/LICENSE#l1)" in page
    assert (tmp_path / "source" / "files" / "LICENSE").read_text("utf-8") == "free\n"
