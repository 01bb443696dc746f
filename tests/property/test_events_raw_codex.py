"""For anything that an app-server sends: every line is the `raw` of an event, in order, the turn
ends once, and no exception reaches a callback or the loop."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dragoman.dialects.codex import shapes
from dragoman.dialects.codex.translate import _NOTIFICATIONS
from dragoman.errors import ConnectionLost
from dragoman.events import model
from tests.property.feeding import FEWER, line
from tests.property.shaped import noise, plain, shaped, texts
from tests.property.talks import CodexTalk

HINTS: dict[str, st.SearchStrategy[Any]] = {
    "threadId": st.sampled_from(["t1", "t1", "t1", "other"]),
    "conversationId": st.sampled_from(["t1", "other"]),
    "turnId": st.sampled_from(["u1", "u1", "u2"]),
    "itemId": st.sampled_from(["i1", "i2"]),
    "id": st.sampled_from(["u1", "u1", "t1", "i1", "i2"]),
    "type": st.sampled_from(
        [
            "userMessage",
            "agentMessage",
            "reasoning",
            "plan",
            "commandExecution",
            "fileChange",
            "mcpToolCall",
            "webSearch",
            "imageView",
            "contextCompaction",
            "hookPrompt",
            "active",
            "idle",
            "odd",
        ]  # fmt: skip
    ),
    "status": st.sampled_from(["inProgress", "completed", "failed", "interrupted", "odd"])
    | shaped(shapes.ThreadStatus, {}),
    "requestId": st.integers(0, 6) | st.sampled_from(["a", "0"]),
    "commandActions": st.lists(
        st.fixed_dictionaries({"type": st.sampled_from(["read", "search", "odd"]) | plain}),
        max_size=2,
    ),
}
REQUESTS: list[tuple[str, Any]] = [
    ("item/commandExecution/requestApproval", shapes.CommandApproval),
    ("item/fileChange/requestApproval", shapes.FileChangeApproval),
    ("item/permissions/requestApproval", shapes.PermissionsApproval),
    ("item/tool/requestUserInput", shapes.UserInputRequest),
    ("mcpServer/elicitation/request", shapes.ElicitationRequest),
    ("execCommandApproval", shapes.LegacyApproval),
    ("applyPatchApproval", shapes.LegacyApproval),
    ("nonesuch", shapes.Scope),
]


def shape_of(method: str) -> Any:
    return _NOTIFICATIONS[method][0].__self__.type  # type: ignore[attr-defined]


def notification(method: str, params: Any) -> bytes:
    return line({"method": method, "params": params})


updates = st.sampled_from(sorted(_NOTIFICATIONS)).flatmap(
    lambda method: shaped(shape_of(method), HINTS).map(lambda body: notification(method, body))
)
requests = st.builds(
    lambda id, call: line({"id": id, **call}),
    st.integers(0, 6) | st.sampled_from(["a", "0"]),
    st.sampled_from(REQUESTS).flatmap(
        lambda pair: shaped(pair[1], HINTS).map(lambda body: {"method": pair[0], "params": body})
    ),
)
strange = st.builds(notification, st.sampled_from(["nonesuch", "item/started", "error"]), plain)
strays = st.builds(
    lambda id, body: line({"id": id, **body}),
    st.integers(50, 60) | st.sampled_from(["x"]),
    st.sampled_from([{"result": {}}, {"error": {"code": 1, "message": "m"}}, {}]),
)
lines = st.lists(
    st.one_of(updates, updates, updates, requests, strange, strays, noise), max_size=10
)
begun = st.one_of(
    st.just({"result": {"turn": {"id": "u1", "status": "inProgress"}}}),
    st.just({"result": {"turn": {"id": "u1", "status": "inProgress"}}}),
    plain.map(lambda result: {"result": result}),
    texts.map(lambda message: {"error": {"code": -32603, "message": message}}),
    st.just({}),
)


def counts(event: model.Event) -> bool:
    """Each item of a history is kept, as is the line of the response that contains it."""
    return not event.replay


@FEWER
@given(before=lines, during=lines, after=lines, begun=begun)
def test_every_line_is_the_raw_of_an_event_in_the_order_of_the_wire(
    before: list[bytes], during: list[bytes], after: list[bytes], begun: dict[str, Any]
) -> None:
    async def run() -> None:
        with CodexTalk() as talk:
            conversation = await talk.open(before)
            # Settings that were not requested make a thread unusable, which is not tested here.
            conversation.unusable = False
            async with conversation.prompt("go") as turn:
                id = await talk.wire.asked("turn/start")
                talk.feed(*during, talk.answer(id, begun), *after)
                # Whatever was reported about it so far, this is its end.
                ended = {"id": turn.id or "u1", "status": "completed"}
                talk.feed(notification("turn/completed", {"threadId": "t1", "turn": ended}))
                seen = [event async for event in turn]
            assert isinstance(seen[-1], model.TurnEnded)
            assert sum(isinstance(event, model.TurnEnded) for event in seen) == 1
            await talk.client.aclose()
            talk.check(counts)

    asyncio.run(run())


@FEWER
@given(during=lines)
def test_a_connection_that_breaks_ends_the_turn_and_loses_no_line(during: list[bytes]) -> None:
    async def run() -> None:
        with CodexTalk() as talk:
            conversation = await talk.open([])
            async with conversation.prompt("go") as turn:
                await talk.wire.asked("turn/start")
                talk.feed(*during)
                assert talk.wire.receiver is not None
                talk.wire.receiver.stream_ended(ConnectionLost("gone"))
                seen = [event async for event in turn]
            assert sum(isinstance(event, model.TurnEnded) for event in seen) == 1
            assert isinstance(talk.events[-1], model.ConnectionOver)
            await talk.client.aclose()
            talk.check(counts)

    asyncio.run(run())


histories = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(["u1", "u2"]),
            "status": st.sampled_from(["completed", "failed", "inProgress", "odd"]),
            "items": st.lists(shaped(shapes.Item, HINTS) | plain, max_size=4),
        }
    ),
    max_size=3,
)


@FEWER
@given(turns=histories)
def test_a_history_that_is_loaded_keeps_every_item_and_the_answer(turns: list[Any]) -> None:
    async def run() -> None:
        with CodexTalk() as talk:
            conversation = await talk.load(turns)
            kept = [event.raw for event in conversation.replayed if event.raw is not None]
            told = [json.loads(raw) for raw in kept]
            for item in (item for turn in turns for item in turn["items"]):
                assert item in told
            await talk.client.aclose()
            talk.check(counts)

    asyncio.run(run())
