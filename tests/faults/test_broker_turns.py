"""Kill -9 of the peer, the caller and the broker, at every stage of a turn.

After each kill: every waiting caller gets an error, nothing hangs, no process is left, and no
stored event is lost or duplicated.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.catalogue import descriptor
from dragoman.client.budgets import Budgets
from dragoman.errors import ConnectionLost, RemoteError, StoreFull
from dragoman.store import Store, writer
from dragoman.store.records import EVENT_SPAN
from dragoman.transports import spawn
from tests.aio import aio
from tests.integration.broker_process import broker_process, gone, start
from tests.integration.broker_stage import TIMEOUT, TestCaller, spec_of, stage, stored

STAGES = {
    "idle": "",
    "running": "hang",
    "asking": "ask edit",
    "cancelling": "stubborn",
    "waiting": "hang",
}


async def reach(caller: TestCaller, session: str, at: str) -> list[asyncio.Task[Any]]:
    """Bring a turn to a stage, and return the pending prompts."""
    tasks = caller.connection.tasks
    if at == "idle":
        return []
    prompts = [tasks.start(ended(caller.prompting(session, STAGES[at], job="j-1")), "prompt")]
    if at == "asking":
        await caller.until(lambda: caller.questions)
    else:
        await caller.heard(STAGES[at].removesuffix(" edit")[:4])
    if at == "cancelling":
        caller.cancel(session)
        await caller.call("_dragoman/ping")
    if at == "waiting":
        prompts.append(tasks.start(ended(caller.prompting(session, "say waited", job="j-2")), "2"))
        await caller.call("_dragoman/ping")
    return prompts


async def ended(work: Any) -> Any:
    """Return how a prompt ended: its stop reason, or the class of its error."""
    try:
        return (await work)["stopReason"]
    except RemoteError as error:
        return error.data["dragoman"]["errorClass"]
    except ConnectionLost as error:
        return type(error).__name__


def check_stored(folder: Path) -> list[list[dict[str, Any]]]:
    """Check that every event is stored once and in order; return the updates of each session."""
    found = []
    for each in stored(folder):
        numbers = [number for number, _ in each["lines"]]
        # Another process skips numbers, and uses none twice.
        assert [number % EVENT_SPAN for number in numbers] == list(range(len(numbers)))
        assert numbers == sorted(numbers)
        assert each["record"].events == len(numbers)
        found.append([msgspec.json.decode(line)["update"] for _, line in each["lines"]])
    return found


def texts(updates: list[dict[str, Any]]) -> list[str]:
    return [update["content"]["text"] for update in updates if "content" in update]


# -- the peer


@pytest.mark.parametrize("at", STAGES)
@aio
async def test_the_peer_is_killed_and_its_sessions_go_on_in_the_next(
    tmp_path: Path, at: str
) -> None:
    flags = ("--resume", "--state", str(tmp_path / "agent"))
    async with stage(tmp_path, *flags) as broker, broker.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "say before")
        prompts = await reach(caller, session, at)
        os.kill(broker.host.peers[-1], signal.SIGKILL)
        async with asyncio.timeout(TIMEOUT):
            outcomes = await asyncio.gather(*prompts)
            await broker.until(lambda: broker.host.ended)
        # A prompt that only waited was not sent to the dead peer, and is sent to the new one.
        assert outcomes == {"idle": [], "waiting": ["process_exited", "end_turn"]}.get(
            at, ["process_exited"]
        )
        result = await caller.prompting(session, "say after")
        assert result["stopReason"] == "end_turn"
        if prompts:
            job = await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
            assert job["outcome"] == "crashed"
        told = caller.texts()
        assert told[0] == "before"
        assert told[-1] == "after"
        assert told.count("waited") == (1 if at == "waiting" else 0)
    (kept,) = check_stored(tmp_path)
    assert texts(kept) == told


@aio
async def test_a_peer_that_dies_while_it_takes_up_a_session_is_tried_again(tmp_path: Path) -> None:
    flags = ("--resume", "--state", str(tmp_path / "agent"))
    async with stage(tmp_path, *flags) as broker, broker.caller() as caller:
        session = await caller.new(tmp_path)
        for number in range(3):
            os.kill(broker.host.peers[-1], signal.SIGKILL)
            await broker.until(functools.partial(_count, broker.host.ended, number + 1))
            await broker.until(functools.partial(_count, broker.host.peers, number + 2))
        await caller.prompting(session, "say at last")
        assert caller.texts() == ["at last"]


@pytest.mark.parametrize(
    ("fault", "error_class"),
    [("dies", "process_exited"), ("hangs", "timeout"), ("wrong", "invalid_answer")],
)
@aio
async def test_a_prompt_whose_session_is_not_restored_did_not_run(
    tmp_path: Path, fault: str, error_class: str
) -> None:
    flags = ("--resume", "--state", str(tmp_path / "agent"), "--at-resume", fault)
    budgets = Budgets(session=1.0)
    async with stage(tmp_path, *flags, budgets=budgets) as broker, broker.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "say before")
        os.kill(broker.host.peers[-1], signal.SIGKILL)
        await broker.until(lambda: broker.host.ended)
        with pytest.raises(RemoteError) as refused:
            await caller.prompting(session, "say after")
        told = refused.value.data["dragoman"]
        assert told["errorClass"] == error_class
        assert told["details"]["may_have_run"] is False, "no process got the prompt"
        assert caller.texts() == ["before"]


def _count(pids: list[int], wanted: int) -> bool:
    return len(pids) == wanted


# -- the broker


@pytest.mark.parametrize("at", STAGES)
@aio
async def test_the_broker_is_killed_and_the_next_one_takes_its_sessions_up(
    tmp_path: Path, at: str
) -> None:
    spec = spec_of(tmp_path, "--resume", "--state", str(tmp_path / "agent"))
    first = await start(spec)
    try:
        async with first.caller() as caller:
            session = await caller.new(tmp_path)
            await caller.prompting(session, "say before", job="j-0")
            await caller.call("_dragoman/result", {"job": "j-0", "wait": True})
            peer = (await caller.call("_dragoman/status"))["peerPid"]
            prompts = await reach(caller, session, at)
            os.kill(first.pid, signal.SIGKILL)
            async with asyncio.timeout(TIMEOUT):
                assert set(await asyncio.gather(*prompts)) <= {"ConnectionEnded"}
                await caller.connection.wait_ended()
            seen = caller.texts()
        assert await gone(peer), "the peer does not outlive its broker"
    finally:
        await first.end()
    (kept,) = check_stored(tmp_path)
    # What was confirmed is stored; of the rest, whatever reached the disk, in order.
    assert texts(kept) == seen[: len(texts(kept))]
    assert texts(kept)[:1] == ["before"]
    async with broker_process(spec) as second, second.caller() as caller:
        about = {"sessionId": session, "cwd": spec.workspace, "mcpServers": []}
        await caller.call("session/resume", about)
        await caller.prompting(session, "recall", job="j-9")
        assert caller.texts()[0].split("|")[0] == "say before"
        await caller.call("_dragoman/result", {"job": "j-9", "wait": True})
    (after,) = check_stored(tmp_path)
    assert texts(after) == [*texts(kept), caller.texts()[0]]


# -- the caller

CALLER = """
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
for line in sys.argv[2:]:
    connection.sendall(line.encode() + b"\\n")
