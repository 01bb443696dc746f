"""What an agent asks of its client: permission, files, terminals, answers of people."""

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
from dragoman.errors import RemoteError
from tests.aio import aio
from tests.unit.client.acp.agent_side import EVERYTHING, Noises, chunk, opened
from tests.unit.rpc.other_side import soon, turns, until

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
async def test_a_callback_that_fails_is_an_internal_error_and_the_turn_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def permit(question: Question) -> Answer:
        raise RuntimeError("the password is swordfish")

    async with opened(ClientOptions(permit=permit)) as (session, agent):
        async with session.prompt("hello") as turn:
            prompt = await agent.expect("session/prompt")
            agent.ask(4, ASK, agent.permission())
            error = (await agent.heard_answer(4))["error"]
            assert error["code"] == -32603
            assert "swordfish" not in json.dumps(error)
            assert error["data"]["incident"] in caplog.text
            assert "swordfish" in caplog.text
            agent.update(chunk("well"))
            agent.answer(prompt, {"stopReason": "end_turn"})
            assert len([update async for update in turn]) == 2
            assert turn.result.stop_reason == "end_turn"


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
async def test_a_malformed_question_is_refused_and_nobody_is_asked(damage: dict[str, Any]) -> None:
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
            assert (await turn.wait()).stop_reason == "end_turn"


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
async def test_a_form_is_answered_by_whoever_is_asked(is_async: bool) -> None:
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
async def test_whoever_was_sent_to_a_url_hears_when_it_is_done_and_only_once() -> None:
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
        elicit_url=True,
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


# -- files and terminals


@aio
async def test_files_are_read_and_written_in_the_workspace_and_nowhere_else(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "poem.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret.txt").write_text("swordfish")
    (root / "image.bin").write_bytes(b"\xff\xfe\x00")
    async with opened(cwd=root) as (_, agent):

        async def call(method: str, **params: Any) -> Any:
            agent.ask(9, method, {"sessionId": "s1", **params})
            return await agent.heard_answer(9)

        def code(message: Any) -> int:
            assert "swordfish" not in json.dumps(message)
            found: int = message["error"]["code"]
            return found

        read, write = "fs/read_text_file", "fs/write_text_file"
        poem = str(root / "poem.txt")
        assert (await call(read, path=poem))["result"] == {"content": "one\ntwo\nthree\n"}
        assert (await call(read, path=poem, line=2, limit=1))["result"] == {"content": "two\n"}
        assert code(await call(read, path=str(root / "missing.txt"))) == -32002
        assert code(await call(read, path=str(tmp_path / "secret.txt"))) == -32602
        assert code(await call(read, path=f"{root}/../secret.txt")) == -32602
        assert code(await call(read, path="poem.txt")) == -32602
        assert code(await call(read, path=str(root / "image.bin"))) == -32602
        assert code(await call(read, path=poem, line=-1)) == -32602
        assert code(await call(read, path=7)) == -32602
        assert (await call(write, path=str(root / "new.txt"), content="new"))["result"] == {}
        assert (root / "new.txt").read_text() == "new"
        assert code(await call(write, path=str(tmp_path / "secret.txt"), content="x")) == -32602
        assert (tmp_path / "secret.txt").read_text() == "swordfish"
        agent.ask(9, read, {"sessionId": "nobody", "path": poem})
        assert code(await agent.heard_answer(9)) == -32002


@aio
async def test_a_missing_file_may_be_read_as_an_empty_one(tmp_path: Path) -> None:
    options = ClientOptions(missing_file_is_empty=True)
    async with opened(options, cwd=tmp_path) as (_, agent):
        path = str(tmp_path / "missing.txt")
        agent.ask(1, "fs/read_text_file", {"sessionId": "s1", "path": path})
        assert (await agent.heard_answer(1))["result"] == {"content": ""}


