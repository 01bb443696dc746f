"""A run with a real child process. With brokers it is tested in tests/integration."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue.enforcement import Enforced
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Peer
from dragoman.dialects.discovery import ACP
from dragoman.errors import SpawnError, Unsupported, UsageError
from dragoman.events import model
from dragoman.events.envelope import EventEnvelope
from dragoman.events.parts import Capabilities, Failure, Text
from dragoman.events.words import ErrorKind, Outcome, Role
from dragoman.paths import find_paths
from dragoman.policy import Approver, preset
from dragoman.runs import run as run_module
from dragoman.runs.cancel import CancelHandle
from dragoman.runs.run import Run, RunListener, RunRequest, RunResult, _is_life
from dragoman.runs.sessions import LIVE, NEW
from dragoman.store.open import open_store
from tests.aio import aio

AGENT = (
    sys.executable,
    str(Path(__file__).parents[2] / "integration" / "cli_agent.py"),
)
FOLDERS = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")

PLACE = EventEnvelope(model.Source("acp", "c"), count(), "s")
PLACE.turn = "t"
BASE = PLACE.base("x", None)


@pytest.mark.parametrize(
    ("event", "life"),
    [
        (model.MessageDelta(*BASE, role=Role.AGENT, text="a"), True),
        (model.MessageDelta(*BASE, role=Role.USER, text="a"), False),
        (model.TurnStarted(*BASE), False),
        (model.TurnEnded(*BASE, outcome=Outcome.OK), False),
        (model.Noticed(*BASE[:3], None, *BASE[4:], severity="info", title="x"), False),
        (model.MessageDelta(*BASE[:6], True, role=Role.AGENT, text="a"), False),
    ],
)
def test_only_what_the_peer_does_in_its_turn_is_a_sign_of_life(
    event: model.Event, life: bool
) -> None:
    assert _is_life(event) is life


class Heard(RunListener):
    """Remembers the callbacks, and may cancel at the first text."""

    def __init__(self, cancel: CancelHandle | None = None) -> None:
        self.calls: list[str] = []
        self.notices: list[str] = []
        self._cancel = cancel

    def connected(self, peer: Peer) -> None:
        self.calls.append("connected")

    def began(self, job: str, key: str) -> None:
        self.calls.append(f"began {job}")

    def event(self, event: model.Event) -> None:
        if isinstance(event, model.MessageDelta) and self._cancel is not None:
            self._cancel.pull()

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds requests for the tests' agent, in folders of this test alone."""
    for name in FOLDERS:
        monkeypatch.setenv(f"DRAGOMAN_{name}", str(tmp_path / name.lower()))
    work = tmp_path / "work"
    work.mkdir()

    def build(text: str = "hello", *, agent: tuple[str, ...] = (), **fields: Any) -> RunRequest:
        policy = preset("deny-all")
        plain: dict[str, Any] = {
            "peer": "tester",
            "enforced": Enforced(way=LaunchSpec(command=(*AGENT, *agent), protocol=ACP)),
            "workspace": work,
            "prompt": [Text(text)],
            "once": True,
            "approver": Approver(policy, "tester", str(work)),
            "unattended": "deny-all",
            "budgets": Budgets(),
            "warm": False,
            "paths": find_paths(),
        }
        return RunRequest(**{**plain, **fields})

    return build


def outcome_of(seen: RunResult) -> Outcome:
    assert seen.result is not None
    return seen.result.outcome


@aio
async def test_a_run_has_a_result_and_is_recorded_as_its_job(request_of: Any) -> None:
    heard = Heard()
    seen = await Run(request_of(job="j-1", model="large"), listener=heard).run()
    assert seen.result is not None and seen.result.text == "you said hello"
    assert (seen.job, seen.context, seen.model) == ("j-1", NEW, "large-preview")
    assert seen.prompted and seen.acted and not seen.broker_failed
    assert heard.calls == ["connected", "began j-1"] and heard.notices == []
    with open_store(read_only=True) as store:
        job = store.job("j-1")
        assert job is not None and (job.outcome, job.prompt) == ("ok", "hello")
        session = store.session(job.session_key)
        assert session is not None and session.closed_at is not None


@aio
async def test_every_turn_of_a_session_has_a_result_of_its_own(request_of: Any) -> None:
    async with Run(request_of()) as run:
        first = await run.result()
        second = await run.prompt([Text("refuse")])
    assert (outcome_of(first), first.context) == (Outcome.OK, NEW)
    assert (outcome_of(second), second.context) == (Outcome.REFUSED, LIVE)
    assert first.job != second.job and second.first_event_at is None