for line in connection.makefile("rb"):
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""


class Heard:
    """Collects what a program prints."""

    def __init__(self) -> None:
        self.data = b""
        self.changed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.changed.set()

    def stream_ended(self, failure: ConnectionLost) -> None:
        self.changed.set()

    async def until(self, word: bytes) -> None:
        async with asyncio.timeout(TIMEOUT):
            while word not in self.data:
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.parametrize("at", ["connected", "running", "asking", "waiting"])
@aio
async def test_a_caller_is_killed_and_its_turn_can_be_read_to_its_end(
    tmp_path: Path, at: str
) -> None:
    async with broker_process(spec_of(tmp_path)) as broker, broker.caller() as other:
        session = await other.new(tmp_path)
        lines = [_line(1, "initialize", {"protocolVersion": 1, "clientCapabilities": {}})]
        sign = b'"id":1'
        if at != "connected":
            text = {"running": "hang", "asking": "ask edit", "waiting": "hang"}[at]
            lines.append(_prompt(2, session, text, "j-1"))
            sign = b"request_permission" if at == "asking" else b"hanging"
        if at == "waiting":
            lines.append(_prompt(3, session, "say waited", "j-2"))
        program = await spawn([sys.executable, "-c", CALLER, broker.endpoint.address, *lines])
        heard = Heard()
        program.start(heard)
        try:
            await heard.until(sign)
            pid: int = program.pid
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(TIMEOUT):
                while (await other.call("_dragoman/status"))["callers"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            await program.aclose()
        if at in ("running", "waiting"):
            assert await other.call("_dragoman/cancel", {"job": "j-1"}) == {"cancelled": True}
        if at != "connected":
            job = await other.call("_dragoman/result", {"job": "j-1", "wait": True})
            assert job["outcome"] == ("denied" if at == "asking" else "cancelled")
            if at == "asking":
                assert '"no"' in job["text"], "nobody is there, so nothing is allowed"
        if at == "waiting":
            waited = await other.call("_dragoman/result", {"job": "j-2", "wait": True})
            assert (waited["outcome"], waited["text"]) == ("ok", "waited")
        async with broker.caller() as late:
            answer = await late.call("_dragoman/attach", {"sessionId": session, "start": 0})
            await late.until(lambda: len(late.updates) >= answer["next"])
            await late.call("_dragoman/ping")
            told = [each["update"] for each in late.updates]
    (kept,) = check_stored(tmp_path)
    assert kept == told
    assert len(kept) == answer["next"]


def _line(id: int, method: str, params: dict[str, Any]) -> str:
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return msgspec.json.encode(message).decode()


def _prompt(id: int, session: str, text: str, job: str) -> str:
    params = {
        "sessionId": session,
        "prompt": [{"type": "text", "text": text}],
        "_meta": {"dragoman": {"job": job}},
    }
    return _line(id, "session/prompt", params)


# -- the world


@aio
async def test_a_clock_that_jumps_ends_and_lengthens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A budget is checked eight times while it lasts, so check here after each jump.
    budgets = Budgets(silence=6.0, first_event=6.0, cancel_grace=6.0)
    now = time.time()
    loop = asyncio.get_running_loop()
    async with stage(tmp_path, budgets=budgets) as broker, broker.caller() as caller:
        session = await caller.new(tmp_path)
        for number, years in enumerate((10, -10)):
            job = f"j-{number}"
            prompt = [{"type": "text", "text": "hang"}]
            params = {"sessionId": session, "prompt": prompt, "job": job}
            await caller.call("_dragoman/submit", params)
            monkeypatch.setattr(time, "time", functools.partial(float, now + years * 31_536_000))
            looked_at = loop.time() + 1.0
            await broker.until(lambda: loop.time() > looked_at)  # noqa: B023 - awaited here
            assert (await caller.call("_dragoman/result", {"job": job}))["state"] == "running"
            await caller.call("_dragoman/cancel", {"job": job})
            ended = await caller.call("_dragoman/result", {"job": job, "wait": True})
            assert ended["outcome"] == "cancelled"
        await caller.prompting(session, "say well")
    (kept,) = check_stored(tmp_path)
    assert texts(kept) == ["hanging", "hanging", "well"]


@aio
async def test_a_disk_that_is_full_in_the_middle_hurts_no_turn_and_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "RETRY_INTERVAL", 0.05)
    monkeypatch.setattr(writer, "MAX_RETRY_INTERVAL", 0.05)
    kept_size = writer.QUEUE_SIZE
    async with stage(tmp_path) as broker, broker.caller() as caller:
        session = await caller.new(tmp_path)
        await caller.prompting(session, "count 10", job="j-1")
        await caller.call("_dragoman/result", {"job": "j-1", "wait": True})
        assert (await caller.call("_dragoman/status"))["storing"] is None

        append = Store.append

        def full(*_: Any) -> None:
            raise StoreFull("the store", "no space is left")

        monkeypatch.setattr(Store, "append", full)
        await caller.prompting(session, "count 20", job="j-2")
        job = await caller.call("_dragoman/result", {"job": "j-2", "wait": True})
        assert (job["outcome"], job["nextEvent"] - job["firstEvent"]) == ("ok", 20)
        assert "no space is left" in (await caller.call("_dragoman/status"))["storing"]
        told = await caller.prompting(session, "say still there", job="j-3")
        assert "no space is left" in told["_meta"]["dragoman"]["unstored"]
        job = await caller.call("_dragoman/result", {"job": "j-3", "wait": True})
        assert job["text"] == "still there"
        async with broker.caller() as late:
            await late.call("_dragoman/attach", {"sessionId": session, "start": 0})
            await late.until(lambda: len(late.texts()) == 31)
        # No more is held back than there is room for.
        monkeypatch.setattr(writer, "QUEUE_SIZE", 0)
        await caller.prompting(session, "count 7", job="j-4")
        monkeypatch.setattr(writer, "QUEUE_SIZE", kept_size)
        monkeypatch.setattr(Store, "append", append)
        async with asyncio.timeout(TIMEOUT):
            while (await caller.call("_dragoman/status"))["storing"]:  # noqa: ASYNC110 - it is asked
                await asyncio.sleep(0.01)
        told = await caller.prompting(session, "say again", job="j-5")
        assert "unstored" not in told["_meta"]["dragoman"]
    with Store.open(tmp_path / "state" / "sessions.db") as store:
        (kept,) = store.sessions()
        (gap,) = store.gaps(kept.key)
        jobs = {job.id: job for job in store.jobs(session_key=kept.key)}
        began, ended = jobs["j-4"].first_event, jobs["j-4"].next_event
        assert (gap.first, gap.next, gap.why) == (began, ended, "no space is left")
        numbers = [number for number, _ in store.lines(kept.key)]
        assert numbers == [*range(began), *range(ended, kept.next_event)]
        assert {job.outcome for job in jobs.values()} == {"ok"}
        assert [jobs[f"j-{n}"].missing_events for n in range(1, 6)] == [0, 0, 0, 7, 0]


