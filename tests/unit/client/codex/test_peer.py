"""An app-server as a peer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.client.codex import CodexOptions
from dragoman.client.conversation import Opening
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import InvalidAnswer, ProtocolMismatch, RemoteError, Unsupported, UsageError
from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.events.words import Outcome
from tests.aio import aio
from tests.unit.client.codex.server_side import BUDGETS, Server, connected, thread, watch

TURN = {
    "id": "u0",
    "status": "completed",
    "items": [
        {"type": "userMessage", "id": "a", "content": [{"type": "text", "text": "asked"}]},
        {"type": "agentMessage", "id": "b", "text": "answered"},
        {"type": 3},
    ],
}


@aio
async def test_a_new_thread_gets_the_safe_settings_and_the_folder() -> None:
    server = Server()
    async with connected(server) as peer:
        events = watch(peer)
        async with peer.session() as talk:
            assert talk.id == "t1"
        assert server.sent("thread/start") == [
            {
                "cwd": "/w",
                "approvalPolicy": "on-request",
                "sandbox": "read-only",
                "serviceName": "dragoman",
            }
        ]
        assert server.sent("thread/unsubscribe") == [{"threadId": "t1"}]
        opened, settings = (
            e for e in events if isinstance(e, model.SessionOpened | model.SettingsChanged)
        )
        assert isinstance(opened, model.SessionOpened)
        assert (opened.how, opened.cwd, opened.model) == ("new", "/w", "m")
        assert isinstance(settings, model.SettingsChanged)
        assert settings.mode == "read-only"
        assert fold(events).options[0].value == "on-request"


@pytest.mark.parametrize(
    "took",
    [
        {"sandbox": {"type": "dangerFullAccess"}},
        {"sandbox": {"type": "workspaceWrite"}},
        {"sandbox": "read-only"},
        {"sandbox": None},
        {"approvalPolicy": "never"},
        {"approvalPolicy": {"granular": {}}},
    ],
)
@aio
async def test_a_thread_without_the_settings_that_keep_it_safe_is_not_used(took: Any) -> None:
    server = Server({"thread/start": thread(**took)})
    async with connected(server) as peer:
        with pytest.raises(ProtocolMismatch, match="will not use this thread"):
            async with peer.session():
                raise AssertionError
        assert server.sent("thread/unsubscribe") == [{"threadId": "t1"}]
        assert peer.client.conversations == {}


@aio
async def test_a_thread_that_is_not_used_is_left_even_if_that_fails() -> None:
    server = Server(
        {
            "thread/start": thread(approvalPolicy="never"),
            "thread/unsubscribe": RemoteError(-32603, "no"),
        }
    )
    async with connected(server) as peer:
        with pytest.raises(ProtocolMismatch):
            async with peer.session():
                raise AssertionError


@pytest.mark.parametrize("opening", [{}, {"fork": "t0"}])
@aio
async def test_a_thread_that_opens_after_its_caller_was_cancelled_is_left(
    opening: dict[str, Any],
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def late(params: Any) -> Any:
        asked.set()
        await answer.wait()
        return thread()

    methods = ("thread/start", "thread/resume", "thread/fork")
    server = Server(dict.fromkeys(methods, late))
    async with connected(server) as peer:
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(peer.session(**opening).__aenter__())
                await asked.wait()
                task.cancel()
                await task
        answer.set()
        assert await server.wait_for("thread/unsubscribe") == {"threadId": "t1"}
        assert peer.client.conversations == {}


@aio
async def test_a_thread_whose_caller_is_cancelled_while_models_are_listed_is_left() -> None:
    asked = asyncio.Event()

    async def list_models(params: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    server = Server({"model/list": list_models})
    async with connected(server) as peer:
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(peer.session().__aenter__())
                await asked.wait()
                task.cancel()
                await task
        assert server.sent("thread/unsubscribe") == [{"threadId": "t1"}]


@aio
async def test_another_sandbox_is_asked_for_as_a_mode() -> None:
    server = Server({"thread/start": thread(sandbox={"type": "workspaceWrite"})})
    async with connected(server) as peer, peer.session(mode="workspace-write"):
        assert server.sent("thread/start")[0]["sandbox"] == "workspace-write"


@pytest.mark.parametrize(
    ("kwargs", "what"),
    [
        ({"mode": "yolo"}, "no mode 'yolo'"),
        ({"mcp_servers": [1]}, "MCP"),
        ({"mcp_servers": [acp.McpServerSse(name="x", url="u", headers=[])]}, "over SSE"),
        ({"additional_directories": ["/x"]}, "director"),
    ],
)
@aio
async def test_what_codex_cannot_do_is_refused_before_anything_is_sent(
    kwargs: dict[str, Any], what: str
) -> None:
    server = Server()
    async with connected(server) as peer:
        with pytest.raises(Unsupported, match=what):
            async with peer.session(**kwargs):
                raise AssertionError
        assert "thread/start" not in server.methods()


@aio
async def test_an_unknown_policy_is_refused_before_anything_is_sent() -> None:
    server = Server()
    options = CodexOptions(budgets=BUDGETS, approval_policy="unlessTrusted")
    async with connected(server, options) as peer:
        with pytest.raises(Unsupported, match="unlessTrusted"):
            async with peer.session():
                raise AssertionError
        assert "thread/start" not in server.methods()


@aio
async def test_mcp_servers_go_into_the_configuration_of_the_thread() -> None:
    servers = [
        acp.McpServerStdio(
            name="one",
            command="run",
            args=["-x"],
            env=[acp.EnvVariable(name="A", value="1")],
        ),
        acp.McpServerHttp(
            name="two", url="http://127.0.0.1/", headers=[acp.HttpHeader(name="H", value="v")]
        ),
    ]
    server = Server()
    async with connected(server) as peer:
        async with peer.session(mcp_servers=servers):
            pass
        async with peer.session():
            pass
    first, second = server.sent("thread/start")
    assert first["config"] == {
        "mcp_servers": {
            "one": {"command": "run", "args": ["-x"], "env": {"A": "1"}},
            "two": {"url": "http://127.0.0.1/", "http_headers": {"H": "v"}},
        }
    }
    assert "config" not in second


def models(*names: str) -> dict[str, Any]:
    return {"data": [{"id": n, "model": n, "displayName": n} for n in names]}


@aio
async def test_a_model_that_openai_has_not_is_refused() -> None:
    server = Server({"thread/start": thread(model="x"), "model/list": models("a", "b")})
    async with connected(server) as peer:
        with pytest.raises(Unsupported, match="it has a, b"):
            async with peer.session(model="x"):
                raise AssertionError
        assert server.sent("thread/unsubscribe") == [{"threadId": "t1"}]


@aio
async def test_a_model_that_was_not_taken_is_a_mismatch() -> None:
    async with connected(Server({"thread/start": thread(model="y")})) as peer:
        with pytest.raises(ProtocolMismatch, match="uses 'y'"):
            async with peer.session(model="x"):
                raise AssertionError


@aio
async def test_another_provider_has_models_that_are_not_listed() -> None:
    server = Server(
        {"thread/start": thread(model="x", modelProvider="mine"), "model/list": {"data": []}}
    )
    async with connected(server) as peer:
        view = watch(peer)
        async with peer.session(model="x") as talk:
            await talk.set_option("model", "y")
    option = fold(view).options[1]
    assert (option.id, option.category, option.value) == ("model", "model", "y")
    assert option.open_ended and [choice.value for choice in option.choices] == ["y"]


@aio
async def test_the_models_are_listed_once_and_offered_in_every_thread() -> None:
    listed = {"data": [{"id": name, "model": name, "displayName": name} for name in "ab"]}
    server = Server({"thread/start": thread(model="a", modelProvider="openai")})
    server.answers["model/list"] = [listed]
    server.answers["thread/start"] = [
        thread(model="a", modelProvider="openai"),
        thread(model="a", modelProvider="openai", thread={"id": "t2"}),
    ]
    async with connected(server) as peer:
        events = watch(peer)
        async with peer.session(), peer.session():
            pass
    told = [event for event in events if isinstance(event, model.SettingsChanged)]
    assert len(told) == 2
    for event in told:
        assert isinstance(event.options, tuple)
        option = event.options[1]
        assert [choice.value for choice in option.choices] == ["a", "b"]
        assert not option.open_ended


@aio
async def test_a_server_that_lists_no_models_is_still_used() -> None:
    server = Server({"model/list": RemoteError(-32601, "no such method")})
    async with connected(server) as peer, peer.session() as talk:
        assert talk.id


@aio
async def test_a_thread_is_loaded_with_its_history() -> None:
    server = Server({"thread/resume": thread(thread={"turns": [TURN]})})
    async with connected(server) as peer:
        events = watch(peer)
        async with peer.session(load="t1") as talk:
            view = fold(talk.replayed)
            assert [m.text for m in view.messages] == ["asked", "answered"]
            assert [turn.outcome for turn in view.turns] == [Outcome.OK]
            assert all(event.replay and event.turn == "u0" for event in talk.replayed)
            assert [e for e in events if e.replay] == list(talk.replayed)
            assert [type(e) for e in talk.replayed].count(model.Unknown) == 1
        (params,) = server.sent("thread/resume")
        assert (params["threadId"], params["excludeTurns"]) == ("t1", False)


@pytest.mark.parametrize(("how", "method"), [("resume", "thread/resume"), ("fork", "thread/fork")])
@aio
async def test_a_thread_is_resumed_and_forked_without_its_history(how: str, method: str) -> None:
    server = Server({method: thread("t2", thread={"turns": [TURN], "forkedFromId": "t1"})})
    async with connected(server) as peer:
        kwargs: dict[str, Any] = {how: "t1"}
        async with peer.session(**kwargs) as talk:
            assert (talk.id, list(talk.replayed)) == ("t2", [])
        (params,) = server.sent(method)
        assert (params["threadId"], params["excludeTurns"]) == ("t1", True)


@aio
async def test_threads_are_listed_page_by_page() -> None:
    pages: list[Any] = [
        {"data": [{"id": "a", "cwd": "/w", "name": "N", "updatedAt": 0}], "nextCursor": "2"},
        {"data": [{"id": "b", "preview": "P"}, {"id": "c"}], "nextCursor": None},
    ]
    server = Server({"thread/list": pages})
    async with connected(server) as peer:
        found = [session async for session in peer.list_sessions("/w")]
        assert [(s.id, s.cwd, s.title, s.updated_at) for s in found] == [
            ("a", "/w", "N", "1970-01-01T00:00:00+00:00"),
            ("b", None, "P", None),
            ("c", None, None, None),
        ]
        assert server.sent("thread/list") == [{"cwd": "/w"}, {"cwd": "/w", "cursor": "2"}]


def circle(params: Any) -> dict[str, Any]:
    """A page of a list with two pages, each of which names the other as the next."""
    return {"data": [], "nextCursor": "b" if (params or {}).get("cursor") == "a" else "a"}


@aio
async def test_a_list_whose_cursors_alternate_is_an_invalid_answer() -> None:
    server = Server({"thread/list": circle})
    async with connected(server) as peer:
        with pytest.raises(InvalidAnswer, match="list of sessions does not end"):
            _ = [session async for session in peer.list_sessions()]
        assert len(server.sent("thread/list")) == 3


@aio
async def test_a_thread_opens_although_the_list_of_models_does_not_end() -> None:
    server = Server({"model/list": circle})
    async with connected(server) as peer, peer.session() as session:
        assert session.id == "t1"
        assert len(server.sent("model/list")) == 3


@aio
async def test_threads_are_read_renamed_archived_and_deleted() -> None:
    answers = {
        "thread/read": {"thread": {"id": "t", "turns": [TURN]}},
        "thread/name/set": {},
        "thread/archive": {},
        "thread/unarchive": {},
        "thread/delete": {},
    }
    server = Server(dict(answers))
    async with connected(server) as peer:
        history = await peer.read_session("t")
        assert [m.text for m in fold(history).messages] == ["asked", "answered"]
        assert all(event.replay for event in history)
        await peer.rename_session("t", "N")
        await peer.archive_session("t")
        await peer.unarchive_session("t")
        await peer.delete_session("t")
        assert server.sent("thread/name/set") == [{"threadId": "t", "name": "N"}]
        for method in ("thread/archive", "thread/unarchive", "thread/delete"):
            assert server.sent(method) == [{"threadId": "t"}]


@aio
async def test_the_peer_can_be_given_another_observer() -> None:
    async with connected(Server()) as peer:
        assert peer.on_event is None
        events = watch(peer)
        assert peer.on_event is not None
        async with peer.session():
            pass
        assert any(isinstance(event, model.SessionOpened) for event in events)
        assert peer.workspace == Path("/w")


def test_options_are_values() -> None:
    options = CodexOptions()
    assert structs.replace(options, sandbox="read-only") == options


@aio
async def test_an_open_thread_cannot_be_opened_again_and_keeps_its_events() -> None:
    server = Server({"thread/resume": thread()})
    async with connected(server) as peer, peer.session() as talk:
        with pytest.raises(UsageError, match="already open on this connection"):
            async with peer.session(resume="t1"):
                pass
        assert server.sent("thread/resume") == []
        assert peer.client.conversations == {"t1": talk}


@aio
async def test_of_two_callers_that_open_a_thread_at_once_one_gets_it() -> None:
    server = Server({"thread/resume": thread()})
    opening = Opening(cwd=Path("/w"), how="resume", session_id="t1")
    async with connected(server) as peer:
        opened = await asyncio.gather(
            peer.open(opening), peer.open(opening), return_exceptions=True
        )
        (talk,) = peer.client.conversations.values()
        (failure,) = [each for each in opened if each is not talk]
        assert isinstance(failure, UsageError)
        assert server.sent("thread/unsubscribe") == []


@pytest.mark.parametrize("seconds", [10**12, 10**18, -(10**18)])
@aio
async def test_a_thread_with_an_impossible_time_is_listed_without_it(seconds: int) -> None:
    page = {"data": [{"id": "t", "updatedAt": seconds, "createdAt": 0}]}
    async with connected(Server({"thread/list": page})) as peer:
        (listed,) = [session async for session in peer.list_sessions()]
        assert (listed.updated_at, listed.created_at) == (None, "1970-01-01T00:00:00+00:00")


@aio
async def test_the_refusal_of_an_mcp_server_shows_no_secret_of_it() -> None:
    async with connected(Server()) as peer:
        with pytest.raises(Unsupported, match="given as dict") as refused:
            async with peer.session(mcp_servers=[{"command": "x", "env": {"TOKEN": "secret"}}]):
                raise AssertionError
        assert "secret" not in str(refused.value)