@aio
async def test_additional_folders_are_part_of_the_workspace(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two" / "x.txt").write_text("x")
    async with opened(capabilities=EVERYTHING, cwd=tmp_path / "one") as (session, agent):
        agent.replies["session/new"] = {"sessionId": "s2"}
        await session.client.new_session(
            tmp_path / "one", additional_directories=[tmp_path / "two"]
        )
        for session_id, code in (("s1", -32602), ("s2", None)):
            path = str(tmp_path / "two" / "x.txt")
            agent.ask(1, "fs/read_text_file", {"sessionId": session_id, "path": path})
            answer = await agent.heard_answer(1)
            assert (answer["error"]["code"] if code else answer["result"]) == (
                code or {"content": "x"}
            )


@aio
async def test_a_folder_that_is_gone_is_an_internal_error_without_its_name(tmp_path: Path) -> None:
    async with opened(cwd=tmp_path / "gone") as (_, agent):
        path = str(tmp_path / "gone" / "x")
        agent.ask(1, "fs/read_text_file", {"sessionId": "s1", "path": path})
        error = (await agent.heard_answer(1))["error"]
        assert error["code"] == -32603
        assert "gone" not in json.dumps(error)


@pytest.mark.parametrize(
    ("options", "method"),
    [
        (ClientOptions(read_files=False), "fs/read_text_file"),
        (ClientOptions(write_files=False), "fs/write_text_file"),
        (ClientOptions(), "terminal/create"),
        (ClientOptions(), "terminal/output"),
        (ClientOptions(), "terminal/wait_for_exit"),
        (ClientOptions(), "terminal/kill"),
        (ClientOptions(), "terminal/release"),
        (ClientOptions(), ELICIT),
        (ClientOptions(), "session/prompt"),
        (ClientOptions(), "craft/drainMidTurnQueue"),
    ],
)
@aio
async def test_what_is_not_offered_is_not_found(options: ClientOptions, method: str) -> None:
    async with opened(options) as (_, agent):
        agent.ask("x", method, {"sessionId": "s1", "path": "/workspace/x"})
        assert (await agent.heard_answer("x"))["error"]["code"] == NOT_FOUND


@aio
async def test_a_terminal_is_created_watched_killed_and_released(tmp_path: Path) -> None:
    async with opened(ClientOptions(terminals=True), cwd=tmp_path) as (_, agent):

        async def call(method: str, **params: Any) -> Any:
            agent.ask(9, f"terminal/{method}", {"sessionId": "s1", **params})
            return await soon(agent.heard_answer(9))

        created = await call(
            "create",
            command="/bin/sh",
            args=["-c", 'printf "$WORD"; pwd'],
            env=[{"name": "WORD", "value": "hello "}],
            outputByteLimit=1000,
        )
        terminal = created["result"]["terminalId"]
        assert (await call("wait_for_exit", terminalId=terminal))["result"] == {"exitCode": 0}
        assert (await call("output", terminalId=terminal))["result"] == {
            "output": f"hello {tmp_path}\n",
            "truncated": False,
            "exitStatus": {"exitCode": 0},
        }
        assert (await call("release", terminalId=terminal))["result"] == {}
        for method in ("output", "wait_for_exit", "kill", "release"):
            assert (await call(method, terminalId=terminal))["error"]["code"] == -32002

        created = await call("create", command="/bin/sh", args=["-c", "sleep 60"])
        terminal = created["result"]["terminalId"]
        output = (await call("output", terminalId=terminal))["result"]
        assert output == {"output": "", "truncated": False}
        assert (await call("kill", terminalId=terminal))["result"] == {}
        ended = (await call("wait_for_exit", terminalId=terminal))["result"]
        assert ended == {"signal": "SIGTERM"}
        assert (await call("release", terminalId=terminal))["result"] == {}


@aio
async def test_a_command_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    async with opened(ClientOptions(terminals=True), cwd=tmp_path) as (_, agent):
        for params, code in (
            ({"command": "no-such-program-anywhere"}, -32002),
            ({"command": ""}, -32602),
            ({"command": "ls", "cwd": "/"}, -32602),
            ({"command": "ls", "cwd": "relative"}, -32602),
        ):
            agent.ask(1, "terminal/create", {"sessionId": "s1", **params})
            error = (await soon(agent.heard_answer(1)))["error"]
            assert error["code"] == code, (params, error)
            assert error["message"] != "Internal error"


@aio
async def test_closing_a_session_ends_its_commands(tmp_path: Path) -> None:
    async with opened(ClientOptions(terminals=True), cwd=tmp_path) as (session, agent):
        params = {"sessionId": "s1", "command": "/bin/sh", "args": ["-c", "sleep 60"]}
        agent.ask(1, "terminal/create", params)
        terminal = (await soon(agent.heard_answer(1)))["result"]["terminalId"]
        agent.ask(2, "terminal/wait_for_exit", {"sessionId": "s1", "terminalId": terminal})
        await until(lambda: len(session.client.connection.tasks) == 1)
        await turns()
        await soon(session.close())
        assert (await soon(agent.heard_answer(2)))["result"] == {"signal": "SIGTERM"}


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
async def test_a_method_of_the_protocol_that_is_switched_off_is_no_extension() -> None:
    vendor = Vendor()
    options = ClientOptions(extension=vendor, read_files=False)
    async with opened(options) as (_, agent):
        for id, method in enumerate(("fs/read_text_file", "terminal/create", ELICIT)):
            agent.ask(id, method, {"sessionId": "s1", "path": "/x"})
            assert (await agent.heard_answer(id))["error"]["code"] == NOT_FOUND
    assert vendor.asked == []


@aio
async def test_an_extension_that_fails_on_a_notification_stops_nobody(
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
