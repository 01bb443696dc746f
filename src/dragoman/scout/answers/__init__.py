"""Answer a question: dispatch each intent to the module that handles it.

`best_places` searches for the words of any question, `names` answers about symbols in code,
`folders` about files and directories, `todos` lists TODO comments, `save` writes a file.
"""

from __future__ import annotations

from typing import assert_never

from dragoman.errors import ServiceError
from dragoman.scout import questions
from dragoman.scout.answers import best_places, folders, names, save, todos
from dragoman.scout.turn_context import ScoutAnswer, TurnContext


async def answer(context: TurnContext, intent: questions.Intent, last: str = "") -> ScoutAnswer:
    """Answer an intent. `last` is the previous answer, for saving it. A `ServiceError`, such as a
    refused path, becomes a text that does not count as an answer."""
    try:
        return await _answer(context, intent, last)
    except ServiceError as error:
        return ScoutAnswer(f"I cannot do that: {error}.", answered=False)


async def _answer(context: TurnContext, intent: questions.Intent, last: str) -> ScoutAnswer:
    match intent:
        case questions.BestPlaces():
            return await best_places.answer(context, intent)
        case questions.Definition():
            return await names.definition(context, intent)
        case questions.Uses():
            return await names.uses(context, intent)
        case questions.FindText():
            return await names.text_lines(context, intent.text)
        case questions.Todos():
            return await todos.answer(context, intent)
        case questions.Save():
            return await save.save(context, intent, last)
        case questions.ReadPath():
            return await folders.read(context, intent)
        case questions.Layout():
            return await folders.layout(context, intent)
        case questions.Help():
            await context.plan("Say what I can do")
            return ScoutAnswer(best_places.abilities())
        case _ as never:
            assert_never(never)
