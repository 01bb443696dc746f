"""Folding does not depend on whether events are live or replayed, on orders that the protocol
leaves open, or on where a stream of events is cut."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1 import translate
from dragoman.events import model
from dragoman.events.fold import apply, fold
from dragoman.events.model import EventEnvelope
from dragoman.events.view import View
from dragoman.events.words import Role
from tests.amounts import SOME

ANNOUNCED: list[Any] = [acp.ToolCall, acp.ToolCallProgress]

texts = st.text(max_size=6)
ids = st.sampled_from(["m1", "m2", "m3"])
tool_ids = st.sampled_from(["t1", "t2"])

chunks = st.builds(
    lambda kind, text, id: kind(content=acp.TextContent(text=text), message_id=id),
    st.sampled_from([acp.AgentMessageChunk, acp.AgentThoughtChunk, acp.UserMessageChunk]),
    texts,
    ids | st.none(),
)
tools = st.builds(
    lambda kind, id, title, status, name: kind(
        tool_call_id=id, title=title, status=status, kind=name
    ),
    st.sampled_from(ANNOUNCED),
    tool_ids,
    texts,
    st.sampled_from([None, "pending", "in_progress", "completed", "failed", "odd"]),
    st.sampled_from([None, "read", "edit", "odd"]),
)
others: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda n: acp.UsageUpdate(used=n, size=100), st.integers(0, 100)),
    st.builds(lambda title: acp.SessionInfoUpdate(title=title), texts | st.none()),
    st.builds(lambda id: acp.CurrentModeUpdate(current_mode_id=id), texts),
    st.builds(
        lambda names: acp.Plan(
            entries=[acp.PlanEntry(content=n, priority="low", status="pending") for n in names]
        ),
        st.lists(texts, max_size=3),
    ),
    st.builds(lambda title: acp.Notice(severity="info", title=title), texts),
)
histories = st.lists(st.one_of(chunks, chunks, tools, others), max_size=30)


def place() -> EventEnvelope:
    return EventEnvelope(model.Source("acp", "c"), itertools.count(1), "s")


def events_of(updates: list[Any], *, replay: bool = False) -> list[model.Event]:
    where = place()
    where.replay = replay
    return [event for update in updates for event in translate.of_update(update, where, b"{}")]


@SOME
@given(histories)
def test_a_replayed_session_folds_to_what_it_looked_like_when_it_was_live(
    updates: list[Any],
) -> None:
    assert fold(events_of(updates)) == fold(events_of(updates, replay=True))


@SOME
@given(histories, st.integers(0, 30))
def test_folding_in_two_steps_is_folding_in_one(updates: list[Any], cut: int) -> None:
    events = events_of(updates)
    assert fold(events[cut:], fold(events[:cut])) == fold(events)


@SOME
@given(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4), texts)
def test_a_prompt_that_the_agent_repeats_looks_like_one_that_it_does_not(
    pieces: list[str], answer: str
) -> None:
    """Both also equal the history that the agent replays later."""
    where = place()
    prompt = "".join(pieces)
    started = model.TurnStarted(
        *where.base("session/prompt", None), (translate.block(acp.TextContent(text=prompt)),)
    )
    repeated = events_of(
        [acp.UserMessageChunk(content=acp.TextContent(text=piece)) for piece in pieces]
    )
    said = events_of([acp.AgentMessageChunk(content=acp.TextContent(text=answer))])
    silent = fold([started, *said])
    assert fold([started, *repeated, *said]).messages == silent.messages
    assert fold([*repeated, *said]).messages == silent.messages
    assert silent.text == answer


@SOME
@given(st.data(), histories)
def test_what_belongs_to_different_things_may_come_in_any_order(
    data: st.DataObject, updates: list[Any]
) -> None:
    """Pieces of one message, one tool call or one setting keep their order; pieces of different
    ones may come in any order. Messages need an id for that, and are compared by it."""
    events = [
        replace(event, message_id=event.message_id or "m0")
        if isinstance(event, model.MessageDelta)
        else event
        for event in events_of(updates)
    ]
    streams: dict[Any, list[model.Event]] = {}
    for event in events:
        streams.setdefault(_stream(event), []).append(event)
    left = [list(reversed(stream)) for stream in streams.values()]
    mixed: list[model.Event] = []
    while left:
        chosen = data.draw(st.integers(0, len(left) - 1))
        mixed.append(left[chosen].pop())
        if not left[chosen]:
            del left[chosen]
    assert _comparable(fold(mixed)) == _comparable(fold(events))


def _stream(event: model.Event) -> Any:
    match event:
        case model.MessageDelta(role=role, message_id=message_id):
            return role, message_id
        case model.ToolChanged(tool_id=tool_id) | model.FilesChanged(tool_id=tool_id):
            return tool_id
        case _:
            return type(event)


def _comparable(view: View) -> Any:
    messages = {(message.role, message.message_id): message for message in view.messages}
    return messages, view.tools, view.plans, view.usage, view.title, view.mode, view.notices


@SOME
@given(tool_ids, texts, st.sampled_from(["completed", "failed"]), st.sampled_from(["edit", None]))
def test_a_tool_call_that_is_announced_after_its_update_looks_the_same(
    tool_id: str, title: str, status: str, kind: str | None
) -> None:
    call = acp.ToolCall(tool_call_id=tool_id, title=title)
    update = acp.ToolCallProgress(tool_call_id=tool_id, status=status, kind=kind)
    assert fold(events_of([update, call])) == fold(events_of([call, update]))


@SOME
@given(histories, texts)
def test_usage_that_comes_after_the_end_counts(updates: list[Any], text: str) -> None:
    where = place()
    ended = model.TurnEnded(*where.base("session/prompt", None), outcome="ok", stop=text)  # type: ignore[arg-type]
    late = events_of([acp.UsageUpdate(used=7, size=9)])
    view = fold([*events_of(updates), ended, *late])
    assert view.usage["context"].context_used == 7
    assert not view.running


@SOME
@given(st.lists(st.text(max_size=4), max_size=40))
def test_a_text_is_the_sum_of_its_pieces_at_any_time(pieces: list[str]) -> None:
    view = View()
    where = place()
    for number, piece in enumerate(pieces):
        apply(view, model.MessageDelta(*where.base("x", None), Role.AGENT, piece, message_id="m"))
        if number % 7 == 0:
            assert view.text == "".join(pieces[: number + 1])
    assert view.text == "".join(pieces)
