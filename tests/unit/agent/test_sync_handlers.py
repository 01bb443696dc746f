"""Handlers without `async`: their threads, their turns, and how they are cancelled."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from dragoman.agent import Agent, BlockingTurn, Turn, server
from dragoman.agent.sync_handlers import is_async, run_in_thread
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError, Unsupported, UsageError
from tests.aio import aio
from tests.unit.agent.client_end import OLD, in_session, simple_agent
from tests.unit.rpc.other_side import soon, turns, until

WAIT_TIMEOUT = 10.0
"""For what must happen at once, in threads."""


# -- the thread


@aio
async def test_a_function_runs_in_a_thread_of_its_own_with_the_context_of_its_caller() -> None:
    word = contextvars.ContextVar("word", default="")
    word.set("hello")

    def work(a: int, b: int) -> tuple[int, str, bool, bool]:
        here = threading.current_thread()
        return a + b, word.get(), here is not threading.main_thread(), here.daemon

    assert await soon(run_in_thread(work, 1, 2)) == (3, "hello", True, True)


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), RemoteError(1, "x"), KeyError("x")])
@aio
async def test_what_a_thread_raises_is_raised_to_the_waiter(error: Exception) -> None:
    def work() -> None:
        raise error

    with pytest.raises(type(error)):
        await soon(run_in_thread(work))


@aio
async def test_the_end_of_an_iteration_does_not_get_lost_on_the_way() -> None:
    def work() -> None:
        raise StopIteration(7)

    with pytest.raises(RuntimeError, match="StopIteration"):
        await soon(run_in_thread(work))


@aio
async def test_a_cancelled_wait_leaves_the_thread_alone() -> None:
    release, ended = threading.Event(), threading.Event()

    def work() -> None:
        release.wait(WAIT_TIMEOUT)
        ended.set()
        raise ZeroDivisionError

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run_in_thread(work))
        await turns()
        task.cancel()
        await soon(asyncio.wait([task]))
        assert task.cancelled()
    release.set()
    assert await soon(asyncio.to_thread(ended.wait, WAIT_TIMEOUT))
    # Its end finds nobody, and nobody complains.
    await turns()


@aio
async def test_a_patient_wait_ends_with_the_thread_or_with_a_second_cancel() -> None:
    release = threading.Event()

    def work() -> None:
        release.wait(WAIT_TIMEOUT)

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(run_in_thread(work, patient=True))
        second = tasks.create_task(run_in_thread(work, patient=True))
        await turns()
        first.cancel()
        second.cancel()
        await turns()
        assert not first.done() and not second.done()
        second.cancel()
        await soon(asyncio.wait([second]))
        release.set()
        await soon(asyncio.wait([first]))
    assert first.cancelled() and second.cancelled()


# -- the turn


@aio
async def test_a_plain_handler_says_everything_in_order() -> None:
    agent = Agent(
        "plain",
        modes=[acp.SessionMode(id="a", name="A"), acp.SessionMode(id="b", name="B")],
        options=[acp.SessionConfigBoolean(id="loud", name="Loud", current_value=False)],
    )

    @agent.prompt
    def answer(turn: BlockingTurn) -> str:
        assert turn.text == "hello"
        assert turn.prompt == [acp.TextContent(text="hello")]
        assert turn.blocks(acp.TextContent) == [acp.TextContent(text="hello")]
        assert turn.meta == {}
        assert not turn.cancelled
        turn.say("said", message_id="m1")
        turn.think("thought")
        turn.echo("echoed")
        turn.plan(["planned"])
        turn.usage(1, 2, acp.Cost(amount=0.5, currency="USD"))
        turn.commands([acp.AvailableCommand(name="c", description="d")])
        turn.mode("b")
        turn.option("loud", True)
        turn.title("title")
        turn.notice("notice", severity="warning", description="why")
        turn.update(acp.CompactionUpdate(compaction_id="k", status="completed"))
        with turn.tool("tool", kind="read") as tool:
            tool.add("content")
            tool.diff("/x", "new", "old")
            tool.update(title="renamed")
            tool.start()
        with turn.tool("second") as tool:
            tool.fail("reason")
        assert turn.session.mode == "b"
        return "max_tokens"

    async with in_session(agent) as (client, session):
        assert await client.ask(session) == "max_tokens"
        assert [update["sessionUpdate"] for update in client.updates()] == [
            "agent_message_chunk",
            "agent_thought_chunk",
            "user_message_chunk",
            "plan",
            "usage_update",
            "available_commands_update",
            "current_mode_update",
            "config_option_update",
            "config_option_update",
            "session_info_update",
            "notice",
            "compaction_update",
            "tool_call",
            *["tool_call_update"] * 5,
            "tool_call",
            "tool_call_update",
        ]
        statuses = [u.get("status") for u in client.updates() if "toolCallId" in u]
        assert statuses == [
            *("in_progress", None, None, None, "in_progress", "completed"),
            *("in_progress", "failed"),
        ]


@aio
async def test_a_plain_handler_asks_its_client() -> None:
    agent = Agent("plain")
    seen: list[Any] = []

    @agent.prompt
    def answer(turn: BlockingTurn) -> None:
        with turn.tool("tool") as tool:
            seen.append(turn.ask_permission(tool))
        seen.append(turn.ask_permission("anything else"))
        seen.append(turn.read_file("/workspace/x", line=1, limit=2))
        turn.write_file("/workspace/x", "y")
        seen.append(turn.run_command("ls", ["-l"], cwd="/workspace").output)
        seen.append(turn.ask_form("Which?", acp.ElicitationSchema()))
        seen.append(turn.ask_url("Log in", "https://example.org/", elicitation_id="e"))

    async with in_session(agent) as (client, session):
        prompt = client.prompt(session)
        permission = {"outcome": {"outcome": "selected", "optionId": "allow"}}
        client.answer(await client.asked("session/request_permission"), permission)
        permission = {"outcome": {"outcome": "selected", "optionId": "reject"}}
        client.answer(await client.asked("session/request_permission"), permission)
        client.answer(await client.asked("fs/read_text_file"), {"content": "text"})
        client.answer(await client.asked("fs/write_text_file"), None)
        client.answer(await client.asked("terminal/create"), {"terminalId": "t"})
        client.answer(await client.asked("terminal/wait_for_exit"), {"exitCode": 0})
        output = {"output": "listing", "truncated": False}
        client.answer(await client.asked("terminal/output"), output)
        client.answer(await client.asked("terminal/release"), {})
        client.answer(await client.asked("elicitation/create"), {"action": "decline"})
        visit = await client.asked("elicitation/create")
        assert (visit["params"]["mode"], visit["params"]["elicitationId"]) == ("url", "e")
        client.answer(visit, {"action": "cancel"})
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "end_turn"}
    declined, cancelled = acp.ElicitationDeclined(), acp.ElicitationCancelled()
    assert seen == [True, False, "text", "listing", declined, cancelled]


@aio
async def test_what_the_client_does_not_offer_is_refused_in_the_thread() -> None:
    agent = Agent("plain")
    refused: list[str] = []

    @agent.prompt
    def answer(turn: BlockingTurn) -> None:
        for work in (
            lambda: turn.read_file("/x"),
            lambda: turn.write_file("/x", ""),
            lambda: turn.run_command("ls"),
            lambda: turn.ask_form("?", acp.ElicitationSchema()),
            lambda: turn.ask_url("?", "https://example.org/"),
        ):
            with pytest.raises(Unsupported) as caught:
                work()
            refused.append(str(caught.value))
        turn.notice("seen anyway", description="in the answer")

    async with in_session(agent, {}) as (client, session):
        assert await client.ask(session) == "end_turn"
        assert client.texts() == ["seen anyway: in the answer\n"]
    assert len(refused) == 5


@aio
async def test_misspelt_arguments_are_errors_and_not_dropped() -> None:
    agent = Agent("plain")
    errors: list[BaseException] = []

    @agent.prompt
    def answer(turn: BlockingTurn) -> None:
        for work in (
            lambda: turn.tool("x", knid="read"),
            lambda: turn.run_command("ls", cwdd="/x"),
            lambda: turn.say("x", mesage_id="m"),  # type: ignore[call-arg]
        ):
            try:
                work()
            except TypeError as error:
                errors.append(error)

    async with in_session(agent) as (client, session):
        assert await client.ask(session) == "end_turn"
        assert client.updates() == []
    assert len(errors) == 3


@aio
async def test_lines_of_many_threads_never_interleave() -> None:
    agent = Agent("choir")
    voices, words = 8, 50

    @agent.prompt
    def answer(turn: BlockingTurn) -> None:
        def sing(voice: int) -> None:
            for word in range(words):
                turn.say(f"{voice}:{word}:" + "x" * 500)

        threads = [threading.Thread(target=sing, args=(voice,)) for voice in range(voices)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_TIMEOUT)

    async with in_session(agent) as (client, session):
        # Every line is parsed by the client, so one that is torn would fail the test there.
        assert await client.ask(session) == "end_turn"
        said = [text.split(":")[:2] for text in client.texts()]
        assert len(said) == voices * words
        for voice in range(voices):
            heard = [int(word) for who, word in said if who == str(voice)]
            assert heard == list(range(words))


@aio
async def test_an_async_turn_may_be_used_from_the_loop_of_another_thread() -> None:
    agent = Agent("abroad")
    results: list[Any] = []

    @agent.prompt
    async def answer(turn: Turn) -> None:
        async def abroad() -> None:
            await turn.say("from abroad")
            async with turn.tool("tool") as tool:
                await tool.add("x")
            results.append(await turn.ask_permission("May I?"))
            results.append(await turn.read_file("/x"))
            await turn.client.notify_extension("_vendor/tell", {})

        await asyncio.to_thread(asyncio.run, abroad())

    async with in_session(agent) as (client, session):
        prompt = client.prompt(session)
        permission = {"outcome": {"outcome": "selected", "optionId": "allow"}}
        client.answer(await client.asked("session/request_permission"), permission)
        client.answer(await client.asked("fs/read_text_file"), {"content": "text"})
        await client.answer_to(prompt)
        assert client.texts() == ["from abroad"]
        assert any(message.get("method") == "_vendor/tell" for message in client.heard)
    assert results == [True, "text"]


# -- cancelling


@aio
async def test_a_thread_that_waits_for_the_client_is_woken_by_a_cancel() -> None:
    agent = Agent("plain")
    outcome: list[BaseException] = []

    @agent.prompt
    def answer(turn: BlockingTurn) -> None:
        with turn.tool("tool"):
            try:
                turn.ask_permission("May I?")
            except BaseException as error:
                outcome.append(error)
                raise

    async with in_session(agent) as (client, session):
        prompt = client.prompt(session)
        asked = await client.asked("session/request_permission")
        client.cancel(session)
        # The question is not even answered.
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "cancelled"}
        calling_off = client.noting("$/cancel_request", {"requestId": asked["id"]})
        assert calling_off in client.heard
        # What the tool came to is said before the turn ends.
        assert client.updates()[-1]["status"] == "failed"
    assert [type(error) for error in outcome] == [asyncio.CancelledError]


@aio
async def test_a_thread_learns_of_a_cancel_by_the_next_thing_it_says() -> None:
    agent = Agent("plain")
    cancelled, outcome = threading.Event(), []

    @agent.prompt
    def answer(turn: BlockingTurn) -> str:
        turn.say("begun")
        cancelled.wait(WAIT_TIMEOUT)
        for _ in range(2):
            try:
                turn.say("too late")
            except asyncio.CancelledError:
                outcome.append(turn.cancelled)
        return "end_turn"

    async with in_session(agent) as (client, session):
        prompt = client.prompt(session)
        await client.update()
        client.cancel(session)
        # The cancel is read before this is answered.
        await client.new_session()
        cancelled.set()
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "cancelled"}
        assert client.texts() == ["begun"]
    assert outcome == [True, True]


@aio
async def test_a_thread_that_does_not_end_is_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CANCEL_GRACE", 0.02)
    agent = Agent("plain")
    release, outcome = threading.Event(), []

    @agent.prompt
    def answer(turn: BlockingTurn) -> None:
        if turn.text == "hang":
            turn.say("begun")
            release.wait(WAIT_TIMEOUT)
            with pytest.raises(asyncio.CancelledError):
                turn.say("too late")
            # The turn is over: nothing is sent, and nothing is raised either.
            with pytest.raises(asyncio.CancelledError), turn.tool("too late"):
                pass
            outcome.append("ended")
        else:
            turn.say("next")

    async with in_session(agent) as (client, session):
        prompt = client.prompt(session, "hang")
        await client.update()
        client.cancel(session)
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "cancelled"}
        assert await client.ask(session) == "end_turn"
        release.set()
        await until(lambda: bool(outcome))
        assert client.texts() == ["begun", "next"]
        assert len(client.updates()) == 2


@aio
async def test_a_thread_is_cancelled_when_the_client_goes_away() -> None:
    agent = Agent("plain")
    begun, gone = threading.Event(), threading.Event()
    outcome: list[BaseException] = []

    @agent.prompt
    def answer(turn: BlockingTurn) -> None:
        begun.set()
        gone.wait(WAIT_TIMEOUT)
        try:
            turn.say("is anybody there?")
        except BaseException as error:
            outcome.append(error)
            raise

    async with in_session(agent) as (client, session):
        client.prompt(session)
        await soon(asyncio.to_thread(begun.wait, WAIT_TIMEOUT))
    gone.set()
    await until(lambda: bool(outcome))
    assert isinstance(outcome[0], asyncio.CancelledError)


@aio
async def test_plain_handlers_of_every_kind_run_in_threads() -> None:
    agent = Agent("plain")
    main = threading.get_ident()
    ran: list[str] = []

    def note(name: str) -> None:
        assert threading.get_ident() != main
        ran.append(name)

    @agent.prompt
    def prompt(turn: BlockingTurn) -> None:
        note("prompt")

    @agent.new_session
    def new(session: Any) -> None:
        note("new")

    @agent.load_session
    def load(session: Any, replay: BlockingTurn) -> None:
        note("load")
        replay.echo("q")
        replay.say("a")

    @agent.list_sessions
    def listing(request: acp.ListSessionsRequest) -> list[acp.SessionInfo]:
        note("list")
        return [acp.SessionInfo(session_id="s", cwd="/x")]

    @agent.command("go", "Goes")
    def go(turn: BlockingTurn, text: str) -> None:
        note(f"go {text}")

    @agent.extension("_x/ask")
    def ask(params: Any) -> Any:
        note("extension")
        return params

    @agent.extension_notification("_x/tell")
    def tell(params: Any) -> None:
        note("notification")

    async with in_session(agent) as (client, session):
        await client.ask(session)
        await client.ask(session, "/go fast")
        load_params = {"sessionId": "old", "cwd": "/x", "mcpServers": []}
        await client.call("session/load", load_params)
        assert [u["sessionUpdate"] for u in client.updates("old")][:2] == [
            "user_message_chunk",
            "agent_message_chunk",
        ]
        listed = await client.call("session/list", {})
        assert listed == {"sessions": [{"sessionId": "s", "cwd": "/x"}]}
        client.tell("_x/tell", {})
        assert await client.call("_x/ask", {"a": 1}) == {"a": 1}
    assert sorted(ran) == ["extension", "go fast", "list", "load", "new", "notification", "prompt"]


@aio
async def test_a_replay_that_is_over_says_so_to_a_thread_that_goes_on() -> None:
    agent = Agent("plain")
    kept: list[BlockingTurn] = []

    @agent.prompt
    def prompt(turn: BlockingTurn) -> None:
        with pytest.raises(UsageError, match="over"):
            kept[0].say("more history")

    @agent.load_session
    def load(session: Any, replay: BlockingTurn) -> None:
        kept.append(replay)

    async with in_session(agent) as (client, session):
        load_params = {"sessionId": "old", "cwd": "/x", "mcpServers": []}
        await client.call("session/load", load_params)
        assert await client.ask("old") == "end_turn"


@aio
async def test_a_thread_that_loads_a_session_learns_of_a_cancel_by_its_next_call() -> None:
    agent = simple_agent()
    cancelled, outcome = threading.Event(), []

    @agent.load_session
    def load(session: Any, replay: BlockingTurn) -> None:
        replay.say("begun")
        cancelled.wait(WAIT_TIMEOUT)
        for _ in range(2):
            try:
                replay.say("too late")
            except asyncio.CancelledError:
                outcome.append(replay.cancelled)

    async with in_session(agent) as (client, _):
        id = client.send("session/load", OLD)
        await client.update()
        client.tell("$/cancel_request", {"requestId": id})
        # The cancel is read before this is answered.
        await client.new_session()
        cancelled.set()
        assert (await client.answer_to(id))["error"]["code"] == -32800
        assert client.texts() == ["begun"]
        assert (await client.refused("session/close", {"sessionId": "old"}))["code"] == -32002
    assert outcome == [True, True]


@aio
async def test_a_thread_that_loads_a_session_is_woken_by_a_cancel() -> None:
    agent = simple_agent()
    outcome: list[BaseException] = []

    @agent.load_session
    def load(session: Any, replay: BlockingTurn) -> None:
        try:
            replay.ask_permission("May I?")
        except BaseException as error:
            outcome.append(error)
            raise

    async with in_session(agent) as (client, _):
        id = client.send("session/load", OLD)
        await client.asked("session/request_permission")
        client.tell("$/cancel_request", {"requestId": id})
        # The question is not even answered.
        assert (await client.answer_to(id))["error"]["code"] == -32800
    assert [type(error) for error in outcome] == [asyncio.CancelledError]


@aio
async def test_a_load_whose_thread_does_not_end_is_answered_after_a_cancel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "CANCEL_GRACE", 0.02)
    agent = simple_agent()
    release, outcome = threading.Event(), []

    @agent.load_session
    def load(session: Any, replay: BlockingTurn) -> None:
        replay.say("begun")
        release.wait(WAIT_TIMEOUT)
        with pytest.raises(asyncio.CancelledError):
            replay.say("too late")
        outcome.append("ended")

    async with in_session(agent) as (client, _):
        id = client.send("session/load", OLD)
        await client.update()
        client.tell("$/cancel_request", {"requestId": id})
        assert (await client.answer_to(id))["error"]["code"] == -32800
        release.set()
        await until(lambda: bool(outcome))
        assert client.texts() == ["begun"]


def test_a_function_and_an_object_are_known_to_be_async() -> None:
    async def function() -> None: ...

    class Called:
        async def __call__(self) -> None: ...

    assert is_async(function) and is_async(Called())
    assert not is_async(print)


@aio
async def test_a_plain_handler_sees_its_command_and_sets_its_tokens() -> None:
    agent = Agent("plain")

    @agent.prompt
    def answer(turn: BlockingTurn) -> None:
        assert turn.command is not None
        turn.tokens(len(turn.command.name), len(turn.command.input))

    async with in_session(agent) as (client, session):
        body = {"sessionId": session, "prompt": [{"type": "text", "text": "/fix it all"}]}
        answered = await client.call("session/prompt", body)
        assert answered["usage"] == {"totalTokens": 9, "inputTokens": 3, "outputTokens": 6}
