"""Our client, a bridge and our agent, each a process of its own: the bridge cannot be noticed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import connect
from dragoman.client.conversation import Peer
from dragoman.client.permissions import Answer, Chosen, Decision, Question, approve_all
from dragoman.errors import AuthRequired, ConnectionLost, RemoteError, Unsupported
from dragoman.events import model
from dragoman.events.fold import fold
from dragoman.events.words import Outcome
from dragoman.gateway import Gateway
from dragoman.transports import listen_unix
from tests.aio import aio
from tests.integration.full_agent import KEPT
from tests.integration.peers import AGENT, BRIDGE, ENVIRONMENT, WAIT_TIMEOUT

DIRECT = AGENT
BRIDGED = [*BRIDGE, *AGENT]


@asynccontextmanager
async def bridged(tmp_path: Path, **options: Any) -> AsyncIterator[Peer]:
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect(BRIDGED, workspace=tmp_path, env=ENVIRONMENT, **options) as peer,
    ):
        yield peer


async def told(command: list[str], prompt: str, tmp_path: Path) -> list[dict[str, Any]]:
    """The events of a turn, without what names the connection and what ids are made up anew."""
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect(command, workspace=tmp_path, env=ENVIRONMENT, permit=approve_all) as peer,
        peer.session() as session,
        session.prompt(prompt) as turn,
    ):
        events = [event async for event in turn]
    plain: list[dict[str, Any]] = []
    ids: dict[str, str] = {}
    for event in events:
        fields = msgspec.to_builtins(event)
        for name in ("source", "seq", "session", "raw"):
            del fields[name]
        if isinstance(fields.get("tool_id"), str):
            fields["tool_id"] = ids.setdefault(fields["tool_id"], f"tool-{len(ids)}")
        plain.append(fields)
    return plain


@pytest.mark.parametrize(
    "prompt", ["everything", "hello", "permission", "denied", "refuse", "fail", "mode", "silence"]
)
@aio
async def test_every_event_crosses_the_bridge_as_it_is(prompt: str, tmp_path: Path) -> None:
    direct = await told(DIRECT, prompt, tmp_path)
    assert len(direct) > 1
    assert await told(BRIDGED, prompt, tmp_path) == direct


@aio
async def test_what_the_agent_is_and_can_do_crosses_the_bridge(tmp_path: Path) -> None:
    async with (
        connect(DIRECT, workspace=tmp_path, env=ENVIRONMENT) as direct,
        bridged(tmp_path) as peer,
    ):
        assert peer.info == direct.info
        assert peer.capabilities == direct.capabilities
        assert peer.auth_methods == direct.auth_methods


@aio
async def test_a_thousand_pieces_arrive_in_order_with_the_end_behind_them(tmp_path: Path) -> None:
    async with bridged(tmp_path) as peer, peer.session() as session:
        result = await session.ask("count 3000")
    assert result.text == "".join(f"{number} " for number in range(3000))


@aio
async def test_cancelling_crosses_the_bridge_and_the_agents_last_words_come_back(
    tmp_path: Path,
) -> None:
    async with bridged(tmp_path) as peer, peer.session() as session:
        async with session.prompt("wait") as turn:
            async for event in turn:
                if isinstance(event, model.MessageDelta) and event.text == "waiting":
                    turn.cancel()
            assert turn.result.outcome is Outcome.CANCELLED
            assert turn.result.text.startswith("waiting")
        assert (await session.ask("still there?")).ok


@aio
async def test_the_very_option_that_was_chosen_crosses_the_bridge(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def second(question: Question) -> Decision:
        asked.append([option.option_id for option in question.options])
        return Chosen("b", Answer.ALLOW_ALWAYS)

    async with bridged(tmp_path, permit=second) as peer, peer.session() as session:
        assert (await session.ask("many")).text == "b"
    assert asked == [["a", "b", "n"]]


@aio
async def test_a_question_that_is_open_is_cancelled_with_the_turn(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never(question: Question) -> Decision:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with bridged(tmp_path, permit=never) as peer, peer.session() as session:
        async with session.prompt("permission") as turn:
            await asked.wait()
            turn.cancel()
            result = await turn.wait()
    assert result.outcome is Outcome.CANCELLED


@aio
async def test_sessions_are_listed_loaded_with_their_history_resumed_and_deleted(
    tmp_path: Path,
) -> None:
    async with bridged(tmp_path) as peer:
        listed = [summary async for summary in peer.list_sessions()]
        assert [(summary.id, summary.title) for summary in listed] == [(KEPT, "Kept")]
        async with peer.session(load=KEPT) as session:
            await session.wait_replayed()
            view = fold(session.replayed)
            assert [message.text for message in view.messages] == [
                "an old question",
                "hm",
                "an old answer",
            ]
            assert all(event.replay for event in session.replayed)
            assert (await session.ask("hi")).text == "ask: hi"
        async with peer.session(resume=KEPT) as session:
            assert session.replayed == []
            assert (await session.ask("hi")).text == "ask: hi"
        with pytest.raises(RemoteError) as caught:
            async with peer.session(load="nonesuch"):
                pytest.fail("there is no such session")
        assert caught.value.code == -32002
        await peer.delete_session(KEPT)
        await peer.authenticate("login")
        await peer.logout()


@aio
async def test_modes_and_options_are_the_agents_own(tmp_path: Path) -> None:
    events: list[model.Event] = []
    async with bridged(tmp_path, on_event=events.append) as peer, peer.session() as session:
        view = fold(event for event in events if event.session == session.id)
        assert view.mode == "ask"
        assert [mode.id for mode in view.modes] == ["ask", "code"]
        assert [option.id for option in view.options] == ["mode", "depth", "fast"]
        await session.set_mode("code")
        assert (await session.ask("hi")).text == "code: hi"
        await session.set_option("depth", "high")
        await session.set_option("fast", True)
        with pytest.raises(Unsupported):
            await session.set_option("depth", "bottomless")
        view = fold(event for event in events if event.session == session.id)
        assert (view.mode, view.options[1].value, view.options[2].value) == ("code", "high", True)


@aio
async def test_a_wanted_login_crosses_the_bridge(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    async with bridged(tmp_path) as peer:
        with pytest.raises(AuthRequired, match="log in first"):
            async with peer.session(cwd=locked):
                pytest.fail("nobody is logged in")


@aio
async def test_an_agent_that_dies_in_a_turn_is_an_answer_and_the_end_of_the_bridge(
    tmp_path: Path,
) -> None:
    async with bridged(tmp_path, permit=approve_all) as peer:
        over = peer.client.connection
        async with peer.session() as session:
            result = await session.ask("die")
            assert result.text == "dying"
            assert result.outcome is not Outcome.OK
            assert isinstance(await over.wait_ended(), ConnectionLost)


@aio
async def test_a_client_that_is_killed_leaves_neither_bridge_nor_agent(tmp_path: Path) -> None:
    # The fixture of this folder sees to it that nothing is left.
    async with bridged(tmp_path) as peer, peer.session() as session:
        async with session.prompt("wait") as turn:
            async for event in turn:
                if isinstance(event, model.MessageDelta):
                    break
            os.kill(peer.client.connection.stream.pid, signal.SIGKILL)
            result = await turn.wait()
    assert result.outcome is Outcome.CRASHED


@aio
async def test_one_agent_serves_two_clients_on_a_socket_each_with_its_own_sessions(
    tmp_path: Path,
) -> None:
    path = tmp_path / "socket"
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect(DIRECT, workspace=tmp_path, env=ENVIRONMENT) as agent,
    ):
        bridge = Gateway(agent)

        async def serve(stream: Any) -> None:
            await bridge.serve(stream)

        listener = await listen_unix(path, serve)
        try:
            async with (
                connect(f"unix:{path}", workspace=tmp_path) as one,
                connect(f"unix:{path}", workspace=tmp_path, permit=approve_all) as two,
                one.session() as first,
                two.session() as second,
            ):
                results = await asyncio.gather(first.ask("permission"), second.ask("permission"))
                assert [result.text for result in results] == ["refused", "allowed"]
                await first.set_mode("code")
                assert (await first.ask("hi")).text == "code: hi"
                assert (await second.ask("hi")).text == "ask: hi"
        finally:
            await listener.aclose()
