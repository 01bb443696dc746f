"""A scripted agent that tells one story in any dialect, as a real child process.

Exports the steps of a story, the dialects it can be told in, and the command line that starts a
teller. The tellers are written from the specifications and from the official schema with plain
`json`, and share no code with dragoman's own dialects: they are an independent check.

    story = Story((Say("Hello."), End()))
    async with dragoman.connect(command(story, dialect="acp"), dialect="acp") as peer: ...

By hand: ``python -m dragoman.testing.storyteller --dialect acp STORY``.
"""

from __future__ import annotations

import sys
from typing import IO

from dragoman.testing.storyteller.acp import AcpTeller
from dragoman.testing.storyteller.chained import ChainedTeller
from dragoman.testing.storyteller.keyed import KeyedTeller
from dragoman.testing.storyteller.oneshot import OneshotTeller
from dragoman.testing.storyteller.story import (
    Ask,
    ChangeFile,
    Choices,
    Count,
    Crash,
    End,
    Fail,
    FinishTool,
    Past,
    Say,
    SetOption,
    SetPlan,
    Step,
    Story,
    SwitchMode,
    TellChoices,
    Think,
    UseTool,
    Wait,
    dumps,
    loads,
)
from dragoman.testing.storyteller.tagged import TaggedTeller
from dragoman.testing.storyteller.teller import Teller
from dragoman.testing.storyteller.threads import ThreadsTeller

TELLERS: dict[str, type[Teller]] = {
    teller.name: teller
    for teller in (
        AcpTeller,
        OneshotTeller,
        ThreadsTeller,
        TaggedTeller,
        KeyedTeller,
        ChainedTeller,
    )
}
"""The teller for each dialect."""


def command(story: Story, *, dialect: str) -> list[str]:
    """Return the command line of a child process that tells this story."""
    module = "dragoman.testing.storyteller"
    return [sys.executable, "-m", module, "--dialect", dialect, dumps(story)]


def tell(story: Story, dialect: str, source: IO[bytes], sink: IO[bytes]) -> None:
    """Tell the story at every prompt of a client on two open files, until the client
    disconnects."""
    TELLERS[dialect](story, source, sink).run()


__all__ = [
    "TELLERS",
    "Ask",
    "ChangeFile",
    "Choices",
    "Count",
    "Crash",
    "End",
    "Fail",
    "FinishTool",
    "Past",
    "Say",
    "SetOption",
    "SetPlan",
    "Step",
    "Story",
    "SwitchMode",
    "TellChoices",
    "Think",
    "UseTool",
    "Wait",
    "command",
    "dumps",
    "loads",
    "tell",
]
