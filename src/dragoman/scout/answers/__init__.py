"""Answer a question: dispatch each intent to the module that handles it.

`names` answers about symbols in code, `places` about files and folders, `work` about to-dos and
changes, `save` writes a file. Each module is imported when it is needed.
"""

from __future__ import annotations

from typing import assert_never

from dragoman.errors import ServiceError
from dragoman.scout import intents
from dragoman.scout.turn_context import ScoutAnswer, TurnContext


async def answer(context: TurnContext, intent: intents.Intent, last: str = "") -> ScoutAnswer:
    """Find out what was asked for. `last` is the answer before this one, for saving it."""
    try:
        return await _answer(context, intent, last)
    except ServiceError as error:
        return ScoutAnswer(f"I cannot do that: {error}.", answered=False)


async def _answer(context: TurnContext, intent: intents.Intent, last: str) -> ScoutAnswer:
    match intent:
        case intents.Definition() | intents.Uses() | intents.Callers() | intents.FindText():
            from dragoman.scout.answers import names

            return await names.answer(context, intent)
        case intents.Todos() | intents.RecentChanges():
            from dragoman.scout.answers import work

            return await work.answer(context, intent)
        case intents.Save():
            from dragoman.scout.answers import save

            return await save.save(context, intent, last)
        case intents.Help():
            from dragoman.scout.answers import about

            await context.plan("Say what I can do")
            return ScoutAnswer(about.abilities())
        case (
            intents.FindFiles()
            | intents.Folder()
            | intents.Layout()
            | intents.ReadFile()
            | intents.CountFiles()
            | intents.Readme()
            | intents.EntryPoints()
            | intents.Tests()
        ):
            from dragoman.scout.answers import places

            return await places.answer(context, intent)
        case _ as never:
            assert_never(never)
