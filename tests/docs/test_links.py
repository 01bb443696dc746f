"""Every link between the documents is valid, and every document can be reached."""

from __future__ import annotations

from pathlib import Path

from tests.docs.markdown import ROOT, anchors, documents, links


def resolve(document: Path, target: str) -> tuple[Path, str]:
    name, _, fragment = target.partition("#")
    return ((document.parent / name).resolve() if name else document), fragment


def test_every_link_leads_to_a_file_and_a_heading_that_exist() -> None:
    broken = []
    for document in documents():
        for line, target in links(document):
            if "://" in target:
                continue
            path, fragment = resolve(document, target)
            exists = path.exists() and path.is_relative_to(ROOT)
            if not exists or (fragment and fragment not in anchors(path)):
                broken.append(f"{document.relative_to(ROOT)}:{line} -> {target}")
    assert broken == []


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document in reached or document.suffix != ".md":
            continue
        reached.add(document)
        for _, target in links(document):
            if "://" not in target:
                waiting.append(resolve(document, target)[0])
    assert [str(path.relative_to(ROOT)) for path in documents() if path not in reached] == []


def test_every_picture_is_on_a_page() -> None:
    shown = {resolve(page, target)[0] for page in documents() for _, target in links(page)}
    pictures = (ROOT / "docs" / "images").iterdir()
    assert [path.name for path in pictures if path not in shown] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 80
