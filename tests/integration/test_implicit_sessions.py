"""Several sessions at one agent whose dialect has no session ids, or one request at a time.

From the command line through a broker, over `connect`, and on the socket of a broker.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import connect
from dragoman.cli.exit_codes import ExitCode
from dragoman.client.conversation import Conversation, ConversationTurn, Peer
from dragoman.client.results import Result
from dragoman.errors import ConnectionLost, DragomanError, SessionUnusable, TurnInProgress
from dragoman.events.model import MessageDelta
from dragoman.events.words import Outcome
from tests.aio import aio
from tests.integration.broker_process import broker_process
from tests.integration.broker_stage import spec_of
from tests.integration.cli_shell import Cli, Done, warm_cli
from tests.unit.rpc.other_side import turns

AGENT = Path(__file__).with_name("literal_agent.py")
TIMEOUT = 30.0
PARALLEL = 6
ROUNDS = 2
LEAVES = 60

one_at_a_time = pytest.mark.parametrize("dialect", ["oneshot", "threads"])


@pytest.fixture
def warm() -> Iterator[Cli]:
    with warm_cli() as cli:
        yield cli


def command(dialect: str, folder: Path) -> list[str]:
    return [sys.executable, str(AGENT), dialect, f"log={folder / 'agent.log'}"]


def describe(cli: Cli, dialect: str) -> str:
    """Describe the agent as a peer; its name."""
    folder = cli.home / "config_home" / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mine.toml").write_text(
        f'name = "mine"\ntitle = "Mine"\nprotocol = "{dialect}"\n'
        f"[[launch]]\ncommand = {json.dumps(command(dialect, cli.home))}\n"
    )
    return "mine"


def prompts(folder: Path) -> list[str]:
    """The prompts that the agent got."""
    lines = map(json.loads, (folder / "agent.log").read_text().splitlines())
    return [line["params"]["text"] for line in lines if line["method"] in ("prompt", "turn")]


class HeldPipe:
    """A pipe at which an agent waits in the middle of its turn, until it is released."""

    def __init__(self, folder: Path) -> None:
        path = folder / "pipe"
        os.mkfifo(path)
        self.prompt = f"wait {path}"
        # For both, so that opening waits neither here nor in the agent.
        self._writer = os.open(path, os.O_RDWR)

    def release(self) -> None:
        os.write(self._writer, b"\n")

    def close(self) -> None:
        os.close(self._writer)


# -- the command line


@contextmanager
def running(cli: Cli, *words: str) -> Iterator[subprocess.Popen[str]]:  # noqa: TID251 - only its type
    """A `dragoman run` that has not ended yet."""
    with subprocess.Popen(  # noqa: TID251 - others run at the same time
        cli.argv("run", *words, "--approve-all", "--no-stdin", "--format", "quiet"),
        cwd=cli.cwd,
        env=cli.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def end_of(child: subprocess.Popen[str]) -> Done:  # noqa: TID251 - only its type
    out, err = child.communicate(timeout=TIMEOUT)
    return Done(child.returncode, out, err)


def jobs(cli: Cli) -> list[dict[str, Any]]:
    listed = cli("jobs", "list", "--running", "--format", "json").out
    return [json.loads(line) for line in listed.splitlines()]


def until_jobs(cli: Cli, *states: str) -> None:
    """Wait until the unfinished jobs have these states."""
    give_up_at = time.monotonic() + TIMEOUT
    while sorted(job["state"] for job in jobs(cli)) != sorted(states):
        assert time.monotonic() < give_up_at, jobs(cli)


def until_callers(cli: Cli, count: int) -> None:
    """Wait until so many commands are connected to the broker."""
    give_up_at = time.monotonic() + TIMEOUT
    while True:
        (broker,) = map(json.loads, cli("broker", "list", "--format", "json").out.splitlines())
        if broker["status"]["callers"] == count:
            return
        assert time.monotonic() < give_up_at, broker


@one_at_a_time
def test_parallel_runs_each_get_their_own_whole_answer(warm: Cli, dialect: str) -> None:
    peer = describe(warm, dialect)
    asked = [f"prompt {number}" for number in range(PARALLEL * ROUNDS)]
    for start in range(0, len(asked), PARALLEL):
        with ExitStack() as stack:
            some = asked[start : start + PARALLEL]
            children = [stack.enter_context(running(warm, peer, prompt)) for prompt in some]
            ends = [end_of(child) for child in children]
        assert ends == [Done(0, f"You said: {prompt}\n", "") for prompt in some]
    assert sorted(prompts(warm.home)) == sorted(asked), "each prompt is sent once"


def test_a_run_that_begins_in_the_middle_of_another_waits_and_changes_nothing_of_it(
    warm: Cli,
) -> None:
    peer = describe(warm, "oneshot")
    with closing(HeldPipe(warm.home)) as pipe, ExitStack() as stack:
        first = stack.enter_context(running(warm, peer, pipe.prompt))
        until_jobs(warm, "running")
        second = stack.enter_context(running(warm, peer, "second"))
        until_jobs(warm, "running", "queued")
        assert prompts(warm.home) == [pipe.prompt]
        pipe.release()
        assert end_of(first) == Done(0, "Half done.\n", "")
        assert end_of(second) == Done(0, "You said: second\n", "")


@one_at_a_time
def test_a_run_that_waits_gets_its_answer_if_the_one_before_it_is_cancelled(
    warm: Cli, dialect: str
) -> None:
    peer = describe(warm, dialect)
    with closing(HeldPipe(warm.home)) as pipe, ExitStack() as stack:
        first = stack.enter_context(running(warm, peer, pipe.prompt))
        until_jobs(warm, "running")
        second = stack.enter_context(running(warm, peer, "second"))
        until_callers(warm, 2)
        if dialect == "oneshot":
            # In the other dialect, its session cannot be opened yet.
            until_jobs(warm, "running", "queued")
        first.send_signal(signal.SIGINT)
        assert end_of(first).code == ExitCode.INTERRUPTED
        # There is no other way to cancel than to end the process of the agent.
        assert end_of(second) == Done(0, "You said: second\n", "")


def test_runs_without_a_name_work_beside_a_session_with_one(warm: Cli) -> None:
    peer = describe(warm, "oneshot")
    quiet = ("--format", "quiet")
    for name in ("a", "b"):
        assert warm("run", peer, f"hello {name}", "-s", name, *quiet) == Done(
            0, f"You said: hello {name}\n", ""
        )
    for number in range(3):
        done = warm("run", peer, f"number {number}", *quiet)
        assert done == Done(0, f"You said: number {number}\n", "")
    again = warm("run", peer, "once more", "-s", "a", "--format", "json")
    last = json.loads(again.out.splitlines()[-1])
    assert (last["text"], last["context"]) == ("You said: once more", "live")
    shown = warm("sessions", "show", "a").out
    assert [word in shown for word in ("hello a", "once more")] == [True, True]
    assert [word in shown for word in ("hello b", "number 0")] == [False, False]


def test_a_session_of_an_earlier_broker_is_not_mistaken_for_a_later_one(warm: Cli) -> None:
    peer = describe(warm, "oneshot")
    assert warm("run", peer, "hello", "-s", "old").code == 0
    assert warm("broker", "stop", "--all").code == 0
    assert warm("run", peer, "hello", "-s", "new").code == 0
    lost = warm("run", peer, "hello again", "-s", "old")
    assert lost.code != 0
    assert prompts(warm.home) == ["hello", "hello"]


# -- connect


@one_at_a_time
@aio
async def test_two_sessions_at_once_get_their_own_answers(tmp_path: Path, dialect: str) -> None:
    async with (
        connect(command(dialect, tmp_path), dialect=dialect, workspace=tmp_path) as peer,
        peer.session() as one,
        peer.session() as two,
        asyncio.timeout(TIMEOUT),
    ):
        assert one.id != two.id
        asked = [f"{name} {number}" for number in range(20) for name in ("one", "two")]
        for first, second in zip(asked[::2], asked[1::2], strict=True):
            results = await asyncio.gather(one.ask(first), two.ask(second))
            assert _told(results) == [f"You said: {first}", f"You said: {second}"]
    assert sorted(prompts(tmp_path)) == sorted(asked)


async def until_half(turn: ConversationTurn) -> None:
    """Wait until the agent has said the first half of its answer."""
    async for event in turn:
        if isinstance(event, MessageDelta):
            return


def _told(results: Sequence[Result]) -> list[str]:
    assert [result.outcome for result in results] == [Outcome.OK] * len(results)
    return [result.text for result in results]


@one_at_a_time
@aio
async def test_a_session_that_is_opened_in_the_middle_of_a_turn_waits_for_its_end(
    tmp_path: Path, dialect: str
) -> None:
    with closing(HeldPipe(tmp_path)) as pipe:
        async with (
            connect(command(dialect, tmp_path), dialect=dialect, workspace=tmp_path) as peer,
            peer.session() as one,
            asyncio.timeout(TIMEOUT),
            asyncio.TaskGroup() as group,
            one.prompt(pipe.prompt) as turn,
        ):
            await until_half(turn)
            other = group.create_task(_ask_in_another(peer, "second"))
            await turns(50)
            assert not other.done()
            assert prompts(tmp_path) == [pipe.prompt]
            pipe.release()
            assert _told([await turn.wait(), await other]) == ["Half done.", "You said: second"]


async def _ask_in_another(peer: Peer, prompt: str) -> Result:
    async with peer.session() as session:
        return await session.ask(prompt)


@aio
async def test_a_prompt_that_waits_is_not_sent_if_its_session_is_closed_or_its_caller_leaves(
    tmp_path: Path,
) -> None:
    with closing(HeldPipe(tmp_path)) as pipe:
        async with (
            connect(command("oneshot", tmp_path), dialect="oneshot", workspace=tmp_path) as peer,
            peer.session() as one,
            peer.session() as three,
            asyncio.timeout(TIMEOUT),
            asyncio.TaskGroup() as group,
            one.prompt(pipe.prompt) as turn,
        ):
            await until_half(turn)
            async with peer.session() as two:
                closed = group.create_task(_refused(two, "closed"))
                await turns()
                with pytest.raises(TurnInProgress):
                    await two.ask("another")
            left = group.create_task(three.ask("left"))
            await turns()
            left.cancel()
            await turns()
            pipe.release()
            results = [await turn.wait(), await three.ask("last")]
            assert _told(results) == ["Half done.", "You said: last"]
            assert isinstance(await closed, SessionUnusable)
        assert prompts(tmp_path) == [pipe.prompt, "last"]


async def _refused(session: Conversation, prompt: str) -> DragomanError:
    with pytest.raises(DragomanError) as refused:
        await session.ask(prompt)
    return refused.value


@aio
async def test_a_prompt_that_waits_behind_a_cancelled_turn_says_that_nothing_ran(
    tmp_path: Path,
) -> None:
    with closing(HeldPipe(tmp_path)) as pipe:
        async with (
            connect(command("oneshot", tmp_path), dialect="oneshot", workspace=tmp_path) as peer,
            peer.session() as one,
            peer.session() as two,
            asyncio.timeout(TIMEOUT),
            asyncio.TaskGroup() as group,
            one.prompt(pipe.prompt) as turn,
        ):
            await until_half(turn)
            waiting = group.create_task(_refused(two, "second"))
            await turns()
            turn.cancel()
            assert (await turn.wait()).outcome is Outcome.CANCELLED
            error = await waiting
            assert isinstance(error, ConnectionLost) and not error.may_have_run
        assert prompts(tmp_path) == [pipe.prompt]


# -- the socket of a broker


@aio
async def test_a_connection_that_ends_harms_no_session_that_another_opens(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, command=tuple(command("oneshot", tmp_path)), protocol="oneshot")
    async with broker_process(spec) as broker, asyncio.TaskGroup() as group:
        for number in range(LEAVES):
            async with broker.caller() as staying, broker.caller() as leaving:
                await leaving.new(tmp_path, once=True)
                ending = group.create_task(leaving.connection.aclose())
                # The end is read before, with, or after the request.
                await turns(number % 6)
                session = await staying.new(tmp_path, once=True)
                await ending
                # What is left of the other session is cleaned up by now.
                await staying.call("_dragoman/ping")
                await staying.prompting(session, f"prompt {number}")
                said = [each["update"] for each in staying.updates]
                assert _texts(said) == [f"You said: prompt {number}"]
    assert prompts(tmp_path) == [f"prompt {number}" for number in range(LEAVES)]


def _texts(updates: Sequence[dict[str, Any]]) -> list[str]:
    chunks = [each for each in updates if each["sessionUpdate"] == "agent_message_chunk"]
    return [each["content"]["text"] for each in chunks]
