"""Which session a word means, and how it goes on."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.broker.error_codec import BUSY, describe
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Opening, SessionSummary
from dragoman.client.results import Result
from dragoman.errors import (
    BrokerBusy,
    BrokerError,
    BrokerUnavailable,
    CallTimeout,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    DragomanError,
    FileFailed,
    ProcessExited,
    RemoteError,
    StoreCorrupt,
    UnknownSession,
    Unsupported,
    UsageError,
)
from dragoman.events.parts import Capabilities, Text
from dragoman.events.words import Outcome
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import sessions, wait_before_load
from dragoman.runs.sessions import (
    OpenedSession,
    WantedSession,
    adopted,
    blame,
    broker_of,
    discard,
    find_session,
    job_terms,
    leave,
    merge,
    open_session,
    place_of,
    recall,
    recall_in_thread,
    retire,
    submit,
)
from dragoman.store.open import open_store
from tests.aio import aio
from tests.unit.runs.stored import ROOT, session, store_in

HERE = Path(ROOT)


class ActedPeer:
    """A peer that remembers how sessions were opened."""

    def __init__(self, *, warm: bool = False, error: Exception | None = None, **can: Any) -> None:
        self.dialect = "acp" if warm else "keyed"
        self.capabilities = Capabilities(**{"set_mode": True, "set_model": True, **can})
        self.error = error
        self.failure: ConnectionLost | None = None
        """Why the connection to the broker or agent is over."""
        self.openings: list[Opening] = []
        self.told: list[tuple[str, Any]] = []
        self.client: Any = SimpleNamespace(
            connection=self, require_content=lambda blocks: None, explain=lambda error: error
        )
        if warm:
            self.client.greeting = "hello"
            self.client.endpoint = "scout-1"

    def require(self, able: bool | None, what: str) -> None:
        if able is False:
            raise Unsupported(what)

    async def open(self, opening: Opening) -> Any:
        self.openings.append(opening)
        if self.error is not None and opening.how != "new":
            raise self.error
        return SimpleNamespace(id="peer-1")

    async def call(self, method: str, params: Any, *, timeout: float) -> Any:
        self.told.append((method, params))
        if self.error is not None:
            raise self.error
        return b'{"job":"j-1","state":"running","unstored":"the disk is full"}'


def opened(peer: ActedPeer, **wanted: Any) -> Any:
    wishes = WantedSession(**{"key": "s-new", "workspace": HERE, **wanted})
    return asyncio.run(open_session(peer, wishes))  # type: ignore[arg-type]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the store is that is opened without being told which."""
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


# -- finding


def test_a_session_is_found_by_its_key_its_name_and_its_peers_id(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session(name="a"))
        store.create_session(session("s-2", name="a", closed_at=300.0, updated_at=300.0))
        store.create_session(session("s-3", root="/other", name="b"))
        for word in ("s-0000000001", "a", "peer-s-0000000001"):
            assert find_session(store, word, root=HERE).key == "s-0000000001"
        assert find_session(store, "peer-s-3", root=HERE).key == "s-3", "ids know no folders"
        with pytest.raises(UnknownSession, match="there is no session 'b' of scout in /project"):
            find_session(store, "b", root=HERE, peer="scout")


