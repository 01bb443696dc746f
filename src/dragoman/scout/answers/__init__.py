"""Answer a question: dispatch each intent to the module that handles it.

`best_places` searches for the words of any question, `names` answers about symbols in code,
`folders` about files and folders, `todos` lists what is left to do, `save` writes a file. Each
module is imported when it is needed.
"""

from __future__ import annotations

from typing import assert_never

from dragoman.errors import ServiceError
from dragoman.scout import questions
from dragoman.scout.turn_context import ScoutAnswer, TurnContext


async def answer(context: TurnContext, intent: questions.Intent, last: str = "") -> ScoutAnswer:
    """Find out what was asked for. `last` is the answer before this one, for saving it."""
    try:
        return await _answer(context, intent, last)
    except ServiceError as error:
        return ScoutAnswer(f"I cannot do that: {error}.", answered=False)


async def _answer(context: TurnContext, intent: questions.Intent, last: str) -> ScoutAnswer:
    match intent:
        case questions.BestPlaces():
            from dragoman.scout.answers import best_places

            return await best_places.answer(context, intent)
        case questions.Definition() | questions.Uses() | questions.FindText():
            from dragoman.scout.answers import names

            return await names.answer(context, intent)
        case questions.Todos():
            from dragoman.scout.answers import todos

            return await todos.answer(context, intent)
        case questions.Save():
            from dragoman.scout.answers import save

            return await save.save(context, intent, last)
        case questions.Help():
            from dragoman.scout.answers.best_places import abilities

            await context.plan("Say what I can do")
            return ScoutAnswer(abilities())
        case questions.ReadPath() | questions.Layout():
            from dragoman.scout.answers import folders

            return await folders.answer(context, intent)
        case _ as never:
            assert_never(never)