LOST_BEFORE = 6.0
"""Seconds in which the agent below loses loaded sessions: its minute. It must start again within
that time, even on a busy machine."""


@pytest.mark.parametrize("known", [True, False])
@aio
async def test_an_agent_that_loses_what_is_loaded_too_early_is_not_asked_for_it_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(
        descriptor, "load_delay", lambda began_at, now: max(0.0, began_at + LOST_BEFORE + 1 - now)
    )
    flags = ("--load", "--state", str(tmp_path / "agent"), "--loses", str(LOST_BEFORE))
    async with (
        stage(tmp_path, *flags, loads_next_minute=known) as scene,
        scene.caller() as caller,
    ):
        session = await caller.new(tmp_path, name="talk")
        await caller.prompting(session, "say heron")
        os.kill(scene.host.peers[0], signal.SIGKILL)
        await scene.until(lambda: len(scene.host.peers) == 2)
        if known:
            ended = await caller.prompting(session, "recall")
            assert ended["_meta"]["dragoman"]["context"] == "restored"
            assert "say heron" in caller.texts()[-1]
            return
        with pytest.raises(RemoteError, match="has lost the session 'talk'") as lost:
            await caller.prompting(session, "recall")
        assert lost.value.data["dragoman"]["errorClass"] == "session_lost"
