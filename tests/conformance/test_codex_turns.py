"""Turns, items and questions of the Codex client, against a server that is a child process.

The manifest `codex.toml` names these tests beside the requirements that they prove.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.client.codex import CodexTurn
from dragoman.client.inquiries import Inquiry, Reply
from dragoman.client.permissions import Answer, Question, approve_all, deny_all
from dragoman.dialects.codex import shapes
from dragoman.errors import RemoteError, TurnInProgress
from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.events.parts import Block, Image, Link, Text
from dragoman.events.words import Outcome, ToolStatus
from tests.aio import aio
from tests.conformance.codex import (
    ANSWER,
    OPTIONS,
    Step,
    about,
    ask_command,
    command,
    delta,
    ended,
    item,
    message,
    refuse,
    request,
    resolved,
    started,
    tell,
    thread,
    together,
    turns,
    wait_for,
)

ALLOWING = structs.replace(OPTIONS, permit=approve_all)


async def cancel_after_a_piece(turn: CodexTurn) -> None:
    """Cancel a turn once it has said something, and read to its end."""
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
        "turn/start": [[ANSWER, started(), delta("some"), ended()], again],
        "turn/interrupt": [answer],
    }
    async with thread(tmp_path, script) as (talk, wire):
        async with talk.prompt("x") as turn:
            await cancel_after_a_piece(turn)
        assert turn.result.text == "some"
        assert (await talk.ask("y")).text == "again"
        assert not talk.unusable


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
        await talk.ask("x")
        await talk.ask("y")
    assert [params.get("model") for params in wire.params("turn/start")] == ["another", None]


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
    {"type": "imageGeneration"},
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
    raw = {event.raw for event in wire.events}
    sent = [each for each in wire.of("server") if each.get("method", "").startswith("item/")]
    assert len(sent) == 2 * len(ITEMS)
    assert all(
        any(b'"%b"' % each["params"]["item"]["id"].encode() in (line or b"") for line in raw)
        for each in sent
    )


@aio
async def test_thoughts_are_told_apart_by_their_parts(tmp_path: Path) -> None:
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


# -- approvals and questions


def asking(*questions: Step, status: str = "completed") -> list[Step]:
    """A command that is asked about."""
    begun = command("inProgress", "started")
    return [begun, *questions, command(status, "completed"), message("done")]


@pytest.mark.parametrize(
    ("answer", "offered", "decision"),
    [
        (Answer.ALLOW_ONCE, None, "accept"),
        (Answer.ALLOW_ALWAYS, None, "acceptForSession"),
        (Answer.REJECT_ONCE, None, "decline"),
        (Answer.CANCEL, None, "cancel"),
        # `decline` is taken although it is not listed.
        (Answer.REJECT_ONCE, ["accept", "cancel"], "decline"),
        # What allows once is not replaced by what allows always.
        (Answer.ALLOW_ONCE, ["acceptForSession", "cancel"], "decline"),
    ],
)
@aio
async def test_an_approval_is_answered_with_a_decision_of_the_protocol(
    answer: Answer, offered: list[str] | None, decision: str, tmp_path: Path
) -> None:
    options = structs.replace(OPTIONS, permit=lambda question: answer)
    more = {} if offered is None else {"availableDecisions": offered}
    steps = asking(ask_command(0, **more), wait_for(0), resolved(0))
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert wire.answer(0) == {"decision": decision}


@aio
async def test_an_approval_is_about_the_item_that_was_announced(tmp_path: Path) -> None:
    asked: list[Question] = []

    def permit(question: Question) -> Answer:
        asked.append(question)
        return Answer.ALLOW_ONCE

    change = {"path": "/w/a.txt", "kind": {"type": "add"}, "diff": "text\n"}
    shape: dict[str, Any] = {"type": "fileChange", "id": "f1", "changes": [change]}
    question = request(0, "item/fileChange/requestApproval", **about(), itemId="f1", startedAtMs=1)
    steps = [
        item("started", **shape, status="inProgress"),
        *(question, wait_for(0), resolved(0)),
        item("completed", **shape, status="completed"),
        message("done"),
    ]
    options = structs.replace(OPTIONS, permit=permit)
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert [(q.tool_call_id, q.title) for q in asked] == [("f1", "Edit /w/a.txt")]
    assert wire.answer(0) == {"decision": "accept"}


@aio
async def test_a_declined_command_does_not_end_the_turn(tmp_path: Path) -> None:
    steps = asking(ask_command(0), wait_for(0), resolved(0), status="declined")
    options = structs.replace(OPTIONS, permit=deny_all)
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        result = await talk.ask("x")
    assert result.text == "done"
    assert [denial.title for denial in result.denials] == ["touch x"]
    (tool,) = fold(wire.events).tools.values()
    assert tool.status is ToolStatus.DECLINED


@aio
async def test_a_permit_that_fails_is_answered_with_an_error_and_not_with_a_yes(
    tmp_path: Path,
) -> None:
    def permit(question: Question) -> Answer:
        raise ValueError("secret")

    steps = [command("inProgress", "started"), ask_command(0), wait_for(0)]
    script = {"turn/start": [[ANSWER, started(), *steps, ended(status="interrupted")]]}
    options = structs.replace(OPTIONS, permit=permit)
    async with thread(tmp_path, script, options) as (talk, wire):
        assert not (await talk.ask("x")).ok
    answer = wire.answer(0)
    assert answer["code"] == -32603
    assert "secret" not in str(answer)


@pytest.mark.parametrize("at_once", [False, True])
@aio
async def test_a_question_that_the_server_resolved_is_withdrawn(
    at_once: bool, tmp_path: Path
) -> None:
    seen: list[str] = []

    async def permit(question: Question) -> Answer:
        seen.append("asked")
        try:
            await talk.rename("the question is shown")
            await asyncio.Event().wait()
        finally:
            seen.append("withdrawn")
        return Answer.ALLOW_ALWAYS

    shown = [ask_command(0), wait_for("thread/name/set"), resolved(0)]
    question = [together(ask_command(0), resolved(0))] if at_once else shown
    steps = asking(*question, wait_for(0))
    options = structs.replace(OPTIONS, permit=permit)
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        result = await talk.ask("x")
        assert seen == ([] if at_once else ["asked", "withdrawn"])
    assert (result.text, result.denials) == ("done", ())
    # The server has forgotten the request; what still arrives cannot be an approval.
    assert wire.answer(0) == {"decision": "cancel"}


@aio
async def test_a_question_may_be_resolved_after_the_end_of_its_turn(tmp_path: Path) -> None:
    async def permit(question: Question) -> Answer:
        turn.cancel()
        await asyncio.Event().wait()
        return Answer.ALLOW_ONCE

    first = [command("inProgress", "started"), ask_command(0), wait_for("turn/interrupt")]
    over = [command("declined", "completed"), ended(status="interrupted"), resolved(0)]
    again = [ANSWER, started("u2"), message("again", turn="u2"), ended("u2")]
    script = {"turn/start": [[ANSWER, started(), *first, *over], again]}
    options = structs.replace(OPTIONS, permit=permit)
    async with thread(tmp_path, script, options) as (talk, wire):
        async with talk.prompt("x") as turn:
            assert (await turn.wait()).outcome is Outcome.CANCELLED
        assert (await talk.ask("y")).text == "again"
    assert wire.answer(0) == {"decision": "cancel"}


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        (Answer.ALLOW_ONCE, {"permissions": {"network": {"enabled": True}}, "scope": "turn"}),
        (Answer.ALLOW_ALWAYS, {"permissions": {"network": {"enabled": True}}, "scope": "session"}),
        (Answer.REJECT_ONCE, {"permissions": {}}),
    ],
)
@aio
async def test_permissions_are_granted_as_they_were_asked_for_or_not_at_all(
    answer: Answer, reply: dict[str, Any], tmp_path: Path
) -> None:
    wanted = {"permissions": {"network": {"enabled": True}}, "cwd": "/w", "startedAtMs": 1}
    question = request(
        0, "item/permissions/requestApproval", **about(), itemId="c1", reason=None, **wanted
    )
    options = structs.replace(OPTIONS, permit=lambda question: answer)
    steps = asking(question, wait_for(0), resolved(0))
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert wire.answer(0) == reply


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        (Answer.ALLOW_ONCE, "approved"),
        (Answer.ALLOW_ALWAYS, "approved_for_session"),
        (Answer.REJECT_ONCE, {"denied": {"rejection": "refused by the client"}}),
        (Answer.CANCEL, "abort"),
    ],
)
@aio
async def test_the_old_approvals_have_their_own_words(
    answer: Answer, decision: Any, tmp_path: Path
) -> None:
    fields = {"callId": "c1", "command": ["ls"], "cwd": "/w", "parsedCmd": []}
    question = request(0, "execCommandApproval", conversationId="t1", **fields)
    options = structs.replace(OPTIONS, permit=lambda question: answer)
    steps = [question, wait_for(0), message("done")]
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert wire.answer(0) == {"decision": decision}


QUESTION = request(
    0,
    "item/tool/requestUserInput",
    **about(),
    itemId="q1",
    isBlocking=True,
    questions=[{"id": "colour", "header": "Colour", "question": "Which?", "options": None}],
)


@aio
async def test_questions_are_answered_by_their_ids(tmp_path: Path) -> None:
    async def answer(asked: shapes.UserInputRequest) -> dict[str, Sequence[str]]:
        return {question["id"]: ["blue"] for question in asked.questions}

    options = structs.replace(OPTIONS, answer_questions=answer)
    steps = [QUESTION, wait_for(0), resolved(0), message("done")]
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert wire.answer(0) == {"answers": {"colour": {"answers": ["blue"]}}}


FORM = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
PAGE = {"mode": "url", "message": "Go", "url": "https://example.invalid/", "elicitationId": "e1"}


@pytest.mark.parametrize(
    ("wanted", "reply", "result"),
    [
        (FORM, Reply("accept", {"name": "me"}), {"action": "accept", "content": {"name": "me"}}),
        (FORM, Reply("cancel"), {"action": "cancel", "content": None}),
        (PAGE, Reply("accept"), {"action": "accept", "content": None}),
        ({**FORM, "mode": "novel"}, Reply("accept"), {"action": "decline", "content": None}),
    ],
)
@aio
async def test_a_form_is_answered_and_what_cannot_be_shown_is_declined(
    wanted: dict[str, Any], reply: Reply, result: dict[str, Any], tmp_path: Path
) -> None:
    async def inquire(inquiry: Inquiry) -> Reply:
        return reply

    question = request(0, "mcpServer/elicitation/request", serverName="s", **about(), **wanted)
    options = structs.replace(OPTIONS, inquire=inquire)
    steps = [question, wait_for(0), resolved(0), message("done")]
    async with thread(tmp_path, turns(steps), options) as (talk, wire):
        await talk.ask("x")
    assert wire.answer(0) == result


@pytest.mark.parametrize("questions", [QUESTION, FORM])
@aio
async def test_questions_without_anyone_to_answer_are_answered_at_once(
    questions: Step, tmp_path: Path
) -> None:
    if questions is FORM:
        fields = {"serverName": "s", **about(), **FORM}
        questions = request(0, "mcpServer/elicitation/request", **fields)
    steps = [questions, wait_for(0), message("done")]
    async with thread(tmp_path, turns(steps)) as (talk, wire):
        assert (await talk.ask("x")).text == "done"
    assert wire.answer(0) in ({"answers": {}}, {"action": "decline", "content": None})


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("item/tool/call", -32601),
        ("currentTime/read", -32601),
        ("novel/request", -32601),
        ("item/commandExecution/requestApproval", -32602),
    ],
)
@aio
async def test_a_request_that_is_not_understood_is_refused_and_the_turn_goes_on(
    method: str, code: int, tmp_path: Path
) -> None:
    steps = [request(0, method, novel=1), wait_for(0), message("done")]
    async with thread(tmp_path, turns(steps), ALLOWING) as (talk, wire):
        assert (await talk.ask("x")).text == "done"
    assert wire.answer(0)["code"] == code


@aio
async def test_an_approval_of_a_thread_that_is_not_ours_is_not_given(tmp_path: Path) -> None:
    other = ask_command(0)["send"]
    other["params"]["threadId"] = "t7"
    steps: list[Step] = [{"send": other}, wait_for(0), message("done")]
    async with thread(tmp_path, turns(steps), ALLOWING) as (talk, wire):
        assert (await talk.ask("x")).text == "done"
    assert wire.answer(0) == {"decision": "cancel"}
