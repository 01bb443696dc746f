from __future__ import annotations

import pytest

from dragoman.scout.hits import Hit
from dragoman.scout.symbols import Sightings, around, is_generated, is_test, split_name


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
def test_other_files_are_not_tests(path: str) -> None:
    assert not is_test(path)


def gather(name: str, *hits: tuple[str, int, str]) -> Sightings:
    seen = Sightings(name)
    for hit in hits:
        seen(Hit(*hit))
    return seen


def test_definitions_uses_and_calls_are_distinguished() -> None:
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


def test_an_assignment_counts_where_there_is_nothing_better() -> None:
    seen = gather("foo", ("a.py", 3, "        self.foo = 1"), ("a.py", 9, "        x = self.foo"))
    assert [each.hit.line for each in seen.best()] == [3]
    assert [hit.line for hit in seen.other_uses()] == [9]


def test_a_name_that_stands_nowhere_is_not_known() -> None:
    assert not gather("foo", ("a.py", 1, "food")).known


def test_what_stands_around_a_line_is_reported_from_the_inside_out() -> None:
    lines = [
        "class A:",
        "    x = 1",
        "    def foo(self):",
        "        if x:",
        "            run()",
        "y",
    ]
    assert [mark.name for mark in around(lines, 4, "a.py")] == ["foo", "A"]
    assert around(lines, 5, "a.py") == []
    braces = ["class A", "{", "    int foo(int x)", "    {", "        run();", "    }", "}"]
    assert [mark.name for mark in around(braces, 4, "a.cs")] == ["foo", "A"]


@pytest.mark.parametrize("path", ["vendor/a.py", "x/dist/a.js", "a.min.js", "poetry.lock"])
def test_generated_files_are_known_by_their_names(path: str) -> None:
    assert is_generated(path)
    assert not is_generated("src/builder/a.py")
