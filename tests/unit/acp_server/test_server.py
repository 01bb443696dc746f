"""One client at the door: its sessions, and what it may ask for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from dragoman.acp_server.peer_session import PeerSession
from dragoman.acp_server.server import AcpServer, ServerContext
from dragoman.acp_server.session_store import SessionStore
from dragoman.agent import Session
from dragoman.errors import ConnectionEnded, RemoteError, UnknownPeer, UnknownSession, UsageError
from dragoman.rpc.tasks import THREAD_NAME, TaskOwner, together
from dragoman.runs.context import RunContext, load_context
from dragoman.transports.duplex import DuplexStream
from dragoman.transports.memory import memory_pair
from dragoman.wire import codes
from tests.aio import aio
from tests.unit.acp_server.stage import WAIT_TIMEOUT, Peer, house, values
from tests.unit.runs.contexts import FOLDERS


@aio
async def test_the_client_sees_one_agent_with_two_options_of_its_own(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        hello = await editor.hello()
        assert hello["agentInfo"]["name"] == "dragoman"
        can = hello["agentCapabilities"]
        assert can["loadSession"] is True
        assert {"list", "resume", "close", "delete"} <= set(can["sessionCapabilities"])
        opened = await editor.call("session/new", cwd=str(home.work), mcpServers=[])
        assert values(opened["configOptions"]) == {"peer": "auto", "role": "execute"}
        await editor.until(lambda it: it.told("available_commands_update"))
        (told,) = editor.told("available_commands_update")
        names = [command["name"] for command in told["availableCommands"]]
        assert names == ["peers", "delegate", "explain", "stats"]


@aio
async def test_a_session_is_resumed_by_another_process_before_its_first_prompt(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, Peer("left")) as home:
        async with home.editor() as editor:
            await editor.hello()
            session = await editor.open(home.work)
        async with home.editor() as other:
            await other.hello()
            resumed = await other.call(
                "session/resume", sessionId=session, cwd=str(home.work), mcpServers=[]
            )
            assert values(resumed["configOptions"])["peer"] == "auto"
            await other.set(session, "peer", "left")
            assert await other.prompt(session, "hello") == "end_turn"
            assert other.text == "left heard hello"


@aio
async def test_a_loaded_session_tells_what_was_said_and_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    left, right = Peer("left"), Peer("right")
    async with house(tmp_path, left, right) as home:
        async with home.editor() as editor:
            await editor.hello()
            session = await editor.open(home.work, peer="left")
            await editor.prompt(session, "hello")
            await editor.set(session, "peer", "right")
            await editor.prompt(session, "go on")
            await editor.prompt(session, "/delegate review judge it")
        async with home.editor() as other:
            await other.hello()
            (listed,) = (await other.call("session/list", cwd=str(home.work)))["sessions"]
            assert (listed["sessionId"], listed["title"]) == (session, "hello")
            loaded = await other.call(
                "session/load", sessionId=session, cwd=str(home.work), mcpServers=[]
            )
            assert values(loaded["configOptions"])["peer"] == "right"
            said = [
                (update["sessionUpdate"].split("_")[0], update["content"]["text"])
                for update in other.updates
                if update["sessionUpdate"].endswith("message_chunk")
            ]
            assert said == [
                ("user", "hello"),
                ("agent", "left heard hello"),
                ("user", "go on"),
                ("agent", "right heard go on"),
                ("user", "judge it"),
                ("agent", "left heard judge it"),
            ]
            assert {update["session"] for update in other.updates} == {session}
            assert right.sessions[-1].startswith("resumed")
            await other.prompt(session, "and now")
            assert "go on" not in right.prompts[-1]
            assert "User: judge it" in right.prompts[-1]


@aio
async def test_a_new_session_that_is_cancelled_before_it_is_stored_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, waiting = SessionStore.flush, asyncio.Event()
    started: list[PeerSession] = []
    start = PeerSession.start

    async def starting(peer: PeerSession) -> None:
        await start(peer)
        started.append(peer)

    async def held(store: SessionStore) -> None:
        if not waiting.is_set():
            waiting.set()
            await asyncio.Event().wait()
        await flush(store)

    monkeypatch.setattr(PeerSession, "start", starting)
    monkeypatch.setattr(SessionStore, "flush", held)
    tasks = TaskOwner("test")
    async with house(tmp_path, Peer("left")) as home, home.editor(peer="left") as editor:
        await editor.hello()
        opening = tasks.start(editor.open(home.work), "open")
        await waiting.wait()
        opening.cancel()
        await asyncio.wait([opening])
        async with asyncio.timeout(WAIT_TIMEOUT):
            while started[0].alive:  # noqa: ASYNC110 - the server cancels the request
                await asyncio.sleep(0)
        assert (await editor.call("session/list"))["sessions"] == []


@aio
async def test_two_loads_of_a_session_at_once_leave_one_peer_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[PeerSession] = []
    start = PeerSession.start

    async def starting(peer: PeerSession) -> None:
        await start(peer)
        started.append(peer)

    monkeypatch.setattr(PeerSession, "start", starting)
    async with house(tmp_path, Peer("left")) as home:
        async with home.editor() as editor:
            await editor.hello()
            session = await editor.open(home.work, peer="left")
        started.clear()
        async with home.editor() as editor:
            await editor.hello()
            told = {"sessionId": session, "cwd": str(home.work), "mcpServers": []}
            await together(*(editor.call("session/load", **told) for _ in range(3)))
            assert [one.alive for one in started] == [False, False, True]
            assert await editor.prompt(session, "again") == "end_turn"
            assert len(started) == 3


@aio
async def test_an_unknown_session_is_not_found(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        with pytest.raises(RemoteError, match="one page"):
            await editor.call("session/list", cursor="made up")
        for method in ("session/load", "session/resume"):
            with pytest.raises(RemoteError) as refused:
                await editor.call(method, sessionId="s-x", cwd=str(home.work), mcpServers=[])
            assert refused.value.code == codes.NOT_FOUND


@aio
async def test_no_lock_of_a_session_is_kept(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home:
        server = AcpServer(home.front())
        for number in range(3):
            with contextlib.suppress(UnknownSession):
                await server._delete(f"s-{number}")
        assert not server._opening


@aio
async def test_a_closed_session_can_be_loaded_and_a_deleted_one_cannot(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "hello")
        await editor.call("session/close", sessionId=session)
        again = {"sessionId": session, "cwd": str(home.work), "mcpServers": []}
        await editor.call("session/load", **again)
        await editor.prompt(session, "once more")
        assert editor.text == "left heard once more"
        await editor.call("session/delete", sessionId=session)
        assert (await editor.call("session/list"))["sessions"] == []
        with pytest.raises(RemoteError):
            await editor.call("session/load", **again)


@aio
async def test_a_peer_that_was_chosen_for_all_is_there_at_once(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor(peer="left") as editor:
        await editor.hello()
        opened = await editor.call("session/new", cwd=str(home.work), mcpServers=[])
        assert values(opened["configOptions"])["model"] == "small"
        assert opened["modes"]["currentModeId"] == "code"


@aio
async def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        for option, value in (("peer", "qwen"), ("role", "juggle"), ("model", "large")):
            with pytest.raises(RemoteError) as refused:
                await editor.set(session, option, value)
            assert refused.value.code == codes.INVALID_PARAMS


@aio
async def test_the_directories_of_a_session_and_their_settings_are_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def load(*args: Any, **options: Any) -> RunContext:
        threads.append(threading.current_thread().name)
        return load_context(*args, **options)

    def is_folder(path: Path) -> bool:
        looked.append(threading.current_thread().name)
        return True

    looked: list[str] = []
    monkeypatch.setattr("dragoman.acp_server.server.load_context", load)
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        with monkeypatch.context() as patch:
            patch.setattr(os.path, "isdir", is_folder)
            session = await editor.open(home.work)
        await editor.call("session/list")
        await editor.call("session/close", sessionId=session)
        await editor.call("session/delete", sessionId=session)
    assert threads == [THREAD_NAME] * 4
    assert looked and set(looked) == {THREAD_NAME}


@aio
async def test_sessions_are_listed_and_deleted_although_our_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gone := tmp_path / "gone").mkdir()
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        monkeypatch.chdir(gone)
        gone.rmdir()
        listed = await editor.call("session/list")
        assert [one["sessionId"] for one in listed["sessions"]] == [session]
        await editor.call("session/delete", sessionId=session)
        assert (await editor.call("session/list"))["sessions"] == []


def test_a_first_choice_that_no_session_could_have_is_refused(tmp_path: Path) -> None:
    own = {f"DRAGOMAN_{name}": str(tmp_path / name.lower()) for name in FOLDERS}
    for options, error in (
        ({"peer": "gemini"}, UsageError),
        ({"peer": "nobody-knows"}, UnknownPeer),
        ({"role": "juggle"}, UsageError),
        ({"dialect": "codex"}, UsageError),
    ):
        with pytest.raises(error):
            ServerContext(environ=own, **options).check(tmp_path)  # type: ignore[arg-type]
    ServerContext(environ=own, peer="scout", role="review", dialect="keyed").check(tmp_path)


@aio
async def test_a_client_that_says_nothing_is_sent_away() -> None:
    near, far = memory_pair()
    await AcpServer(ServerContext()).serve(far, greeting_timeout=0.01)
    await near.aclose()


@aio
async def test_what_takes_too_long_after_the_end_of_the_input_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(self: AcpServer, session: Session) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("dragoman.acp_server.server.LAST_ANSWERS_TIMEOUT", 0.0)
    monkeypatch.setattr(AcpServer, "_new", hang)
    near, far = socket.socketpair()
    with near, far:
        near.sendall(
            b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}\n'
            b'{"jsonrpc":"2.0","id":1,"method":"session/new",'
            b'"params":{"cwd":"/","mcpServers":[]}}\n'
        )
        near.shutdown(socket.SHUT_WR)
        for end in (near, far):
            end.setblocking(False)
        stream = DuplexStream(os.dup(far.fileno()), os.dup(far.fileno()))
        async with asyncio.timeout(WAIT_TIMEOUT):
            ended = await AcpServer(ServerContext()).serve(stream)
        assert isinstance(ended, ConnectionEnded)
        assert [json.loads(line)["id"] for line in near.recv(65536).splitlines()] == [0]
    assert "dropping responses that took too long" in caplog.text


@aio
async def test_a_folder_that_is_none_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor(peer="left") as editor:
        await editor.hello()
        (home.work / "file").touch()
        for cwd, others in (
            (home.work / "gone", []),
            (home.work / "file", []),
            (home.work, [home.work / "gone"]),
            (home.work / ("x" * 5000 + "gone"), []),
        ):
            with pytest.raises(RemoteError, match="(gone|file) is not a directory") as refused:
                await editor.open(cwd, *others)
            assert refused.value.code == codes.INVALID_PARAMS
        assert (await editor.call("session/list"))["sessions"] == []
        session = await editor.open(home.work)
        with pytest.raises(RemoteError, match="gone is not a directory"):
            await editor.call(
                "session/resume", sessionId=session, cwd=str(home.work / "gone"), mcpServers=[]
            )
        assert await editor.prompt(session, "hello") == "end_turn"


@aio
async def test_more_folders_go_to_a_peer_that_takes_them_and_are_refused_by_another(
    tmp_path: Path,
) -> None:
    left, right = Peer("left", many_folders=True), Peer("right")
    async with house(tmp_path, left, right) as home:
        (other := tmp_path / "other").mkdir()
        async with home.editor(peer="left") as editor:
            hello = await editor.hello()
            assert "additionalDirectories" in hello["agentCapabilities"]["sessionCapabilities"]
            session = await editor.open(home.work, other)
            await editor.prompt(session, "folders")
            assert editor.text == "work other"
            with pytest.raises(RemoteError, match="right works in one directory") as refused:
                await editor.set(session, "peer", "right")
            assert refused.value.code == codes.INVALID_PARAMS
            await editor.prompt(session, "folders")
            assert editor.text == "work other"
        async with home.editor() as editor:
            await editor.hello()
            await editor.call(
                "session/resume",
                sessionId=session,
                cwd=str(home.work),
                additionalDirectories=[str(tmp_path)],
                mcpServers=[],
            )
            await editor.set(session, "peer", "left")
            await editor.prompt(session, "folders")
            assert editor.text == f"work {tmp_path.name}"
            assert [word.split()[0] for word in left.sessions] == ["new", "resumed"]
        async with home.editor(peer="right") as editor:
            await editor.hello()
            with pytest.raises(RemoteError, match="right works in one directory"):
                await editor.open(home.work, other)
            listed = (await editor.call("session/list"))["sessions"]
            assert [one["sessionId"] for one in listed] == [session]