def test_a_name_that_two_peers_have_needs_the_peer(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        store.create_session(session(name="a"))
        store.create_session(session("s-2", name="a", peer="gemini"))
        with pytest.raises(UsageError, match="of gemini and of scout: add `--peer gemini`"):
            find_session(store, "a", root=HERE)
        assert find_session(store, "a", root=HERE, peer="gemini").key == "s-2"


def test_a_name_is_free_when_its_session_was_closed_and_a_key_is_not(state: Path) -> None:
    root = Path("/")
    with store_in(state) as store:
        store.create_session(session(name="a", root="/"))
        store.create_session(session("s-2", name="old", root="/", closed_at=1.0))
    found = recall("a", peer="scout", folder=root)
    assert found is not None and found.key == "s-0000000001"
    assert recall("a", peer="gemini", folder=root) is None
    assert recall("old", peer="scout", folder=root) is None
    by_key = recall("s-2", peer="scout", folder=root)
    assert by_key is not None and by_key.closed_at == 1.0
    with pytest.raises(UnknownSession):
        recall("s-9", peer="scout", folder=root)


def test_lists_are_merged_by_the_peers_ids() -> None:
    told = [SessionSummary("peer-s-0000000001", title="Theirs"), SessionSummary("x")]
    both, other, only_theirs = merge([session(), session("s-2", peer="gemini")], told, peer="scout")
    assert (both.title, both.at_peer) == ("Theirs", True)
    assert other.at_peer is None, "nobody asked gemini"
    assert (only_theirs.record, only_theirs.peer_session_id) == (None, "x")
    (forgotten,) = merge([session()], [], peer="scout")
    assert forgotten.at_peer is False


# -- opening


def test_a_new_session_is_named_to_a_broker_only() -> None:
    cold, warm = ActedPeer(), ActedPeer(warm=True)
    assert (broker_of(cold), broker_of(warm)) == (None, "scout-1")  # type: ignore[arg-type]
    assert opened(cold, name="a").context == "new"
    assert cold.openings[0].metadata == {}
    assert opened(warm, name="a").key == "s-new"
    assert warm.openings[0].metadata == {"dragoman": {"key": "s-new", "name": "a"}}
    opened(warm)
    assert warm.openings[1].metadata == {"dragoman": {"key": "s-new"}}


def test_a_model_travels_with_the_opening_in_every_dialect_but_acp() -> None:
    cold, warm = ActedPeer(), ActedPeer(warm=True)
    opened(cold, model="large")
    opened(warm, model="large")
    assert (cold.openings[0].model, warm.openings[0].model) == ("large", None)
    assert warm.openings[0].metadata == {"dragoman": {"key": "s-new", "model": "large"}}


def test_a_session_that_only_began_is_discarded_and_one_that_goes_on_is_kept(state: Path) -> None:
    class Ended:
        closed = 0

        async def close(self) -> None:
            self.closed += 1
            with open_store() as store:
                store.update_session("s-0000000001", closed_at=1.0)

    with open_store() as store:
        store.create_session(session(name="a"))
    ended = Ended()
    for context, kept in (("restored", True), ("new", False), ("new", False)):
        found = OpenedSession(conversation=ended, key="s-0000000001", context=context)  # type: ignore[arg-type]
        if kept or ended.closed == 0:
            asyncio.run(discard(found))
        with open_store(read_only=True) as store:
            assert (store.session("s-0000000001") is not None) is kept
    assert ended.closed == 1


@pytest.mark.parametrize(
    ("can", "how"),
    [({"resume": True, "load": True}, "resume"), ({"resume": False, "load": True}, "load")],
)
def test_a_stored_session_is_opened_without_its_history_where_that_can_be(
    can: dict[str, Any], how: str
) -> None:
    peer = ActedPeer(**can)
    found = opened(peer, record=session(cwd="/project/sub"))
    (opening,) = peer.openings
    assert (opening.how, opening.session_id) == (how, "peer-s-0000000001")
    assert opening.cwd == Path("/project/sub"), "as it was opened first"
    assert (found.key, found.context) == ("s-0000000001", "restored")


def test_a_load_waits_for_the_minute_to_end_and_a_broker_may_have_to_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[Any] = []

    async def wait_over(record: Any, *, broker: Any, on_notice: Any) -> None:
        waited.append((record.key, broker, on_notice))

    monkeypatch.setattr(wait_before_load, "wait_over", wait_over)
    opened(ActedPeer(resume=True, load=True), record=session())
    assert waited == []
    opened(ActedPeer(resume=False, load=True), record=session(), on_notice=len)
    warm = ActedPeer(resume=True, load=True, warm=True)
    warm.client.greeting = SimpleNamespace(pid=1)
    opened(warm, record=session())
    assert waited == [("s-0000000001", None, len), ("s-0000000001", "scout-1", None)]


@pytest.mark.parametrize(
    "peer",
    [
        ActedPeer(resume=False, load=False),
        ActedPeer(resume=True, error=RemoteError(-32002, "no such session")),
        ActedPeer(resume=True, error=UnknownSession("gone")),
    ],
    ids=["cannot", "refuses", "broker"],
)
def test_a_forgotten_session_is_an_error_unless_a_fresh_one_will_do(
    peer: ActedPeer, state: Path
) -> None:
    with store_in(state) as store:
        store.create_session(session(name="a"))
    with pytest.raises(UnknownSession, match="cannot continue the session a"):
        opened(peer, record=session(name="a"))
    found = opened(peer, record=session(name="a"), name="a", fresh=True)
    assert (found.context, found.key, peer.openings[-1].how) == ("fresh", "s-new", "new")
    with store_in(state) as store:
        assert store.find_session("scout", ROOT, "a") is None, "its name is free"


@aio
async def test_the_loop_runs_on_while_the_store_is_held_and_a_lost_session_is_closed(
    state: Path,
) -> None:
    with store_in(state) as store:
        store.create_session(session(name="a"))
    wanted = WantedSession(key="s-new", workspace=HERE, record=session(name="a"), fresh=True)
    peer: Any = ActedPeer(resume=False, load=False)
    with closing(sqlite3.connect(state / "state" / "sessions.db", isolation_level=None)) as held:
        held.execute("BEGIN IMMEDIATE")
        opening = TaskOwner("test").start(open_session(peer, wanted), "open")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not opening.done()
    assert (await opening).context == "fresh"


def test_another_refusal_is_reported_as_it_is() -> None:
    peer = ActedPeer(resume=True, error=RemoteError(-32603, "the disk is full"))
    with pytest.raises(RemoteError, match="the disk is full"):
        opened(peer, record=session(), fresh=True)


@pytest.mark.parametrize("warm", [True, False])
def test_a_broker_that_is_lost_while_a_session_opens_is_distinguished_from_the_agent(
    monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    async def nothing(peer: Any, record: Any) -> None:
        pass

    monkeypatch.setattr(sessions, "_take_over", nothing)
    peer = ActedPeer(warm=warm, error=ConnectionEnded(), resume=True)
    with pytest.raises(ConnectionEnded):
        # The agent has gone, and a broker that lives says so.
        opened(peer, record=session())
    peer.failure = ConnectionEnded()
    with pytest.raises(BrokerError if warm else ConnectionEnded):
        opened(peer, record=session())


def test_what_a_peer_cannot_do_is_not_asked_of_it() -> None:
    with pytest.raises(Unsupported):
        opened(ActedPeer(set_mode=False), mode="plan")
    with pytest.raises(Unsupported):
        opened(ActedPeer(set_model=False), model="large")


def test_a_session_that_only_a_peer_knows_gets_a_key_of_ours() -> None:
    found = adopted("x", peer="gemini", root=HERE, cwd=HERE, name="mine")
    assert (found.peer_session_id, found.name, found.key[:2]) == ("x", "mine", "s-")


def test_a_retired_session_is_closed_and_kept(state: Path) -> None:
    with open_store() as store:
        store.create_session(session(name="a"))
    retire(session(name="a"))
    with open_store(read_only=True) as store:
        kept = store.session("s-0000000001")
    assert kept is not None and kept.closed_at is not None


# -- with a broker


def test_a_broker_that_goes_away_is_not_taken_for_the_agent() -> None:
    gone = blame(Result(Outcome.CRASHED, "half", error=ConnectionEnded()))
    assert isinstance(gone.error, BrokerError)
    assert (gone.text, gone.error.may_have_run) == ("half", True)
    assert gone.failure is not None and "the broker was lost" in gone.failure.message
    # As for an agent that ends without a broker.
    assert gone.error.retryable and gone.failure.retryable
    told = ProcessExited(exit_code=None, signal=9)
    told.__cause__ = RemoteError(-32603, "the process was killed")
    for error in (told, ConnectionClosed(), BrokerBusy("no"), None):
        result = Result(Outcome.CRASHED, "", error=error)
        assert blame(result) is result


@aio
async def test_a_prompt_is_left_with_its_job_and_who_decides() -> None:
    peer = ActedPeer(warm=True)
    terms = job_terms("j-1", policy="deny-all")
    left = await submit(peer, "peer-1", [Text("do it")], terms)  # type: ignore[arg-type]
    assert left == "the disk is full"
    ((method, params),) = peer.told
    assert method == "_dragoman/submit"
    assert json.loads(bytes(params.pop("prompt"))) == [{"type": "text", "text": "do it"}]
    assert params == {"sessionId": "peer-1", "job": "j-1", "policy": "deny-all"}


@aio
async def test_a_broker_that_is_busy_is_distinguished_from_a_peer_that_fails() -> None:
    busy = BrokerBusy("too many")
    peer = ActedPeer(warm=True, error=RemoteError(BUSY, "too many", describe(busy)))
    peer.client.explain = lambda error: busy
    with pytest.raises(BrokerBusy):
        await submit(peer, "1", [], job_terms("j-1", policy="deny-all"))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [CallTimeout("submit", 10.0), ConnectionEnded()])
@aio
async def test_a_prompt_that_is_not_confirmed_is_the_brokers_fault_and_may_have_run(
    error: DragomanError,
) -> None:
    error.may_have_run = True
    peer = ActedPeer(warm=True, error=error)
    with pytest.raises(BrokerError, match="did not confirm the job j-1") as caught:
        await submit(peer, "1", [], job_terms("j-1", policy="deny-all"))  # type: ignore[arg-type]
    assert caught.value.may_have_run


@aio
async def test_a_prompt_that_never_left_has_not_run_and_may_be_submitted_again() -> None:
    peer = ActedPeer(warm=True, error=ConnectionEnded())
    with pytest.raises(BrokerUnavailable, match="lost before the prompt was sent") as caught:
        await submit(peer, "1", [], job_terms("j-1", policy="deny-all"))  # type: ignore[arg-type]
    assert caught.value.retryable and not caught.value.may_have_run


@aio
async def test_a_confirmation_that_cannot_be_read_is_none() -> None:
    peer = ActedPeer(warm=True)

    async def call(method: str, params: Any, *, timeout: float) -> bytes:
        return b'{"queued": true}'

    peer.client.connection.call = call
    with pytest.raises(BrokerError, match="did not confirm the job j-1") as caught:
        await submit(peer, "1", [], job_terms("j-1", policy="deny-all"))  # type: ignore[arg-type]
    assert caught.value.may_have_run


def test_a_session_goes_on_in_the_folder_where_it_began_while_that_is_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "began").mkdir()
    assert place_of(session(cwd=str(tmp_path / "began")), tmp_path) == tmp_path / "began"
    # The system cannot even look at the last one.
    for gone in ("gone", "x" * 5000):
        assert place_of(session(cwd=str(tmp_path / gone)), tmp_path) == tmp_path


