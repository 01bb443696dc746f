"""What an agent asks of its client: permission, answers of people, methods of its own.

Files and terminals are in tests/integration/test_acp_client_services.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.acp import ClientOptions
from dragoman.client.permissions import Answer, Denial, Question, approve_all, approve_reads
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError, UsageError
from tests.aio import aio
from tests.unit.client.acp.agent_side import Noises, chunk, opened
from tests.unit.rpc.other_side import soon, until

ASK = "session/request_permission"
ELICIT = "elicitation/create"

NOT_FOUND = -32601


def selected(option_id: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}


# -- permission


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer.ALLOW_ONCE, selected("proceed_once")),
        (Answer.ALLOW_ALWAYS, selected("proceed_always")),
        (Answer.REJECT_ONCE, selected("cancel")),
        (Answer.REJECT_ALWAYS, selected("cancel")),
        (Answer.CANCEL, CANCELLED),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
@aio
async def test_the_answer_of_a_callback_becomes_the_option_of_its_kind(
    answer: Answer, outcome: Any, is_async: bool
) -> None:
    asked: list[Question] = []

    def decide(question: Question) -> Answer:
        asked.append(question)
        return answer

    async def decide_later(question: Question) -> Answer:
        await asyncio.sleep(0)
        return decide(question)

    options = ClientOptions(permit=decide_later if is_async else decide)
    async with opened(options) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.ask(7, ASK, agent.permission())
            assert (await agent.heard_answer(7))["result"] == outcome
            agent.answer(prompt, {"stopReason": "end_turn"})
            result = await turn.wait()
    (question,) = asked
    assert (question.session_id, question.tool_call_id) == ("s1", "c1")
    assert (question.title, question.kind) == ("touch x", "execute")
    assert [option.kind for option in question.options] == [
        "allow_always",
        "allow_once",
        "reject_once",
    ]
    denied = answer in (Answer.REJECT_ONCE, Answer.REJECT_ALWAYS)
    assert result.denials == ((Denial("c1", "touch x", "execute"),) if denied else ())


@aio
async def test_by_default_everything_is_refused_with_a_reject_option() -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.ask(0, ASK, agent.permission())
            assert (await agent.heard_answer(0))["result"] == selected("cancel")
            agent.answer(prompt, {"stopReason": "end_turn"})
            assert len((await turn.wait()).denials) == 1


@pytest.mark.parametrize("permit", [approve_all, approve_reads])
@aio
async def test_an_option_of_an_unknown_kind_is_never_chosen(permit: Any) -> None:
    odd = [
        {"optionId": "sure", "name": "Sure", "kind": "allow_for_session"},
        {"optionId": "no", "name": "No", "kind": "maybe_not"},
    ]
    async with opened(ClientOptions(permit=permit)) as (session, agent):
        agent.ask(0, ASK, agent.permission(options=odd))
        assert (await agent.heard_answer(0))["result"] == CANCELLED
        agent.ask(1, ASK, agent.permission(options=[]))
        assert (await agent.heard_answer(1))["result"] == CANCELLED


@aio
async def test_permission_that_no_option_can_give_stands_among_the_denials() -> None:
    always = [{"optionId": "always", "name": "Always", "kind": "allow_always"}]
    async with opened(ClientOptions(permit=approve_all)) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.ask(0, ASK, agent.permission(options=always))
            assert (await agent.heard_answer(0))["result"] == CANCELLED
            agent.answer(prompt, {"stopReason": "end_turn"})
            assert (await turn.wait()).denials == (Denial("c1", "touch x", "execute"),)


@aio
async def test_a_tool_call_that_is_first_seen_in_a_question_appears_as_an_update() -> None:
    call = {
        "toolCallId": "c9",
        "title": "Write",
        "kind": "edit",
        "status": "pending",
        "content": [{"type": "diff", "path": "/workspace/x", "oldText": "", "newText": "y"}],
        "locations": [{"path": "/workspace/x", "line": 3}],
        "rawInput": {"path": "x"},
        "_meta": {"vendor": 1},
    }
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.ask(0, ASK, agent.permission(call))
            await agent.heard_answer(0)
            agent.answer(prompt, {"stopReason": "end_turn"})
            (update,) = [update async for update in turn]
    assert isinstance(update, acp.ToolCallProgress)
    assert json.loads(acp.encode(update)) == {"sessionUpdate": "tool_call_update", **call}


@aio
async def test_a_question_stands_among_the_updates_where_it_stood_on_the_wire() -> None:
    async with opened() as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            progress = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "failed"}
            # In one piece: before, the question, after, and the end of the turn.
            agent.say(
                agent.updating(chunk("before")),
                agent.asking(3, ASK, agent.permission()),
                agent.updating(progress),
                {"jsonrpc": "2.0", "id": prompt["id"], "result": {"stopReason": "end_turn"}},
            )
            seen = [update async for update in turn]
        assert [getattr(update, "status", "said") for update in seen] == ["said", None, "failed"]
        assert (await agent.heard_answer(3))["result"] == selected("cancel")
        assert not session.outside


@aio
async def test_a_callback_that_fails_is_an_internal_error_and_ends_the_turn_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def permit(question: Question) -> Answer:
        raise RuntimeError("the password is swordfish")

    async with opened(ClientOptions(permit=permit)) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.ask(4, ASK, agent.permission())
            await agent.expect("session/cancel")
            error = (await agent.heard_answer(4))["error"]
            assert error["code"] == -32603
            assert "swordfish" not in json.dumps(error)
            assert error["data"]["incident"] in caplog.text
            assert "swordfish" in caplog.text
            agent.answer(prompt, {"stopReason": "cancelled"})
            error = (await turn.wait()).error
            assert isinstance(error, UsageError)
            assert "raised RuntimeError: the password is swordfish" in str(error)


@aio
async def test_a_callback_that_answers_nonsense_is_an_internal_error() -> None:
    async with opened(ClientOptions(permit=lambda question: "yes")) as (_, agent):  # type: ignore[arg-type, return-value]
        agent.ask(4, ASK, agent.permission())
        assert (await agent.heard_answer(4))["error"]["code"] == -32603


@pytest.mark.parametrize(
    "damage",
    [
        {"toolCall": None},
        {"toolCall": {"title": "no id"}},
        {"options": None},
        {"options": [{"optionId": "x"}]},
        {"sessionId": 7},
    ],
)
@aio
async def test_a_malformed_question_is_refused_and_not_asked(damage: dict[str, Any]) -> None:
    def permit(question: Question) -> Answer:
        pytest.fail("nobody is to be asked")

    async with opened(ClientOptions(permit=permit)) as (session, agent):
        agent.ask(1, ASK, {**agent.permission(), **damage})
        assert (await agent.heard_answer(1))["error"]["code"] == -32602
        agent.ask(2, ASK, None)
        assert (await agent.heard_answer(2))["error"]["code"] == -32602
        assert not session.outside


@aio
async def test_a_question_of_an_unknown_session_is_refused() -> None:
    async with opened() as (_, agent):
        agent.ask(1, ASK, agent.permission(session_id="nobody"))
        error = (await agent.heard_answer(1))["error"]
        assert (error["code"], error["data"]) == (-32002, {"sessionId": "nobody"})


class Hesitant:
    """Never decides; notes whether it was told to stop."""

    def __init__(self) -> None:
        self.asked = 0
        self.stopped = 0

    async def permit(self, question: Question) -> Answer:
        await self._hesitate()
        return Answer.ALLOW_ONCE

    async def elicit(self, request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        await self._hesitate()
        return acp.ElicitationAccepted()

    async def _hesitate(self) -> None:
        self.asked += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped += 1


FORM = {
    "mode": "form",
    "sessionId": "s1",
    "message": "Which one?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}


@aio
async def test_cancelling_a_turn_answers_every_open_question_as_cancelled() -> None:
    who = Hesitant()
    options = ClientOptions(permit=who.permit, elicit=who.elicit)
    async with opened(options) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.ask(1, ASK, agent.permission())
            agent.ask(2, ASK, agent.permission())
            agent.ask(3, ELICIT, FORM)
            await until(lambda: who.asked == 3)
            turn.cancel()
            await agent.expect("session/cancel")
            answers = {}
            for _ in range(3):
                message = await agent.next()
                answers[message["id"]] = message["result"]
            assert answers == {1: CANCELLED, 2: CANCELLED, 3: {"action": "cancel"}}
            assert who.stopped == 3
            # And those that come while the turn is being cancelled are not asked at all.
            agent.ask(4, ASK, agent.permission())
            assert (await agent.heard_answer(4))["result"] == CANCELLED
            agent.ask(5, ELICIT, FORM)
            assert (await agent.heard_answer(5))["result"] == {"action": "cancel"}
            assert who.asked == 3
            agent.answer(prompt, {"stopReason": "cancelled"})
            assert (await turn.wait()).denials == ()


@aio
async def test_a_question_and_a_cancel_in_the_same_moment_leave_no_question_open() -> None:
    who = Hesitant()
    options = ClientOptions(permit=who.permit, elicit=who.elicit)
    async with opened(options) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            session.on_update = lambda update: turn.cancel()
            agent.say(
                agent.asking(1, ASK, agent.permission()),
                agent.asking(2, ELICIT, FORM),
                agent.updating(chunk("a")),
            )
            await agent.expect("session/cancel")
            assert (await agent.heard_answer(1))["result"] == CANCELLED
            assert (await agent.heard_answer(2))["result"] == {"action": "cancel"}
            agent.answer(prompt, {"stopReason": "cancelled"})
            await turn.wait()


@aio
async def test_an_answer_given_although_the_turn_was_cancelled_is_sent() -> None:
    async def insist(question: Question) -> Answer:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Answer.REJECT_ONCE
        raise AssertionError

    async with opened(ClientOptions(permit=insist)) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.ask(1, ASK, agent.permission())
            agent.ask(2, ASK, agent.permission())
            await until(lambda: len(session.questions) == 2)
            turn.cancel()
            session.cancel_questions()
            await agent.expect("session/cancel")
            for id in (1, 2):
                answer = (await agent.heard_answer(id))["result"]
                assert answer["outcome"]["outcome"] == "selected"
            assert not session.questions
            agent.answer(prompt, {"stopReason": "cancelled"})
            await turn.wait()


@aio
async def test_a_callback_whose_own_wait_is_cancelled_has_not_answered() -> None:
    async def stumble(question: Question) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    async with opened(ClientOptions(permit=stumble)) as (_, agent):
        for id in (1, 2):
            agent.ask(id, ASK, agent.permission())
            assert (await agent.heard_answer(id))["error"]["code"] == -32603


@pytest.mark.parametrize("people", [True, False])
@aio
async def test_what_a_question_is_about_is_shown_at_once_to_people_and_soon_to_others(
    people: bool,
) -> None:
    who = Hesitant()
    options = ClientOptions(permit=who.permit if people else approve_all)
    async with opened(options) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.ask(1, ASK, agent.permission())
            # Nothing else comes, so that nothing else wakes the consumer.
            update = await soon(anext(turn))
            assert isinstance(update, acp.ToolCallProgress)
            assert who.asked == people
            turn.cancel()
            agent.answer(prompt, {"stopReason": "cancelled"})
            await turn.wait()


@aio
async def test_an_agent_may_take_its_question_back() -> None:
    who = Hesitant()
    async with opened(ClientOptions(permit=who.permit)) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            for id in (1, "one"):
                agent.ask(id, ASK, agent.permission())
                await until(lambda: who.asked > who.stopped)
                agent.say(_calling_off(id))
                assert (await agent.heard_answer(id))["error"]["code"] == -32800
                await until(lambda: who.asked == who.stopped)
            assert not turn.cancelling
            agent.answer(prompt, {"stopReason": "end_turn"})
            assert (await turn.wait()).stop == "end_turn"


def _calling_off(request_id: Any) -> dict[str, Any]:
    params = {"requestId": request_id}
    return {"jsonrpc": "2.0", "method": "$/cancel_request", "params": params}


@aio
async def test_a_question_that_is_taken_back_at_once_is_answered_once() -> None:
    who = Hesitant()
    async with opened(ClientOptions(permit=who.permit)) as (session, agent):
        agent.say(agent.asking(1, ASK, agent.permission()), _calling_off(1))
        assert (await agent.heard_answer(1))["error"]["code"] == -32800
        agent.say(_calling_off(1), _calling_off(99), _calling_off(None), _calling_off([]))
        agent.ask(2, ASK, agent.permission())
        agent.say(_calling_off(2))
        assert (await agent.heard_answer(2))["error"]["code"] == -32800


@aio
async def test_questions_outside_of_turns_are_answered_too() -> None:
    async with opened(ClientOptions(permit=approve_all)) as (session, agent):
        agent.ask(1, ASK, agent.permission())
        assert (await agent.heard_answer(1))["result"] == selected("proceed_once")
        assert len(session.outside) == 1


@aio
async def test_closing_a_session_cancels_its_questions() -> None:
    who = Hesitant()
    async with opened(ClientOptions(permit=who.permit)) as (session, agent):
        agent.ask(1, ASK, agent.permission())
        await until(lambda: who.asked == 1)
        await session.close()
        assert (await agent.heard_answer(1))["result"] == CANCELLED


@aio
async def test_an_agent_that_goes_away_takes_its_questions_with_it() -> None:
    who = Hesitant()
    async with opened(ClientOptions(permit=who.permit)) as (_, agent):
        agent.ask(1, ASK, agent.permission())
        await until(lambda: who.asked == 1)
        await agent.stream.aclose()
        await until(lambda: who.stopped == 1)


# -- elicitation


@pytest.mark.parametrize("is_async", [False, True])
@aio
async def test_a_form_is_answered_by_the_callback(is_async: bool) -> None:
    requests: list[acp.CreateElicitationRequest] = []

    def fill(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        requests.append(request)
        return acp.ElicitationAccepted(content={"name": "dragoman"})

    async def fill_later(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        await asyncio.sleep(0)
        return fill(request)

    options = ClientOptions(elicit=fill_later if is_async else fill)
    async with opened(options) as (_, agent):
        accepted = {"action": "accept", "content": {"name": "dragoman"}}
        agent.ask(1, ELICIT, FORM)
        assert (await agent.heard_answer(1))["result"] == accepted
        without_session = {key: value for key, value in FORM.items() if key != "sessionId"}
        agent.ask(2, ELICIT, {**without_session, "requestId": 5})
        assert (await agent.heard_answer(2))["result"] == accepted
    assert [type(request) for request in requests] == [acp.ElicitationForm] * 2


@aio
async def test_an_elicitation_that_was_not_offered_is_refused() -> None:
    url = {
        "mode": "url",
        "sessionId": "s1",
        "message": "Go",
        "elicitationId": "e1",
        "url": "https://example.org/",
    }
    async with opened() as (_, agent):
        agent.ask(1, ELICIT, FORM)
        assert (await agent.heard_answer(1))["error"]["code"] == NOT_FOUND
    options = ClientOptions(elicit=lambda request: acp.ElicitationDeclined())
    async with opened(options) as (_, agent):
        agent.ask(1, ELICIT, FORM)
        assert (await agent.heard_answer(1))["result"] == {"action": "decline"}
        for id, params in ((2, url), (3, {"mode": "hologram", "sessionId": "s1", "message": "?"})):
            agent.ask(id, ELICIT, params)
            assert (await agent.heard_answer(id))["error"]["code"] == -32602
        agent.ask(4, ELICIT, {**FORM, "sessionId": "nobody"})
        assert (await agent.heard_answer(4))["error"]["code"] == -32002
        agent.ask(5, ELICIT, {"mode": "form", "message": "whose?", "requestedSchema": {}})
        assert (await agent.heard_answer(5))["error"]["code"] == -32602


@aio
async def test_the_end_of_a_url_request_is_reported_once() -> None:
    done: list[str] = []
    heard: list[Any] = []
    noises = Noises()
    answers: list[acp.CreateElicitationResponse] = [
        acp.ElicitationAccepted(),
        acp.ElicitationDeclined(),
    ]

    class Witness:
        async def request(self, method: str, params: Any) -> Any:
            raise RemoteError(NOT_FOUND, "no")

        def notification(self, method: str, params: Any) -> None:
            heard.append(method)

    options = ClientOptions(
        elicit=lambda request: answers.pop(0),
        visits=True,
        on_url_done=done.append,
        extension=Witness(),
        on_noise=noises,
    )
    async with opened(options) as (_, agent):
        for id in (1, 2):
            url = {"mode": "url", "sessionId": "s1", "message": "Go", "url": "https://example.org/"}
            agent.ask(id, ELICIT, {**url, "elicitationId": f"e{id}"})
            await agent.heard_answer(id)

        def complete(elicitation_id: Any) -> dict[str, Any]:
            params = {"elicitationId": elicitation_id}
            return {"jsonrpc": "2.0", "method": "elicitation/complete", "params": params}

        # The second was declined, the third was never asked, the last is garbled.
        agent.say(complete("e1"), complete("e1"), complete("e2"), complete("e3"), complete(None))
        agent.say({"jsonrpc": "2.0", "method": "_end"})
        await until(lambda: heard == ["_end"])
    assert done == ["e1"]
    assert len(noises) == 1


# -- extensions


class Vendor:
    """Answers one method, and remembers what it heard."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.told: list[tuple[str, Any]] = []

    async def request(self, method: str, params: Any) -> Any:
        self.asked.append((method, params))
        if method != "_vendor/ask":
            raise RemoteError(NOT_FOUND, "Method not found")
        return {"answer": 42}

    def notification(self, method: str, params: Any) -> None:
        self.told.append((method, params))


