from __future__ import annotations

import pytest

from dragoman.scout import languages
from dragoman.scout.outline import enclosing_function, is_inside

PYTHON = """\
class Session:
    def prompt(self):
        if x:
            call()

    value = 3

class Other:
    async def prompt(self): ...
call()
""".splitlines()


def test_the_function_around_a_line_is_named() -> None:
    assert enclosing_function(PYTHON, 3) == "prompt"
    assert enclosing_function(PYTHON, 5) == ""
    assert enclosing_function(PYTHON, 9) == ""


def test_a_line_stands_in_a_class_or_not() -> None:
    python = languages.of_path("a.py")
    assert is_inside(PYTHON, 1, "Session", python)
    assert not is_inside(PYTHON, 8, "Session", python)
    assert is_inside(PYTHON, 8, "Other", python)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("function run() {\n  call();\n}", "run"),
        ("const run = async (x) => {\n  call();\n}", "run"),
        ("func (s *S) Run() {\n\tif x {\n\t\tcall()\n\t}\n}", "Run"),
        ("pub async fn run() {\n    call();\n}", "run"),
        ("class A {\n    public int run(int x) {\n        call();\n    }\n}", "run"),
        ("static int\nrun(void)\n{\n    call();\n}", "run"),
        ("void A::run(int x) const {\n    for (;;) {\n        call();\n    }\n}", "A::run"),
    ],
)
def test_functions_of_many_languages_are_seen(text: str, name: str) -> None:
    lines = text.splitlines()
    index = next(number for number, line in enumerate(lines) if line.strip().startswith("call"))
    assert enclosing_function(lines, index) == name


@pytest.mark.parametrize(
    ("path", "text", "container"),
    [
        ("a.rs", "impl Display for Session {\n    fn prompt() {}\n}", "Session"),
        ("a.go", "func (s *Session) prompt() {\n}", "Session"),
        ("a.cpp", "void Session::prompt() {\n}", "Session"),
        ("a.rb", "module X\n  class Session\n    def prompt\n    end\n  end\nend", "Session"),
    ],
)
def test_containers_of_many_languages_are_seen(path: str, text: str, container: str) -> None:
    lines = text.splitlines()
    index = next(number for number, line in enumerate(lines) if "prompt" in line)
    assert is_inside(lines, index, container, languages.of_path(path))
    assert not is_inside(lines, index, "Ses", languages.of_path(path))


def test_no_line_is_slow_to_look_at() -> None:
    for piece in ("a ", "a(", "a:", "(", "fn ", "a, "):
        enclosing_function([piece * 3000, "    call()"], 1)
