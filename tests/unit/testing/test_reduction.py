"""Each rule takes out what its part says, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from dragoman.events import model
from dragoman.events.model import Event
from dragoman.events.parts import (
    Failure,
    FileChange,
    Location,
    PermissionOption,
    PlanEntry,
    SessionOption,
    SlashCommand,
    Text,
    Usage,
)
from dragoman.events.words import (
    ChangeStage,
    ErrorKind,
    FileOp,
    Outcome,
    Part,
    PermissionKind,
    PlanStatus,
    Role,
    ToolKind,
    ToolStatus,
)
from dragoman.testing.reduction import without
from tests.unit.events.sayings import make

TOOL = make(
    model.ToolChanged,
    "x",
    title="Read it",
    name="read",
    kind=ToolKind.EDIT,
    status=ToolStatus.COMPLETED,
    input={"a": 1},
    output="out",
    content=(Text("out"),),
    locations=(Location("/a"),),
    error="no",
)
CHANGES = (
    FileChange("/a", FileOp.MODIFY, "old", "new", "@@"),
    FileChange("/b", FileOp.ADD, None, "new"),
)
FILES = make(model.FilesChanged, CHANGES, ChangeStage.APPLIED, "x")
PLAN = make(model.PlanSet, entries=(PlanEntry("do", PlanStatus.PENDING, "high"),), text="- do")
ENDED = make(
    model.TurnEnded,
    Outcome.QUOTA,
    "stop",
    Failure("later", ErrorKind.RATE_LIMITED),
    usage=Usage(input_tokens=1, total_tokens=3),
)
SETTINGS = make(
    model.SettingsChanged,
    options=(SessionOption("effort", "Effort", "low"),),
    mode="plan",
    modes=(SessionOption("plan", "Plan", "plan"),),
    model="m",
)
OLD = replace(make(model.MessageDelta, Role.USER, "hi", message_id="m"), replay=True)

SAID = make(model.MessageDelta, Role.AGENT, "a", message_id="m")

CHANGED: list[tuple[Part, Event, dict[str, Any]]] = [
    (Part.MESSAGE_IDS, SAID, {"message_id": None}),
    (Part.TOOL_KINDS, TOOL, {"kind": ToolKind.READ}),
    (Part.TOOL_TITLES, TOOL, {"title": "read"}),
    (Part.TOOL_ENDS, TOOL, {"status": ToolStatus.OTHER}),
    (Part.TOOL_INPUT_VALUES, TOOL, {"input": '{"a":1}'}),
    (Part.TOOL_IDS, TOOL, {"tool_id": "tool-1"}),
    (
        Part.CHANGE_TEXTS,
        FILES,
        {
            "changes": (FileChange("/a", diff="@@"), FileChange("/b")),
            "stage": ChangeStage.UNKNOWN,
            "tool_id": None,
        },
    ),
    (Part.CHANGE_DIFFS, FILES, {"changes": (replace(CHANGES[0], diff=None), CHANGES[1])}),
    (Part.CHANGES_TOGETHER, FILES, {"changes": CHANGES[1:]}),
    (Part.PLAN_ENTRIES, PLAN, {"entries": ()}),
    (Part.PLAN_PRIORITIES, PLAN, {"entries": (PlanEntry("do", PlanStatus.PENDING),)}),
    (Part.PLAN_TEXTS, PLAN, {"text": None}),
    (Part.MODES, SETTINGS, {"mode": UNSET, "modes": UNSET}),
    (Part.MODELS, SETTINGS, {"model": UNSET}),
    (Part.MODELS, make(model.SessionOpened, "new", model="m"), {"model": None}),
    (Part.OPTIONS, SETTINGS, {"options": UNSET}),
    (Part.TURN_USAGE, ENDED, {"usage": None}),
    (Part.TOTAL_USAGE, ENDED, {"usage": Usage(input_tokens=1)}),
    (Part.FAILURES, ENDED, {"failure": None, "outcome": Outcome.FAILED}),
    (Part.REPLAYED_ROLES, OLD, {"role": Role.AGENT}),
    (Part.REPLAYED_IDS, OLD, {"message_id": None}),
]
UNSET_FIELDS = {
    Part.TOOL_NAMES: "name",
    Part.TOOL_INPUT: "input",
    Part.TOOL_OUTPUT: "output",
    Part.TOOL_CONTENT: "content",
    Part.TOOL_LOCATIONS: "locations",
    Part.TOOL_ERRORS: "error",
}
DROPPED: list[tuple[Part, Event]] = [
    (Part.THOUGHTS, make(model.MessageDelta, Role.THOUGHT, "hm")),
    (Part.TOOLS, TOOL),
    (Part.TOOLS, FILES),
    (Part.CHANGES, FILES),
    (Part.PLANS, PLAN),
    (Part.COMMANDS, make(model.CommandsChanged, (SlashCommand("help", "Help"),))),
    (
        Part.PERMISSIONS,
        make(
            model.PermissionAsked,
            "1",
            (PermissionOption("y", "Yes", PermissionKind.ALLOW_ONCE),),
        ),
    ),
    (Part.PERMISSIONS, make(model.PermissionAnswered, "1", True)),
    (Part.CONTEXT_USAGE, make(model.UsageReported, "context", Usage(context_used=1))),
    (Part.ERROR_REPORTS, make(model.ErrorReported, "turn", Failure("no"))),
    (Part.REPLAYED_TURNS, replace(ENDED, replay=True)),
]
ALL = [TOOL, FILES, PLAN, ENDED, OLD, *(event for _, event in DROPPED)]


def test_without_losses_everything_stays() -> None:
    assert without(ALL, ()) == ALL


@pytest.mark.parametrize(("part", "event", "fields"), CHANGED, ids=lambda value: str(value)[:30])
def test_a_rule_changes_the_fields_of_its_part_only(
    part: Part, event: Any, fields: dict[str, Any]
) -> None:
    assert without([event], {part}) == [replace(event, **fields)]


@pytest.mark.parametrize("part", UNSET_FIELDS)
def test_a_rule_leaves_a_field_of_a_tool_call_as_it_was(part: Part) -> None:
    assert without([TOOL], {part}) == [replace(TOOL, **{UNSET_FIELDS[part]: UNSET})]


@pytest.mark.parametrize(("part", "event"), DROPPED, ids=lambda value: str(value)[:30])
def test_a_rule_drops_the_events_of_its_part_only(part: Part, event: Any) -> None:
    said = make(model.MessageDelta, Role.AGENT, "stays")
    assert without([said, event, said], {part}) == [said, said]


def test_a_title_waits_for_the_name() -> None:
    [event] = without([TOOL], {Part.TOOL_TITLES, Part.TOOL_KINDS})
    assert isinstance(event, model.ToolChanged)
    assert (event.title, event.kind) == ("read", ToolKind.READ)


def test_changes_add_up_over_a_turn_and_proposals_do_not_count() -> None:
    start = make(model.TurnStarted, ())
    proposed = make(model.FilesChanged, CHANGES[:1], ChangeStage.PROPOSED, "x")
    made = [make(model.FilesChanged, (change,), ChangeStage.APPLIED, "x") for change in CHANGES]
    kept = without([proposed, *made, start, made[1]], {Part.CHANGE_TEXTS})
    paths = [[c.path for c in e.changes] for e in kept if isinstance(e, model.FilesChanged)]
    assert paths == [["/a"], ["/a", "/b"], ["/b"]]


def test_a_proposal_counts_once_its_tool_call_is_completed() -> None:
    proposed = make(model.FilesChanged, CHANGES[:1], ChangeStage.PROPOSED, "x")
    failed = make(model.ToolChanged, "x", status=ToolStatus.FAILED)
    done = make(model.ToolChanged, "x", status=ToolStatus.COMPLETED)
    lost = {Part.CHANGE_TEXTS, Part.TOOL_ENDS}

    def changes(*events: Event) -> int:
        return sum(isinstance(e, model.FilesChanged) for e in without(events, lost))

    assert changes(proposed) == changes(proposed, failed) == changes(done) == 0
    assert changes(proposed, done) == changes(proposed, done, done) == 1


def test_ids_are_numbered_by_their_first_appearance() -> None:
    events = [make(model.ToolChanged, id) for id in ("b", "a", "b")]
    kept = without(events, {Part.TOOL_IDS})
    assert [e.tool_id for e in kept if isinstance(e, model.ToolChanged)] == [
        "tool-1",
        "tool-2",
        "tool-1",
    ]


def test_every_part_is_tested_here() -> None:
    tested = {part for part, *_ in CHANGED} | set(UNSET_FIELDS) | {part for part, _ in DROPPED}
    assert tested == set(Part)
