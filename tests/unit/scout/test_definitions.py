from __future__ import annotations

import pytest

from dragoman.scout import languages
from dragoman.scout.definitions import LOCAL, TRUE, VALUE, defined_in, is_call

DEFINED = [
    ("a.py", "async def foo(x):", TRUE),
    ("a.py", "class foo(Base):", TRUE),
    ("a.py", "type foo[T] = list[T]", TRUE),
    ("a.py", "foo: Final[int] = 3", VALUE),
    ("a.py", "foo = 3", VALUE),
    ("a.py", "        self.foo = 3", LOCAL),
    ("a.py", "    foo: int", LOCAL),
    ("a.js", "export default async function foo() {", TRUE),
    ("a.js", "const foo = async (x) => {", TRUE),
    ("a.js", "const foo = require('x');", VALUE),
    ("a.js", "  foo(x) {", TRUE),
    ("a.js", "Thing.prototype.foo = function () {", TRUE),
    ("a.ts", "export abstract class foo<T> extends Bar {", TRUE),
    ("a.ts", "  private async foo(x: number): Promise<void> {", TRUE),
    ("a.ts", "export type foo = string;", TRUE),
    ("a.ts", "export enum foo {", TRUE),
    ("a.go", "func foo[T any](x T) {", TRUE),
    ("a.go", "func (s *S) foo() error {", TRUE),
    ("a.go", "type foo interface {", TRUE),
    ("a.go", "var foo = 1", VALUE),
    ("a.go", "\tfoo, err := bar()", LOCAL),
    ("a.rs", "pub async unsafe fn foo<'a>(x: &'a str) {", TRUE),
    ("a.rs", "macro_rules! foo {", TRUE),
    ("a.rs", "pub const foo: u32 = 1;", VALUE),
    ("A.java", "public final class foo extends Bar {", TRUE),
    ("A.java", "    @Override public <T> Map<String, T> foo(int x) throws E {", TRUE),
    ("A.java", "    private static final int foo = 3;", VALUE),
    ("a.c", "int foo(int x)", TRUE),
    ("a.c", "int foo(int x);", VALUE),
    ("a.c", "#define foo(x) (x)", TRUE),
    ("a.c", "struct foo {", TRUE),
    ("a.c", "} foo;", TRUE),
    ("a.c", "typedef int (*foo)(void);", TRUE),
    ("a.cpp", "std::vector<int> Bar::foo(int x) const {", TRUE),
    ("a.cpp", "using foo = std::string;", TRUE),
    ("a.cs", "    public async Task<int> foo(string x)", TRUE),
    ("a.cs", "    public string foo { get; set; }", VALUE),
    ("a.rb", "  def self.foo(x)", TRUE),
    ("a.rb", "  attr_reader :bar, :foo", VALUE),
    ("a.php", "    public static function foo(array $x): int", TRUE),
    ("a.php", "    private ?string $foo = null;", VALUE),
    ("a.kt", "suspend inline fun <T> List<T>.foo(x: Int): T {", TRUE),
    ("a.kt", "data class foo(val x: Int)", TRUE),
    ("a.swift", "    @objc public static func foo<T>(x: T) {", TRUE),
    ("a.swift", "final class foo: Bar {", TRUE),
    ("a.scala", "  override def foo(x: Int): Int = x", TRUE),
    ("a.sh", "function foo {", TRUE),
    ("a.sh", "foo() {", TRUE),
    ("a.sh", "export foo=1", VALUE),
    ("a.lua", "function M.foo(x)", TRUE),
    ("a.ex", "  defp foo(x) do", TRUE),
    ("a.pl", "sub foo {", TRUE),
    ("a.sql", "CREATE TABLE IF NOT EXISTS foo (", TRUE),
    ("a.proto", "message foo {", TRUE),
    ("Makefile", "foo: bar baz", TRUE),
    ("a.toml", "foo = 3", LOCAL),
    ("a.unknown", "function foo", TRUE),
]

USED = [
    ("a.py", "x = foo(1)"),
    ("a.py", "def foobar(x):"),
    ("a.py", "def bar(foo):"),
    ("a.py", "if foo == 3:"),
    ("a.py", "# def foo():"),
    ("a.py", "from a import foo"),
    ("a/__init__.py", "from a.b import bar, foo"),
    ("a.c", "struct foo;"),
    ("a.c", "    foo(a,"),
    ("a.js", "  foo(() => {"),
    ("a.js", "const bar = foo(1);"),
    ("a.js", "function $foo() {"),
    ("a.js", "// function foo() {"),
    ("a.go", "\treturn foo(1)"),
    ("a.rs", "    foo(1);"),
    ("A.java", "        return foo(x);"),
    ("A.java", "        throw new foo(x);"),
    ("a.c", "    y = foo(x);"),
    ("a.c", "    return foo (x);"),
    ("a.c", " * int foo(int x)"),
    ("a.rb", "    foo(1)"),
    ("a.sh", "    foo-bar() {"),
    ("a.toml", "foo-bar = 3"),
    ("a.md", "foo is a function"),
]


@pytest.mark.parametrize(("path", "line", "rank"), DEFINED)
def test_a_definition_is_seen(path: str, line: str, rank: int) -> None:
    mark = defined_in(line, languages.of_path(path))
    assert mark is not None
    assert (mark.name, mark.rank) == ("foo", rank)


@pytest.mark.parametrize(("path", "line"), USED)
def test_a_use_is_not_a_definition(path: str, line: str) -> None:
    mark = defined_in(line, languages.of_path(path))
    assert mark is None or mark.name != "foo"


@pytest.mark.parametrize(
    ("path", "line", "called"),
    [
        ("a.py", "x = foo(1)", True),
        ("a.py", "x = foo", False),
        ("a.py", "x = foobar(1)", False),
        ("a.py", "# foo(1)", False),
        ("a.rs", "let x = foo::<u8>(1);", True),
        ("a.rs", "foo!(x)", True),
        ("a.ts", "foo<string>(x)", True),
        ("a.sh", "  foo one two", True),
        ("a.sh", "if foo; then", True),
        ("a.sh", "echo foo", False),
        ("a.cs", "class X : foo {", False),
    ],
)
def test_calls_are_distinguished_from_mentions(path: str, line: str, called: bool) -> None:
    assert is_call(line, "foo", languages.of_path(path)) is called


def test_names_with_signs_of_their_own_are_found() -> None:
    mark = defined_in("  def empty?", languages.of_path("a.rb"))
    assert mark is not None and mark.name == "empty?"
    mark = defined_in("requires-python = 1", languages.of_path("a.toml"))
    assert mark is not None and mark.name == "requires-python"


@pytest.mark.parametrize("path", ["a.py", "a.js", "a.c", "a.rs", "a.go", "a.toml"])
@pytest.mark.parametrize("piece", ["a ", "(", "<a", "a, ", " " * 50, "@a() ", "a::", "*& "])
def test_no_line_takes_long(path: str, piece: str) -> None:
    language = languages.of_path(path)
    for _ in range(100):
        defined_in(piece * (1000 // len(piece)), language)
