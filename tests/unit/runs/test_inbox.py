"""The questions of a run that a console shows and answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec import structs

from dragoman.broker import question_sockets
from dragoman.broker.client.question_watch import Watched, answer_question, watch_questions
from dragoman.broker.lock import mark_console
from dragoman.broker.protocol import Settled, ShownQuestion
from dragoman.client.inquiries import DECLINED, Inquiry, Reply
from dragoman.client.permissions import Answer, Decision, Question
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectError, RemoteError, UsageError
from dragoman.paths import Paths
from dragoman.policy.approver import Approver
from dragoman.policy.rules import Policy
from dragoman.rpc.tasks import TaskOwner, together
from dragoman.runs import inbox
from dragoman.runs.inbox import RunInbox
from dragoman.transports.listener import listen_unix
from tests.aio import aio
from tests.unit.console.place import TIMEOUT, short_paths

OPTIONS = [
    acp.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    acp.PermissionOption(option_id="ever", name="Always", kind="allow_always"),
    acp.PermissionOption(option_id="no", name="No", kind="reject_once"),
]


def question(options: Sequence[acp.PermissionOption] = OPTIONS) -> Question:
    call = {"toolCallId": "t", "title": "Run", "kind": "execute", "rawInput": {"command": "make"}}
    return Question("s", "t", "Run", "execute", options, msgspec.convert(call, acp.ToolCallUpdate))


def chosen(option: str) -> Any:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@pytest.fixture
def paths() -> Iterator[Paths]:
    with short_paths() as paths:
        yield paths


@asynccontextmanager
async def run_inbox(paths: Paths) -> AsyncIterator[RunInbox]:
    made = RunInbox(paths, peer="codex", workspace=Path("/work"), place=lambda: ("s-1", "j-1"))
    try:
        yield made
    finally:
        await made.aclose()


class Console:
    """Connects to the run as a console does."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.asked: asyncio.Queue[ShownQuestion] = asyncio.Queue()
        self.settled: asyncio.Queue[Settled] = asyncio.Queue()
        self.watched: list[Watched] = []
        self.tasks = TaskOwner("test")

    async def first(self) -> ShownQuestion:
        async with asyncio.timeout(TIMEOUT):
            while not (found := question_sockets.addresses(self.paths)):  # noqa: ASYNC110
                await asyncio.sleep(0)
            self.address = found[0]
            self.tasks.start(
                watch_questions(
                    self.address,
                    "run",
                    answers=True,
                    on_question=self.asked.put_nowait,
                    on_settled=self.settled.put_nowait,
                    on_connected=self.watched.append,
                ),
                "watch",
            )
            return await self.asked.get()

    async def answer(self, shown: ShownQuestion, result: Any) -> bool:
        return await answer_question(self.address, shown.id, shown.digest, result)


@aio
async def test_an_answer_of_the_console_counts_in_place_of_the_callers(paths: Paths) -> None:
    withdrawn = asyncio.Event()

    async def caller(question: Question) -> Decision:
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        raise AssertionError

    console = Console(paths)
    async with run_inbox(paths) as made:
        approver = Approver(Policy(preset="ask"), "codex", "/work", caller=caller)
        approver.inbox = made.ask
        asking = console.tasks.start(_decided(approver), "ask")
        shown = await console.first()
        assert (console.watched[0].peer, console.watched[0].workspace) == ("codex", "/work")
        assert (shown.key, shown.job) == ("s-1", "j-1")
        with pytest.raises(RemoteError):
            await console.answer(shown, chosen("other"))
        assert await console.answer(shown, chosen("yes"))
        assert (await asking).allows and withdrawn.is_set()
        assert (await console.settled.get()).by == "watcher"
        assert not await console.answer(shown, chosen("no"))
        await console.tasks.aclose()
    assert question_sockets.addresses(paths) == []


async def _decided(
    approver: Approver, options: Sequence[acp.PermissionOption] = OPTIONS
) -> Decision:
    return await approver(question(options))


@aio
async def test_an_answer_of_the_caller_ends_the_question_for_the_console(paths: Paths) -> None:
    answered = asyncio.Event()

    async def caller(question: Question) -> Decision:
        await answered.wait()
        return Answer.REJECT_ONCE

    console = Console(paths)
    async with run_inbox(paths) as made:
        approver = Approver(Policy(preset="ask"), "codex", "/work", caller=caller, inbox=made.ask)
        asking = console.tasks.start(_decided(approver), "ask")
        await console.first()
        answered.set()
        assert not (await asking).allows
        assert (await console.settled.get()).by == "caller"
        await console.tasks.aclose()


@aio
async def test_always_is_kept_for_the_session_and_the_agent_gets_once(paths: Paths) -> None:
    mark = mark_console(paths)
    console = Console(paths)
    async with run_inbox(paths) as made:
        approver = Approver(Policy(preset="ask"), "codex", "/work", inbox=made.ask)
        asking = console.tasks.start(_decided(approver), "ask")
        assert await console.answer(await console.first(), chosen("ever"))
        assert await asking is Answer.ALLOW_ONCE
        # The same question is not asked again.
        assert await approver(question()) is Answer.ALLOW_ONCE
        assert console.asked.empty()
        await console.tasks.aclose()
    assert mark is not None
    mark.release()


