"""What an agent asks of its client, and what it does not ask because nobody offered it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.agent import Agent, ClientSide, Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import InvalidAnswer, RemoteError, Unsupported, UsageError
from tests.aio import aio
from tests.unit.agent.client_end import EVERYTHING, ClientEnd, in_session

OPTIONS = [
    acp.PermissionOption(option_id="1", name="Yes", kind="allow_once"),
    acp.PermissionOption(option_id="2", name="No", kind="reject_once"),
    acp.PermissionOption(option_id="3", name="Hm", kind="allow_for_now"),
]
CALL = acp.ToolCallUpdate(tool_call_id="c", title="x")


class Asking:
    """An agent whose turns do what a test wants, and what came of it."""

    def __init__(self, *work: Any) -> None:
        self.agent = Agent("asking")
        self.results: list[Any] = []
        self.agent.prompt(self._answer)
        self._work = work

    async def _answer(self, turn: Turn) -> None:
        for each in self._work:
            try:
                self.results.append(await each(turn))
            except (RemoteError, InvalidAnswer, Unsupported, UsageError) as error:
                self.results.append(error)


async def reply(client: ClientEnd, method: str, result: Any) -> Any:
    asked = await client.asked(method)
    client.answer(asked, result)
    return asked["params"]


# -- permission


@pytest.mark.parametrize(
    ("outcome", "chosen", "allowed"),
    [
        ({"outcome": "selected", "optionId": "1"}, "1", True),
        ({"outcome": "selected", "optionId": "2"}, "2", False),
        # A kind that we do not know is not taken for consent, nor is an option never offered.
        ({"outcome": "selected", "optionId": "3"}, "3", False),
        ({"outcome": "selected", "optionId": "allow"}, None, False),
        ({"outcome": "cancelled"}, None, False),
        ({"outcome": "postponed"}, None, False),
    ],
)
@aio
async def test_only_an_offered_option_that_allows_is_consent(
    outcome: Any, chosen: str | None, allowed: bool
) -> None:
    asking = Asking(
        lambda turn: turn.client.permission(CALL, OPTIONS),
        lambda turn: turn.ask_permission(CALL, OPTIONS),
    )
    async with in_session(asking.agent, {}) as (client, session):
        prompt = client.prompt(session)
        params = await reply(client, "session/request_permission", {"outcome": outcome})
        assert params["sessionId"] == session
        assert params["toolCall"] == {"toolCallId": "c", "title": "x"}
        assert [option["kind"] for option in params["options"]] == [o.kind for o in OPTIONS]
        await reply(client, "session/request_permission", {"outcome": outcome})
        await client.answer_to(prompt)
    option, verdict = asking.results
    assert (None if option is None else option.option_id) == chosen
    assert bool(option) is allowed
    assert verdict is allowed


@aio
async def test_the_usual_options_are_offered_where_none_are_named() -> None:
    asking = Asking(lambda turn: turn.ask_permission("May I?"))
    async with in_session(asking.agent, {}) as (client, session):
        prompt = client.prompt(session)
        outcome = {"outcome": {"outcome": "selected", "optionId": "allow"}}
        params = await reply(client, "session/request_permission", outcome)
        assert params["toolCall"]["title"] == "May I?"
        assert [option["kind"] for option in params["options"]] == [
            "allow_once",
            "allow_always",
            "reject_once",
        ]
        await client.answer_to(prompt)
    assert asking.results == [True]


@pytest.mark.parametrize("result", [None, {}, {"outcome": None}, {"outcome": {"optionId": "1"}}])
@aio
async def test_an_answer_that_is_none_is_not_a_consent(result: Any) -> None:
    asking = Asking(lambda turn: turn.client.permission(CALL, OPTIONS))
    async with in_session(asking.agent, {}) as (client, session):
        prompt = client.prompt(session)
        await reply(client, "session/request_permission", result)
        await client.answer_to(prompt)
    assert isinstance(asking.results[0], InvalidAnswer)


# -- gates


GATED: dict[str, Any] = {
    "fs.readTextFile": lambda client: client.read_file("/x"),
    "fs.writeTextFile": lambda client: client.write_file("/x", ""),
    "terminal": lambda client: client.terminal("ls"),
    "elicitation.form": lambda client: client.ask_form("?", acp.ElicitationSchema()),
    "elicitation.url": lambda client: client.ask_url("?", "https://example.org/"),
}


def capability(path: str) -> dict[str, Any]:
    """Everything but the capability at this path."""
    first, _, last = path.partition(".")
    if not last:
        return {**EVERYTHING, first: False}
    return {**EVERYTHING, first: {k: v for k, v in EVERYTHING[first].items() if k != last}}


@pytest.mark.parametrize("path", GATED)
@aio
async def test_what_the_client_did_not_offer_is_refused_here(path: str) -> None:
    asking = Asking(lambda turn: GATED[path](turn.client))
    for capabilities in ({}, capability(path), {path.partition(".")[0]: None}):
        async with in_session(asking.agent, capabilities) as (client, session):
            assert await client.ask(session) == "end_turn"
            assert [m for m in client.heard if "id" in m and "method" in m] == []
    assert [type(result) for result in asking.results] == [Unsupported] * 3
    assert path in str(asking.results[0])


@aio
async def test_the_end_of_a_url_is_reported_only_to_a_client_that_knows_urls() -> None:
    asking = Asking(lambda turn: turn.client.elicitation_done("e1"))
    async with in_session(asking.agent, {}) as (client, session):
        await client.ask(session)
    async with in_session(asking.agent) as (client, session):
        await client.ask(session)
        assert client.noting("elicitation/complete", {"elicitationId": "e1"}) in client.heard
    assert isinstance(asking.results[0], Unsupported)
    assert asking.results[1] is None


@aio
async def test_capabilities_can_be_looked_at() -> None:
    seen: list[Any] = []

    async def look(turn: Turn) -> None:
        side: ClientSide = turn.client
        seen.append(side.can("fs.readTextFile"))
        seen.append(side.can("no.such.thing"))
        seen.append(side.capabilities.terminal)

    async with in_session(Asking(look).agent) as (client, session):
        await client.ask(session)
    assert seen == [True, False, True]


# -- files, terminals, questions


@aio
async def test_files_are_read_and_written_through_the_client() -> None:
    asking = Asking(
        lambda turn: turn.read_file("/w/x", line=3, limit=4),
        lambda turn: turn.write_file("/w/y", "text"),
        lambda turn: turn.read_file("/w/missing"),
    )
    async with in_session(asking.agent) as (client, session):
        prompt = client.prompt(session)
        params = await reply(client, "fs/read_text_file", {"content": "lines"})
        assert params == {"sessionId": session, "path": "/w/x", "line": 3, "limit": 4}
        params = await reply(client, "fs/write_text_file", {})
        assert params == {"sessionId": session, "path": "/w/y", "content": "text"}
        asked = await client.asked("fs/read_text_file")
        error = {"code": -32002, "message": "Resource not found"}
        client.say({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        await client.answer_to(prompt)
    content, none, missing = asking.results
    assert (content, none) == ("lines", None)
    assert isinstance(missing, RemoteError) and missing.code == -32002


@aio
async def test_a_terminal_is_released_when_its_block_ends_and_only_once() -> None:
    async def run(turn: Turn) -> Any:
        async with await turn.terminal(
            "ls", ["-l"], cwd="/w", env={"A": "b"}, output_byte_limit=10
        ) as terminal:
            status = await terminal.wait()
            output = await terminal.output()
            await terminal.kill()
            await terminal.release()
            return terminal.id, status.exit_code, output.output

    asking = Asking(run)
    async with in_session(asking.agent) as (client, session):
        prompt = client.prompt(session)
        params = await reply(client, "terminal/create", {"terminalId": "t1"})
        assert params == {
            "sessionId": session,
            "command": "ls",
            "args": ["-l"],
            "cwd": "/w",
            "env": [{"name": "A", "value": "b"}],
            "outputByteLimit": 10,
        }
        this = {"sessionId": session, "terminalId": "t1"}
        assert await reply(client, "terminal/wait_for_exit", {"exitCode": 3}) == this
        output = {"output": "x", "truncated": True, "exitStatus": {"exitCode": 3}}
        assert await reply(client, "terminal/output", output) == this
        assert await reply(client, "terminal/kill", None) == this
        assert await reply(client, "terminal/release", None) == this
        await client.answer_to(prompt)
        released = [m for m in client.heard if m.get("method") == "terminal/release"]
        assert len(released) == 1
    assert asking.results == [("t1", 3, "x")]


@aio
async def test_a_terminal_is_released_when_the_turn_is_cancelled() -> None:
    async def run(turn: Turn) -> None:
        async with await turn.terminal("sleep", ["60"]) as terminal:
            await terminal.wait()

    async with in_session(Asking(run).agent) as (client, session):
        prompt = client.prompt(session)
        await reply(client, "terminal/create", {"terminalId": "t1"})
        waiting = await client.asked("terminal/wait_for_exit")
        client.cancel(session)
        await reply(client, "terminal/release", {})
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "cancelled"}
        assert client.noting("$/cancel_request", {"requestId": waiting["id"]}) in client.heard


@aio
async def test_forms_and_urls_reach_the_user() -> None:
    schema = acp.ElicitationSchema(
        properties={"name": acp.StringPropertySchema(title="Name")}, required=["name"]
    )
    asking = Asking(
        lambda turn: turn.client.ask_form("Who?", schema, tool_call_id="c1"),
        lambda turn: turn.client.ask_url("Go", "https://example.org/", elicitation_id="mine"),
        lambda turn: turn.client.ask_url("Go", "https://example.org/"),
    )
    async with in_session(asking.agent) as (client, session):
        prompt = client.prompt(session)
        accepted = {"action": "accept", "content": {"name": "x"}}
        assert await reply(client, "elicitation/create", accepted) == {
            "mode": "form",
            "sessionId": session,
            "toolCallId": "c1",
            "message": "Who?",
            "requestedSchema": {
                "type": "object",
                "properties": {"name": {"type": "string", "title": "Name"}},
                "required": ["name"],
            },
        }
        params = await reply(client, "elicitation/create", {"action": "cancel"})
        assert (params["mode"], params["elicitationId"]) == ("url", "mine")
        params = await reply(client, "elicitation/create", {"action": "later"})
        assert params["elicitationId"] not in ("", "mine")
        await client.answer_to(prompt)
    form, url, odd = asking.results
    assert form == acp.ElicitationAccepted(content={"name": "x"})
    assert url == acp.ElicitationCancelled()
    assert isinstance(odd, acp.UnknownElicitationAction)


# -- extensions, and the end


@aio
async def test_extensions_of_the_client_are_called_and_told() -> None:
    asking = Asking(
        lambda turn: turn.client.call_extension("_x/ask", {"q": 1}),
        lambda turn: turn.client.notify_extension("_x/tell", [2]),
        lambda turn: turn.client.call_extension("x/ask", {}),
        lambda turn: turn.client.notify_extension("session/update", {}),
    )
    async with in_session(asking.agent) as (client, session):
        prompt = client.prompt(session)
        assert await reply(client, "_x/ask", {"a": [1]}) == {"q": 1}
        await client.answer_to(prompt)
        assert client.noting("_x/tell", [2]) in client.heard
    answer, told, *refused = asking.results
    assert (answer, told) == ({"a": [1]}, None)
    assert [type(each) for each in refused] == [UsageError] * 2


@aio
async def test_a_question_whose_asker_was_cancelled_is_called_off() -> None:
    async def ask(turn: Turn) -> None:
        await turn.ask_permission("May I?")

    async with in_session(Asking(ask).agent) as (client, session):
        prompt = client.prompt(session)
        asked = await client.asked("session/request_permission")
        client.cancel(session)
        assert (await client.answer_to(prompt))["result"] == {"stopReason": "cancelled"}
        assert client.noting("$/cancel_request", {"requestId": asked["id"]}) in client.heard
        # The client may answer anyway, in either way; nobody minds.
        client.answer(asked, {"outcome": {"outcome": "cancelled"}})
        await asyncio.sleep(0)
        assert await client.new_session()
