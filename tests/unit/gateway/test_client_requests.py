"""Who serves what a peer asks for: the client that can, else the bridge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.inquiries import DECLINED, Inquiry
from dragoman.dialects.acp import v1 as acp
from dragoman.events import model
from dragoman.gateway import Gateway
from dragoman.gateway.client_requests import Services
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.unit.client.acp.agent_side import chunk
from tests.unit.client.codex.server_side import Server, connected
from tests.unit.gateway.both_sides import ClientEnd, Scene, scene
from tests.unit.rpc.other_side import soon

FILES = {"fs": {"readTextFile": True, "writeTextFile": True}}
FORMS: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
OFFERED: dict[str, Any] = {
    "inquire": lambda inquiry: DECLINED,
    "visits": True,
    "terminals": True,
}
FORM = {
    "mode": "form",
    "sessionId": "s1",
    "toolCallId": "t1",
    "message": "Which one?",
    "requestedSchema": {
        "type": "object",
        "properties": {"which": {"type": "string", "enum": ["a", "b"]}},
        "required": ["which"],
    },
}
PAGE = {"mode": "url", "sessionId": "s1", "elicitationId": "p1", "url": "https://x", "message": "m"}


def tell(here: Scene, method: str, **params: Any) -> None:
    here.agent.say({"jsonrpc": "2.0", "method": method, "params": params})


async def asked(here: Scene, client: ClientEnd, method: str, params: Any, result: Any) -> Any:
    """What a peer gets whose request the client answers so."""
    here.agent.ask("q", method, {"sessionId": "s1", **params})
    request = await client.next()
    assert request["method"] == method, request
    assert request["params"] == {"sessionId": "s1", **params}
    client.answer(request, result)
    return (await here.agent.heard_answer("q"))["result"]


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("fs/read_text_file", {"path": "/w/a", "line": 2, "limit": 1}, {"content": "unsaved"}),
        ("fs/write_text_file", {"path": "/w/a", "content": "new"}, {}),
    ],
)
@aio
async def test_files_are_the_clients_if_it_has_them(method: str, params: Any, result: Any) -> None:
    async with scene(**OFFERED) as here:
        client = await here.client(**FILES)
        await client.open()
        assert await asked(here, client, method, params, result) == result


TERMINAL = {"terminalId": "term-1"}
ENV = [{"name": "A", "value": "1"}]


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("terminal/create", {"command": "make", "args": ["all"], "env": ENV}, TERMINAL),
        ("terminal/output", TERMINAL, {"output": "x", "truncated": False}),
        ("terminal/wait_for_exit", TERMINAL, {"exitCode": 0}),
        ("terminal/kill", TERMINAL, {}),
        ("terminal/release", TERMINAL, {}),
    ],
)
@aio
async def test_terminals_are_the_clients_if_it_has_them(
    method: str, params: Any, result: Any
) -> None:
    async with scene(**OFFERED) as here:
        client = await here.client(terminal=True)
        await client.open()
        assert await asked(here, client, method, params, result) == result


@aio
async def test_a_client_without_files_has_them_served_by_the_bridge(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("from disk")
    async with scene(**OFFERED) as here:
        client = await here.client(fs={"writeTextFile": True})
        params = {"cwd": str(tmp_path), "mcpServers": []}
        await client.call("session/new", params)
        here.agent.ask("q", "fs/read_text_file", {"sessionId": "s1", "path": str(tmp_path / "a")})
        assert (await here.agent.heard_answer("q"))["result"] == {"content": "from disk"}
        here.agent.ask("r", "fs/read_text_file", {"sessionId": "none", "path": "/x"})
        assert (await here.agent.heard_answer("r"))["error"]["code"] == -32002
        assert all("method" not in message for message in client.heard)


@aio
async def test_what_a_client_refuses_is_refused_in_its_own_words() -> None:
    async with scene(**OFFERED) as here:
        client = await here.client(**FILES)
        await client.open()
        here.agent.ask("q", "fs/read_text_file", {"sessionId": "s1", "path": "/w/a"})
        request = await client.next()
        error = {"code": -32042, "message": "not this one", "data": {"why": "secret"}}
        client.say({"jsonrpc": "2.0", "id": request["id"], "error": error})
        assert (await here.agent.heard_answer("q"))["error"] == error


@aio
async def test_a_client_that_goes_away_leaves_no_request_unanswered() -> None:
    async with scene(**OFFERED) as here:
        client = await here.client(**FILES)
        await client.open()
        here.agent.ask("q", "fs/read_text_file", {"sessionId": "s1", "path": "/w/a"})
        await client.next()
        await client.stream.aclose()
        answer = await here.agent.heard_answer("q")
        assert answer["error"]["code"] == -32603


@aio
async def test_a_request_that_the_peer_calls_off_is_called_off_at_the_client() -> None:
    async with scene(**OFFERED) as here:
        client = await here.client(terminal=True)
        await client.open()
        here.agent.ask("q", "terminal/wait_for_exit", {"sessionId": "s1", **TERMINAL})
        request = await client.next()
        tell(here, "$/cancel_request", requestId="q")
        assert (await client.told("$/cancel_request"))["requestId"] == request["id"]
        assert (await here.agent.heard_answer("q"))["error"]["code"] == -32800


# -- questions to the user


@aio
async def test_a_form_is_filled_in_by_the_clients_user_after_what_was_said_before() -> None:
    async with scene(**OFFERED) as here:
        client = await here.client(**FORMS)
        await client.open()
        prompting = client.prompt("go")
        prompt = await here.agent.expect("session/prompt")
        for number in range(20):
            here.agent.update(chunk(str(number)))
        here.agent.ask("q", "elicitation/create", FORM)
        for _ in range(20):
            await client.told("session/update")
        question = await client.next()
        assert (question["method"], question["params"]) == ("elicitation/create", FORM)
        reply = {"action": "accept", "content": {"which": "b"}}
        client.answer(question, reply)
        assert (await here.agent.heard_answer("q"))["result"] == reply
        here.agent.answer(prompt, {"stopReason": "end_turn"})
        await client.answered(prompting)


@pytest.mark.parametrize("action", ["decline", "cancel"])
@aio
async def test_a_form_may_be_declined_or_closed(action: str) -> None:
    async with scene(**OFFERED) as here:
        client = await here.client(**FORMS)
        await client.open()
        here.agent.ask("q", "elicitation/create", FORM)
        client.answer(await client.next(), {"action": action})
        assert (await here.agent.heard_answer("q"))["result"] == {"action": action}


@aio
async def test_a_client_is_notified_when_its_user_is_done_with_a_page() -> None:
    async with scene(**OFFERED) as here:
        client = await here.client(**FORMS)
        await client.open()
        here.agent.ask("q", "elicitation/create", PAGE)
        question = await client.next()
        assert question["params"] == PAGE
        client.answer(question, {"action": "accept"})
        assert (await here.agent.heard_answer("q"))["result"] == {"action": "accept"}
        tell(here, "elicitation/complete", elicitationId="other")
        tell(here, "elicitation/complete", elicitationId="p1")
        tell(here, "elicitation/complete", elicitationId="p1")
        here.agent.update(chunk("behind"))
        assert await client.told("elicitation/complete") == {"elicitationId": "p1"}
        await client.told("session/update")


@aio
async def test_a_question_that_a_client_cannot_show_is_declined() -> None:
    async with scene(**OFFERED) as here:
        client = await here.client(elicitation={"form": {}})
        await client.open()
        here.agent.ask("q", "elicitation/create", PAGE)
        assert (await here.agent.heard_answer("q"))["result"] == {"action": "decline"}
        assert all("method" not in message for message in client.heard)


@aio
async def test_a_question_to_a_client_that_answers_with_an_error_is_declined() -> None:
    async with scene(**OFFERED) as here:
        client = await here.client(**FORMS)
        await client.open()
        here.agent.ask("q", "elicitation/create", FORM)
        question = await client.next()
        error = {"code": -32603, "message": "no"}
        client.say({"jsonrpc": "2.0", "id": question["id"], "error": error})
        assert (await here.agent.heard_answer("q"))["result"] == {"action": "decline"}


@asynccontextmanager
async def codex(server: Server, **capabilities: Any) -> AsyncIterator[ClientEnd]:
    """A client of a bridge to an app-server, with a thread open."""
    async with connected(server) as peer, asyncio.TaskGroup() as group:
        ours, theirs = memory_pair()
        client = ClientEnd(theirs)
        theirs.start(client)
        client.served = group.create_task(Gateway(peer).serve(ours))
        await client.hello(**capabilities)
        await client.open()
        yield client
        await theirs.aclose()


QUESTION = {
    "threadId": "t1",
    "turnId": "u1",
    "itemId": "i",
    "questions": [{"id": "q", "header": "Which", "question": "Which one?"}],
}


@aio
async def test_questions_of_codex_are_forms_for_the_clients_user() -> None:
    server = Server()
    async with codex(server, **FORMS) as client:
        asking = server.connection.tasks.start(
            server.ask("item/tool/requestUserInput", **QUESTION), "ask"
        )
        form = await client.next()
        while form["method"] == "session/update":
            form = await client.next()
        assert form["method"] == "elicitation/create"
        assert form["params"]["mode"] == "form"
        assert form["params"]["requestedSchema"]["properties"]["q"]["title"] == "Which"
        client.answer(form, {"action": "accept", "content": {"q": "this"}})
        assert await soon(asking) == {"answers": {"q": {"answers": ["this"]}}}


@aio
async def test_a_page_of_an_mcp_server_behind_codex_is_opened_by_the_clients_user() -> None:
    server = Server()
    page = {"threadId": "t1", "serverName": "s", "mode": "url", "message": "Log in"}
    async with codex(server, **FORMS) as client:
        wanted = server.ask(
            "mcpServer/elicitation/request", **page, url="https://x", elicitationId="p"
        )
        asking = server.connection.tasks.start(wanted, "ask")
        question = await client.next()
        while question["method"] == "session/update":
            question = await client.next()
        assert question["params"]["url"] == "https://x"
        client.answer(question, {"action": "accept"})
        assert (await soon(asking))["action"] == "accept"


@aio
async def test_questions_of_codex_to_a_client_without_forms_are_answered_with_nothing() -> None:
    server = Server()
    async with codex(server) as client:
        assert await soon(server.ask("item/tool/requestUserInput", **QUESTION)) == {"answers": {}}
        assert all(m.get("method") in (None, "session/update") for m in client.heard)


class Side:
    """Stands for a link and its client, without either."""

    def __init__(self, *capabilities: str) -> None:
        self._can = capabilities
        self.asked: list[Any] = []
        self.done: list[str] = []

    def side(self, session_id: str) -> Side:
        return self

    def can(self, capability: str) -> bool:
        return capability in self._can

    async def caught_up(self, session_id: str) -> None: ...

    async def ask(self, method: Any, params: Any) -> Any:
        self.asked.append(params)
        return acp.ElicitationAccepted(content={"x": "y"})

    def page_done(self, page_id: str) -> None:
        self.done.append(page_id)


def services(side: Side) -> Services:
    return Services({"s": side}.get)  # type: ignore[arg-type]


@aio
async def test_a_question_of_another_dialect_is_put_into_acp() -> None:
    side = Side("elicitation.form", "elicitation.url")
    here = services(side)
    schema = {"type": "object", "properties": {"x": {"type": "string", "title": "X"}}}
    reply = await here.inquire(Inquiry("s", "Well?", schema, tool_call_id="t"))
    assert (reply.action, reply.content) == ("accept", {"x": "y"})
    (form,) = side.asked
    assert (form.message, form.session_id, form.tool_call_id) == ("Well?", "s", "t")
    assert form.requested_schema.properties["x"].title == "X"
    await here.inquire(Inquiry("s", "Go", url="https://x", page_id="p"))
    assert (side.asked[1].url, side.asked[1].elicitation_id) == ("https://x", "p")


@aio
async def test_what_cannot_be_asked_is_declined() -> None:
    side = Side("elicitation.form")
    here = services(side)
    odd = {"type": "object", "properties": {"x": "nonsense"}}
    for inquiry in (
        Inquiry(None, "m", {}),
        Inquiry("nobody's", "m", {}),
        Inquiry("s", "m", url="https://x"),
        Inquiry("s", "m", odd),
    ):
        assert await here.inquire(inquiry) == DECLINED
    assert side.asked == []


@aio
async def test_a_client_that_has_gone_is_not_notified_of_a_page() -> None:
    side = Side("elicitation.url")
    here = services(side)
    source = model.Source("acp", "c")
    base = (source, 1, None, None, "elicitation/complete", None, False)
    done = model.InputAnswered(*base, "p", "completed")
    await here.inquire(Inquiry("s", "Go", url="https://x", page_id="p"))
    here.forget(Side())  # type: ignore[arg-type]
    here.happened(done)
    here.happened(done)
    assert side.done == ["p"]
    await here.inquire(Inquiry("s", "Go", url="https://x", page_id="p"))
    here.forget(side)  # type: ignore[arg-type]
    here.happened(done)
    assert side.done == ["p"]
