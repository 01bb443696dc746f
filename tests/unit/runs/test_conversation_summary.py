"""What a session has been so far."""

from __future__ import annotations

import itertools

from dragoman.events import model
from dragoman.events.model import EventEnvelope
from dragoman.events.parts import FileChange, Location, PlanEntry, Text
from dragoman.events.words import ChangeStage, PlanStatus, Role, ToolKind
from dragoman.runs import conversation_summary as module
from dragoman.runs.conversation_summary import ConversationSummary

PLACE = EventEnvelope(model.Source("acp", "test"), itertools.count(), "s")


def said(text: str, role: Role = Role.AGENT) -> model.Event:
    return model.MessageDelta(*PLACE.base("", None), role, text)


def tool(id: str, path: str, kind: ToolKind | None = None) -> model.Event:
    told = {} if kind is None else {"kind": kind}
    return model.ToolChanged(*PLACE.base("", None), id, locations=(Location(path),), **told)  # type: ignore[arg-type]


def test_what_the_agent_says_is_kept_with_the_prompt_and_thoughts_are_not() -> None:
    memory = ConversationSummary()
    memory.began("hello", "left")
    for event in (said("hm", Role.THOUGHT), said("good "), said("day")):
        memory.event(event)
    assert [(turn.prompt, turn.by, turn.text) for turn in memory.turns] == [
        ("hello", "left", "good day")
    ]


def test_a_message_that_comes_whole_is_not_said_twice() -> None:
    memory = ConversationSummary()
    memory.began("hello", "left")
    whole = model.MessageSet(*PLACE.base("", None), Role.AGENT, "m", (Text("good day"),))
    memory.event(whole)
    memory.event(whole)
    assert memory.turns[0].text == "good day"


def test_only_the_turns_of_others_are_unknown_to_a_peer() -> None:
    memory = ConversationSummary()
    for prompt, by in (("one", "left"), ("two", "right"), ("three", "right")):
        memory.began(prompt, by)
    assert [turn.prompt for turn in memory.unknown_to("left")] == ["two", "three"]
    assert memory.unknown_to("right") == []
    assert len(memory.unknown_to(None)) == 3
    memory.forgot("right")
    assert len(memory.unknown_to("right")) == 3


def test_files_that_were_only_read_are_not_touched() -> None:
    memory = ConversationSummary()
    memory.began("go", "left")
    memory.event(tool("1", "/read.py", ToolKind.READ))
    memory.event(tool("2", "/edited.py", ToolKind.EDIT))
    memory.event(tool("2", "/moved.py"))
    change = FileChange("/changed.py")
    memory.event(model.FilesChanged(*PLACE.base("", None), (change,), ChangeStage.APPLIED))
    assert memory.files == ("/edited.py", "/moved.py", "/changed.py")


def test_what_is_done_of_a_plan_is_not_open() -> None:
    memory = ConversationSummary()
    entries = (PlanEntry("a", PlanStatus.COMPLETED), PlanEntry("b", PlanStatus.RUNNING))
    memory.event(model.PlanSet(*PLACE.base("", None), entries))
    assert [entry.text for entry in memory.open_plan] == ["b"]
    memory.event(model.PlanRemoved(*PLACE.base("", None)))
    assert memory.open_plan == ()


def test_the_memory_is_bounded_whatever_happens() -> None:
    memory = ConversationSummary()
    for number in range(module.MAX_TURNS + 10):
        memory.began(str(number), "left")
    memory.said("x" * (module.MAX_TEXT_SIZE * 2))
    memory.touched(*map(str, range(module.MAX_FILES + 5)))
    assert len(memory.turns) == module.MAX_TURNS
    assert memory.count == module.MAX_TURNS + 10
    assert len(memory.turns[-1].text) == module.MAX_TEXT_SIZE
    assert len(memory.files) == module.MAX_FILES and memory.files[-1] == str(module.MAX_FILES + 4)
    assert len(memory.unknown_to("right")) == module.MAX_TURNS


def test_only_the_end_of_a_long_answer_is_held_in_memory() -> None:
    memory = ConversationSummary()
    memory.began("hello", "left")
    size = module.MAX_TEXT_SIZE
    for piece in ["a" * size, "b" * size, "c" * size, "d"]:
        memory.event(said(piece))
    (turn,) = memory.turns
    assert sum(map(len, turn._pieces)) <= 2 * size + 1
    assert turn.text == "c" * (size - 1) + "d"


def test_a_message_that_comes_whole_counts_although_the_text_was_read_before() -> None:
    memory = ConversationSummary()
    memory.began("hello", "left")
    assert memory.turns[0].text == ""
    memory.event(model.MessageSet(*PLACE.base("", None), Role.AGENT, "m", (Text("good day"),)))
    assert memory.turns[0].text == "good day"
