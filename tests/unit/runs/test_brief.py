"""The brief by which a conversation is handed over."""

from __future__ import annotations

import random

import pytest

from dragoman.events.parts import Capabilities, PlanEntry, Resource, Text
from dragoman.events.words import PlanStatus
from dragoman.runs.brief import MAX_MESSAGES, MAX_SIZE, brief_for, shortened, without_brief
from dragoman.runs.conversation_summary import ConversationSummary


def remembered(*turns: tuple[str, str, str]) -> ConversationSummary:
    memory = ConversationSummary()
    for prompt, by, text in turns:
        memory.began(prompt, by)
        memory.said(text)
    return memory


def test_a_peer_that_knows_everything_gets_no_brief() -> None:
    assert brief_for("left", ConversationSummary()) is None
    assert brief_for("left", remembered(("hello", "left", "day"))) is None


def test_a_brief_has_the_messages_the_open_plan_and_the_files() -> None:
    memory = remembered(("hello", "left", "good day"))
    memory.plan = (PlanEntry("done", PlanStatus.COMPLETED), PlanEntry("open", PlanStatus.PENDING))
    memory.touched("/a.py", "/b.py")
    brief = brief_for("right", memory)
    assert brief is not None
    assert "User: hello\nleft: good day\n" in brief.text
    assert "- open (pending)" in brief.text and "done" not in brief.text
    assert "- /a.py\n- /b.py" in brief.text
    assert str(brief) == "1 message, 1 open plan entry, 2 files"


def test_the_newest_messages_have_the_room_and_what_is_left_out_is_counted() -> None:
    memory = remembered(*((f"prompt {n}", "left", "x") for n in range(MAX_MESSAGES + 4)))
    brief = brief_for("right", memory)
    assert brief is not None
    assert (brief.turns, brief.left_out) == (MAX_MESSAGES, 4)
    assert "prompt 3\n" not in brief.text and f"prompt {MAX_MESSAGES + 3}\n" in brief.text
    assert brief.text.index("prompt 4\n") < brief.text.index("prompt 5\n")
    assert "4 older messages left out" in str(brief)


def test_a_brief_is_context_where_a_peer_knows_such_a_thing_and_else_a_text() -> None:
    brief = brief_for(None, remembered(("hello", "left", "day")))
    assert brief is not None
    assert isinstance(brief.block(Capabilities(embedded=True)), Resource)
    assert isinstance(brief.block(Capabilities(embedded=False)), Text)


def test_a_long_text_loses_its_middle() -> None:
    text = shortened("begin" + "x" * 5_000 + "end", 100)
    assert len(text) <= 100
    assert text.startswith("begin") and text.endswith("end")


@pytest.mark.parametrize("seed", range(40))
def test_no_conversation_makes_a_brief_longer_than_its_bound(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randrange(9_000) for _ in range(rng.randrange(9))]
    memory = remembered(*(("p" * size, "left", "a" * size) for size in sizes))
    files = ["f" * rng.randrange(1, 600) for _ in range(rng.randrange(60))]
    memory.touched(*files)
    memory.plan = tuple(PlanEntry(name, PlanStatus.PENDING) for name in files)
    brief = brief_for("right", memory)
    assert (brief is None) is (not sizes)
    assert brief is None or (brief.turns >= 1 and len(brief.text) <= MAX_SIZE)


def test_lists_show_only_the_users_part_of_a_prompt() -> None:
    brief = brief_for("right", remembered(("hello", "left", "good day")))
    assert brief is not None
    text = brief.block(Capabilities())
    assert isinstance(text, Text)
    assert without_brief(f"{text.text}\nnow this") == "now this"
    for prompt in ("now this", "", f"now {text.text}", text.text[:100]):
        assert without_brief(prompt) == prompt