@aio
async def test_methods_of_the_agents_own_reach_the_extension() -> None:
    vendor = Vendor()
    async with opened(ClientOptions(extension=vendor)) as (_, agent):
        agent.ask(1, "_vendor/ask", {"q": [1]})
        assert (await agent.heard_answer(1))["result"] == {"answer": 42}
        agent.ask(2, "craft/drain", None)
        assert (await agent.heard_answer(2))["error"]["code"] == NOT_FOUND
        agent.say({"jsonrpc": "2.0", "method": "vendor/notify", "params": {"x": 1}})
        agent.say({"jsonrpc": "2.0", "method": "_vendor/bare"})
        await until(lambda: len(vendor.told) == 2)
    assert vendor.asked == [("_vendor/ask", {"q": [1]}), ("craft/drain", None)]
    assert vendor.told == [("vendor/notify", {"x": 1}), ("_vendor/bare", None)]


@aio
async def test_a_method_of_the_protocol_that_is_switched_off_is_not_an_extension() -> None:
    vendor = Vendor()
    options = ClientOptions(extension=vendor, read_files=False)
    async with opened(options) as (_, agent):
        for id, method in enumerate(("fs/read_text_file", "terminal/create", ELICIT)):
            agent.ask(id, method, {"sessionId": "s1", "path": "/x"})
            assert (await agent.heard_answer(id))["error"]["code"] == NOT_FOUND
    assert vendor.asked == []


