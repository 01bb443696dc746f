"""Turns and items of the Codex client, with a server as a child process.

The manifest `codex.toml` lists these tests with the requirements that they prove.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.client.budgets import Budgets
from dragoman.client.codex import CodexTurn
from dragoman.errors import RemoteError, SessionUnusable, TurnInProgress
from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.events.parts import Block, Image, Link, Text
from dragoman.events.words import Outcome
from tests.aio import aio
from tests.conformance.codex import (
    ANSWER,
    OPTIONS,
    Step,
    about,
    delta,
    ended,
    item,
    message,
    refuse,
    started,
    tell,
    thread,
    turns,
    wait_for,
)


async def cancel_after_a_piece(turn: CodexTurn) -> None:
    """Cancel a turn after its first text, and read to its end."""
    async for event in turn:
        if isinstance(event, model.MessageDelta):
            turn.cancel()


# -- turns


@aio
async def test_a_turn_ends_with_turn_completed_and_not_with_the_answer(tmp_path: Path) -> None:
    status = tell("thread/status/changed", threadId="t1", status={"type": "idle"})
    steps = [ANSWER, started(), message("one"), status, message("two", "m2"), ended()]
    async with thread(tmp_path, {"turn/start": [steps]}) as (talk, wire):
        async with talk.prompt("x") as turn:
            events = [event async for event in turn]
    assert turn.result.text == "onetwo"
    assert isinstance(events[-1], model.TurnEnded)
    assert wire.params("turn/start") == [
        {"threadId": "t1", "input": [{"type": "text", "text": "x"}]}
    ]


@aio
async def test_messages_of_a_turn_may_come_before_the_answer_to_its_prompt(tmp_path: Path) -> None:
    early = [tell("warning", threadId="t1", message="careful"), started(), delta("hel")]
    script = {"turn/start": [[*early, ANSWER, delta("lo"), message("hello"), ended()]]}
    async with thread(tmp_path, script) as (talk, wire):
        result = await talk.ask("x")
    assert (result.outcome, result.text) == (Outcome.OK, "hello")
    assert [e.title for e in wire.events if isinstance(e, model.Noticed)] == ["careful"]


@aio
async def test_the_end_of_another_turn_does_not_end_this_one(tmp_path: Path) -> None:
    steps = [ended("u0"), message("hello")]
    async with thread(tmp_path, turns(steps)) as (talk, _):
        assert (await talk.ask("x")).text == "hello"


@aio
async def test_a_second_prompt_is_not_sent_while_a_turn_runs(tmp_path: Path) -> None:
    script = turns([delta("a"), wait_for("turn/interrupt")])
    async with thread(tmp_path, script) as (talk, wire):
        async with talk.prompt("x") as turn:
            with pytest.raises(TurnInProgress):
                await talk.ask("y")
            await cancel_after_a_piece(turn)
        assert wire.methods().count("turn/start") == 1


@aio
async def test_steering_names_the_turn_and_a_refusal_leaves_it_running(tmp_path: Path) -> None:
    script = {
        **turns([wait_for("turn/steer"), message("hello")]),
        "turn/steer": [[refuse("expected active turn id `u1` but found `u2`")]],
    }
    async with thread(tmp_path, script) as (talk, wire), talk.prompt("x") as turn:
        with pytest.raises(RemoteError, match="expected active turn"):
            await talk.steer("more")
        assert (await turn.wait()).text == "hello"
    more = {"type": "text", "text": "more"}
    assert wire.params("turn/steer") == [
        {"threadId": "t1", "expectedTurnId": "u1", "input": [more]}
    ]


@aio
async def test_an_interrupted_turn_ends_with_turn_completed(tmp_path: Path) -> None:
    late = [wait_for("turn/interrupt"), delta(" more"), ended(status="interrupted")]
    again = [ANSWER, started("u2"), message("again", turn="u2"), ended("u2")]
    script = {"turn/start": [[ANSWER, started(), delta("some"), *late], again]}
    async with thread(tmp_path, script) as (talk, wire):
        async with talk.prompt("x") as turn:
            await cancel_after_a_piece(turn)
        assert (turn.result.outcome, turn.result.text) == (Outcome.CANCELLED, "some more")
        assert (await talk.ask("y")).text == "again"
    assert wire.params("turn/interrupt") == [{"threadId": "t1", "turnId": "u1"}]


@pytest.mark.parametrize("answer", [[], [refuse("no active turn to interrupt")]])
@aio
async def test_an_interrupt_that_comes_too_late_leaves_the_thread_usable(
    answer: list[Step], tmp_path: Path
) -> None:
    again = [ANSWER, started("u2"), message("again", turn="u2"), ended("u2")]
    script = {
        "turn/start": [
            [ANSWER, started(), delta("some"), wait_for("turn/interrupt"), ended()],
            again,
        ],
        "turn/interrupt": [answer],
    }
    async with thread(tmp_path, script) as (talk, wire):
        async with talk.prompt("x") as turn:
            await cancel_after_a_piece(turn)
        assert turn.result.text == "some"
        assert (await talk.ask("y")).text == "again"
        assert wire.methods().count("turn/interrupt") == 1


@aio
async def test_an_interrupt_waits_until_the_server_has_started_the_turn(tmp_path: Path) -> None:
    status = tell("thread/status/changed", threadId="t1", status={"type": "systemError"})
    steps = [ANSWER, status, started(), wait_for("turn/interrupt"), ended(status="interrupted")]
    async with thread(tmp_path, {"turn/start": [steps]}) as (talk, wire):
        async with talk.prompt("x") as turn:
            turn.cancel()
            assert (await turn.wait()).outcome is Outcome.CANCELLED
        assert wire.methods().count("turn/interrupt") == 1


@aio
async def test_the_text_is_collected_from_items_and_not_from_the_end(tmp_path: Path) -> None:
    summary = [{"type": "agentMessage", "id": "m2", "text": "last"}]
    done = ended("u1", items=summary, itemsView="summary")
    said = [message("first "), message("last", "m2")]
    script = {"turn/start": [[ANSWER, started(), *said, done]]}
    async with thread(tmp_path, script) as (talk, _):
        assert (await talk.ask("x")).text == "first last"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("completed", Outcome.OK),
        ("interrupted", Outcome.CANCELLED),
        ("failed", Outcome.FAILED),
        ("novel", Outcome.UNKNOWN),
    ],
)
@aio
async def test_the_status_of_a_turn_is_its_outcome(
    status: str, outcome: Outcome, tmp_path: Path
) -> None:
    script = {"turn/start": [[ANSWER, started(), message("hello"), ended(status=status)]]}
    async with thread(tmp_path, script) as (talk, _):
        assert (await talk.ask("x")).outcome is outcome


@aio
async def test_a_prompt_has_text_images_and_mentions(tmp_path: Path) -> None:
    blocks: list[Block] = [
        Text("look"),
        Image("QQ==", "image/png"),
        Link("file:///w/a%20b.txt", "a b.txt"),
    ]
    async with thread(tmp_path, turns([message("hello")])) as (talk, wire):
        await talk.ask(blocks)
    assert wire.params("turn/start")[0]["input"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "url": "data:image/png;base64,QQ=="},
        {"type": "mention", "name": "a b.txt", "path": "/w/a b.txt"},
    ]


@aio
async def test_settings_are_sent_with_one_turn_and_kept_by_the_server(tmp_path: Path) -> None:
    both = turns([message("one")], [message("two", turn="u2")])
    async with thread(tmp_path, both) as (talk, wire):
        await talk.set_model("another")
        await talk.set_mode("workspace-write")
        await talk.ask("x")
        await talk.ask("y")
    first, second = wire.params("turn/start")
    assert (first["model"], first["sandboxPolicy"]) == ("another", {"type": "workspaceWrite"})
    assert second.keys() == {"threadId", "input"}
    # The settings that restrict the thread are read back in between.
    assert wire.params("thread/resume") == [{"threadId": "t1", "excludeTurns": True}]


@aio
async def test_a_prompt_without_an_answer_ends_in_time_and_is_sent_once(tmp_path: Path) -> None:
    budgets = Budgets(first_event=0.5, cancel_grace=0.2, expired_grace=0.2)
    options = structs.replace(OPTIONS, budgets=budgets)
    async with thread(tmp_path, {"turn/start": [[]]}, options) as (talk, wire):
        result = await talk.ask("x")
        assert result.outcome is Outcome.TIMED_OUT
        assert wire.methods().count("turn/start") == 1
        # The server may still start the turn, so nothing more is sent to the thread.
        with pytest.raises(SessionUnusable):
            await talk.ask("y")


# -- items


@aio
async def test_a_completed_message_replaces_its_pieces(tmp_path: Path) -> None:
    one = [delta("Hel"), delta("lo"), message("Hello, world. ")]
    two = [delta("dratf", "m2"), message("draft", "m2")]
    async with thread(tmp_path, turns([*one, *two])) as (talk, wire):
        result = await talk.ask("x")
    assert result.text == "Hello, world. draft"
    assert [m.text for m in fold(wire.events).messages] == ["x", "Hello, world. ", "draft"]


@aio
async def test_a_message_that_is_never_completed_keeps_its_pieces(tmp_path: Path) -> None:
    steps = [delta("cut sh"), delta("then ", "m2"), message("then this", "m2")]
    async with thread(tmp_path, turns(steps)) as (talk, _):
        assert (await talk.ask("x")).text == "cut shthen this"


ITEMS: list[dict[str, Any]] = [
    {"type": "userMessage", "content": [{"type": "text", "text": "x", "text_elements": []}]},
    {"type": "hookPrompt", "fragments": []},
    {"type": "agentMessage", "text": "hello"},
    {"type": "functionCallOutput", "name": "f", "output": "o"},
    {"type": "plan", "text": "a plan"},
    {"type": "reasoning", "summary": ["why"], "content": []},
    {"type": "commandExecution", "command": "ls", "commandActions": [], "cwd": "/w"},
    {"type": "fileChange", "changes": []},
    {"type": "mcpToolCall", "server": "s", "tool": "t", "arguments": {}},
    {"type": "dynamicToolCall", "tool": "t", "arguments": {}},
    {
        "type": "collabAgentToolCall",
        **{"agentsStates": {}, "receiverThreadIds": [], "senderThreadId": "t1", "tool": "wait"},
    },
    {"type": "subAgentActivity", "agentPath": "/root/a", "agentThreadId": "t2", "kind": "started"},
    {"type": "webSearch", "query": "q"},
    {"type": "imageView", "path": "/w/a.png"},
    {"type": "sleep", "durationMs": 5},
    {"type": "imageGeneration", "result": ""},
    {"type": "enteredReviewMode", "review": "r"},
    {"type": "exitedReviewMode", "review": "r"},
    {"type": "contextCompaction"},
    {"type": "novel", "text": 17},
    {"type": "novelTool", "status": "novel"},
]
WITH_STATUS = (
    *("commandExecution", "fileChange", "mcpToolCall", "dynamicToolCall", "collabAgentToolCall"),
    "imageGeneration",
)


def item_steps() -> list[Step]:
    """Every kind of item, started and completed."""
    steps: list[Step] = []
    for number, fields in enumerate(ITEMS):
        for when, status in (("started", "inProgress"), ("completed", "completed")):
            more = {"status": status} if fields["type"] in WITH_STATUS else {}
            steps.append(item(when, **{"id": f"i{number}", **more, **fields}))
    return steps


@aio
async def test_items_of_every_kind_and_of_unknown_kinds_are_taken(tmp_path: Path) -> None:
    async with thread(tmp_path, turns(item_steps())) as (talk, wire):
        result = await talk.ask("x")
    assert (result.outcome, result.text) == (Outcome.OK, "hello")
    kept = [json.loads(event.raw) for event in wire.events if event.raw is not None]
    assert [step for step in item_steps() if step["send"] not in kept] == []


@aio
async def test_thoughts_are_distinguished_by_their_parts(tmp_path: Path) -> None:
    here = {**about(), "itemId": "r1"}
    steps = [
        tell("item/reasoning/summaryPartAdded", **here, summaryIndex=0),
        tell("item/reasoning/summaryTextDelta", **here, summaryIndex=0, delta="one"),
        tell("item/reasoning/summaryPartAdded", **here, summaryIndex=1),
        tell("item/reasoning/summaryTextDelta", **here, summaryIndex=1, delta="two"),
        tell("item/reasoning/textDelta", **here, contentIndex=0, delta="raw"),
        message("hello"),
    ]
    async with thread(tmp_path, turns(steps)) as (talk, wire):
        assert (await talk.ask("x")).text == "hello"
    thoughts = [e for e in wire.events if isinstance(e, model.MessageDelta)]
    assert [(e.part, e.index, e.text) for e in thoughts] == [
        ("summary", 0, ""),
        ("summary", 0, "one"),
        ("summary", 1, "\n\n"),
        ("summary", 1, "two"),
        ("raw", 0, "raw"),
    ]


@aio
async def test_plans_and_diffs_replace_the_ones_before(tmp_path: Path) -> None:
    def plan(*steps: str) -> Step:
        entries = [{"step": step, "status": "pending"} for step in steps]
        return tell("turn/plan/updated", **about(), plan=entries, explanation=None)

    def diff(text: str) -> Step:
        return tell("turn/diff/updated", **about(), diff=text)

    steps = [plan("look"), diff("-a"), plan("look", "change"), diff("-a\n+b"), message("hello")]
    async with thread(tmp_path, turns(steps)) as (talk, wire):
        await talk.ask("x")
    view = fold(wire.events)
    assert [entry.text for entry in view.plans["main"].entries] == ["look", "change"]
    assert [change.diff for change in view.changes] == ["-a\n+b"]


@aio
async def test_usage_is_counted_since_the_turn_began(tmp_path: Path) -> None:
    def used(turn: str, total: int, last: int) -> Step:
        def counts(tokens: int) -> dict[str, int]:
            rest = ("cachedInputTokens", "outputTokens", "reasoningOutputTokens")
            return {"totalTokens": tokens, "inputTokens": tokens, **dict.fromkeys(rest, 0)}

        usage = {"total": counts(total), "last": counts(last), "modelContextWindow": 1000}
        return tell("thread/tokenUsage/updated", **about(turn), tokenUsage=usage)

    first = [used("u1", 10, 10), used("u1", 30, 20), message("one")]
    second = [used("u2", 75, 45), message("two", turn="u2")]
    async with thread(tmp_path, turns(first, second)) as (talk, _):
        results = [await talk.ask("x"), await talk.ask("y")]
    usages = [result.usage for result in results]
    assert [(u.input_tokens, u.context_size) for u in usages if u] == [(30, 1000), (45, 1000)]
