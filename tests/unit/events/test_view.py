"""What a session looks like: texts that grow, and the answer of the last turn."""

from __future__ import annotations

import tracemalloc

import pytest

from dragoman.events import view as view_module
from dragoman.events.view import Growing, Message, Plan, Tool, View
from dragoman.events.words import Role


def test_a_text_grows_by_pieces_and_equals_its_sum() -> None:
    text = Growing("a")
    text.add("b")
    assert str(text) == "ab"
    text.add("c")
    assert text == Growing("abc")
    assert text != Growing("ab")
    assert text != "abc"
    assert repr(text) == "'abc'"


def test_a_text_that_grows_cannot_be_a_key() -> None:
    with pytest.raises(TypeError):
        hash(Growing("a"))


def test_the_answer_is_what_the_agent_said_since_the_user_spoke() -> None:
    def said(role: Role, text: str) -> Message:
        return Message(role, said=Growing(text))

    view = View(
        messages=[
            said(Role.AGENT, "old"),
            said(Role.USER, "question"),
            said(Role.THOUGHT, "hm"),
            said(Role.AGENT, "new "),
            said(Role.AGENT, "answer"),
        ]
    )
    assert view.text == "new answer"
    assert View().text == ""


def test_tools_and_plans_show_their_texts() -> None:
    assert Tool("t", printed=Growing("out")).text == "out"
    assert Plan(written=Growing("plan")).text == "plan"


def test_a_text_with_a_limit_keeps_its_beginning_and_counts_all() -> None:
    text = Growing(limit=10)
    for _ in range(5000):
        text.add("abc")
    assert str(text) == "abcabcabca"
    assert (text.size, text.truncated) == (15000, True)
    whole = Growing()
    for _ in range(5000):
        whole.add("abc")
    assert str(whole) == "abc" * 5000 and not whole.truncated


def test_a_full_text_holds_no_long_piece() -> None:
    text = Growing(limit=10)
    for _ in range(4):
        text.add("x" * view_module.UNJOINED_SIZE)
    held = sum(map(len, (*text._pieces, text._kept)))
    assert held <= view_module.UNJOINED_SIZE + 10


def test_a_long_answer_takes_little_more_memory_than_its_limit() -> None:
    limit = 256 * 1024
    # CPython adds to a string in place once it has seen that line a few times.
    warm = Growing()
    for _ in range(20):
        warm.add("x" * view_module.UNJOINED_SIZE)
    tracemalloc.start()
    try:
        text = Growing(limit=limit)
        for number in range(400):
            text.add(f"{number:8}" * 1024)
        assert len(str(text)) == limit
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * limit


@pytest.mark.parametrize("start", [0, 1, 3, 4, 5])
@pytest.mark.parametrize("limit", [None, 4])
@pytest.mark.parametrize("end", ["", "XY", "bcde", "abcde", "e"])
def test_the_end_of_a_text_is_replaced_and_it_grows_again(
    start: int, limit: int | None, end: str
) -> None:
    text = Growing(limit=limit)
    for piece in ("ab", "c", "de"):
        text.add(piece)
        assert str(text) == "abcde"[: text.size][:limit]
    text.set_end(start, end)
    whole = "abcde"[:start] + end
    assert (str(text), text.size) == (whole[:limit], len(whole))
    text.add("xy")
    assert str(text) == (whole + "xy")[:limit]
