from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dragoman.scout import symbols
from dragoman.scout.file_reader import FileReader
from dragoman.scout.hits import Hit
from dragoman.scout.symbols import Sightings, is_test, split_name


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ("x", ("x", "")),
        ("Session.prompt", ("prompt", "Session")),
        ("a.b.c", ("c", "b")),
        ("std::vector", ("vector", "std")),
        ("Foo#bar", ("bar", "Foo")),
        ("$items", ("items", "")),
        ("empty?", ("empty?", "")),
    ],
)
def test_a_name_may_say_what_it_belongs_to(symbol: str, expected: tuple[str, str]) -> None:
    assert split_name(symbol) == expected


@pytest.mark.parametrize(
    "path", ["tests/a.py", "x/test_a.py", "a_test.go", "a.spec.ts", "ATest.java"]
)
def test_tests_are_known_by_their_names(path: str) -> None:
    assert is_test(path)


@pytest.mark.parametrize("path", ["src/testing/a.py", "latest.py", "contest/a.py"])
def test_other_files_are_no_tests(path: str) -> None:
    assert not is_test(path)


def gather(name: str, *hits: tuple[str, int, str]) -> Sightings:
    seen = Sightings(name)
    for hit in hits:
        seen(Hit(*hit))
    return seen


def test_definitions_uses_and_calls_are_told_apart() -> None:
    seen = gather(
        "foo",
        ("b.py", 1, "def foo():"),
        ("a.py", 5, "foo()"),
        ("a.py", 6, "x = foo"),
        ("a.py", 7, "food = 1"),
    )
    assert [each.hit.path for each in seen.best()] == ["b.py"]
    assert [hit.line for hit in seen.other_uses()] == [5, 6]
    assert [hit.line for hit in seen.calls] == [5]
    assert (seen.use_count, seen.call_count) == (2, 1)


def test_the_thing_itself_comes_before_what_is_named_like_it() -> None:
    seen = gather(
        "foo",
        ("tests/a.py", 1, "def foo():"),
        ("vendor/a.py", 1, "def foo():"),
        ("z.py", 9, "def foo():"),
        ("y.py", 3, "    def foo(self):"),
        ("x.py", 2, "foo = 3"),
        ("w.py", 2, "    foo = 3"),
        ("v.pyi", 2, "def foo(): ..."),
    )
    order = [each.hit.path for each in seen.best()]
    assert order == ["z.py", "y.py", "tests/a.py", "vendor/a.py", "v.pyi", "x.py"]
    assert "w.py" not in order, "what is only assigned somewhere is no definition beside one"


def test_what_the_package_passes_on_is_what_is_meant() -> None:
    seen = gather(
        "connect",
        ("a/first.py", 1, "def connect():"),
        ("a/second.py", 1, "def connect():"),
        ("a/__init__.py", 1, "from a.second import connect"),
    )
    assert [each.hit.path for each in seen.best()] == ["a/second.py", "a/first.py"]
    assert [each.hit.path for each in seen.exports()] == ["a/__init__.py"]


def test_an_assignment_counts_where_there_is_nothing_better() -> None:
    seen = gather("foo", ("a.py", 3, "        self.foo = 1"), ("a.py", 9, "        x = self.foo"))
    assert [each.hit.line for each in seen.best()] == [3]
    assert [hit.line for hit in seen.other_uses()] == [9]


def test_a_name_that_stands_nowhere_is_not_known() -> None:
    assert not gather("foo", ("a.py", 1, "food")).known


def test_there_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "MAX_HITS", 3)
    monkeypatch.setattr(symbols, "MAX_KEPT", 2)
    seen = Sightings("foo")
    more = [seen(Hit("a.py", number, "foo()")) for number in range(3)]
    assert more == [True, True, False]
    assert (len(seen.uses), seen.use_count) == (2, 3)


def test_what_belongs_to_a_class_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "class A:\n    def foo(self): ...\nclass B:\n    def foo(self): ...\n"
    )
    seen = gather(
        "foo",
        ("a.py", 2, "    def foo(self): ..."),
        ("a.py", 4, "    def foo(self): ..."),
        ("gone.py", 1, "def foo():"),
    )
    reader, stop = FileReader(str(tmp_path)), threading.Event()
    chosen = symbols.belonging(seen.best(), "B", reader, stop)
    assert [each.hit.line for each in chosen] == [4]
    assert symbols.belonging(seen.best(), "C", reader, stop) == []


def test_callers_are_named_where_they_can_be_seen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def run():\n    foo()\nfoo()\n")
    hits = [Hit("a.py", 2, "    foo()"), Hit("a.py", 3, "foo()"), Hit("gone.py", 1, "foo()")]
    told = symbols.callers(hits, FileReader(str(tmp_path)), threading.Event())
    assert [name for _, name in told] == ["run", "", ""]
