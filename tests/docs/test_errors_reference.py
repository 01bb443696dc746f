"""docs/reference/errors.md lists every error with its answers, exactly as the code has them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from dragoman import errors
from dragoman.errors import DragomanError
from tests.docs.markdown import ROOT, section

DOCUMENT = ROOT / "docs" / "reference" / "errors.md"
HEAD = [
    "| class | kind of | `error_class` | blame | retryable | may have run | when |",
    "|---|---|---|---|---|---|---|",
]


def classes(root: type[DragomanError]) -> Iterator[type[DragomanError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from classes(child)


def row(cls: type[DragomanError]) -> str:
    parent = "" if cls is DragomanError else f"`{cls.__mro__[1].__name__}`"
    answers = ["yes" if answer else "no" for answer in (cls.retryable, cls.may_have_run)]
    when = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
    cells = [f"`{cls.__name__}`", parent, f"`{cls.error_class}`", cls.blame, *answers, when]
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def test_the_table_of_errors_is_the_tree_of_the_code() -> None:
    expected = [*HEAD, *(row(cls) for cls in classes(DragomanError))]
    written = [line for line in section(DOCUMENT, "The table") if line.startswith("|")]
    assert written == expected, "the table should read:\n" + "\n".join(expected)