@aio
async def test_an_extension_that_fails_on_a_notification_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Vendor):
        def notification(self, method: str, params: Any) -> None:
            raise ZeroDivisionError

    async with opened(ClientOptions(extension=Failing())) as (session, agent):
        agent.say({"jsonrpc": "2.0", "method": "_vendor/tell"})
        agent.update(chunk("a"))
        await until(lambda: len(session.outside) == 1)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


# -- questions that tell little, and what is done without any


@aio
async def test_a_question_is_completed_by_the_reports_of_its_tool_call() -> None:
    asked: list[Question] = []

    def decide(question: Question) -> Answer:
        asked.append(question)
        return approve_reads(question)

    async with opened(ClientOptions(permit=decide)) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            call = {"toolCallId": "c7", "title": "Edit a", "kind": "edit"}
            agent.update({"sessionUpdate": "tool_call", **call, "rawInput": {"path": "/a"}})
            for id, question in enumerate(({}, {"kind": "read"})):
                agent.ask(id, ASK, agent.permission({"toolCallId": "c7", **question}))
                assert (await agent.heard_answer(id))["result"] == selected("cancel")
            agent.answer(prompt, {"stopReason": "end_turn"})
            result = await turn.wait()
    assert [(q.kind, q.title, q.tool_call.raw_input) for q in asked] == [
        ("edit", "Edit a", {"path": "/a"})
    ] * 2
    assert result.denials == (Denial("c7", "Edit a", "edit"),) * 2


