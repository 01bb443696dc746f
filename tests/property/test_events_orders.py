"""An order that a protocol leaves open makes no difference to what a session looks like.

The parts of one message, one tool call or one setting are a stream that keeps its order. There is
no order between streams, nor between them and a response that only acknowledges a prompt. ACP's own
orders are in `test_events_fold`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.events.fold import fold
from dragoman.events.view import View
from tests.property.feeding import FEWER
from tests.property.talks import CodexTalk, DocumentTalk
from tests.unit.client.legacy.far_end import SESSIONS

Notes: TypeAlias = list[tuple[str, Any]]
"""One stream: methods with their params, in order."""

texts = st.text(max_size=4)
pieces = st.lists(texts, min_size=1, max_size=4)
statuses = st.sampled_from(["running", "completed", "error"])


def mixed(data: st.DataObject, streams: Sequence[Notes]) -> Notes:
    """One of the allowed orders."""
    left = [list(reversed(stream)) for stream in streams if stream]
    found: Notes = []
    while left:
        chosen = data.draw(st.integers(0, len(left) - 1))
        found.append(left[chosen].pop())
        if not left[chosen]:
            del left[chosen]
    return found


def looks(view: View) -> Any:
    """Return a session without what only the order says: where one message ends and the next
    begins."""
    said: dict[Any, str] = {}
    for message in view.messages:
        key = message.role, message.message_id
        said[key] = said.get(key, "") + message.text
    return (
        said,
        view.tools,
        view.plans,
        view.usage,
        view.mode,
        view.title,
        sorted(view.changes, key=lambda change: change.path),
        view.turns,
        view.running,
    )


# -- the documents


def oneshot(data: st.DataObject) -> tuple[list[Notes], Any]:
    said = data.draw(pieces)
    tools = data.draw(st.lists(texts, max_size=2))
    streams: list[Notes] = [
        [("agent_message_chunk", {"text": text}) for text in said],
        [("tool_call", {"tool": name, "input": {}}) for name in tools],
        [("file_change", {"path": "/a", "diff": diff}) for diff in data.draw(pieces)],
        [("file_change", {"path": "/b", "diff": diff}) for diff in data.draw(pieces)],
    ]
    usage = {"input_tokens": 1, "output_tokens": 2}
    return streams, {"content": "".join(said), "finish_reason": "stop", "usage": usage}


def tagged(data: st.DataObject) -> tuple[list[Notes], Any]:
    def update(**body: Any) -> tuple[str, Any]:
        return "session/update", {"sessionId": SESSIONS["tagged"], "update": body}

    def tool(id: str) -> Notes:
        return [
            update(type="toolCall", toolCall={"id": id, "name": name, "status": status})
            for name, status in data.draw(st.lists(st.tuples(texts, statuses), max_size=3))
        ]

    streams = [
        [update(type="messageChunk", role="assistant", chunk=t) for t in data.draw(pieces)],
        [update(type="messageChunk", role="thought", chunk=t) for t in data.draw(pieces)],
        [update(type="planUpdate", chunk=f"- {t}") for t in data.draw(pieces)],
        tool("t1"),
        tool("t2"),
    ]
    return streams, {"stopReason": "endTurn"}


def keyed(data: st.DataObject) -> tuple[list[Notes], Any]:
    def update(**body: Any) -> tuple[str, Any]:
        return "session/update", {"sessionId": SESSIONS["keyed"], **body}

    def message(id: str) -> Notes:
        said = enumerate(data.draw(pieces))
        return [update(contentChunk={"id": id, "index": n, "delta": t}) for n, t in said]

    def tool(id: str) -> Notes:
        changes = data.draw(st.lists(st.tuples(texts, statuses, st.booleans()), max_size=3))
        return [
            update(
                toolCall={
                    "toolCallId": id,
                    "title": title,
                    "status": status,
                    **({"diff": {"path": "/a", "newContent": title}} if diff else {}),
                }
            )
            for title, status, diff in changes
        ]

    plans = [[{"title": text, "status": "pending"}] for text in data.draw(pieces)]
    streams = [
        message("a"),
        message("b"),
        tool("t1"),
        tool("t2"),
        [update(plan={"steps": steps}) for steps in plans],
        [update(currentModeId=text) for text in data.draw(pieces)],
    ]
    return streams, {"stopReason": "end_turn"}


def chained(data: st.DataObject) -> tuple[list[Notes], Any]:
    about = {"sessionId": SESSIONS["chained"], "turnId": "u1"}

    def tool(id: str) -> Notes:
        start = ("tool/start", {**about, "toolId": id, "name": data.draw(texts), "input": {}})
        result = ("tool/result", {**about, "toolId": id, "output": data.draw(texts)})
        return [start, result]

    streams: list[Notes] = [
        [("message/delta", {**about, "delta": text}) for text in data.draw(pieces)],
        [("thinking/delta", {**about, "delta": text}) for text in data.draw(pieces)],
        [("turn/status", {**about, "status": "processing"})],
        tool("t1"),
        tool("t2"),
    ]
    return streams, {"turnId": "u1", "status": "processing"}


STREAMS = {"oneshot": oneshot, "tagged": tagged, "keyed": keyed, "chained": chained}


async def told(dialect: str, notes: Notes, result: Any, answer_at: int) -> View:
    with DocumentTalk(dialect) as talk:
        conversation = await talk.open([])
        async with conversation.prompt("go") as turn:
            id = await talk.prompted()
            lines = [talk.tell(method, params) for method, params in notes]
            lines.insert(answer_at, talk.answer(id, {"result": result}))
            if dialect == "chained":
                over = {"sessionId": SESSIONS["chained"], "turnId": "u1", "status": "completed"}
                lines.append(talk.tell("turn/status", over))
            for line in lines:
                talk.feed(line)
            events = [event async for event in turn]
        await talk.client.aclose()
        talk.check()
    return fold(events)


@pytest.mark.parametrize("dialect", sorted(STREAMS))
@FEWER
@given(data=st.data())
def test_streams_of_the_documents_may_come_in_any_order(dialect: str, data: st.DataObject) -> None:
    streams, result = STREAMS[dialect](data)
    views = []
    for notes in (mixed(data, streams), [note for stream in streams for note in stream]):
        # A response that ends the turn comes last; one that acknowledges it may come at any time.
        last = len(notes)
        at = data.draw(st.integers(0, last)) if dialect == "chained" else last
        views.append(looks(asyncio.run(told(dialect, notes, result, at))))
    assert views[0] == views[1]


@FEWER
@given(data=st.data())
def test_keys_of_one_update_may_as_well_come_in_several(data: st.DataObject) -> None:
    """In the dialect `keyed`, one update may contain several things."""
    streams, result = keyed(data)
    singly = mixed(data, streams)
    together: Notes = []
    for method, params in singly:
        before = together[-1][1] if together else None
        fresh = before is not None and not (before.keys() - {"sessionId"}) & params.keys()
        # They are read in this order, whatever the order of the keys.
        order = ["contentChunk", "toolCall", "plan", "currentModeId"]
        ranks = [order.index(key) for key in (before or {}) if key != "sessionId"]
        later = all(
            rank < order.index(key) for rank in ranks for key in params if key != "sessionId"
        )
        if before is not None and fresh and later and data.draw(st.booleans()):
            together[-1] = (method, {**before, **params})
        else:
            together.append((method, params))
    one = asyncio.run(told("keyed", singly, result, len(singly)))
    other = asyncio.run(told("keyed", together, result, len(together)))
    assert one == other


# -- Codex


def items(data: st.DataObject) -> tuple[list[Notes], list[dict[str, Any]]]:
    """The items of a turn as they are reported live, one stream for each, and as the history has
    them."""
    here = {"threadId": "t1", "turnId": "u1"}
    streams: list[Notes] = []
    whole: list[dict[str, Any]] = []

    def told(start: dict[str, Any], deltas: Notes, end: dict[str, Any]) -> None:
        streams.append(
            [
                ("item/started", {**here, "item": start}),
                *((method, {**here, "itemId": start["id"], **more}) for method, more in deltas),
                ("item/completed", {**here, "item": end}),
            ]
        )
        whole.append(end)

    for number, kind in enumerate(data.draw(st.lists(st.sampled_from(KINDS), max_size=4))):
        item: dict[str, Any] = {"type": kind, "id": f"i{number}"}
        said = data.draw(pieces)
        status = data.draw(st.sampled_from(["completed", "failed", "declined"]))
        match kind:
            case "agentMessage":
                deltas: Notes = [("item/agentMessage/delta", {"delta": text}) for text in said]
                told({**item, "text": ""}, deltas, {**item, "text": "".join(said)})
            case "reasoning":
                deltas = []
                for index, text in enumerate(said):
                    at = {"summaryIndex": index}
                    deltas.append(("item/reasoning/summaryPartAdded", at))
                    deltas.append(("item/reasoning/summaryTextDelta", {**at, "delta": text}))
                told({**item, "summary": []}, deltas, {**item, "summary": said, "content": []})
            case "commandExecution":
                body = {**item, "command": "ls", "commandActions": []}
                output = "item/commandExecution/outputDelta"
                told(
                    {**body, "status": "inProgress"},
                    [(output, {"delta": text}) for text in said],
                    {**body, "status": status, "aggregatedOutput": "".join(said), "exitCode": 0},
                )
            case _:
                change = {"path": "/a", "kind": {"type": "add"}, "diff": "".join(said)}
                body = {**item, "changes": [change]}
                told({**body, "status": "inProgress"}, [], {**body, "status": status})
    return streams, whole


KINDS = ["agentMessage", "reasoning", "commandExecution", "fileChange"]


def settings(data: st.DataObject) -> list[Notes]:
    """What may be reported at any time during a turn."""
    here = {"threadId": "t1", "turnId": "u1"}
    counted = dict.fromkeys(
        [
            "totalTokens",
            "inputTokens",
            "cachedInputTokens",
            "outputTokens",
            "reasoningOutputTokens",
        ],
        1,
    )
    return [
        [
            ("turn/plan/updated", {**here, "plan": [{"step": text, "status": "pending"}]})
            for text in data.draw(pieces)
        ],
        [
            ("thread/name/updated", {"threadId": "t1", "threadName": text})
            for text in data.draw(pieces)
        ],
        [
            (
                "thread/tokenUsage/updated",
                {**here, "tokenUsage": {"total": counted, "last": counted}},
            )
        ],
    ]


async def codex_told(notes: Notes, answer_at: int) -> View:
    with CodexTalk() as talk:
        conversation = await talk.open([])
        async with conversation.prompt("go") as turn:
            id = await talk.wire.asked("turn/start")
            begun = {"turn": {"id": "u1", "status": "inProgress"}}
            started = talk.tell("turn/started", {"threadId": "t1", **begun})
            lines = [started, *(talk.tell(method, params) for method, params in notes)]
            lines.insert(answer_at, talk.answer(id, {"result": begun}))
            over = {"threadId": "t1", "turn": {"id": "u1", "status": "completed"}}
            for line in (*lines, talk.tell("turn/completed", over)):
                talk.feed(line)
            events = [event async for event in turn]
        await talk.client.aclose()
        talk.check()
    return fold(events)


@FEWER
@given(data=st.data())
def test_streams_of_codex_may_come_in_any_order(data: st.DataObject) -> None:
    streams = [*items(data)[0], *settings(data)]
    views = []
    for notes in (mixed(data, streams), [note for stream in streams for note in stream]):
        at = data.draw(st.integers(0, len(notes)))
        views.append(looks(asyncio.run(codex_told(notes, at))))
    assert views[0] == views[1]


@FEWER
@given(data=st.data())
def test_a_thread_that_is_loaded_looks_as_it_did_when_it_was_live(data: st.DataObject) -> None:
    streams, whole = items(data)
    user = {"type": "userMessage", "id": "m", "content": [{"type": "text", "text": "go"}]}

    async def loaded() -> View:
        with CodexTalk() as talk:
            turn = {"id": "u1", "status": "completed", "items": [user, *whole]}
            conversation = await talk.load([turn])
            events = list(conversation.replayed)
            await talk.client.aclose()
            talk.check(lambda event: not event.replay)
        return fold(events)

    # The server repeats the prompt before it does anything else.
    live = asyncio.run(codex_told([*_echo(user), *mixed(data, streams)], 0))
    again = asyncio.run(loaded())
    for tool in live.tools.values():
        # What a command printed piece by piece is one text in a history.
        assert tool.text in ("", tool.output)
        tool.printed = type(tool.printed)()
    assert looks(live) == looks(again)


def _echo(user: dict[str, Any]) -> Notes:
    here = {"threadId": "t1", "turnId": "u1", "item": user}
    return [("item/started", here), ("item/completed", here)]


# -- histories of the documents


@FEWER
@given(turns=st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), max_size=3))
def test_a_resumed_thread_looks_as_its_turns_did(turns: list[tuple[str, str]]) -> None:
    def result(number: int, text: str) -> dict[str, Any]:
        return {"threadId": "t", "turnId": f"u{number}", "status": "complete", "content": text}

    async def live() -> View:
        events = []
        with DocumentTalk("threads") as talk:
            conversation = await talk.open([])
            for number, (question, answer) in enumerate(turns):
                async with conversation.prompt(question) as turn:
                    id = await talk.prompted(number + 1)
                    talk.feed(talk.answer(id, {"result": result(number, answer)}))
                    events += [event async for event in turn]
            await talk.client.aclose()
        return fold(events)

    async def loaded() -> View:
        told = [{**result(n, a), "text": q} for n, (q, a) in enumerate(turns)]
        with DocumentTalk("threads") as talk:
            answers = {"threadResume": {"threadId": "t", "turns": told}}
            conversation = await talk.open([], load="t", answers=answers)
            await talk.client.aclose()
            talk.check()
        return fold(conversation.replayed)

    assert looks(asyncio.run(live())) == looks(asyncio.run(loaded()))


@FEWER
@given(said=st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), max_size=3))
def test_a_listed_session_looks_as_its_turns_did(said: list[tuple[str, str]]) -> None:
    """In the dialect `chained`, a history is the messages of a list entry, without turns."""
    here = {"sessionId": SESSIONS["chained"]}

    async def live() -> View:
        events = []
        with DocumentTalk("chained") as talk:
            conversation = await talk.open([])
            for number, (question, answer) in enumerate(said):
                async with conversation.prompt(question) as turn:
                    id = await talk.prompted(number + 1)
                    about = {**here, "turnId": f"u{number}"}
                    talk.feed(
                        talk.answer(id, {"result": {"turnId": f"u{number}"}}),
                        talk.tell("message/delta", {**about, "delta": answer}),
                        talk.tell("turn/status", {**about, "status": "completed"}),
                    )
                    events += [event async for event in turn]
            await talk.client.aclose()
        return fold(events)

    async def loaded() -> View:
        roles = [
            ("user", q) if n == 0 else ("assistant", q) for pair in said for n, q in enumerate(pair)
        ]
        messages = [{"role": role, "content": text} for role, text in roles]
        entry = {"id": SESSIONS["chained"], "messages": messages}
        with DocumentTalk("chained") as talk:
            answers = {"session/list": {"sessions": [entry]}}
            conversation = await talk.open([], load=SESSIONS["chained"], answers=answers)
            await talk.client.aclose()
            talk.check()
        return fold(conversation.replayed)

    assert asyncio.run(live()).messages == asyncio.run(loaded()).messages


def test_orders_really_differ() -> None:
    """A generator that always gives the same order would prove nothing."""
    found = set()

    @FEWER
    @given(data=st.data())
    def look(data: st.DataObject) -> None:
        found.add(json.dumps(mixed(data, [[("a", 1), ("b", 1)], [("c", 1)]])))

    look()
    assert len(found) == 3