@aio
async def test_a_prompt_is_completed_when_it_is_known_what_the_peer_can_take(
    request_of: Any,
) -> None:
    def attach(can: Capabilities) -> list[Text]:
        return [Text(f"image {can.image}")]

    seen = await Run(request_of("blocks", attach=attach)).run()
    assert outcome_of(seen) is Outcome.OK and seen.result is not None
    assert "image True" in seen.result.text


@aio
async def test_a_model_that_the_peer_does_not_have_is_an_error_before_the_prompt(
    request_of: Any,
) -> None:
    with pytest.raises(Unsupported, match="has no model 'nonesuch'"):
        async with Run(request_of(model="nonesuch")):
            raise AssertionError("it must not be entered")
    seen = await Run(request_of(model="nonesuch")).run()
    assert isinstance(seen.error, UsageError) and not seen.prompted
    with open_store(read_only=True) as store:
        assert list(store.sessions()) == []


@aio
async def test_a_model_that_is_only_a_tier_is_a_note(request_of: Any) -> None:
    seen = await Run(request_of(model="nonesuch", model_strict=False)).run()
    assert outcome_of(seen) is Outcome.OK and seen.model == "small"
    (note,) = seen.notes
    assert "has no model 'nonesuch'" in note


@aio
async def test_a_limit_ends_the_turn_and_the_peer_is_asked_whether_it_still_works(
    request_of: Any,
) -> None:
    def limit(event: model.Event) -> Failure | None:
        if not isinstance(event, model.MessageDelta) or event.role is Role.USER:
            return None
        return Failure("one word is enough", ErrorKind.QUOTA, "over_budget", False, None)

    async def still_running(peer: Peer, session: str) -> str | None:
        return "it may"

    seen = await Run(request_of("wait", limit=limit, still_running=still_running)).run()
    assert outcome_of(seen) is Outcome.TRUNCATED and seen.over is not None
    assert seen.result is not None and seen.result.failure == seen.over
    assert seen.restless == "it may"


@aio
async def test_a_cancelled_run_has_the_result_of_a_cancelled_turn(request_of: Any) -> None:
    cancel = CancelHandle()
    seen = await Run(request_of("wait"), listener=Heard(cancel), cancel=cancel).run()
    assert outcome_of(seen) is Outcome.CANCELLED and not cancel.in_turn


@aio
async def test_an_answer_is_bounded(request_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "ANSWER_SIZE", 3)
    seen = await Run(request_of()).run()
    assert seen.result is not None and (seen.result.text, seen.result.truncated) == ("you", True)


@aio
async def test_a_peer_that_cannot_be_started_is_an_error_of_the_run(request_of: Any) -> None:
    request = request_of()
    way = LaunchSpec(command=("/nonexistent/agent",), protocol=ACP)
    seen = await Run(replace(request, enforced=Enforced(way=way))).run()
    assert isinstance(seen.error, SpawnError) and not seen.prompted and seen.result is None


@aio
async def test_a_name_that_is_not_in_use_is_stored_before_the_first_prompt(
    request_of: Any,
) -> None:
    async with Run(request_of(session="talk", once=False, keep_open=True)) as run:
        with open_store(read_only=True) as store:
            (record,) = store.sessions()
        assert (record.name, record.key) == ("talk", run.opened.key)
        assert outcome_of(await run.result()) is Outcome.OK
    with open_store(read_only=True) as store:
        (record,) = store.sessions()
    assert record.closed_at is None


@aio
async def test_a_caller_that_is_cancelled_while_opening_leaves_nothing(request_of: Any) -> None:
    class Stop(RunListener):
        def connected(self, peer: Peer) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await Run(request_of(), listener=Stop()).run()
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 1
    task.uncancel()


def test_what_a_broker_says_with_the_end_of_a_turn_is_passed_on_and_the_same_failure_once(
    request_of: Any,
) -> None:
    heard = Heard()
    run = Run(request_of(), listener=heard)

    def ended(raw: bytes) -> None:
        base = EventEnvelope(model.Source("acp", "c"), count(), "s").base("end", raw)
        run._last[model.TurnEnded] = model.TurnEnded(*base, outcome=Outcome.OK)
        run._tell_broker_notices()

    full = b'{"result": {"_meta": {"dragoman": {"unstored": "the disk is full"}}}}'
    for raw in (full, full, b'{"result": {}}', full):
        ended(raw)
    assert heard.notices == ["this is not stored: the disk is full"] * 2
    ended(b'{"result": {"_meta": {"dragoman": {"notice": "update soon"}}}}')
    assert heard.notices[2:] == ["update soon"]
