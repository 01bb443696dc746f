"""The documentation builds as a site, strictly and without a network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scripts.build_docs import Broken, build
from tests.docs.markdown import ROOT, documents


class Reader(HTMLParser):
    """What a page leads to, and what it can be reached by."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if name == "href" and tag == "a" and value:
                self.targets.append(value)
            if (name == "src" or (name == "href" and tag == "link")) and value:
                self.fetched.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built once."""
    folder = tmp_path_factory.mktemp("built") / "site"
    build(folder)
    return folder


def pages(site: Path) -> Iterator[tuple[Path, Reader]]:
    for path in site.rglob("*.html"):
        yield path, Reader(path.read_text("utf-8"))


def test_every_document_has_its_page(site: Path) -> None:
    expected = {
        "index.html"
        if path == ROOT / "README.md"
        else path.relative_to(ROOT).with_suffix(".html").as_posix()
        for path in documents()
    }
    assert {path.relative_to(site).as_posix() for path, _ in pages(site)} == expected


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
            if not other.is_file() or (fragment and fragment not in ids[other]):
                broken.append(f"{path.relative_to(site)} -> {target}")
    assert broken == [] and followed > 1000


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    for path, page in pages(site):
        assert page.fetched, path
        for target in page.fetched:
            assert (path.parent / target).resolve().is_file(), (path, target)
        assert "<script" not in path.read_text("utf-8")
    style = (site / "style.css").read_text("utf-8")
    assert "url(" not in style and "@import" not in style


def test_tables_code_and_the_picture_are_there(site: Path) -> None:
    index = (site / "index.html").read_text("utf-8")
    assert '<img src="docs/images/run.svg"' in index and (site / "docs/images/run.svg").is_file()
    assert "agent = Agent(&quot;parrot&quot;)" in index
    assert "<table>" in (site / "docs/reference/exit-codes.html").read_text("utf-8")


def small(folder: Path, text: str) -> Path:
    root = folder / "project"
    (root / "docs" / "how-to").mkdir(parents=True)
    (root / "README.md").write_text("# Home\n\n[there](docs/how-to/a.md#second-part)\n")
    (root / "docs" / "how-to" / "a.md").write_text(text)
    return root


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# A\n\n## Second\n", "README.md: docs/how-to/a.md#second-part leads to no heading"),
        ("# A\n\n## Second part\n\n[x](gone.md)\n", "docs/how-to/a.md: gone.md leads nowhere"),
        ("# A\n\n## Second part\n\n[x](../../../x)\n", "a.md: ../../../x leads nowhere"),
        ("# A\n\n## Second part\n\n![x](https://x.org/y.png)\n", "is fetched from elsewhere"),
    ],
)
def test_what_leads_nowhere_is_told_and_the_old_site_stays(
    tmp_path: Path, text: str, problem: str
) -> None:
    root = small(tmp_path, text)
    site = tmp_path / "site"
    site.mkdir()
    (site / "old").touch()
    with pytest.raises(Broken, match=re.escape(problem)):
        build(site, root)
    assert [path.name for path in site.iterdir()] == ["old"]


def test_a_page_in_a_folder_that_the_navigation_does_not_know_is_told(tmp_path: Path) -> None:
    root = small(tmp_path, "# A\n\n## Second part\n")
    (root / "docs" / "lost.md").write_text("# Lost\n")
    with pytest.raises(Broken, match=re.escape("docs/lost.md: nobody can reach it")):
        build(tmp_path / "site", root)


def test_a_new_site_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    root = small(tmp_path, "# A `b`\n\n## Second part\n\n[me](#a-b) [home](../../README.md)\n")
    site = tmp_path / "site"
    site.mkdir()
    (site / "old").touch()
    build(site, root)
    assert not (site / "old").exists()
    page = (site / "docs" / "how-to" / "a.html").read_text("utf-8")
    assert "<title>A b - dragoman</title>" in page
    assert 'href="../../index.html">home</a>' in page and 'href="#a-b">me</a>' in page
