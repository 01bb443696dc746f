from __future__ import annotations

import pytest

from dragoman.scout import rank
from dragoman.scout.rank import RankedPlace, Weights, judge, path_terms, shortlist, weigh
from dragoman.scout.terms import terms_of, text_pattern


def ranked(question: str, files: dict[str, str]) -> list[RankedPlace]:
    """What `answers.best_places` does, with files that are not on a disk."""
    terms = terms_of(question)
    weights = weigh(terms, len(files), {}, question.lower().rstrip("?").split())
    counts: dict[str, dict[str, int]] = {}
    for path, text in files.items():
        for term, pattern in weights.patterns.items():
            if number := sum(1 for line in text.splitlines() if pattern.search(line)):
                counts.setdefault(path, {})[term] = number
    chosen = shortlist(files, counts, weights)
    places = [
        judge(each, files[each].splitlines(), counts.get(each, {}), weights) for each in chosen
    ]
    return sorted(places, key=lambda each: (-each.score, each.path))


def order(question: str, files: dict[str, str]) -> list[str]:
    return [each.path for each in ranked(question, files)]


def test_a_file_name_comes_before_a_definition_and_that_before_text() -> None:
    files = {
        "a.py": "x = 1\n" * 20 + "# the framing\n",
        "b.py": "x = 1\n" * 20 + "def framing(): ...\n",
        "framing.py": "x = 1\n",
        "framing/c.py": "x = 1\n",
    }
    assert order("where is the framing?", files) == ["framing.py", "b.py", "framing/c.py", "a.py"]


def test_tests_generated_files_and_documents_come_later() -> None:
    text = "def frame_lines(): ...\n"
    files = {
        "docs/frame.md": text,
        "src/frame.py": text,
        "tests/test_frame.py": text,
        "vendor/frame.py": text,
    }
    assert order("how are lines framed?", files)[0] == "src/frame.py"
    assert order("which tests are there for frames?", files)[0] == "tests/test_frame.py"
    assert order("where is the documentation of frames?", files)[0] == "docs/frame.md"


def test_words_that_stand_close_together_come_before_scattered_ones() -> None:
    gap = "x\n" * 50
    files = {
        "a.py": f"{gap}retry\n{gap}limit\n",
        "b.py": f"{gap}retry up\nto the limit\n",
    }
    assert order("how is the retry limited?", files) == ["b.py", "a.py"]


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    weights = weigh(["line", "fram"], 1000, {"line": 900, "fram": 3}, ())
    assert weights.terms["fram"] > 3 * weights.terms["line"]
    assert weights.covered(["fram"]) > 0.7


def test_a_place_has_a_line_and_reasons() -> None:
    text = '"""Split a stream into lines."""\n\n\nclass LineFramer:\n    size = 1\n'
    (found,) = ranked("where is the line framing?", {"wire/framing.py": text})
    assert (found.path, found.line, found.text) == ("wire/framing.py", 4, "class LineFramer:")
    assert found.terms == 2
    assert found.reasons == (
        "by its name",
        "defines the class `LineFramer`",
        "2 of the words close together",
    )


def test_a_file_without_lines_is_known_by_its_path() -> None:
    (found,) = ranked("where is the logo?", {"img/logo.png": ""})
    assert (found.line, found.text, found.reasons) == (1, "", ("by its name",))


def test_a_file_that_has_nothing_to_do_with_it_is_left_out() -> None:
    assert order("where is the framing?", {"a.py": "x = 1\n"}) == []


def test_the_shortlist_is_bounded_and_the_best_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank, "SHORTLIST_SIZE", 2)
    paths = [f"{number}.py" for number in range(50)] + ["framing.py"]
    counts = {path: {"fram": 1} for path in paths}
    chosen = shortlist(paths, counts, Weights({"fram": 1.0}))
    assert chosen == ["framing.py", "0.py"]


def test_the_order_does_not_depend_on_the_order_of_files() -> None:
    files = {f"{number}.py": "framing\n" for number in range(20)}
    backwards = dict(reversed(files.items()))
    assert order("where is the framing?", files) == order("where is the framing?", backwards)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("wire/framing.py", {"fram": (1.0, True)}),
        ("framing/__init__.py", {"fram": (1.0, True)}),
        ("framing/other.py", {"fram": (1.0, False)}),
        ("wire/framework.py", {"fram": (0.5, True)}),
        ("wire/codes.py", {}),
    ],
)
def test_terms_are_found_in_paths(path: str, expected: dict[str, tuple[float, bool]]) -> None:
    assert path_terms(path, ["fram"]) == expected


def test_the_patterns_of_weights_are_those_that_are_counted() -> None:
    assert Weights({"fram": 1.0}).patterns["fram"].pattern == text_pattern("fram")
