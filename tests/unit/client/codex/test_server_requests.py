"""What the server asks of us."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec import structs

from dragoman.client.budgets import Budgets
from dragoman.client.codex import CodexOptions
from dragoman.client.inquiries import CANCELLED, Inquiry, Reply
from dragoman.client.permissions import Answer, Question, approve_all, deny_all
from dragoman.client.tool_input import told_of
from dragoman.dialects.codex import shapes
from dragoman.errors import RemoteError
from dragoman.events import model
from dragoman.wire.messages import Request
from tests.aio import aio
from tests.unit.client.codex.server_side import BUDGETS, WAIT, Server, talking, watch

HERE = {"threadId": "t1", "turnId": "u1", "itemId": "i"}
COMMAND = "item/commandExecution/requestApproval"
OPTIONS = CodexOptions(budgets=BUDGETS, permit=approve_all)


@aio
async def test_a_permission_is_asked_for_answered_and_told() -> None:
    server = Server()
    async with talking(server, OPTIONS) as (peer, talk):
        events = watch(peer)
        async with talk.prompt("x") as turn:
            server.start_turn()
            assert await server.ask(COMMAND, **HERE, command="ls") == {"decision": "accept"}
            server.end_turn()
            await turn.wait()
        asked, answered = (
            e for e in events if isinstance(e, model.PermissionAsked | model.PermissionAnswered)
        )
        assert isinstance(asked, model.PermissionAsked)
        assert isinstance(answered, model.PermissionAnswered)
        assert asked.request_id == answered.request_id
        assert (asked.title, asked.session, asked.turn, asked.tool_id) == ("ls", "t1", "u1", "i")
        assert (answered.allowed, answered.option_id, answered.by) == (True, "accept", "caller")


@aio
async def test_without_a_callback_everything_is_refused() -> None:
    server = Server()
    async with talking(server) as (_, talk):
        async with talk.prompt("x") as turn:
            server.start_turn()
            assert await server.ask(COMMAND, **HERE, command="ls") == {"decision": "decline"}
            server.end_turn()
            result = await turn.wait()
        assert [denial.title for denial in result.denials] == ["ls"]


@aio
async def test_nothing_is_allowed_after_a_cancel_that_was_not_heard() -> None:
    server = Server()
    options = structs.replace(OPTIONS, budgets=Budgets(cancel_grace=0.02))
    async with talking(server, options) as (_, talk):
        async with talk.prompt("x") as turn:
            server.start_turn()
            turn.cancel()
            async with asyncio.timeout(WAIT):
                await turn.wait()
        assert talk.unusable
        assert await server.ask(COMMAND, **HERE, command="ls") == {"decision": "cancel"}


@aio
async def test_a_permission_that_no_option_can_give_counts_as_denied() -> None:
    server = Server()
    async with talking(server, OPTIONS) as (peer, talk):
        events = watch(peer)
        async with talk.prompt("x") as turn:
            server.start_turn()
            offered = ["acceptForSession", "cancel"]
            reply = await server.ask(COMMAND, **HERE, command="ls", availableDecisions=offered)
            assert reply == {"decision": "decline"}
            server.end_turn()
            result = await turn.wait()
        (answered,) = [e for e in events if isinstance(e, model.PermissionAnswered)]
        assert (answered.allowed, answered.option_id) == (False, "decline")
        assert [denial.title for denial in result.denials] == ["ls"]


@aio
async def test_an_id_that_comes_again_is_another_request() -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def permit(question: Question) -> Answer:
        if question.request_id == "7":
            return Answer.ALLOW_ONCE
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        raise AssertionError

    server = Server()
    async with talking(server, structs.replace(OPTIONS, permit=permit)) as (peer, talk):
        events = watch(peer)
        async with talk.prompt("x") as turn:
            server.start_turn()
            first = Request(7, COMMAND, msgspec.Raw(msgspec.json.encode(HERE)), b"one")
            assert await peer.client.request(first) == {"decision": "accept"}
            again = peer.client.connection.tasks.start(peer.client.request(first), "ask")
            async with asyncio.timeout(WAIT):
                await asked.wait()
                # The server withdraws the newest one that has this id.
                server.tell("serverRequest/resolved", threadId="t1", requestId=7)
                await over.wait()
            assert await again == {"decision": "cancel"}
            server.end_turn()
            await turn.wait()
        told = [e.request_id for e in events if isinstance(e, model.PermissionAsked)]
        assert told == ["7", "7#2"]
        withdrawn = [e.request_id for e in events if isinstance(e, model.InputAnswered)]
        assert withdrawn == ["7#2"]


@aio
async def test_what_is_asked_is_reported_in_the_order_of_the_wire() -> None:
    server = Server()
    async with talking(server, OPTIONS) as (peer, talk):
        events = watch(peer)
        async with talk.prompt("x") as turn:
            server.start_turn()
            question = server.connection.tasks.start(server.ask(COMMAND, **HERE), "ask")
            user = server.connection.tasks.start(
                server.ask("item/tool/requestUserInput", **HERE, questions=[]), "ask"
            )
            await asyncio.sleep(0)
            server.say("behind")
            server.end_turn()
            await turn.wait()
            await asyncio.gather(question, user)
        told = [
            type(event)
            for event in events
            if isinstance(event, model.PermissionAsked | model.InputAsked | model.MessageDelta)
        ]
        assert told == [model.PermissionAsked, model.InputAsked, model.MessageDelta]


@aio
async def test_a_change_of_files_is_asked_about_by_its_announcement() -> None:
    questions: list[Question] = []

    def permit(question: Question) -> Answer:
        questions.append(question)
        return Answer.ALLOW_ONCE

    server = Server()
    options = structs.replace(OPTIONS, permit=permit)
    async with talking(server, options) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        change = {"path": "/a", "kind": {"type": "add"}, "diff": "+"}
        item = {"type": "fileChange", "id": "i", "status": "inProgress", "changes": [change]}
        server.tell("item/started", threadId="t1", turnId="u1", item=item)
        await server.ask("item/fileChange/requestApproval", **HERE)
        server.end_turn()
        await turn.wait()
    assert questions[0].title == "Edit /a"
    assert set(told_of(questions[0].tool_call).paths) == {"/a"}, "the policy knows which files"
    assert [change.new_text for change in questions[0].tool_call.content] == ["+"]


@aio
async def test_a_request_of_a_thread_that_is_not_ours_is_not_answered() -> None:
    server = Server()
    async with talking(server, OPTIONS):
        elsewhere = {**HERE, "threadId": "another"}
        assert await server.ask(COMMAND, **elsewhere) == {"decision": "cancel"}


@aio
async def test_a_callback_that_raises_is_not_an_answer_but_an_error() -> None:
    def permit(question: Question) -> Answer:
        raise RuntimeError("secret")

    server = Server()
    options = structs.replace(OPTIONS, permit=permit)
    async with talking(server, options) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        with pytest.raises(RemoteError, match="Internal error") as refused:
            await server.ask(COMMAND, **HERE)
        assert "secret" not in str(refused.value.data)
        server.end_turn()
        await turn.wait()


@aio
async def test_a_question_that_the_server_withdraws_is_cancelled() -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def permit(question: Question) -> Answer:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        raise AssertionError

    server = Server()
    options = structs.replace(OPTIONS, permit=permit)
    async with talking(server, options) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        question = server.connection.tasks.start(server.ask(COMMAND, **HERE), "ask")
        async with asyncio.timeout(WAIT):
            await asked.wait()
            server.tell("serverRequest/resolved", threadId="t1", requestId="nonsense")
            (id,) = talk.questions._open
            server.tell("serverRequest/resolved", threadId="t1", requestId=id)
            await over.wait()
            assert await question == {"decision": "cancel"}
        server.end_turn()
        assert (await turn.wait()).denials == ()


@aio
async def test_questions_of_a_turn_that_is_being_cancelled_are_not_asked() -> None:
    questions: list[Question] = []

    def permit(question: Question) -> Answer:
        questions.append(question)
        return Answer.ALLOW_ONCE

    server = Server()
    options = structs.replace(OPTIONS, permit=permit)
    async with talking(server, options) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        server.say("x")
        async for event in turn:
            if isinstance(event, model.MessageDelta):
                turn.cancel()
                break
        assert await server.ask(COMMAND, **HERE) == {"decision": "cancel"}
        server.end_turn(status="interrupted")
        await turn.wait()
    assert questions == []


QUESTIONS = [{"id": "q", "question": "Which?"}]


@aio
async def test_questions_to_the_user_are_answered_by_their_ids() -> None:
    async def answer(asked: shapes.UserInputRequest) -> dict[str, Sequence[str]]:
        return {str(question["id"]): ["a", "b"] for question in asked.questions}

    server = Server()
    options = structs.replace(OPTIONS, answer_questions=answer)
    async with talking(server, options) as (peer, _):
        events = watch(peer)
        answers = await server.ask("item/tool/requestUserInput", **HERE, questions=QUESTIONS)
        assert answers == {"answers": {"q": {"answers": ["a", "b"]}}}
        told = [e for e in events if isinstance(e, model.InputAsked | model.InputAnswered)]
        assert isinstance(told[0], model.InputAsked)
        assert (told[0].mode, told[0].message) == ("questions", "Which?")
        assert isinstance(told[1], model.InputAnswered)
        assert told[1].action == "accept"


@aio
async def test_unanswered_questions_get_empty_answers() -> None:
    server = Server()
    async with talking(server) as (peer, _):
        events = watch(peer)
        answers = await server.ask("item/tool/requestUserInput", **HERE, questions=QUESTIONS)
        assert answers == {"answers": {}}
        assert [e.action for e in events if isinstance(e, model.InputAnswered)] == ["decline"]


FORM = {"threadId": "t1", "turnId": None, "serverName": "s", "mode": "form", "message": "Name?"}


@pytest.mark.parametrize(
    ("content", "reply"),
    [
        ({"name": "x"}, {"action": "accept", "content": {"name": "x"}}),
        (None, {"action": "decline", "content": None}),
    ],
)
@aio
async def test_a_form_is_filled_in_or_declined(content: Any, reply: Any) -> None:
    async def fill(asked: shapes.ElicitationRequest) -> dict[str, Any] | None:
        assert (asked.server_name, asked.message) == ("s", "Name?")
        return content  # type: ignore[no-any-return]

    server = Server()
    options = structs.replace(OPTIONS, answer_form=fill)
    async with talking(server, options):
        assert await server.ask("mcpServer/elicitation/request", **FORM) == reply


@pytest.mark.parametrize(
    ("permit", "reply"),
    [
        (approve_all, {"action": "accept", "content": {}}),
        (deny_all, {"action": "decline", "content": None}),
    ],
)
@aio
async def test_a_call_of_an_mcp_tool_is_a_question_for_permission(permit: Any, reply: Any) -> None:
    async def inquire(inquiry: Inquiry) -> Reply:
        raise AssertionError("it is not a form")

    server = Server()
    options = structs.replace(OPTIONS, permit=permit, inquire=inquire)
    form = {**FORM, "_meta": {"codex_approval_kind": "mcp_tool_call"}}
    async with talking(server, options):
        assert await server.ask("mcpServer/elicitation/request", **form) == reply


@aio
async def test_the_inquire_callback_answers_questions_and_forms() -> None:
    asked: list[Inquiry] = []

    async def inquire(inquiry: Inquiry) -> Reply:
        asked.append(inquiry)
        return Reply("accept", {"q": "a"})

    server = Server()
    form = {**FORM, "requestedSchema": {"type": "object"}}
    async with talking(server, structs.replace(OPTIONS, inquire=inquire)) as (peer, _):
        answers = await server.ask("item/tool/requestUserInput", **HERE, questions=QUESTIONS)
        assert answers == {"answers": {"q": {"answers": ["a"]}}}
        reply = await server.ask("mcpServer/elicitation/request", **form)
        assert reply == {"action": "accept", "content": {"q": "a"}}
        assert [inquiry.message for inquiry in asked] == ["Which?", "Name?"]
        events = watch(peer)
        peer.inquire_with(lambda inquiry: CANCELLED)
        answers = await server.ask("item/tool/requestUserInput", **HERE, questions=QUESTIONS)
        assert answers == {"answers": {}}
        reply = await server.ask("mcpServer/elicitation/request", **form)
        assert reply == {"action": "cancel", "content": None}
        told = [event.action for event in events if isinstance(event, model.InputAnswered)]
        assert told == ["decline", "cancel"]


@aio
async def test_a_question_of_a_turn_that_is_cancelled_is_closed() -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def inquire(inquiry: Inquiry) -> Reply:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()
        raise AssertionError

    server = Server()
    form = {**FORM, "requestedSchema": {"type": "object"}}
    options = structs.replace(OPTIONS, inquire=inquire)
    async with talking(server, options) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        asking = server.ask("mcpServer/elicitation/request", **form)
        question = server.connection.tasks.start(asking, "ask")
        async with asyncio.timeout(WAIT):
            await asked.wait()
            turn.cancel()
            await over.wait()
            assert await question == {"action": "cancel", "content": None}
        server.end_turn(status="interrupted")
        await turn.wait()


@aio
async def test_a_form_that_is_not_filled_in_is_declined() -> None:
    server = Server()
    async with talking(server):
        answer = await server.ask("mcpServer/elicitation/request", **FORM)
        assert answer["action"] == "decline"


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("item/tool/call", -32601),
        ("attestation/generate", -32601),
        (COMMAND, -32602),
        ("item/tool/requestUserInput", -32602),
    ],
)
@aio
async def test_what_is_not_understood_is_refused_and_told(method: str, code: int) -> None:
    server = Server()
    async with talking(server) as (peer, _):
        events = watch(peer)
        with pytest.raises(RemoteError) as refused:
            await server.ask(method, nonsense=1)
        assert refused.value.code == code
        assert [e.native for e in events if isinstance(e, model.Unknown)] == [method]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("item/tool/requestUserInput", {**HERE, "questions": QUESTIONS}),
        ("mcpServer/elicitation/request", {**FORM, "requestedSchema": {"type": "object"}}),
    ],
)
@aio
async def test_a_question_whose_callback_fails_is_reported_as_cancelled(
    method: str, params: Any
) -> None:
    def inquire(inquiry: Inquiry) -> Reply:
        raise RuntimeError("broken")

    server = Server()
    async with talking(server, structs.replace(OPTIONS, inquire=inquire)) as (peer, talk):
        events = watch(peer)
        with pytest.raises(RemoteError, match="Internal error"):
            await server.ask(method, **params)
        (answer,) = [event for event in events if isinstance(event, model.InputAnswered)]
        assert answer.action == "cancel"
