"""Which language a file is written in, by its name.

Owns the table of languages: what they are called, by which names their files are known, and how a
comment begins. It opens no file. What a definition looks like in each is in `definitions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Language:
    """One language. `family` names the rules of `definitions` that apply to it."""

    name: str
    family: str
    endings: tuple[str, ...]
    comments: tuple[str, ...] = ()
    """What a line begins with that is a comment and nothing else."""
    names: tuple[str, ...] = ()
    """Whole file names."""
    is_code: bool = True


_SLASHES: Final = ("//", "/*", "*")
_HASH: Final = ("#",)

LANGUAGES: Final = (
    Language("Python", "python", ("py", "pyi", "pyw", "pyx"), _HASH),
    Language("JavaScript", "javascript", ("js", "jsx", "mjs", "cjs"), _SLASHES),
    Language("TypeScript", "javascript", ("ts", "tsx", "mts", "cts"), _SLASHES),
    Language("Vue", "javascript", ("vue",), _SLASHES),
    Language("Svelte", "javascript", ("svelte",), _SLASHES),
    Language("Go", "go", ("go",), _SLASHES),
    Language("Rust", "rust", ("rs",), _SLASHES),
    Language("Java", "java", ("java",), _SLASHES),
    Language("C", "c", ("c", "h"), _SLASHES),
    Language("C++", "c", ("cc", "cpp", "cxx", "hpp", "hh", "hxx", "ipp", "cu", "cuh"), _SLASHES),
    Language("Objective-C", "c", ("m", "mm"), _SLASHES),
    Language("C#", "csharp", ("cs",), _SLASHES),
    Language("Ruby", "ruby", ("rb", "rake", "gemspec"), _HASH, ("Rakefile", "Gemfile")),
    Language("PHP", "php", ("php", "phtml"), (*_SLASHES, "#")),
    Language("Kotlin", "kotlin", ("kt", "kts"), _SLASHES),
    Language("Swift", "swift", ("swift",), _SLASHES),
    Language("Scala", "scala", ("scala", "sc"), _SLASHES),
    Language("Dart", "java", ("dart",), _SLASHES),
    Language("Groovy", "java", ("groovy", "gradle"), _SLASHES),
    Language("Shell", "shell", ("sh", "bash", "zsh", "ksh", "bats"), _HASH, (".bashrc", ".zshrc")),
    Language("PowerShell", "powershell", ("ps1", "psm1"), _HASH),
    Language("Perl", "perl", ("pl", "pm"), _HASH),
    Language("Lua", "lua", ("lua",), ("--",)),
    Language("Elixir", "elixir", ("ex", "exs"), _HASH),
    Language("Erlang", "erlang", ("erl", "hrl"), ("%",)),
    Language("Haskell", "haskell", ("hs",), ("--",)),
    Language("OCaml", "ocaml", ("ml", "mli"), ("(*",)),
    Language("Julia", "julia", ("jl",), _HASH),
    Language("R", "r", ("r", "R"), _HASH),
    Language("Zig", "rust", ("zig",), ("//",)),
    Language("SQL", "sql", ("sql",), ("--",)),
    Language("Protocol Buffers", "proto", ("proto",), _SLASHES),
    Language("GraphQL", "proto", ("graphql", "gql"), _HASH),
    Language("Terraform", "hcl", ("tf", "hcl"), ("#", "//")),
    Language("CSS", "css", ("css", "scss", "sass", "less"), ("/*", "//", "*")),
    Language("HTML", "markup", ("html", "htm", "xhtml"), ("<!--",)),
    Language("XML", "markup", ("xml", "xsd", "svg"), ("<!--",), is_code=False),
    Language("Make", "make", ("mk",), _HASH, ("Makefile", "makefile", "GNUmakefile")),
    Language("CMake", "cmake", ("cmake",), _HASH, ("CMakeLists.txt",)),
    Language("Docker", "docker", ("dockerfile",), _HASH, ("Dockerfile", "Containerfile")),
    Language("TOML", "keys", ("toml",), _HASH, is_code=False),
    Language("YAML", "keys", ("yaml", "yml"), _HASH, is_code=False),
    Language("JSON", "keys", ("json", "jsonc", "json5"), ("//",), is_code=False),
    Language("INI", "keys", ("ini", "cfg", "conf", "properties"), ("#", ";"), is_code=False),
    Language("Markdown", "prose", ("md", "markdown", "mdx"), is_code=False),
    Language("reStructuredText", "prose", ("rst",), is_code=False),
    Language("Text", "prose", ("txt", "text"), is_code=False),
)
"""The commonest first: they come first where two have the same number of files."""

OTHER: Final = Language("Other", "other", (), is_code=False)

_BY_ENDING: Final = {ending: one for one in LANGUAGES for ending in one.endings}
_BY_NAME: Final = {name: one for one in LANGUAGES for name in one.names}

_ALIASES: Final = {
    "js": "JavaScript", "node": "JavaScript", "ts": "TypeScript", "py": "Python", "golang": "Go",
    "cpp": "C++", "c sharp": "C#", "csharp": "C#", "bash": "Shell", "zsh": "Shell",
    "objc": "Objective-C", "makefile": "Make", "dockerfile": "Docker", "yml": "YAML",
    "md": "Markdown", "protobuf": "Protocol Buffers", "rst": "reStructuredText",
}  # fmt: skip

BINARY_ENDINGS: Final = frozenset(
    "7z a avi avif bin bmp bz2 class dll dylib eot exe flac gif gz ico jar jpeg jpg lib mkv mov "
    "mp3 mp4 nib o obj ogg otf pack pdf png pyc pyd pyo rar rlib so sqlite tar tgz tif tiff ttf "
    "wasm wav webm webp whl woff woff2 xlsx xz zip zst".split()
)
"""Endings of files that are never text: they are not even opened."""


def ending_of(path: str) -> str:
    """What stands behind the last dot of a file's name; nothing if there is no dot within it."""
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return ending if dot and stem else ""


def of_path(path: str) -> Language:
    """The language of a file; `OTHER` if its name does not tell."""
    name = path.rpartition("/")[2]
    known = _BY_NAME.get(name)
    if known is not None:
        return known
    ending = ending_of(path)
    known = _BY_ENDING.get(ending) or _BY_ENDING.get(ending.lower())
    if known is None and name.startswith(("Dockerfile.", "Makefile.")):
        known = _BY_NAME[name.partition(".")[0]]
    return known or OTHER


def named(word: str) -> Language | None:
    """The language that somebody means by a word; None if it is none."""
    lower = word.strip().lower()
    lower = _ALIASES.get(lower, lower).lower()
    return next((one for one in LANGUAGES if one.name.lower() == lower), None)
