"""For anything that an ACP agent sends: every line is the `raw` of an event, in order, and no
exception reaches a callback or the loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.peer import AcpPeer
from dragoman.client.acp.turn import Turn
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Conversation, Opening
from dragoman.errors import ConnectionLost, DragomanError
from dragoman.events import model
from tests.property.feeding import Heard, Wire, line
from tests.property.shaped import noise, plain, texts

SESSION = "s"
HERE = Path(__file__).parent

content = st.fixed_dictionaries({"type": st.just("text"), "text": texts}) | plain

updates = st.one_of(
    st.fixed_dictionaries(
        {
            "sessionUpdate": st.sampled_from(
                ["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"]
            ),
            "content": content,
        },
        optional={"messageId": texts},
    ),
    st.fixed_dictionaries(
        {
            "sessionUpdate": st.sampled_from(["tool_call", "tool_call_update"]),
            "toolCallId": st.sampled_from(["t1", "t2"]),
            "title": texts,
        },
        optional={
            "status": st.sampled_from(["pending", "in_progress", "completed", "failed", "odd"]),
            "content": st.lists(
                st.fixed_dictionaries({"type": st.just("content"), "content": content})
                | st.fixed_dictionaries(
                    {"type": st.just("diff"), "path": texts, "newText": texts},
                    optional={"oldText": texts},
                ),
                max_size=2,
            ),
            "rawInput": plain,
        },
    ),
    st.fixed_dictionaries(
        {
            "sessionUpdate": st.sampled_from(
                [
                    "plan",
                    "usage_update",
                    "current_mode_update",
                    "notice",
                    "new_kind",
                    "available_commands_update",
                    "config_option_update",
                    "session_info_update",
                    "compaction_update",
                ]  # fmt: skip
            )
        },
        optional={
            "entries": plain,
            "used": st.integers(),
            "size": st.integers(),
            "currentModeId": texts,
            "availableCommands": plain,
            "configOptions": plain,
            "title": plain,
            "severity": texts,
            "compactionId": texts,
            "status": texts,
        },  # fmt: skip
    ),
    plain,
)


def notification(method: str, params: Any) -> bytes:
    return line({"jsonrpc": "2.0", "method": method, "params": params})


update_lines = st.builds(
    lambda session, update: notification(
        "session/update", {"sessionId": session, "update": update}
    ),
    st.sampled_from([SESSION, SESSION, SESSION, "other"]),
    updates,
)
request_lines = st.builds(
    lambda id, method, params: line(
        {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    ),
    st.integers(0, 6) | st.sampled_from(["a", "b"]),
    st.sampled_from(
        [
            "session/request_permission",
            "fs/read_text_file",
            "terminal/create",
            "_own/method",
            "elicitation/create",
            "nonesuch",
        ]  # fmt: skip
    ),
    st.fixed_dictionaries(
        {"sessionId": st.sampled_from([SESSION, "other"])},
        optional={
            "toolCall": st.fixed_dictionaries({"toolCallId": texts}, optional={"title": texts}),
            "options": st.just([{"optionId": "y", "name": "Yes", "kind": "allow_once"}]),
            "path": texts,
            "command": texts,
            "message": texts,
        },
    )
    | plain,
)
notification_lines = st.builds(
    notification,
    st.sampled_from(["_own/news", "$/cancel_request", "elicitation/complete", "nonesuch"]),
    st.fixed_dictionaries({}, optional={"requestId": st.integers(0, 6), "elicitationId": texts})
    | plain,
)
stray_lines = st.builds(
    lambda id, body: line({"jsonrpc": "2.0", "id": id, **body}),
    st.integers(50, 60) | st.sampled_from(["x"]),
    st.sampled_from([{"result": {}}, {"error": {"code": 1, "message": "m"}}, {}]),
)
lines = st.lists(
    st.one_of(
        update_lines, update_lines, request_lines, notification_lines, stray_lines, noise
    ),  # fmt: skip
    max_size=12,
)
ends = st.sampled_from(
    [
        {"result": {"stopReason": "end_turn"}},
        {"result": {"stopReason": "odd", "usage": {"inputTokens": 1}}},
        {"result": {}},
        {"result": None},
        {"error": {"code": -32603, "message": "no"}},
        {"error": {"code": -32800, "message": "cancelled"}},
        {},
    ]
)


class Talk(Heard):
    """A conversation whose other side is the test."""

    def __init__(self) -> None:
        super().__init__(Wire())
        self.client = AcpClient(self.wire, None)
        self.peer = AcpPeer(self.client, HERE)
        self.peer.on_event = self.events.append

    async def open(self, before: list[bytes]) -> Conversation:
        start = self.client.connection.tasks.start(self.client.start(), "start")
        id = await self.wire.asked("initialize")
        self.feed(*before, self.answer(id, {"result": {"protocolVersion": 1}}))
        await start
        opening = self.client.connection.tasks.start(self.peer.open(Opening(cwd=HERE)), "open")
        id = await self.wire.asked("session/new")
        # What comes before and after the response is sent in one piece with it.
        self.feed(
            *before,
            self.answer(id, {"result": {"sessionId": SESSION}}),
            notification("session/update", {"sessionId": SESSION, "update": {}}),
        )
        return await opening


MANY = settings(max_examples=max(100, settings().max_examples // 5))
"""Each example is a whole conversation, so a fifth of the usual number is tried."""


@MANY
@given(before=lines, during=lines, after=lines, end=ends)
def test_every_line_is_the_raw_of_an_event_in_the_order_of_the_wire(
    before: list[bytes], during: list[bytes], after: list[bytes], end: dict[str, Any]
) -> None:
    async def run() -> None:
        with Talk() as talk:
            conversation = await talk.open(before)
            async with conversation.prompt("go") as turn:
                id = await talk.wire.asked("session/prompt")
                talk.feed(*during, talk.answer(id, end), *after)
                seen = [event async for event in turn]
                assert isinstance(seen[-1], model.TurnEnded)
                assert sum(isinstance(event, model.TurnEnded) for event in seen) == 1
            await talk.client.aclose()
            talk.check()

    asyncio.run(run())


@MANY
@given(during=lines)
def test_a_connection_that_breaks_ends_the_turn_and_loses_no_line(during: list[bytes]) -> None:
    async def run() -> None:
        with Talk() as talk:
            conversation = await talk.open([])
            async with conversation.prompt("go") as turn:
                await talk.wire.asked("session/prompt")
                talk.feed(*during)
                assert talk.wire.receiver is not None
                talk.wire.receiver.stream_ended(ConnectionLost("gone"))
                result = await turn.wait()
                assert isinstance(result.error, DragomanError)
            assert isinstance(talk.events[-1], model.ConnectionOver)
            talk.check()
            await talk.client.aclose()

    asyncio.run(run())


def test_a_turn_that_ran_out_of_time_keeps_the_line_that_answered_its_cancel() -> None:
    async def run() -> None:
        with Talk() as talk:
            talk.client.budgets = Budgets(total=0.01)
            conversation = await talk.open([])
            async with conversation.prompt("go") as turn:
                assert isinstance(turn, Turn)
                id = await talk.wire.asked("session/prompt")
                async with asyncio.timeout(10):
                    while not turn.cancelling:  # noqa: ASYNC110 - it is the clock that cancels
                        await asyncio.sleep(0)
                talk.feed(talk.answer(id, {"result": {"stopReason": "cancelled"}}))
                seen = [event async for event in turn]
            ended = [event for event in seen if isinstance(event, model.TurnEnded)]
            assert [(event.outcome, event.raw) for event in ended] == [
                ("timed_out", talk.received[-1])
            ]
            talk.check()
            await talk.client.aclose()

    asyncio.run(run())