def test_a_broker_gets_the_budgets_for_a_turn_without_a_caller() -> None:
    terms = job_terms("j-1", policy="deny-all", budgets=Budgets(total=7.0, silence=None))
    told = {"firstEvent": 180.0, "silence": None, "toolSilence": 1800.0, "total": 7.0}
    assert terms["dragoman"]["budgets"] == told


@aio
async def test_a_session_that_cannot_be_closed_is_left_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refuse() -> None:
        raise RemoteError(-32603, "not now")

    async def hang() -> None:
        await asyncio.Event().wait()

    with caplog.at_level(logging.INFO, "dragoman.runs.sessions"):
        for close in (refuse, hang):
            conversation: Any = SimpleNamespace(id="s1", close=close)
            await leave(conversation, timeout=0.01)
    assert ["not now (-32603)", "no answer within 0.01 s"] == [
        record.message.rpartition("closed: ")[2] for record in caplog.records
    ]


@aio
async def test_a_store_that_does_not_answer_is_named_and_not_the_session(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung = threading.Event()
    monkeypatch.setattr(sessions, "recall", lambda *args, **named: hung.wait())
    monkeypatch.setattr("dragoman.rpc.tasks.ANSWER_TIMEOUT", 0.01)
    try:
        with pytest.raises(FileFailed, match=str(state / "state")):
            await recall_in_thread("talk", peer="scout", folder=HERE, on_notice=print)
    finally:
        hung.set()


def test_the_new_store_of_another_process_is_not_taken_for_the_damaged_one(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_in(state):
        pass
    read = sessions._recall

    def replaced_meanwhile(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(sessions, "_recall", read)
        with open_store() as store:
            store.replace()
            store.create_session(session(name="talk"))
        raise StoreCorrupt("sessions.db", "it is damaged", damaged=True)

    monkeypatch.setattr(sessions, "_recall", replaced_meanwhile)
    notices: list[str] = []
    found = recall("talk", peer="scout", folder=HERE, on_notice=notices.append)
    assert found is not None and len(notices) == 1
