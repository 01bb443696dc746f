"""Determine the language of a file from its name.

Has a table of languages: their names, their file names and endings, and how a comment begins.
`definitions` has the form of a definition in each.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Language(NamedTuple):
    """One language. `family` names the rules of `definitions` that apply to it."""

    name: str
    family: str
    endings: tuple[str, ...]
    comments: tuple[str, ...] = ()
    """Prefixes of a line that is only a comment."""
    is_code: bool = True


_TABLE: Final = """
Python|python|py pyi pyw pyx|#
JavaScript|javascript|js jsx mjs cjs|// /* *
TypeScript|javascript|ts tsx mts cts|// /* *
Vue|javascript|vue svelte|// /* *
Go|go|go|// /* *
Rust|keywords|rs|// /* *
Java|typed|java|// /* *
C|typed|c h|// /* *
C++|typed|cc cpp cxx hpp hh hxx cu|// /* *
Objective-C|typed|m mm|// /* *
C#|typed|cs|// /* *
Ruby|keywords|rb rake gemspec =Rakefile =Gemfile|#
PHP|keywords|php phtml|// /* * #
Kotlin|keywords|kt kts|// /* *
Swift|keywords|swift|// /* *
Scala|keywords|scala|// /* *
Dart|typed|dart|// /* *
Groovy|typed|groovy gradle|// /* *
Shell|shell|sh bash zsh bats =.bashrc =.zshrc|#
PowerShell|keywords|ps1 psm1|#
Perl|keywords|pl pm|#
Lua|keywords|lua|--
Elixir|keywords|ex exs|#
Haskell|keywords|hs|--
OCaml|keywords|ml mli|(*
Julia|keywords|jl|#
R|keywords|r|#
Zig|keywords|zig|//
SQL|sql|sql|--
Protocol Buffers|keywords|proto|// /* *
GraphQL|keywords|graphql gql|#
Terraform|keys|tf hcl|# //
CSS|css|css scss sass less|/* // *
HTML|prose|html htm|<!--
Make|make|mk =Makefile =makefile =GNUmakefile|#
CMake|keywords|cmake =CMakeLists.txt|#
Docker|keywords|dockerfile =Dockerfile =Containerfile|#
XML|prose|xml xsd svg|<!--|data
TOML|keys|toml|#|data
YAML|keys|yaml yml|#|data
JSON|keys|json jsonc json5|//|data
INI|keys|ini cfg conf properties|# ;|data
Markdown|prose|md markdown mdx||data
reStructuredText|prose|rst||data
Text|prose|txt text||data
"""
"""Name, family, file endings (whole names after `=`), comment prefixes, data or not."""


def _read(row: str) -> Language:
    name, family, endings, comments, *data = row.split("|")
    return Language(name, family, tuple(endings.split()), tuple(comments.split()), not data)


LANGUAGES: Final = tuple(_read(row) for row in _TABLE.split("\n") if row)
OTHER: Final = Language("Other", "keywords", (), is_code=False)

_BY_ENDING: Final = {ending: one for one in LANGUAGES for ending in one.endings}

BINARY_ENDINGS: Final = frozenset(
    "7z a avi avif bin bmp bz2 class dll dylib eot exe flac gif gz ico jar jpeg jpg lib mkv mov "
    "mp3 mp4 nib o obj ogg otf pack pdf png pyc pyd pyo rar rlib so sqlite tar tgz tif tiff ttf "
    "wasm wav webm webp whl woff woff2 xlsx xz zip zst".split()
)
"""Endings of files that are never text: they are not opened."""


def of_path(path: str) -> Language:
    """Return the language of a file; `OTHER` if its name does not show it."""
    name = path.rpartition("/")[2]
    if name.startswith(("Dockerfile.", "Makefile.")):
        name = name.partition(".")[0]
    stem, _, ending = name.rpartition(".")
    return _BY_ENDING.get(f"={name}") or (stem and _BY_ENDING.get(ending.lower())) or OTHER
