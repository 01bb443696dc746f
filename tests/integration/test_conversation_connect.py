"""From a command line or an address to a conversation, with real child processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from dragoman import connect
from dragoman.client.acp import session as acp_session
from dragoman.client.budgets import Budgets
from dragoman.dialects.discovery import MemoryCache
from dragoman.errors import (
    BudgetExceeded,
    ConnectError,
    DragomanError,
    HandshakeFailed,
    ProcessExited,
    ProgramNotFound,
    ProtocolMismatch,
    TurnFailed,
    UnknownPeer,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.events.words import Outcome
from dragoman.rpc import outbox
from dragoman.testing.scripted import (
    Die,
    Exit,
    Expect,
    FloodStderr,
    GoSilent,
    Notify,
    Reply,
    Send,
    SendBytes,
    Step,
    command,
)
from dragoman.transports import listen_unix, listen_websocket
from dragoman.transports.base import HIGH_WATER_SIZE
from tests.aio import aio
from tests.integration.full_agent import agent as full_agent
from tests.integration.peers import AGENT, ENVIRONMENT, WAIT_TIMEOUT

CODEX = {"userAgent": "codex/0.166.0 (x)", "codexHome": "/h", "platformFamily": "unix"}
SHORT = Budgets(initialize=0.3)


class Counting(MemoryCache):
    """A cache whose contents can be looked at."""

    @property
    def values(self) -> list[str]:
        return list(self._known.values())


def says(text: str) -> Step:
    """A word of an ACP agent in its session "s1"."""
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return Notify("session/update", {"sessionId": "s1", "update": update})


def codex(*more: Step) -> list[str]:
    return command(Expect("initialize"), Reply(CODEX), *more)


async def refused(target: Any, **options: Any) -> DragomanError:
    with pytest.raises(DragomanError) as caught:
        async with asyncio.timeout(WAIT_TIMEOUT), connect(target, **options):
            pytest.fail("there is nobody to talk with")
    return caught.value


@pytest.mark.parametrize("dialect", ["acp", "oneshot", "chained", "codex"])
@aio
async def test_a_turn_after_the_agent_was_killed_is_crashed_and_nothing_has_run(
    dialect: str,
) -> None:
    codex_agent = [sys.executable, str(Path(__file__).with_name("codex_agent.py"))]
    target = codex_agent if dialect == "codex" else AGENT
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect(target, dialect=dialect, env=ENVIRONMENT) as peer,
        peer.session() as session,
    ):
        os.kill(peer.client.connection.stream.pid, signal.SIGKILL)
        await peer.client.connection.wait_ended()
        result = await session.ask("later")
        assert result.outcome is Outcome.CRASHED
        assert isinstance(result.error, ProcessExited)
        assert result.error.signal == signal.SIGKILL
        assert (result.error.may_have_run, result.error.retryable) == (False, True)
        with pytest.raises(ProcessExited):
            result.require_ok()


@aio
async def test_a_program_is_started_in_the_workspace_and_talked_with(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect(AGENT, workspace=tmp_path, env=ENVIRONMENT) as peer,
    ):
        assert (peer.dialect, peer.info.name, peer.workspace) == ("acp", "full", tmp_path)
        async with peer.session() as session:
            result = await session.ask("hello")
    assert (result.outcome, result.text) == (Outcome.OK, "ask: hello")


@aio
async def test_a_codex_where_acp_was_expected_is_started_anew_as_codex() -> None:
    cache = Counting()
    async with asyncio.timeout(WAIT_TIMEOUT), connect(codex(), cache=cache) as peer:
        assert (peer.dialect, peer.info.version) == ("codex", "0.166.0")
    assert cache.values == ["codex"]


@aio
async def test_what_a_program_speaks_is_asked_only_once(tmp_path: Path) -> None:
    # Every start leaves a mark, and the first one takes two.
    marks = tmp_path / "marks"
    program = (
        f"import json, sys; open({str(marks)!r}, 'a').write('x'); "
        "id = json.loads(sys.stdin.readline())['id']; "
        f"print(json.dumps({{'id': id, 'result': {CODEX!r}}}), flush=True); sys.stdin.read()"
    )
    cache = Counting()
    for starts in (2, 3):
        target = [sys.executable, "-c", program]
        async with asyncio.timeout(WAIT_TIMEOUT), connect(target, cache=cache) as peer:
            assert peer.dialect == "codex"
        assert len(marks.read_text()) == starts


@aio
async def test_an_acp_agent_that_looks_like_codex_is_started_anew_as_acp() -> None:
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect([*AGENT, "app-server"], env=ENVIRONMENT) as peer,
    ):
        assert peer.dialect == "acp"


@aio
async def test_a_cache_that_is_wrong_costs_a_start_and_nothing_else() -> None:
    cache = Counting()
    async with asyncio.timeout(WAIT_TIMEOUT):
        async with connect(codex(), cache=cache):
            pass
        ((program, concept),) = cache._known
        cache.put(program, concept, "acp")
        async with connect(codex(), cache=cache) as peer:
            assert peer.dialect == "codex"
        cache.put(program, concept, "nonesuch")
        async with connect(codex(), cache=cache) as peer:
            assert peer.dialect == "codex"
    assert cache.values == ["codex"]


@aio
async def test_a_dialect_that_was_chosen_is_not_second_guessed() -> None:
    error = await refused(codex(), dialect="acp")
    assert isinstance(error, ProtocolMismatch)
    assert error.dialect == "codex"
    assert "the dialects are auto, acp" in str(await refused(codex(), dialect="latin"))


@aio
async def test_a_wrong_entry_form_says_how_it_ended_what_it_said_and_what_to_do() -> None:
    program = "import sys; sys.stderr.write('usage: x [--acp]\\n'); sys.exit(41)"
    error = await refused([sys.executable, "-c", program])
    assert isinstance(error, HandshakeFailed)
    assert (error.exit_code, error.stderr_tail.strip()) == (41, "usage: x [--acp]")
    assert isinstance(error.__cause__, ProcessExited)
    for words in ("exited with code 41", "usage: x [--acp]", "incorrectly", "--acp, acp or"):
        assert words in str(error)


@aio
async def test_silence_for_the_whole_budget_says_so() -> None:
    error = await refused(command(GoSilent()), budgets=SHORT)
    assert isinstance(error, HandshakeFailed)
    assert "did not answer within 0.3 s" in str(error)
    assert "more time" in str(error)
    assert error.noise == ()


@aio
async def test_a_program_for_people_is_recognised_by_what_it_prints() -> None:
    # Long enough for a program that starts on a busy machine.
    error = await refused(command(SendBytes(b"Welcome to X!\nType /help\n"), GoSilent()),
                          budgets=Budgets(initialize=3.0))  # fmt: skip
    assert isinstance(error, HandshakeFailed)
    assert error.noise == ("Welcome to X!", "Type /help")
    assert "expects a person at a terminal" in str(error)


@aio
async def test_noise_before_a_good_handshake_does_no_harm_and_is_an_event() -> None:
    events: list[model.Event] = []
    target = command(
        SendBytes(b"loading...\n"), Expect("initialize"), Reply({"protocolVersion": 1})
    )
    async with asyncio.timeout(WAIT_TIMEOUT), connect(target, on_event=events.append):
        pass
    assert [type(event) for event in events] == [
        model.Unknown,
        model.ConnectionReady,
        model.ConnectionOver,
    ]
    assert events[0].raw == b"loading..."


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([Die(9)], "killed by signal 9"),
        ([Exit(0)], "exited with code 0"),
        ([Expect("initialize"), Reply(error={"code": -32601, "message": "no"})], "refused"),
        ([Expect("initialize"), Send({"id": 0})], "invalid response"),
        ([FloodStderr(100_000), Exit(1)], "the end of its stderr"),
    ],
)
@aio
async def test_every_other_failure_is_one_clear_error(steps: list[Step], words: str) -> None:
    error = await refused(command(*steps))
    assert isinstance(error, HandshakeFailed)
    assert error.blame == "peer"
    assert not error.may_have_run
    assert words in str(error)
    assert len(str(error)) < 2_000


@aio
async def test_an_unknown_version_is_a_mismatch() -> None:
    target = command(Expect("initialize"), Reply({"protocolVersion": 7}))
    assert isinstance(await refused(target), ProtocolMismatch)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (["/nonexistent/agent"], ProgramNotFound),
        ("unix:/nonexistent/socket", ConnectError),
        ("ws://127.0.0.1:1/", ConnectError),
        ("nonesuch", UnknownPeer),
        ("http://localhost", UsageError),
        ([], UsageError),
    ],
)
@aio
async def test_a_target_that_is_not_there_or_is_none_is_its_own_error(
    target: Any, kind: type[DragomanError]
) -> None:
    assert type(await refused(target)) is kind


@aio
async def test_an_option_that_a_dialect_lacks_is_refused_before_anything_is_started(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "mark"
    target = [sys.executable, "-c", f"open({str(mark)!r}, 'w')"]
    error = await refused(target, details={"sandbox": "read-only"})
    assert isinstance(error, Unsupported)
    assert not mark.exists()


@aio
async def test_what_the_agent_cannot_do_is_refused_before_anything_is_sent() -> None:
    # After the handshake the script expects nothing: a message would end it with an error.
    target = command(Expect("initialize"), Reply({"protocolVersion": 1}))
    async with asyncio.timeout(WAIT_TIMEOUT), connect(target) as peer:
        assert peer.capabilities.load is False
        for options in ({"load": "x"}, {"resume": "x"}, {"fork": "x"},
                        {"additional_directories": ["/a"]}):  # fmt: skip
            with pytest.raises(Unsupported):
                async with peer.session(**options):
                    pytest.fail("the agent cannot do this")
        with pytest.raises(Unsupported):
            await peer.delete_session("x")
        with pytest.raises(Unsupported):
            await peer.logout()
        assert peer.client.connection.failure is None


@aio
async def test_an_agent_on_a_socket_or_a_websocket_is_reached_by_its_address(
    tmp_path: Path,
) -> None:
    async def serve(stream: Any) -> None:
        await full_agent.serve(stream)

    async with asyncio.timeout(WAIT_TIMEOUT):
        for listener in (
            await listen_unix(tmp_path / "socket", serve),
            await listen_websocket("127.0.0.1", 0, serve),
        ):
            address = listener.address
            target = address if address.startswith("ws") else f"unix:{address}"
            try:
                async with connect(target, workspace=tmp_path) as peer, peer.session() as session:
                    assert (await session.ask("hello")).text == "ask: hello"
            finally:
                await listener.aclose()


@aio
async def test_an_update_before_the_session_is_known_is_reported_and_not_lost() -> None:
    early = {"sessionId": "s", "update": {"sessionUpdate": "current_mode_update",
                                          "currentModeId": "m"}}  # fmt: skip
    events: list[model.Event] = []
    target = command(
        Expect("initialize"),
        Reply({"protocolVersion": 1}),
        Expect("session/new"),
        Notify("session/update", early),
        Reply({"sessionId": "s"}),
    )
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect(target, on_event=events.append) as peer,
        peer.session() as session,
    ):
        assert session.id == "s"
    kinds = [type(event).__name__ for event in events]
    assert kinds[:3] == ["ConnectionReady", "SettingsChanged", "SessionOpened"]
    assert [json.loads(event.raw or b"{}").get("method") for event in events[1:2]] == [
        "session/update"
    ]


@aio
async def test_history_is_complete_after_a_late_update_of_the_closed_session(
    tmp_path: Path,
) -> None:
    agent = command(
        Expect("initialize"),
        Reply({"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}),
        Expect("session/new"),
        Reply({"sessionId": "s1"}),
        Expect("session/new"),
        says("late"),
        Reply({"sessionId": "s2"}),
        Expect("session/load"),
        says("first"),
        says("second"),
        Reply({}),
    )
    events: list[model.Event] = []
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect(agent, workspace=tmp_path, on_event=events.append) as peer,
    ):
        async with peer.session():
            pass
        async with peer.session():
            pass
        async with peer.session(load="s1") as session:
            await session.wait_replayed()
            replayed = [event.text for event in session.replayed if hasattr(event, "text")]
    assert replayed == ["first", "second"]
    said = [event.text for event in events if isinstance(event, model.MessageDelta)]
    assert said == ["late", "first", "second"]


@aio
async def test_a_refused_turn_raises_an_error_that_says_it_may_have_run(tmp_path: Path) -> None:
    agent = command(
        Expect("initialize"),
        Reply({"protocolVersion": 1}),
        Expect("session/new"),
        Reply({"sessionId": "s1"}),
        Expect("session/prompt"),
        Reply({"stopReason": "refusal"}),
    )
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect(agent, workspace=tmp_path) as peer,
        peer.session() as session,
    ):
        with pytest.raises(TurnFailed) as caught:
            (await session.ask("go")).require_ok()
    error = caught.value
    assert (error.outcome, error.blame) == ("refused", "peer")
    assert (error.retryable, error.may_have_run) == (False, True)


@pytest.mark.parametrize(
    ("code", "message", "words", "retryable", "may_have_run"),
    [
        (-32001, "overloaded", (), True, False),
        (-32601, "no such method", (), False, False),
        (-32602, "invalid params", (), False, False),
        (-32603, "429 Too Many Requests", (), True, True),
        (-32603, "it broke", (), False, True),
        (-32602, "the model refused its params", ("working",), False, True),
        (-32001, "the model is overloaded", ("working",), True, True),
    ],
)
@aio
async def test_the_error_of_a_prompt_says_whether_to_send_it_again(
    tmp_path: Path,
    code: int,
    message: str,
    words: tuple[str, ...],
    retryable: bool,
    may_have_run: bool,
) -> None:
    agent = command(
        Expect("initialize"),
        Reply({"protocolVersion": 1}),
        Expect("session/new"),
        Reply({"sessionId": "s1"}),
        Expect("session/prompt"),
        *(says(word) for word in words),
        Reply(error={"code": code, "message": message}),
    )
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        connect(agent, workspace=tmp_path) as peer,
        peer.session() as session,
    ):
        result = await session.ask("go")
    error = result.error
    assert error is not None and result.failure is not None
    assert (error.retryable, error.may_have_run) == (retryable, may_have_run)
    assert result.failure.retryable is retryable


@aio
async def test_an_agent_that_hangs_does_not_replace_the_error_of_its_turn(tmp_path: Path) -> None:
    agent = command(
        Expect("initialize"),
        Reply({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": {}}}}),
        Expect("session/new"),
        Reply({"sessionId": "s1"}),
        Expect("session/prompt"),
        GoSilent(),
    )
    # Only the budget of the first event may run out here, not the one of a request.
    budgets = Budgets(first_event=0.2, silent_grace=0.1, request=2 * WAIT_TIMEOUT)
    with pytest.raises(BudgetExceeded):
        async with (
            asyncio.timeout(WAIT_TIMEOUT),
            connect(agent, workspace=tmp_path, budgets=budgets) as peer,
            peer.session() as session,
        ):
            (await session.ask("go")).require_ok()


@aio
async def test_an_agent_that_never_answers_a_close_leaves_the_turn_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = command(
        Expect("initialize"),
        Reply({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": {}}}}),
        Expect("session/new"),
        Reply({"sessionId": "s1"}),
        Expect("session/prompt"),
        Reply({"stopReason": "refusal"}),
    )
    monkeypatch.setattr(acp_session, "CLOSE_TIMEOUT", 0.1)
    with pytest.raises(TurnFailed):
        async with (
            asyncio.timeout(WAIT_TIMEOUT),
            connect(agent, workspace=tmp_path) as peer,
            peer.session() as session,
        ):
            (await session.ask("go")).require_ok()


@aio
async def test_long_prompts_of_many_sessions_wait_for_an_agent_that_reads_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "MAX_UNSENT_SIZE", 2 * HIGH_WATER_SIZE)
    async with connect(AGENT, env=ENVIRONMENT) as peer, AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(peer.session()) for _ in range(8)]
        async with asyncio.timeout(WAIT_TIMEOUT):
            results = await asyncio.gather(
                *(session.ask("x" * (2 * HIGH_WATER_SIZE)) for session in sessions)
            )
    assert all(result.ok for result in results), results
