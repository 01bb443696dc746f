"""Scout's help text, and its reply to a question that it does not understand.

Both are generated from the tables in `questions` and `commands`, so they are always up to date.
"""

from __future__ import annotations

from dragoman.scout.commands import COMMANDS
from dragoman.scout.markdown import code, paragraphs
from dragoman.scout.questions import QUESTIONS


def abilities() -> str:
    """Every kind of question with an example, and every command."""
    return paragraphs(
        "I answer questions about the files in this folder, by looking and without a model:",
        [f"- {row.asks}: {code(row.examples[0])}" for row in QUESTIONS],
        "Commands are the short way:",
        [f"- {code(f'/{each.name} {each.hint}'.strip())}: {each.description}" for each in COMMANDS],
    )


def cannot() -> str:
    """That a question was not understood, and what would be."""
    examples = [row.examples[0] for row in QUESTIONS if row.asks.startswith(("where", "what is m"))]
    shown = ", ".join(code(example) for example in examples[:4])
    return (
        "I cannot answer that. I have no model: I look things up in the files of this folder, and"
        f" understand questions such as {shown}, {code('summarise the layout')}."
        f" {code('/help')} lists them all."
    )
