from __future__ import annotations

import pytest

from dragoman.scout import languages
from dragoman.scout.definitions import defined_in


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/b.py", "Python"),
        ("b.d.ts", "TypeScript"),
        ("Makefile", "Make"),
        ("x/Dockerfile.dev", "Docker"),
        ("A.PY", "Python"),
        (".gitignore", "Other"),
        ("LICENSE", "Other"),
        ("go", "Other"),
        ("x/makefile", "Make"),
        ("a.py/b", "Other"),
    ],
)
def test_a_name_tells_the_language(path: str, name: str) -> None:
    assert languages.of_path(path).name == name


def test_no_two_languages_claim_the_same_files() -> None:
    endings = [ending for one in languages.LANGUAGES for ending in one.endings]
    assert len(endings) == len(set(endings))
    assert not set(endings) & languages.BINARY_ENDINGS


def test_every_language_has_rules_for_definitions() -> None:
    for one in (*languages.LANGUAGES, languages.OTHER):
        assert defined_in("", one) is None
