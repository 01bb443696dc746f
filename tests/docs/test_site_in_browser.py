"""The site in Chromium on a desktop and a phone: nothing is cut off, and the search works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.build_docs import build
from tests.docs.browser import CHROMIUM, Browser, browser

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.timeout(300),
]

WIDTHS = (1280, 390)

CUT = """(() => {
  const wide = [];
  if (document.documentElement.scrollWidth > innerWidth) wide.push("the page scrolls sideways");
  // What is wider than its column may only be inside of something that scrolls.
  const column = document.querySelector("article").getBoundingClientRect();
  const scrolls = element => {
    for (let above = element; above && above.tagName !== "ARTICLE"; above = above.parentElement)
      if (["auto", "scroll"].includes(getComputedStyle(above).overflowX)) return true;
    return false;
  };
  for (const element of document.querySelectorAll("article *")) {
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || element.closest(".headerlink, nav, .md-clipboard")) continue;
    if ((box.right > innerWidth + 1 || box.left < -1) && !scrolls(element))
      wide.push(element.tagName + " " + element.textContent.slice(0, 60));
  }
  return wide.slice(0, 5);
})()"""

OVERLAP = """(() => {
  // Paragraphs, tables and code stand below each other: no box begins before the last one ended.
  const found = [];
  let before = null;
  for (const element of document.querySelector("article").children) {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    if (!box.height || style.position !== "static" || style.float !== "none") continue;
    if (before && box.top < before.bottom - 1)
      found.push(element.tagName + " " + element.textContent.slice(0, 60));
    before = box;
  }
  return found;
})()"""

SEARCH = """(async word => {
  document.querySelector(".md-search__button").click();
  const until = async (find, what) => {
    for (let tries = 0; tries < 400; tries++) {
      const found = find();
      if (found) return found;
      await new Promise(done => setTimeout(done, 50));
    }
    throw new Error("no " + what);
  };
  const roots = () => [...document.querySelectorAll("*")].map(e => e.shadowRoot).filter(Boolean);
  const inside = selector => roots().map(root => root.querySelector(selector)).find(Boolean);
  const input = await until(() => inside("input[role=combobox]"), "search field");
  input.value = word;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  await until(() => inside("[role=option]"), "result for " + word);
  return roots().flatMap(root => [...root.querySelectorAll("[role=option]")]
    .map(option => [option.href, option.textContent]));
})"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    build(folder)
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


def pages(site: Path) -> list[Path]:
    return [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_or_overlaps_and_no_other_host_is_asked(
    site: Path, chromium: Browser, width: int
) -> None:
    chromium.requested.clear()
    wrong: dict[str, Any] = {}
    for page in pages(site):
        chromium.open(page.as_uri(), width=width)
        if found := [*chromium.evaluate(CUT), *chromium.evaluate(OVERLAP)]:
            wrong[page.relative_to(site).as_posix()] = found
    assert wrong == {}
    assert len(chromium.requested) > len(pages(site))
    assert [each for each in chromium.requested if not each.startswith(("file:", "data:"))] == []


CONTENTS = """(async () => {
  const label = document.querySelector(".md-sidebar-button").getBoundingClientRect();
  document.querySelector(".md-sidebar-button").click();
  await new Promise(done => setTimeout(done, 600));  // the theme moves it in
  const panel = document.querySelector(".md-sidebar--secondary .md-sidebar__inner");
  const box = panel.getBoundingClientRect();
  const header = document.querySelector(".md-header").getBoundingClientRect();
  return label.bottom <= header.bottom && getComputedStyle(panel).opacity === "1"
    && box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= innerHeight
    && panel.textContent.includes("Which peer is used");
})()"""


def test_a_phone_shows_the_contents_of_a_page_on_demand(site: Path, chromium: Browser) -> None:
    chromium.open((site / "how-to" / "delegate.html").as_uri(), width=390)
    assert chromium.evaluate(CONTENTS) is True


def search(site: Path, chromium: Browser, words: str, *, width: int = 1280) -> list[str]:
    """Return the pages that the site's search finds, best first."""
    chromium.open((site / "index.html").as_uri(), width=width)
    results = chromium.evaluate(f"{SEARCH}({words!r})")
    return [href.removeprefix(site.as_uri()).lstrip("/").partition("?")[0] for href, _ in results]


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("timeout", "reference/configuration.html"),
        ("permission", "reference/policy.html"),
        ("ASP", "reference/legacy-wire.html"),
        ("exit code", "reference/exit-codes.html"),
    ],
)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_search_finds_the_page(
    site: Path, chromium: Browser, word: str, page: str, width: int
) -> None:
    assert page in search(site, chromium, word, width=width)[:10]


@pytest.mark.parametrize(
    ("question", "page"),
    [
        ("install", "tutorial/install.html"),
        ("set a model", "reference/configuration.html"),
        ("not used", "how-to/delegate.html"),
        ("stored where", "reference/configuration.html"),
        ("write an agent", "tutorial/first-agent.html"),
        ("add a peer", "how-to/add-a-peer.html"),
        ("allow a command", "reference/policy.html"),
    ],
)
def test_a_newcomer_finds_the_answer_among_the_first_results(
    site: Path, chromium: Browser, question: str, page: str
) -> None:
    assert page in search(site, chromium, question)[:5]
