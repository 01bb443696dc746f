"""docs/reference/errors.md lists every error with its answers, exactly as the code has them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from dragoman import errors
from dragoman.errors import DragomanError
from scripts.reference.members import one_line
from tests.docs.markdown import ROOT, section

DOCUMENT = ROOT / "docs" / "reference" / "errors.md"
HEAD = ["| class | name, blame and answers | when |", "|---|---|---|"]


def classes(root: type[DragomanError]) -> Iterator[type[DragomanError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from classes(child)


def row(cls: type[DragomanError]) -> str:
    kind = "" if cls is DragomanError else f"<br>extends `{cls.__mro__[1].__name__}`"
    answers = [
        f"`{cls.error_class}`",
        cls.blame,
        *(["**retryable**"] if cls.retryable else []),
        *(["**may have run**"] if cls.may_have_run else []),
    ]
    when = one_line((inspect.getdoc(cls) or "").split("\n\n")[0])
    return f"| `{cls.__name__}`{kind} | {', '.join(answers)} | {when} |"


def test_the_table_of_errors_is_the_tree_of_the_code() -> None:
    expected = [*HEAD, *(row(cls) for cls in classes(DragomanError))]
    written = [line for line in section(DOCUMENT, "The table") if line.startswith("|")]
    assert written == expected, "the table should read:\n" + "\n".join(expected)