@aio
async def test_a_run_does_not_wait_without_a_console(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "GRACE", 0.05)
    monkeypatch.setattr(inbox, "LOOK_INTERVAL", 0.01)
    form = Inquiry("s", "Which?", {"type": "object", "properties": {}})
    async with run_inbox(paths) as made, asyncio.timeout(TIMEOUT):
        for has_broker in (False, True):
            made.has_broker = has_broker
            approver = Approver(Policy(preset="ask"), "codex", "/work", inbox=made.ask)
            assert not (await approver(question())).allows
            assert await made.inquire(form) == DECLINED
        # A console that is killed while the run waits for it.
        mark = mark_console(paths)
        assert mark is not None
        tasks = TaskOwner("test")
        asking = tasks.start(_decided(approver), "ask")
        await asyncio.sleep(0)
        mark.release(remove=False)
        assert not (await asking).allows


@aio
async def test_a_question_without_a_way_to_refuse_can_be_refused(paths: Paths) -> None:
    mark = mark_console(paths)
    console = Console(paths)
    async with run_inbox(paths) as made:
        approver = Approver(Policy(preset="ask"), "codex", "/work")
        approver.inbox = made.ask
        asking = console.tasks.start(_decided(approver, OPTIONS[:1]), "ask")
        shown = await console.first()
        assert await console.answer(shown, {"outcome": {"outcome": "cancelled"}})
        assert not (await asking).allows
        await console.tasks.aclose()
    assert mark is not None
    mark.release()


@aio
async def test_a_form_is_answered_by_the_console(paths: Paths) -> None:
    mark = mark_console(paths)
    console = Console(paths)
    form = Inquiry("s", "Which?", {"type": "object", "properties": {"a": {"type": "string"}}})
    async with run_inbox(paths) as made:
        asking = console.tasks.start(made.inquire(form), "inquire")
        shown = await console.first()
        assert await console.answer(shown, {"action": "accept", "content": {"a": "b"}})
        assert await asking == Reply("accept", {"a": "b"})
        await console.tasks.aclose()
    assert mark is not None
    mark.release()


@aio
async def test_questions_that_are_asked_at_once_share_a_socket(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(address: str, on_stream: Any) -> Any:
        await asyncio.sleep(0)  # Another process holds the directory's lock.
        return await listen_unix(address, on_stream)

    monkeypatch.setattr(inbox, "listen_unix", slow)
    async with run_inbox(paths) as made:
        told = await together(
            *(made.ask(question(), lambda _: Answer.ALLOW_ONCE, lambda _: True) for _ in range(2))
        )
        assert told == (Answer.ALLOW_ONCE, Answer.ALLOW_ONCE)
        assert len(question_sockets.addresses(paths)) == 1
    assert question_sockets.addresses(paths) == []


@pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
@aio
async def test_a_socket_that_cannot_be_opened_leaves_no_link(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(address: str, on_stream: Any) -> Any:
        assert question_sockets.addresses(paths) == [address]
        raise UsageError("another process holds the lock of the directory")

    monkeypatch.setattr(inbox, "listen_unix", refuse)
    paths = structs.replace(paths, runtime=paths.runtime / ("x" * 100))
    async with run_inbox(paths) as made:
        asked = made.ask(question(), lambda _: Answer.ALLOW_ONCE, lambda _: True)
        assert await asked == Answer.ALLOW_ONCE
        assert question_sockets.addresses(paths) == []


@aio
async def test_the_address_of_a_socket_that_cannot_be_closed_is_forgotten(paths: Paths) -> None:
    class Stuck:
        address = "questions-1"

        async def aclose(self) -> None:
            raise OSError("cannot close")

    forgotten: list[str] = []
    made = RunInbox(paths, peer="codex", workspace=Path("/work"), place=lambda: ("s-1", "j-1"))
    made._listener = cast(Any, Stuck())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(question_sockets, "forget_address", lambda _, at: forgotten.append(at))
        with pytest.raises(OSError, match="cannot close"):
            await made.aclose()
    assert forgotten == ["questions-1"]


@aio
async def test_a_socket_that_opens_after_the_run_has_ended_is_closed(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go = asyncio.Event(), asyncio.Event()
    opened: list[Any] = []

    async def slow(address: str, on_stream: Any) -> Any:
        opening.set()
        await go.wait()
        opened.append(await listen_unix(address, on_stream))
        return opened[0]

    monkeypatch.setattr(inbox, "listen_unix", slow)
    tasks = TaskOwner("test")
    async with run_inbox(paths) as made:
        asking = tasks.start(
            made.ask(question(), lambda _: Answer.ALLOW_ONCE, lambda _: True), "ask"
        )
        await opening.wait()
    go.set()
    assert await asking == Answer.ALLOW_ONCE
    assert question_sockets.addresses(paths) == []
    with pytest.raises(ConnectError):
        await answer_question(opened[0].address, "1", "", {})
