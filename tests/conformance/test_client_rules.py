"""Rules for dragoman's client that a probe cannot observe.

The manifest lists these tests with the requirements that they prove.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dragoman.client.acp import AcpClient, ClientOptions
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.acp.v1.translate import of_update
from dragoman.errors import AuthRequired, Unsupported, UsageError
from dragoman.events.fold import apply
from dragoman.events.model import EventEnvelope, Source
from dragoman.events.view import View
from tests.aio import aio
from tests.conformance.fake_agent import Answers, FakeAgent, Refusal, client_of

HERE = str(Path("/somewhere/folder"))


async def listed(client: AcpClient) -> list[acp.SessionInfo]:
    return [info async for info in client.list_sessions()]


GATED: dict[str, Callable[[AcpClient], Awaitable[Any]]] = {
    "session/load": lambda client: client.load_session("s", HERE),
    "session/resume": lambda client: client.resume_session("s", HERE),
    "session/list": listed,
    "session/delete": lambda client: client.delete_session("s"),
    "logout": lambda client: client.logout(),
}


@pytest.mark.parametrize("method", GATED)
@aio
async def test_nothing_is_called_that_the_agent_did_not_advertise(method: str) -> None:
    async with client_of({}) as (client, agent):
        with pytest.raises(Unsupported):
            await GATED[method](client)
        assert agent.methods() == ["initialize"]


@aio
async def test_a_terminal_login_is_never_asked_for_over_the_wire() -> None:
    methods: list[dict[str, Any]] = [
        {"id": "t", "name": "In a terminal", "type": "terminal", "args": ["login"]},
        {"id": "a", "name": "By itself"},
    ]
    options = ClientOptions(terminal_login=True)
    answers: Answers = {"authenticate": {}}
    async with client_of(answers, auth_methods=methods, options=options) as (client, agent):
        for refused in ("t", "never-offered"):
            with pytest.raises(UsageError):
                await client.authenticate(refused)
        await client.authenticate("a")
        assert agent.params("authenticate") == [{"methodId": "a"}]


@aio
async def test_a_prompt_after_a_logout_says_that_a_login_is_needed() -> None:
    answers = {"logout": {}, "session/prompt": Refusal(-32000)}
    capabilities: Answers = {"auth": {"logout": {}}}
    async with client_of(answers, capabilities=capabilities) as (client, agent):
        session = await client.new_session(HERE)
        await client.logout()
        with pytest.raises(AuthRequired):
            (await session.ask("still there?")).require_ok()


@aio
async def test_servers_on_the_network_are_not_named_to_an_agent_that_cannot_reach_them() -> None:
    http = acp.McpServerHttp(name="h", url="https://example.invalid", headers=[])
    sse = acp.McpServerSse(name="s", url="https://example.invalid", headers=[])
    async with client_of({}) as (client, agent):
        for server in (http, sse):
            with pytest.raises(Unsupported):
                await client.new_session(HERE, mcp_servers=[server])
        assert "session/new" not in agent.methods()
    async with client_of({}, capabilities={"mcpCapabilities": {"http": True}}) as (client, agent):
        await client.new_session(HERE, mcp_servers=[http])
        with pytest.raises(Unsupported):
            await client.new_session(HERE, mcp_servers=[sse])
        assert len(agent.params("session/new")) == 1


@aio
async def test_a_list_of_sessions_follows_cursors_as_they_are_to_the_page_without_one() -> None:
    cursors = ["YWJj==", " ☃/?&", "null", None]
    pages = iter(cursors)

    def page(params: dict[str, Any]) -> dict[str, Any]:
        cursor = next(pages)
        entry = {"sessionId": f"s-{cursor}", "cwd": "/"}
        return {"sessions": [entry], "nextCursor": cursor}

    capabilities: Answers = {"sessionCapabilities": {"list": {}}}
    async with client_of({"session/list": page}, capabilities=capabilities) as (client, agent):
        assert len(await listed(client)) == len(cursors)
        sent = [params.get("cursor") for params in agent.params("session/list")]
        assert sent == [None, *cursors[:-1]]


@aio
async def test_a_listed_session_has_the_folders_of_its_own_entry_and_no_others() -> None:
    answers = iter([["/a", "/b"], ["/c"], None])

    def page(params: dict[str, Any]) -> dict[str, Any]:
        folders = next(answers)
        more = {} if folders is None else {"additionalDirectories": folders}
        return {"sessions": [{"sessionId": "s", "cwd": "/", **more}]}

    capabilities: Answers = {"sessionCapabilities": {"list": {}}}
    async with client_of({"session/list": page}, capabilities=capabilities) as (client, agent):
        seen = [list((await listed(client))[0].additional_directories) for _ in range(3)]
    assert seen == [["/a", "/b"], ["/c"], []]


@aio
async def test_more_folders_are_sent_only_where_they_are_taken_and_absolute() -> None:
    async with client_of({}) as (client, agent):
        with pytest.raises(Unsupported):
            await client.new_session(HERE, additional_directories=["/other"])
    capabilities: Answers = {"sessionCapabilities": {"additionalDirectories": {}}}
    async with client_of({}, capabilities=capabilities) as (client, agent):
        await client.new_session(HERE, additional_directories=["/other", "relative"])
        sent = agent.params("session/new")[0]["additionalDirectories"]
        assert sent == ["/other", str(Path.cwd() / "relative")]


@pytest.mark.parametrize(
    ("block", "capability"),
    [
        (acp.ImageContent(data="", mime_type="image/png"), "image"),
        (acp.AudioContent(data="", mime_type="audio/wav"), "audio"),
        (
            acp.EmbeddedResource(resource=acp.TextResourceContents(uri="file:///a", text="")),
            "embeddedContext",
        ),
    ],
    ids=["image", "audio", "resource"],
)
@aio
async def test_content_that_the_agent_does_not_take_is_not_sent(
    block: acp.ContentBlock, capability: str
) -> None:
    answers: Answers = {"session/prompt": {"stopReason": "end_turn"}}
    async with client_of(answers) as (client, agent):
        session = await client.new_session(HERE)
        with pytest.raises(Unsupported):
            session.prompt([block])
        await session.ask([acp.ResourceLink(uri="file:///a", name="a")])
        assert len(agent.params("session/prompt")) == 1
    able = {"promptCapabilities": {capability: True}}
    async with client_of(answers, capabilities=able) as (client, agent):
        session = await client.new_session(HERE)
        await session.ask([block])
        assert len(agent.params("session/prompt")) == 1


async def updates(*sent: dict[str, Any]) -> list[acp.SessionUpdate]:
    """The updates that a client gets in a turn in which the agent sends these."""

    def answers(agent: FakeAgent) -> Answers:
        def prompt(params: Any) -> Any:
            for update in sent:
                agent.update("s", **update)
            return {"stopReason": "end_turn"}

        return {"session/prompt": prompt}

    async with client_of(answers) as (client, _):
        session = await client.new_session(HERE)
        async with session.prompt("hello") as turn:
            return [update async for update in turn]


@aio
async def test_a_message_id_is_kept_as_it_came_and_null_is_none() -> None:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}
    ids = ["1", "01", " 1", "A", "a", "é", "é"]
    sent: list[dict[str, Any]] = [{**chunk, "messageId": id} for id in ids]
    got = await updates(*sent, {**chunk, "messageId": None}, chunk)
    assert [update.message_id for update in got if isinstance(update, acp.AgentMessageChunk)] == [
        *ids,
        None,
        None,
    ]


@aio
async def test_a_mode_is_set_by_its_option_where_there_is_one_and_else_as_a_mode() -> None:
    modes = {
        "currentModeId": "ask",
        "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}],
    }
    option = {
        "id": "the-mode", "name": "Mode", "category": "mode", "type": "select",
        "currentValue": "ask",
        "options": [{"value": "ask", "name": "Ask"}, {"value": "code", "name": "Code"}],
    }  # fmt: skip
    answers: Answers = {
        "session/set_mode": {},
        "session/set_config_option": {"configOptions": [{**option, "currentValue": "code"}]},
    }
    both = {"session/new": {"sessionId": "s", "modes": modes, "configOptions": [option]}}
    async with client_of({**answers, **both}) as (client, agent):
        await (await client.new_session(HERE)).set_mode("code")
        assert "session/set_mode" not in agent.methods()
        assert agent.params("session/set_config_option")[0]["configId"] == "the-mode"
    only_modes = {"session/new": {"sessionId": "s", "modes": modes}}
    async with client_of({**answers, **only_modes}) as (client, agent):
        await (await client.new_session(HERE)).set_mode("code")
        assert agent.params("session/set_mode") == [{"sessionId": "s", "modeId": "code"}]
        assert "session/set_config_option" not in agent.methods()


@aio
async def test_options_keep_their_order_and_strange_ones_do_no_harm() -> None:
    select = {
        "type": "select", "currentValue": "a", "options": [{"value": "a", "name": "A"}],
    }  # fmt: skip
    options = [
        {"id": "z", "name": "Z", "category": "model", **select},
        {"id": "m", "name": "M", **select},
        {"id": "strange", "name": "S", "type": "slider", "currentValue": 5},
        {"id": "b", "name": "B", "category": "of_tomorrow", **select},
        {"id": "a", "name": "A", "category": 5, **select},
    ]
    answers: Answers = {
        "session/new": {"sessionId": "s", "configOptions": options},
        "session/set_config_option": {"configOptions": options},
    }
    async with client_of(answers) as (client, agent):
        session = await client.new_session(HERE)
        known = [
            option.id
            for option in session.config_options or ()
            if not isinstance(option, acp.UnknownConfigOption)
        ]
        assert known == ["z", "m", "b", "a"]
        await session.set_option("b", "a")
        with pytest.raises(Unsupported):
            await session.set_option("strange", "a")
        assert len(agent.params("session/set_config_option")) == 1


@aio
async def test_a_new_plan_replaces_the_old_one() -> None:
    def plan(*contents: str) -> dict[str, Any]:
        entries = [{"content": c, "priority": "high", "status": "pending"} for c in contents]
        return {"sessionUpdate": "plan", "entries": entries}

    view = View()
    place = EventEnvelope(Source("acp.v1", "fake"), count(), "s")
    for update in await updates(plan("a", "b", "c"), plan("d")):
        for event in of_update(update, place, None):
            apply(view, event)
    (now,) = view.plans.values()
    assert [entry.text for entry in now.entries] == ["d"]
