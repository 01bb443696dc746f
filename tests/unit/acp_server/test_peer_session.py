"""One peer at work in one session of a client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.acp_server import peer_session
from dragoman.acp_server.client_requests import ClientRequests
from dragoman.acp_server.peer_session import PeerSession
from dragoman.agent.client_side import ClientSide
from dragoman.catalogue.open import open_peer
from dragoman.client.conversation import ConversationTurn
from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import Answer, Question
from dragoman.client.results import Result
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectError, NotInstalled, Unsupported
from dragoman.events import model
from dragoman.events.parts import Block, Resource, Text
from dragoman.events.words import Outcome
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import direct_recorder as recorder_module
from dragoman.runs import run as run_module
from dragoman.runs.direct_recorder import recorder_for
from dragoman.runs.sessions import FRESH, NEW, RESTORED, adopted
from tests.aio import aio
from tests.unit.acp_server.stage import House, Peer, house


class Nobody(ClientRequests):
    """A client that offers nothing."""

    def __init__(self) -> None:
        self.side: ClientSide = Offering()  # type: ignore[assignment]

    async def permit(self, question: Question) -> Answer:
        return Answer.REJECT_ONCE


class Offering:
    capabilities = acp.ClientCapabilities()

    def can(self, capability: str) -> bool:
        return False


def worker_in(home: House, name: str, tasks: TaskOwner, **more: Any) -> PeerSession:
    told: dict[str, Any] = {
        "place": home.front().load_context(home.work),
        "cwd": home.work,
        "record": None,
        "mcp_servers": (),
        "asking": Nobody(),
        "tasks": tasks,
        "on_event": lambda event: None,
        "on_notice": lambda text: None,
    }
    return PeerSession(name, **told | more)


async def prompted(worker: PeerSession, *blocks: Block) -> Result:
    async def follow(turn: ConversationTurn) -> None:
        await turn.wait()

    seen = await worker.prompt(blocks, job="j-1", on_begin=lambda: None, follow=follow)
    assert seen.result is not None and seen.violations == ()
    return seen.result


@aio
async def test_a_worker_opens_a_session_and_is_left_again(tmp_path: Path) -> None:
    left, tasks = Peer("left"), TaskOwner("test")
    events: list[model.Event] = []
    async with house(tmp_path, left) as home:
        worker = worker_in(home, "left", tasks, on_event=events.append)
        await worker.start()
        assert worker.alive and worker.opened.context == NEW
        assert worker.view.mode == "code"
        result = await prompted(worker, Text("hello"))
        assert (result.outcome, result.text) == (Outcome.OK, "left heard hello")
        assert any(isinstance(event, model.TurnEnded) for event in events)
        await worker.aclose()
        assert not worker.alive and not len(tasks)
        await worker.aclose()


@aio
async def test_a_worker_is_prompted_once_it_has_a_model_of_the_peer(tmp_path: Path) -> None:
    left, tasks = Peer("left"), TaskOwner("test")
    async with house(tmp_path, left) as home:
        home.settings('[peer.left]\nmodel = "huge"\n')
        worker = worker_in(home, "left", tasks)
        await worker.start()
        assert not worker.usable
        with pytest.raises(Unsupported, match="left has no model 'huge'"):
            await prompted(worker, Text("hello"))
        assert left.prompts == []
        await worker.set_option("model", "large")
        assert worker.usable and (await prompted(worker, Text("hello"))).ok
        await worker.aclose()


@aio
async def test_a_session_that_the_peer_remembers_goes_on(tmp_path: Path) -> None:
    left, tasks = Peer("left"), TaskOwner("test")
    async with house(tmp_path, left) as home:
        record = adopted("old", peer="left", root=home.work, cwd=home.work)
        worker = worker_in(home, "left", tasks, record=record)
        await worker.start()
        assert (worker.opened.context, worker.opened.key) == (RESTORED, record.key)
        assert left.sessions == ["resumed old"]
        await worker.aclose()


@aio
async def test_a_session_that_the_peer_cannot_take_up_begins_anew(tmp_path: Path) -> None:
    left, tasks = Peer("left", forgets=True), TaskOwner("test")
    async with house(tmp_path, left) as home:
        record = adopted("old", peer="left", root=home.work, cwd=home.work)
        worker = worker_in(home, "left", tasks, record=record)
        await worker.start()
        assert worker.opened.context == FRESH and worker.opened.key != record.key
        await worker.aclose()


@aio
async def test_a_peer_that_cannot_be_reached_is_reported_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    tasks = TaskOwner("test")
    async with house(tmp_path, Peer("left")) as home:
        (tmp_path / "left.sock").unlink()
        with pytest.raises(ConnectError):
            await worker_in(home, "left", tasks).start()
        await asyncio.sleep(0)
        assert not len(tasks)
        with pytest.raises(NotInstalled):
            worker_in(home, "auggie", tasks)


@aio
async def test_a_peer_gets_the_variables_that_its_settings_name_and_they_are_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[list[str]] = []

    def opening(way: Any, options: ConnectOptions, **terms: Any) -> Any:
        handed.append(list(options.inherit))
        return open_peer(way, options, **terms)

    def recording(*args: Any, **terms: Any) -> Any:
        handed.append(list(terms["handed"]))
        return recorder_for(*args, **terms)

    monkeypatch.setattr(run_module, "open_peer", opening)
    monkeypatch.setattr(recorder_module, "recorder_for", recording)
    async with house(tmp_path, Peer("left")) as home:
        home.settings('[peer.left]\nenv = ["CITY"]\n')
        worker = worker_in(home, "left", TaskOwner("test"))
        await worker.start()
        await worker.aclose()
    assert handed == [["CITY"], ["CITY"]]


@aio
async def test_a_caller_that_stops_waiting_stops_the_start(tmp_path: Path) -> None:
    peer, tasks = Peer("left"), TaskOwner("test")
    asked = asyncio.Event()

    async def slow(session: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    peer.agent.handlers.new_session = slow
    async with house(tmp_path, peer) as home:
        worker = worker_in(home, "left", tasks)
        starting = tasks.start(worker.start(), "start")
        async with asyncio.timeout(10):
            await asked.wait()
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled() and not len(tasks)


@aio
async def test_an_embedded_text_becomes_a_text_for_a_peer_that_takes_no_other(
    tmp_path: Path,
) -> None:
    left, tasks = Peer("left"), TaskOwner("test")
    left.agent._prompt_capabilities = acp.PromptCapabilities()
    async with house(tmp_path, left) as home:
        worker = worker_in(home, "left", tasks)
        await worker.start()
        blocks: list[Block] = [Text("hello"), Resource("file:///a", text="inside")]
        await prompted(worker, *blocks)
        assert left.prompts == ["hello\nfile:///a:\ninside"]
        await worker.aclose()


@aio
async def test_an_unexpected_error_at_the_start_is_raised_and_is_not_a_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = TaskOwner("test")

    async def broken(run: run_module.Run) -> None:
        raise LookupError("a mistake of ours")

    async with house(tmp_path, Peer("left")) as home:
        worker = worker_in(home, "left", tasks)
        monkeypatch.setattr(run_module.Run, "__aenter__", broken)
        with pytest.raises(LookupError, match="a mistake of ours"):
            await worker.start()
        await tasks.aclose()


@aio
async def test_an_error_after_the_start_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = TaskOwner("test")

    async def broken(*_: Any, **__: Any) -> None:
        raise Unsupported("the session cannot be closed")

    async with house(tmp_path, Peer("left")) as home:
        worker = worker_in(home, "left", tasks)
        await worker.start()
        monkeypatch.setattr(peer_session, "leave", broken)
        await worker.aclose(close_session=True)
    assert "the session with left did not end properly: the session cannot be closed" in [
        record.getMessage() for record in caplog.records if record.levelname == "WARNING"
    ]
