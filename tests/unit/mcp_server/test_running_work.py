"""Work that the server has begun."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from dragoman.errors import UnknownJob, UsageError
from dragoman.mcp_server import running_work as module
from dragoman.mcp_server.ask_peer import PeerLead
from dragoman.mcp_server.progress import Progress
from dragoman.mcp_server.running_work import WorkList
from dragoman.mcp_server.tool_results import ToolAnswer
from tests.aio import aio

DONE = ToolAnswer("done", {})
HERE = Path("folder")


class Turn:
    """Stands for a turn of a peer, which ends some time after it is told to."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def cancel(self) -> None:
        self.ended.set()


class Line:
    """Stands for the connection to a broker."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.closed = False

    async def aclose(self) -> None:
        self.closed = True
        self._turn.ended.set()


def in_turn(turn: Turn, *, line: Line | None = None, began: asyncio.Event | None = None) -> Any:
    async def work(progress: Progress, lead: PeerLead) -> ToolAnswer:
        lead.reached(cast(Any, line))
        progress.job("j-1")
        lead.hold(cast(Any, turn))
        if began is not None:
            began.set()
        await turn.ended.wait()
        return DONE

    return work


@aio
async def test_an_errand_is_found_by_its_job_until_long_after_its_end() -> None:
    errands = WorkList()
    turn = Turn()
    errand = errands.start(in_turn(turn), folder=HERE)
    assert await errands.begun(errand) == "j-1"
    assert errands.find("j-1") is errand
    turn.cancel()
    assert await errand.task is DONE
    assert errands.find("j-1") is errand
    assert errand.stop() is False
    assert errands.find("j-2") is None
    await errands.aclose()


@aio
async def test_what_goes_wrong_is_an_answer_with_the_notices_until_then() -> None:
    async def work(progress: Progress, lead: PeerLead) -> ToolAnswer:
        progress.notice("an older piece of work was killed")
        raise UsageError("not like this")

    errands = WorkList()
    errand = errands.start(work, folder=HERE)
    with pytest.raises(UnknownJob):
        await errands.begun(errand)
    answer = await errand.task
    assert answer.failed
    assert "not like this" in answer.text
    # A notice is lost otherwise: the host gets nothing else of this work.
    assert "an older piece of work was killed" in answer.text
    assert answer.data["notices"] == ["an older piece of work was killed"]
    await errands.aclose()


@aio
async def test_a_turn_is_asked_to_stop_and_its_end_is_awaited() -> None:
    errands = WorkList()
    turn = Turn()
    errand = errands.start(in_turn(turn), folder=HERE)
    await errands.begun(errand)
    assert errand.stop() is True
    assert await errand.task is DONE
    await errands.aclose()


@aio
async def test_what_has_no_turn_yet_is_cancelled() -> None:
    async def work(progress: Progress, lead: PeerLead) -> ToolAnswer:
        await asyncio.Event().wait()
        return DONE

    errands = WorkList()
    errand = errands.start(work, folder=HERE)
    errand.stop()
    with pytest.raises(asyncio.CancelledError):
        await errand.task
    await errands.aclose()


@pytest.mark.parametrize("lasting", [True, False])
@aio
async def test_a_server_that_ends_stops_only_its_own_work(lasting: bool) -> None:
    errands = WorkList()
    turn = Turn()
    line = Line(turn)
    errand = errands.start(in_turn(turn, line=line), folder=HERE, lasting=lasting)
    await errands.begun(errand)
    await errands.aclose()
    assert line.closed is lasting
    assert errand.task.done()


@aio
async def test_a_turn_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_TIMEOUT", 0.01)

    async def work(progress: Progress, lead: PeerLead) -> ToolAnswer:
        lead.hold(cast(Any, Turn()))
        await asyncio.Event().wait()
        return DONE

    errands = WorkList()
    errand = errands.start(work, folder=HERE)
    await errands.aclose()
    assert errand.task.cancelled()


@aio
async def test_there_is_an_end_to_how_much_may_run_and_how_much_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_RUNNING", 2)
    monkeypatch.setattr(module, "MAX_KEPT", 1)
    errands = WorkList()
    turns = [Turn(), Turn()]
    running = [errands.start(in_turn(turn), folder=HERE) for turn in turns]
    with pytest.raises(UsageError, match="2 tasks are already running"):
        errands.start(in_turn(Turn()), folder=HERE)
    for turn, errand in zip(turns, running, strict=True):
        turn.cancel()
        await errand.task
    last = errands.start(in_turn(turns[0]), folder=HERE)
    await last.task
    assert len(errands._all) == 2, "one that has ended, and the new one"
    await errands.aclose()


@aio
async def test_every_turn_is_left_to_its_broker_even_if_one_connection_cannot_be_closed() -> None:
    class Broken(Line):
        async def aclose(self) -> None:
            await super().aclose()
            raise UsageError("cannot be closed")

    works = WorkList()
    turns = [Turn(), Turn()]
    lines = [Broken(turns[0]), Line(turns[1])]
    started = [
        works.start(in_turn(turn, line=line), folder=HERE, lasting=True)
        for turn, line in zip(turns, lines, strict=True)
    ]
    for each in started:
        await works.begun(each)
    with pytest.raises(UsageError, match="cannot be closed"):
        await works.aclose()
    assert [line.closed for line in lines] == [True, True]
    assert [each.task.result() for each in started] == [DONE, DONE]
