"""An agent that serves a client of the chained dialect, under all its names."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.agent import Agent, Session, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import RemoteError
from tests.aio import aio
from tests.fixtures.documents import load
from tests.unit.agent.speech.client_of_document import DocumentClient, make_agent, served
from tests.unit.rpc.other_side import until

EXAMPLES = load("chained")
CHAINS = [
    ("session/list", "session/create", "prompt/send", "message/delta", "turn/status"),
    ("sessions/list", "session/start", "message/send", "stream/chunk", "message/status"),
    ("list_sessions", "create_session", "chat/send", "completion/delta", "completion/status"),
    ("listSessions", "startSession", "sendMessage", "text/delta", "completion/status"),
]


async def ended(client: DocumentClient, status: str = "turn/status") -> Any:
    await until(lambda: any(method == status for method, _ in client.told))
    return next(params for method, params in client.told if method == status)


async def prompted(client: DocumentClient, text: str, **more: Any) -> dict[str, Any]:
    session = (await client.play(EXAMPLES["create"]))["sessionId"]
    body = {"sessionId": session, "message": text, "stream": True, **more}
    sent: dict[str, Any] = await client.call("prompt/send", body)
    return {"sessionId": session, **sent}


@pytest.mark.parametrize("family", CHAINS)
def test_any_name_is_understood_and_answered_in_its_family(family: tuple[str, ...]) -> None:
    list_, create, prompt, delta, status = family

    @aio
    async def run() -> None:
        async with served() as client:
            assert await client.call(list_, EXAMPLES["list"].body) == {"sessions": []}
            created = await client.call(create, EXAMPLES["create"].body)
            assert created["status"] == "active"
            body = {**EXAMPLES["prompt"].body, "sessionId": created["sessionId"]}
            sent = await client.call(prompt, body)
            assert sent["status"] == "processing"
            about = {"sessionId": created["sessionId"], "turnId": sent["turnId"]}
            assert await ended(client, status) == {**about, "status": "completed", "detail": None}
            said = f"You said: {EXAMPLES['prompt'].body['message']}"
            assert client.told[0] == (delta, {**about, "delta": said, "type": "text"})

    run()


@aio
async def test_the_acknowledgement_comes_before_everything_else() -> None:
    async with served() as client:
        about = await prompted(client, "tools")
        await ended(client)
        order = [m.get("method", "answer") for m in client.heard]
        assert order == [
            "answer",
            "answer",
            "reasoning/delta",
            "tool/start",
            "tool/result",
            "message/delta",
            "turn/status",
        ]
        start, result = client.told[1][1], client.told[2][1]
        assert start["name"] == "Edit c.py" and start["input"] == {"path": "c"}
        assert start["toolId"] == result["toolId"]
        assert start["turnId"] == about["turnId"]


@aio
async def test_attachments_are_images() -> None:
    async with served() as client:
        await prompted(client, "see", attachments=[{"type": "image/png", "data": "aGk="}])
        await ended(client)
        assert client.told[0][1]["delta"] == "You said: see and 1"


@aio
async def test_a_failure_is_reported_as_an_error_and_a_status() -> None:
    async with served() as client:
        about = await prompted(client, "refuse")
        status = await ended(client)
        assert status["status"] == "error" and status["detail"] == "Authentication required"
        method, error = client.told[0]
        assert method == "error"
        assert error["error"] == {"code": -32000, "message": "Authentication required"}
        assert error["turnId"] == about["turnId"]
    async with served() as client:
        await prompted(client, "fail")
        await ended(client)
        assert "secret" not in str(client.heard)
    async with served() as client:
        await prompted(client, "long")
        assert (await ended(client))["detail"] == "max_tokens"


@aio
async def test_a_second_prompt_meanwhile_is_refused() -> None:
    async with served() as client:
        about = await prompted(client, "wait")
        body = {"sessionId": about["sessionId"], "message": "x"}
        assert (await client.refused("prompt/send", body))["code"] == -32600


@aio
async def test_a_list_has_pages_made_from_all_that_the_agent_remembers() -> None:
    agent = make_agent()

    @agent.list_sessions
    async def list_sessions(request: acp.ListSessionsRequest) -> acp.ListSessionsResponse:
        first = request.cursor is None
        numbers = range(2) if first else range(2, 3)
        return acp.ListSessionsResponse(
            sessions=[
                acp.SessionInfo(session_id=f"s{n}", cwd="/", title=f"Session {n}") for n in numbers
            ],
            next_cursor="more" if first else None,
        )

    async with served(agent) as client:
        page = await client.call("session/list", {"limit": 2, "offset": 0})
        assert page == {
            "sessions": [{"id": "s0", "title": "Session 0"}, {"id": "s1", "title": "Session 1"}],
            "nextOffset": 2,
        }
        rest = await client.call("session/list", {"limit": 2, "offset": 2})
        assert [s["id"] for s in rest["sessions"]] == ["s2"] and "nextOffset" not in rest


@aio
async def test_without_a_list_the_sessions_of_this_connection_are_listed() -> None:
    agent = Agent("a")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        pass

    async with served(agent) as client:
        created = await client.play(EXAMPLES["create"])
        listed = await client.call("session/list", {})
        entry = {"id": created["sessionId"], "title": "New session", "status": "active"}
        assert listed == {"sessions": [entry]}


def remembering(*, load: bool) -> Agent:
    """An agent that knows one session of an earlier time."""
    agent = make_agent()

    @agent.list_sessions
    async def list_sessions(request: acp.ListSessionsRequest) -> list[acp.SessionInfo]:
        return [acp.SessionInfo(session_id="old", cwd="/")]

    async def check(session: Session) -> None:
        if session.id != "old":
            raise RemoteError(-32002, "there is no such session")

    if load:

        @agent.load_session
        async def load_session(session: Session, replay: Turn) -> None:
            await check(session)
            await replay.echo("Who ")
            await replay.echo("are you?")
            await replay.think("hm")
            await replay.say("I.")

    else:
        agent.resume_session(check)
    return agent


@pytest.mark.parametrize("load", [True, False])
@aio
async def test_an_earlier_session_is_opened_by_the_first_prompt_for_it(load: bool) -> None:
    async with served(remembering(load=load)) as client:
        assert (await client.call("list_sessions", {}))["sessions"] == [{"id": "old"}]
        body = {"sessionId": "old", "message": "go on"}
        sent = await client.call("chat/send", body)
        status = await ended(client, "completion/status")
        # Its history is told to nobody, and the turn in the client's own family of names.
        assert [method for method, _ in client.told] == ["completion/delta", "completion/status"]
        assert status["turnId"] == sent["turnId"]
        (entry,) = (await client.call("list_sessions", {}))["sessions"]
        told = [(m["role"], m["content"]) for m in entry["messages"]]
        before = [("user", "Who are you?"), ("assistant", "I.")] if load else []
        assert told == [*before, ("user", "go on"), ("assistant", "You said: go on")]
        gone = await client.refused("chat/send", {"sessionId": "gone", "message": "x"})
        assert gone["code"] == -32002


@aio
async def test_prompts_for_an_unopened_session_that_come_together_open_it_once() -> None:
    async with served(remembering(load=True)) as client:
        ids = [
            client.send("prompt/send", {"sessionId": "old", "message": text})
            for text in ("wait", "x")
        ]
        answers = [await client.answered(id) for id in ids]
        assert ["error" in answer for answer in answers] == [False, True]
        assert answers[1]["error"]["code"] == -32600


@aio
async def test_a_session_that_cannot_be_opened_is_not_found() -> None:
    async with served() as client:
        refusal = await client.refused("prompt/send", {"sessionId": "old", "message": "x"})
        assert refusal["code"] == -32002


@aio
async def test_what_a_tool_showed_is_its_output() -> None:
    agent = Agent("a")

    @agent.prompt
    async def answer(turn: Turn) -> None:
        async with turn.tool("look") as tool:
            await tool.add("2.1 million")
            await tool.add("(city proper)")
        async with turn.tool("count") as tool:
            await tool.update(raw_output={"lines": 3}, status="completed")

    async with served(agent) as client:
        await prompted(client, "hi")
        await ended(client)
        results = [params for method, params in client.told if method == "tool/result"]
    assert [result["output"] for result in results] == [
        "2.1 million\n(city proper)",
        {"lines": 3},
    ]


@aio
async def test_a_client_that_wants_no_stream_is_notified_of_the_end_only() -> None:
    async with served() as client:
        sent = await prompted(client, "tools", stream=False)
        assert (await ended(client))["turnId"] == sent["turnId"]
        assert [method for method, _ in client.told] == ["turn/status"]
        (listed,) = (await client.play(EXAMPLES["list"]))["sessions"]
        assert listed["messages"] == [
            {"role": "user", "content": "tools"},
            {"role": "assistant", "content": "edited"},
        ]


@aio
async def test_a_turn_ends_although_its_error_is_not_valid_unicode() -> None:
    agent = Agent("reader")

    @agent.prompt
    async def read(turn: Turn) -> None:
        raise RemoteError(-32603, "cannot read a\udcff.txt")

    async with served(agent) as client:
        await prompted(client, "read")
        assert (await ended(client))["detail"] == "cannot read a?.txt"


@aio
async def test_a_turn_ends_although_its_error_is_too_long_for_a_line() -> None:
    agent = Agent("reader", max_line_size=5000)

    @agent.prompt
    async def read(turn: Turn) -> None:
        raise RemoteError(-32603, "x" * 5000)

    async with served(agent) as client:
        await prompted(client, "read")
        end = await ended(client)
        assert end["status"] == "error"
        assert "the limit for a line is 5000" in end["detail"]


@aio
async def test_sessions_are_listed_although_a_chunk_was_not_valid_unicode() -> None:
    agent = Agent("reader")

    @agent.prompt
    async def read(turn: Turn) -> None:
        await turn.say("a\udcff.txt")

    async with served(agent) as client:
        await prompted(client, "read")
        await ended(client)
        (session,) = (await client.call("session/list", EXAMPLES["list"].body))["sessions"]
        assert session["messages"][1] == {"role": "assistant", "content": "a?.txt"}
