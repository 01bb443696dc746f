"""The stories that the tests of all dialects share, and how two tellings are compared.

A picture is what a reader of a session sees: the folded view, and what was asked for permission.
The other side's own words for the end of a turn and for an error are no part of it: every dialect
has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dragoman.dialects.acp.v1 import translate as acp
from dragoman.dialects.legacy import chained, keyed, oneshot, tagged, threads
from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.events.model import Event
from dragoman.events.parts import Failure
from dragoman.events.view import View
from dragoman.events.words import Loss, Part, parts_of
from dragoman.testing.reduction import without
from dragoman.testing.storyteller import (
    Ask,
    ChangeFile,
    Choices,
    Count,
    Crash,
    Fail,
    FinishTool,
    Past,
    Say,
    SetOption,
    SetPlan,
    Story,
    SwitchMode,
    TellChoices,
    Think,
    UseTool,
    Wait,
)

LOSSES: Final[Mapping[str, Sequence[Loss]]] = {
    "acp": acp.LOSSES,
    "oneshot": oneshot.LOSSES,
    "threads": threads.LOSSES,
    "tagged": tagged.LOSSES,
    "keyed": keyed.LOSSES,
    "chained": chained.LOSSES,
}
DIALECTS: Final = tuple(LOSSES)
OTHERS: Final = tuple(name for name in DIALECTS if name != "acp")
ASKING: Final = ("acp", "keyed")

LOST: Final = {name: parts_of(losses) for name, losses in LOSSES.items()}

PAST: Final = Past(
    "past-session",
    "Yesterday",
    (
        ("user", "What is this?"),
        ("agent", "A notebook."),
        ("user", "Is it mine?"),
        ("agent", "It is."),
    ),
)

CHOICES: Final = Choices(
    modes=("plan", "write"),
    models=("house/small", "house/large"),
    options=(("effort", ("low", "high")),),
    commands=(("review", "Look at it again"), ("help", "Say what there is")),
)

WORK: Final = Story(
    (
        Think("First "),
        Think("a look."),
        Say("I look "),
        Say("at it."),
        SetPlan((("Look", "in_progress"), ("Write", "pending"))),
        UseTool("t-read", "read_file", "Read a.txt", "read", {"path": "/w/a.txt"}, "/w/a.txt"),
        FinishTool("t-read", "one\n"),
        UseTool("t-none", "read_file", "Read b.txt", "read", {"path": "/w/b.txt"}),
        FinishTool("t-none", "there is no such file", "failed"),
        Say("Now I write."),
        Think("Carefully."),
        Say(" Look:"),
        SetPlan((("Look", "completed"), ("Write", "in_progress"))),
        SwitchMode("write"),
        SetOption("effort", "high"),
        UseTool("t-edit", "edit_file", "Edit a.txt", "edit", {"files": 2}, "/w/a.txt"),
        ChangeFile("t-edit", "/w/a.txt", "two\n", "one\n"),
        ChangeFile("t-edit", "/w/c.txt", "new\n"),
        Ask(
            "t-edit",
            allowed=(FinishTool("t-edit", "written"), Say("It is done.")),
            refused=(FinishTool("t-edit", "not allowed", "failed"), Say("I left it.")),
        ),
        SetPlan((("Look", "completed"), ("Write", "completed"))),
        Count(input=1200, output=34, used=5000, size=20000),
    ),
    past=(PAST,),
    choices=CHOICES,
)
"""A whole turn, with everything that a dialect can say or lose."""

BROKEN: Final = Story((Say("I begin."), Fail("rate_limit", "Rate limit exceeded, try again later")))
CHOOSING: Final = Story((TellChoices(),), choices=CHOICES)
"""A turn that says what was chosen before it."""

CRASHING: Final = Story((Say("I begin."), Crash(3)))
ENDLESS: Final = Story(
    (Say("I begin."), UseTool("t-run", "run", "Run it", "execute", {"command": "x"}), Wait())
)


def picture(events: Iterable[Event], lost: Iterable[Part] = ()) -> tuple[View, list[Any]]:
    """What a reader sees of these events, without the parts that are lost."""
    kept = without(events, lost)
    view = fold(kept)
    for turn in view.turns:
        turn.stop = ""
        if turn.failure is not None:
            turn.failure = Failure("", turn.failure.kind)
    # Errors are compared by their kind, too.
    view.failures = [Failure("", failure.kind) for failure in view.failures]
    return view, permissions(kept)


def permissions(events: Iterable[Event]) -> list[Any]:
    asked: list[Any] = []
    for event in events:
        if isinstance(event, model.PermissionAsked):
            asked.append(("asked", event.title, event.kind, event.tool_id))
        elif isinstance(event, model.PermissionAnswered):
            asked.append(("answered", event.allowed))
    return asked
