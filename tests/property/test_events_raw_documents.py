"""For anything that an agent of a legacy dialect sends: every line is the `raw` of an event, in
order, the turn ends once, and no exception reaches a callback or the loop."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.budgets import Budgets
from dragoman.client.legacy.open import DIALECTS
from dragoman.dialects.legacy import chained, oneshot, tagged, threads
from dragoman.dialects.legacy.keyed import shapes as keyed
from dragoman.errors import ConnectionLost
from dragoman.events import model
from tests.property.feeding import FEWER, line
from tests.property.shaped import noise, plain, shaped, texts
from tests.property.talks import DocumentTalk
from tests.unit.client.legacy.far_end import SESSIONS

statuses = st.sampled_from(["processing", "completed", "error", "odd", "in_progress", "pending"])
turn_ids = st.sampled_from(["u1", "u2"])
tool_ids = st.sampled_from(["t1", "t2"])


def hints(dialect: str) -> dict[str, st.SearchStrategy[Any]]:
    """Values with a meaning, for fields whose type is only a string."""
    here = SESSIONS.get(dialect, "of no dialect")
    sessions = st.sampled_from([here, here, here, "other"])
    return {
        "sessionId": sessions,
        "threadId": sessions,
        "turnId": turn_ids | st.none(),
        "requestId": turn_ids | st.none(),
        "toolId": tool_ids,
        "toolCallId": tool_ids,
        "status": statuses,
        "role": st.sampled_from(["", "assistant", "user", "thought", "odd"]),
        "kind": st.sampled_from(["read", "edit", "odd"]),
    }


UPDATES: dict[str, list[tuple[str, Any]]] = {
    "oneshot": [
        (oneshot.CHUNK, oneshot.Chunk),
        (oneshot.TOOL, oneshot.ToolCall),
        (oneshot.FILE, oneshot.FileChange),
    ],
    "threads": [(threads.PROGRESS, threads.Progress), ("anything", threads.Thread)],
    "tagged": [(tagged.UPDATE, tagged.SessionUpdate)],
    "keyed": [(keyed.UPDATE, keyed.Update)],
    "chained": [(name, shape) for name, (shape, _) in chained._NOTIFICATIONS.items()],
}
REQUESTS: list[tuple[str, Any]] = [
    (keyed.PERMISSION, keyed.AskPermission),
    (keyed.READ, keyed.ReadFile),
    (keyed.WRITE, keyed.WriteFile),
    (keyed.TERMINAL_CREATE, keyed.CreateTerminal),
    (keyed.TERMINAL_OUTPUT, keyed.TerminalName),
    ("nonesuch", keyed.Cancel),
]
RESULTS: dict[str, Any] = {
    "oneshot": oneshot.Answer,
    "threads": threads.Result,
    "tagged": tagged.Stopped,
    "keyed": keyed.Stopped,
    "chained": chained.Sent,
}


def updates(dialect: str) -> st.SearchStrategy[bytes]:
    known = hints(dialect)
    if dialect == "tagged":
        types = st.sampled_from(["messageChunk", "toolCall", "planUpdate", "odd"])
        known = {**known, "type": types}
    return st.sampled_from(UPDATES[dialect]).flatmap(
        lambda pair: shaped(pair[1], known).map(lambda body: notification(pair[0], body))
    )


def notification(method: str, params: Any) -> bytes:
    return line({"jsonrpc": "2.0", "method": method, "params": params})


def requests(dialect: str) -> st.SearchStrategy[bytes]:
    ids = st.integers(0, 6) | st.sampled_from(["a", "b"])
    return st.builds(
        lambda id, call: line({"jsonrpc": "2.0", "id": id, **call}),
        ids,
        st.sampled_from(REQUESTS).flatmap(
            lambda pair: shaped(pair[1], hints(dialect)).map(
                lambda body: {"method": pair[0], "params": body}
            )
        ),
    )


strange = st.builds(
    notification, st.sampled_from(["nonesuch", "session/update", "error", "turn/status"]), plain
)
strays = st.builds(
    lambda id, body: line({"jsonrpc": "2.0", "id": id, **body}),
    st.integers(50, 60) | st.sampled_from(["x"]),
    st.sampled_from([{"result": {}}, {"error": {"code": 1, "message": "m"}}, {}]),
)


@functools.cache
def lines(dialect: str) -> st.SearchStrategy[list[bytes]]:
    one = st.one_of(
        updates(dialect), updates(dialect), requests(dialect), strange, strays, noise
    )  # fmt: skip
    return st.lists(one, max_size=10)


@functools.cache
def ends(dialect: str) -> st.SearchStrategy[dict[str, Any]]:
    results = shaped(
        RESULTS[dialect],
        {
            **hints(dialect),
            "status": st.sampled_from(["complete", "completed", "error", "odd"]),
            "stopReason": st.sampled_from(["end_turn", "endTurn", "error", "odd"]),
        },
    )
    errors = st.builds(
        lambda code, message: {"error": {"code": code, "message": message}},
        st.sampled_from([-32000, -32603, -32800, 429]),
        texts,
    )
    wholes = st.one_of(results, results, plain).map(lambda result: {"result": result})
    return st.one_of(wholes, wholes, errors, st.just({}))


def playing(test: Callable[..., Any]) -> Any:
    @pytest.mark.parametrize("dialect", sorted(DIALECTS))
    @FEWER
    @given(data=st.data())
    def played(dialect: str, data: st.DataObject) -> None:
        asyncio.run(test(dialect, data))

    played.__name__ = test.__name__
    return played


@playing
async def test_every_line_is_the_raw_of_an_event_in_the_order_of_the_wire(
    dialect: str, data: st.DataObject
) -> None:
    some = lines(dialect)
    before, during, after = (data.draw(some) for _ in range(3))
    end = data.draw(ends(dialect))
    with DocumentTalk(dialect) as talk:
        conversation = await talk.open(before)
        async with conversation.prompt("go") as turn:
            id = await talk.prompted()
            talk.feed(*during, talk.answer(id, end), *after)
            last = talk.last_word()
            if last is not None:
                talk.feed(last)
            seen = [event async for event in turn]
        assert isinstance(seen[-1], model.TurnEnded)
        assert sum(isinstance(event, model.TurnEnded) for event in seen) == 1
        await talk.client.aclose()
        talk.check()


@playing
async def test_a_connection_that_breaks_ends_the_turn_and_loses_no_line(
    dialect: str, data: st.DataObject
) -> None:
    during = data.draw(lines(dialect))
    with DocumentTalk(dialect) as talk:
        conversation = await talk.open([])
        async with conversation.prompt("go") as turn:
            await talk.prompted()
            talk.feed(*during)
            assert talk.wire.receiver is not None
            talk.wire.receiver.stream_ended(ConnectionLost("gone"))
            seen = [event async for event in turn]
        assert sum(isinstance(event, model.TurnEnded) for event in seen) == 1
        assert isinstance(talk.events[-1], model.ConnectionOver)
        await talk.client.aclose()
        talk.check()


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_a_turn_that_ran_out_of_time_ends_once_for_observers(dialect: str) -> None:
    async def run() -> None:
        with DocumentTalk(dialect, Budgets(total=0.01, cancel_grace=5.0)) as talk:
            conversation = await talk.open([])
            async with conversation.prompt("go") as turn:
                id = await talk.prompted()
                async with asyncio.timeout(10):
                    while not turn.cancelling:  # noqa: ASYNC110 - it is the clock that cancels
                        await asyncio.sleep(0)
                ok = GOOD_ENDS[dialect]
                talk.feed(talk.answer(id, {"result": ok}))
                last = talk.last_word()
                if last is not None:
                    talk.feed(last)
                seen = [event async for event in turn]
            ends = [event for event in seen if isinstance(event, model.TurnEnded)]
            told = [event for event in talk.events if isinstance(event, model.TurnEnded)]
            assert [event.outcome for event in ends] == ["timed_out"]
            assert told == ends
            await talk.client.aclose()
            talk.check()

    asyncio.run(run())


GOOD_ENDS: dict[str, Any] = {
    "oneshot": {"content": "x", "finish_reason": "stop"},
    "threads": {"threadId": "t", "turnId": "u", "status": "complete", "content": "x"},
    "tagged": {"stopReason": "endTurn"},
    "keyed": {"stopReason": "end_turn"},
    "chained": {"status": "processing"},
}


def test_the_shapes_are_those_of_the_wire() -> None:
    """A generator of nothing but garbage would prove little."""
    found = []

    @FEWER
    @given(updates("keyed"))
    def look(text: bytes) -> None:
        found.append(json.loads(text)["params"])

    look()
    assert any(isinstance(body.get("toolCall"), dict) for body in found)
