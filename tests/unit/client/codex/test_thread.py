"""A thread as a conversation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from dragoman.client.codex import CodexOptions
from dragoman.client.codex.thread import input_of
from dragoman.errors import (
    CallError,
    CallTimeout,
    ProtocolMismatch,
    RemoteError,
    SessionUnusable,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.events.parts import Audio, Block, Image, Link, OtherBlock, Resource, Text
from dragoman.events.words import Outcome
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.client.codex.server_side import (
    BUDGETS,
    WAIT,
    Server,
    connected,
    talking,
    thread,
    watch,
)
from tests.unit.rpc.other_side import soon


async def never(params: Any) -> None:
    await asyncio.Event().wait()


async def play(server: Server, talk: Any, prompt: str = "x") -> Any:
    """A turn from its beginning to its end."""
    async with talk.prompt(prompt) as turn:
        await server.wait_for("turn/start")
        server.start_turn()
        server.say("ok")
        server.end_turn()
        async with asyncio.timeout(WAIT):
            return await turn.wait()


@aio
async def test_settings_are_sent_with_the_next_turn_and_read_back_before_the_one_after() -> None:
    server = Server(
        {
            "thread/resume": thread(
                sandbox={"type": "workspaceWrite", "networkAccess": False},
                approvalPolicy="never",
            )
        }
    )
    async with talking(server) as (peer, talk):
        events = watch(peer)
        await talk.set_mode("workspace-write")
        await talk.set_option("approval_policy", "never")
        told = [e for e in events if isinstance(e, model.SettingsChanged)][-1]
        assert told.mode == "workspace-write"
        await play(server, talk)
        first = server.sent("turn/start")[0]
        assert first["sandboxPolicy"] == {"type": "workspaceWrite"}
        assert first["approvalPolicy"] == "never"
        assert "thread/resume" not in server.methods()
        await play(server, talk)
        second = server.sent("turn/start")[1]
        assert set(second) == {"threadId", "input"}
        assert server.sent("thread/resume") == [{"threadId": "t1", "excludeTurns": True}]
        await play(server, talk)
        assert len(server.sent("thread/resume")) == 1


@aio
async def test_a_thread_that_did_not_take_its_settings_is_not_used_again() -> None:
    server = Server({"thread/resume": thread(sandbox={"type": "dangerFullAccess"})})
    async with talking(server) as (_, talk):
        await talk.set_mode("read-only")
        assert (await play(server, talk)).ok
        with pytest.raises(ProtocolMismatch):
            await talk.ask("more")
        with pytest.raises(SessionUnusable):
            await talk.ask("more")
        assert len(server.sent("turn/start")) == 1


@pytest.mark.parametrize(
    ("policy", "sandbox", "outcome"),
    [
        ("on-request", "readOnly", Outcome.OK),
        ("on-request", "workspaceWrite", Outcome.PROTOCOL_ERROR),
        ("never", "readOnly", Outcome.PROTOCOL_ERROR),
    ],
)
@aio
async def test_settings_that_are_reported_unasked_are_checked(
    policy: str, sandbox: str, outcome: Outcome
) -> None:
    server = Server()
    async with talking(server) as (_, talk), talk.prompt("x") as turn:
        server.start_turn()
        settings = {
            "model": "m",
            "approvalPolicy": policy,
            "sandboxPolicy": {"type": sandbox},
        }
        server.tell("thread/settings/updated", threadId="t1", threadSettings=settings)
        if outcome is Outcome.OK:
            server.say("ok")
            server.end_turn()
        else:
            await server.wait_for("turn/interrupt")
            server.end_turn(status="interrupted")
        async with asyncio.timeout(WAIT):
            result = await turn.wait()
        assert result.outcome is outcome
        assert talk.unusable is (outcome is not Outcome.OK)
        if outcome is not Outcome.OK:
            assert result.error is not None and result.error.may_have_run


@aio
async def test_settings_that_do_not_exist_are_refused() -> None:
    models = {"data": [{"id": "a", "model": "a", "displayName": "A"}]}
    server = Server({"model/list": models})
    async with talking(server) as (_, talk):
        with pytest.raises(Unsupported, match="mode"):
            await talk.set_mode("yolo")
        with pytest.raises(Unsupported, match="option"):
            await talk.set_option("colour", "blue")
        for value in ("sometimes", True):
            with pytest.raises(Unsupported, match="approval policy"):
                await talk.set_option("approval_policy", value)
        with pytest.raises(Unsupported, match="model"):
            await talk.set_model("b")
        await talk.set_model("a")
        await play(server, talk)
        assert server.sent("turn/start")[0]["model"] == "a"


@aio
async def test_a_thread_gets_a_name() -> None:
    server = Server({"thread/name/set": {}})
    async with talking(server) as (_, talk):
        await talk.rename("N")
        assert server.sent("thread/name/set") == [{"threadId": "t1", "name": "N"}]


@aio
async def test_steering_waits_until_the_turn_has_started() -> None:
    server = Server({"turn/steer": {"turnId": "u1"}})
    async with talking(server) as (peer, talk), talk.prompt("x") as turn:
        steering = peer.client.connection.tasks.start(talk.steer("more"), "steer")
        await server.wait_for("turn/start")
        assert "turn/steer" not in server.methods()
        server.start_turn()
        async with asyncio.timeout(WAIT):
            await steering
        assert server.sent("turn/steer") == [
            {
                "threadId": "t1",
                "expectedTurnId": "u1",
                "input": [{"type": "text", "text": "more"}],
            }
        ]
        server.end_turn()
        await turn.wait()
        with pytest.raises(UsageError, match="no running turn"):
            await talk.steer("late")


@aio
async def test_steering_a_turn_that_never_starts_is_bounded() -> None:
    server = Server()
    budgets = type(BUDGETS)(cancel_grace=0.05, request=0.05)
    async with talking(server, CodexOptions(budgets=budgets)) as (_, talk):
        async with talk.prompt("x"):
            with pytest.raises(CallTimeout):
                await talk.steer("more")


@aio
async def test_steering_a_turn_that_ended_before_it_started_is_refused() -> None:
    server = Server({"turn/start": RemoteError(-32600, "no")})
    async with talking(server) as (_, talk), talk.prompt("x"):
        with pytest.raises(UsageError, match="no running turn"):
            await talk.steer("more")


@aio
async def test_closing_a_thread_ends_its_turn_first() -> None:
    server = Server()
    async with connected(server) as peer:
        async with peer.session() as talk:
            turn = talk.prompt("x")
            await turn.begin()
            await server.wait_for("turn/start")
            server.start_turn()
            server.answers["turn/interrupt"] = lambda params: server.end_turn(status="interrupted")
            server.say("x")
            async for event in turn:
                if isinstance(event, model.MessageDelta):
                    break
        assert server.methods()[-2:] == ["turn/interrupt", "thread/unsubscribe"]
        async with asyncio.timeout(WAIT):
            assert (await turn.wait()).outcome is Outcome.CANCELLED


@pytest.mark.parametrize("trouble", ["refuses", "is gone"])
@aio
async def test_a_thread_is_left_although_the_server_does_not_help(trouble: str) -> None:
    server = Server({"thread/unsubscribe": RemoteError(-32603, "no")})
    async with connected(server) as peer:
        async with peer.session():
            if trouble == "is gone":
                await server.connection.aclose()
                async with asyncio.timeout(WAIT):
                    await peer.client.connection.wait_ended()
        assert peer.client.conversations == {}


@aio
async def test_events_of_one_thread_do_not_reach_another() -> None:
    server = Server({"thread/start": [thread("t1"), thread("t2")]})
    async with connected(server) as peer, peer.session() as one, peer.session() as two:
        async with one.prompt("x") as first, two.prompt("y") as second:
            server.start_turn("u1", "t1")
            server.start_turn("u2", "t2")
            server.say("to two", "u2", "t2")
            server.say("to one", "u1", "t1")
            server.end_turn("u2", thread_id="t2")
            server.end_turn("u1", thread_id="t1")
            async with asyncio.timeout(WAIT):
                assert (await first.wait()).text == "to one"
                assert (await second.wait()).text == "to two"


# -- the prompt of a turn


@pytest.mark.parametrize(
    ("block", "wire"),
    [
        (Text("hi"), {"type": "text", "text": "hi"}),
        (Image("AA", "image/png"), {"type": "image", "url": "data:image/png;base64,AA"}),
        (Audio("AA", "audio/wav"), {"type": "audio", "url": "data:audio/wav;base64,AA"}),
        (
            Link("file:///a%20b/c.py", "c.py"),
            {"type": "mention", "name": "c.py", "path": "/a b/c.py"},
        ),
        (Link("file://[x", "x"), {"type": "text", "text": "[x](file://[x)"}),
        (Link("https://x.org", "x"), {"type": "text", "text": "[x](https://x.org)"}),
        (
            Resource("file:///a", "body"),
            {"type": "text", "text": "<context uri='file:///a'>\nbody\n</context>"},
        ),
        (OtherBlock("skill", {"type": "skill"}), {"type": "skill"}),
    ],
)
def test_every_block_that_codex_takes(block: Block, wire: dict[str, str]) -> None:
    assert input_of([block]) == [wire]


@pytest.mark.parametrize("block", [Resource("file:///a", None, "AA"), OtherBlock("x", 3)])
def test_what_codex_cannot_take_is_refused_before_anything_is_sent(block: Block) -> None:
    with pytest.raises(Unsupported):
        input_of([Text("first"), block])


@aio
async def test_a_closed_thread_takes_no_prompt() -> None:
    server = Server()
    async with connected(server) as peer:
        async with peer.session() as talk:
            pass
        with pytest.raises(SessionUnusable, match="closed"):
            await talk.ask("x")
        assert server.sent("turn/start") == []


@aio
async def test_a_thread_whose_close_is_cancelled_is_left_and_forgotten() -> None:
    server = Server()
    async with connected(server) as peer:
        block = peer.session()
        talk = await block.__aenter__()
        await talk.prompt("x").begin()
        server.start_turn()
        # The turn never ends, so the close waits for its grace period.
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.TaskGroup() as tasks:
                closing = tasks.create_task(block.__aexit__(None, None, None))
                await server.wait_for("turn/interrupt")
                closing.cancel()
                await closing
        assert server.sent("thread/unsubscribe") == [{"threadId": "t1"}]
        assert peer.client.conversations == {}


@pytest.mark.parametrize("refusal", [RemoteError(-32603, "no"), None])
@aio
async def test_a_prompt_did_not_run_if_the_settings_cannot_be_read_before_it(
    refusal: RemoteError | None,
) -> None:
    server = Server({"thread/resume": refusal or never})
    options = CodexOptions(budgets=structs.replace(BUDGETS, request=0.05))
    async with talking(server, options) as (_, talk):
        await talk.set_mode("read-only")
        assert (await play(server, talk)).ok
        with pytest.raises(CallError) as failed:
            await talk.ask("more")
        assert not failed.value.may_have_run
        assert len(server.sent("turn/start")) == 1


@aio
async def test_a_server_that_ends_before_the_prompt_is_sent_is_a_result() -> None:
    server = Server({"thread/resume": never})
    tasks = TaskOwner("test")
    async with talking(server) as (_, talk):
        await talk.set_mode("read-only")
        assert (await play(server, talk)).ok
        turn = talk.prompt("more")
        began = tasks.start(turn.begin(), "begin")
        await server.wait_for("thread/resume")
        await server.connection.aclose()
        await soon(began)
        assert turn.unsent is not None and not turn.unsent.may_have_run
        assert (await soon(turn.wait())).outcome is Outcome.CRASHED


@aio
async def test_input_for_a_turn_that_does_not_start_was_not_sent() -> None:
    server = Server()
    options = CodexOptions(budgets=structs.replace(BUDGETS, request=0.05))
    async with talking(server, options) as (_, talk), talk.prompt("x"):
        with pytest.raises(CallTimeout, match="turn/steer was not sent within") as failed:
            await talk.steer("y")
        assert not failed.value.may_have_run