@pytest.mark.parametrize("is_async", [False, True])
@aio
async def test_a_guard_is_asked_before_a_file_or_a_command_is_served(
    tmp_path: Path, is_async: bool
) -> None:
    asked: list[tuple[str, Any]] = []

    def decide(question: Question) -> Answer:
        asked.append((question.kind, question.tool_call.raw_input))
        return Answer.ALLOW_ONCE if "fine" in question.title else Answer.REJECT_ONCE

    async def decide_later(question: Question) -> Answer:
        await asyncio.sleep(0)
        return decide(question)

    options = ClientOptions(guard=decide_later if is_async else decide, terminals=True)
    fine, bad = str(tmp_path / "fine.txt"), str(tmp_path / "bad.txt")
    (tmp_path / "bad.txt").write_text("secret")
    async with opened(options, cwd=tmp_path) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")

            async def call(method: str, **params: Any) -> Any:
                agent.ask(9, method, {"sessionId": "s1", **params})
                return await agent.heard_answer(9)

            await call("fs/write_text_file", path=fine, content="x")
            assert (await call("fs/read_text_file", path=fine))["result"] == {"content": "x"}
            for refused in (
                await call("fs/write_text_file", path=bad, content="x"),
                await call("fs/read_text_file", path=bad),
                await call("terminal/create", command="touch", args=[f"{bad}2"], cwd=bad),
            ):
                assert refused["error"]["code"] == -32602
                assert refused["error"]["data"] == {"errorClass": "not_permitted"}
            agent.answer(prompt, {"stopReason": "end_turn"})
            result = await turn.wait()
    assert (tmp_path / "bad.txt").read_text() == "secret"
    assert not (tmp_path / "bad.txt2").exists()
    assert asked == [
        ("edit", {"path": fine}),
        ("read", {"path": fine}),
        ("edit", {"path": bad}),
        ("read", {"path": bad}),
        ("execute", {"command": ["touch", f"{bad}2"], "cwd": bad}),
    ]
    assert [denial.kind for denial in result.denials] == ["edit", "read", "execute"]


@aio
async def test_cancelling_the_turn_does_not_wait_for_the_guard(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def never(question: Question) -> Answer:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with opened(ClientOptions(guard=never), cwd=tmp_path) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            path = str(tmp_path / "a")
            agent.ask(9, "fs/write_text_file", {"sessionId": "s1", "path": path, "content": ""})
            async with asyncio.timeout(5):
                await waiting.wait()
            turn.cancel()
            refused = await agent.next()
            if "method" in refused:
                refused = await agent.next()
            assert "being cancelled" in refused["error"]["message"]
            agent.answer(prompt, {"stopReason": "cancelled"})
            assert (await turn.wait()).denials == ()
