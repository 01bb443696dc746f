"""One prompt through an adapter: its role, its result, and whose fault a failure is."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.adapters import Adapter, Assignment
from dragoman.catalogue.descriptor import Descriptor, Enforcement
from dragoman.catalogue.enforcement import Enforced
from dragoman.catalogue.launch import LaunchSpec, way_to
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Opening
from dragoman.client.options import ConnectOptions
from dragoman.client.results import Result
from dragoman.errors import (
    AdapterFailed,
    BudgetExceeded,
    ConnectionEnded,
    PolicyNotEnforced,
    RoleNotClaimed,
    Unsupported,
    UsageError,
)
from dragoman.events import model
from dragoman.events.model import Event, EventEnvelope, MessageDelta
from dragoman.events.parts import Failure, Image, Link, Resource, Text
from dragoman.events.words import ErrorKind, Outcome, Role
from dragoman.policy import Approver, preset
from dragoman.rpc.tasks import TaskOwner
from dragoman.runs import adapter_run
from dragoman.runs.adapter_run import (
    AdapterPeer,
    AdapterWork,
    adapter_work,
    choose_role,
    dispatch,
)
from dragoman.runs.context import RunContext
from dragoman.runs.run import Run
from dragoman.runs.run_values import RunListener, RunRequest
from dragoman.runs.sessions import NEW
from dragoman.store.open import open_store
from tests.aio import aio
from tests.unit.runs.contexts import place_in

OK = Result(Outcome.OK, "done")


class ActedAdapter:
    """Does what a test says."""

    name = "tool"
    protocol = "acp"
    ROLE_PREFIX: Mapping[str, str] = {}

    def __init__(self, *, roles: Any = ("plan", "review"), end: Any = OK) -> None:
        self.ROLES_CLAIMED = roles
        self._end = end
        self.told: list[tuple[str, str]] = []

    def claims(self, role: str) -> bool:
        return role in self.ROLES_CLAIMED

    async def dispatch(
        self, launch: Assignment, role: str, text: str, on_notification: Any = None
    ) -> Result:
        self.told.append((role, text))
        if isinstance(self._end, BaseException):
            raise self._end
        if self._end is None:
            await asyncio.Event().wait()
        result: Result = self._end
        return result


def run(adapter: Adapter, *, budgets: Budgets | None = None) -> Any:
    assignment = Assignment(way=LaunchSpec(command=("tool",)), cwd=Path("/"), budgets=budgets)
    return dispatch(adapter, assignment, role="plan", text="a house", source="/x/tool.py")


def test_the_role_is_the_wanted_one_or_the_first_that_is_claimed() -> None:
    assert choose_role(ActedAdapter(), None, source="f") == "plan"
    assert choose_role(ActedAdapter(), "review", source="f") == "review"
    with pytest.raises(RoleNotClaimed, match="it claims plan, review"):
        choose_role(ActedAdapter(), "debug", source="f")
    with pytest.raises(UsageError, match="has no roles in ROLES_CLAIMED"):
        choose_role(ActedAdapter(roles=()), None, source="f")
    with pytest.raises(AdapterFailed, match="TypeError"):
        choose_role(ActedAdapter(roles=7), "plan", source="f")


@aio
async def test_the_result_of_an_adapter_is_passed_on() -> None:
    adapter = ActedAdapter()
    assert await run(adapter) is OK
    assert adapter.told == [("plan", "a house")]


@pytest.mark.parametrize("error", [LookupError("no"), TimeoutError("slow"), SystemExit(3)])
@aio
async def test_what_its_code_raises_is_its_own_fault(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "dragoman.adapters"):
        with pytest.raises(AdapterFailed) as caught:
            await run(ActedAdapter(end=error))
    assert str(caught.value) == (
        f"/x/tool.py, the adapter of tool, failed: {type(error).__name__}: {error}"
    )
    assert caught.value.__cause__ is error
    assert caught.value.may_have_run
    (record,) = caplog.records
    assert record.exc_info is not None


@aio
async def test_a_cancellation_of_something_that_it_awaited_is_its_own_fault() -> None:
    with pytest.raises(AdapterFailed, match="something that it awaited was cancelled"):
        await run(ActedAdapter(end=asyncio.CancelledError()))
    work = TaskOwner("test").start(run(ActedAdapter(end=None)), "dispatch")
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


@aio
async def test_what_it_raises_of_its_peer_is_passed_on() -> None:
    error = ConnectionEnded()
    with pytest.raises(ConnectionEnded) as caught:
        await run(ActedAdapter(end=error))
    assert caught.value is error


@aio
async def test_something_else_than_a_result_is_its_own_fault() -> None:
    with pytest.raises(AdapterFailed, match="its dispatch returned str, not a Result"):
        await run(ActedAdapter(end="done"))


@aio
async def test_an_adapter_that_keeps_no_budget_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_run, "TOTAL_GRACE", 0.01)
    with pytest.raises(BudgetExceeded):
        await run(ActedAdapter(end=None), budgets=Budgets(total=0.01))


# -- in the place of a peer


class TalkingAdapter(ActedAdapter):
    """Reports two turns of its peer, and may then wait and ignore that it is cancelled."""

    def __init__(self, *, waits: bool = False, deaf: bool = False, mode: str = "plan") -> None:
        super().__init__()
        self._waits, self._deaf, self._mode = waits, deaf, mode
        self.assigned: list[Assignment] = []

    async def dispatch(
        self, launch: Assignment, role: str, text: str, on_notification: Any = None
    ) -> Result:
        self.assigned.append(launch)
        place = EventEnvelope(model.Source("acp", "theirs"), itertools.count(1), "inner")
        on_notification(model.SettingsChanged(*place.base("mode", None), mode=self._mode))
        for number in range(2):
            place.turn = f"t{number}"
            on_notification(model.TurnStarted(*place.base("start", None)))
            said = f"{text} {number} "
            delta = model.MessageDelta(*place.base("say", b"{}"), role=Role.AGENT, text=said)
            on_notification(delta)
            on_notification(model.TurnEnded(*place.base("end", b"{}"), outcome=Outcome.OK))
            await asyncio.sleep(0)
        while self._waits:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self._deaf:
                    raise
                self._deaf = False
        return Result(Outcome.REFUSED, "whole", "no")


def adapted(adapter: Adapter, watched: list[model.Event], **fields: Any) -> AdapterPeer:
    way = LaunchSpec(command=("tool",), env={"A": "1"})
    plain: dict[str, Any] = {
        "peer": "tool",
        "adapter": None,
        "enforced": Enforced(way=way),
        "workspace": Path("/"),
        "approver": Approver(preset("deny-all"), "tool", "/"),
        "unattended": "deny-all",
        "budgets": Budgets(cancel_grace=0.05),
        "options": ConnectOptions(env={"B": "2"}),
    }
    request = RunRequest(**{**plain, **fields})
    work = AdapterWork(adapter=adapter, role="plan", source="/x/tool.py")
    return AdapterPeer(work, request, way, on_event=watched.append)


def opening(**fields: Any) -> Opening:
    return Opening(cwd=Path("/"), **fields)


@aio
async def test_the_work_of_an_adapter_is_one_turn_with_its_own_result() -> None:
    adapter, watched = TalkingAdapter(), list[model.Event]()
    async with adapted(adapter, watched) as peer:
        conversation = await peer.open(opening(mode="plan", model="large"))
        async with conversation.prompt([Text("one"), Text("two")]) as turn:
            seen = [event async for event in turn]
        assert (turn.result.outcome, turn.result.text) == (Outcome.REFUSED, "whole")
        assert [type(event).__name__ for event in seen].count("TurnEnded") == 1
        assert isinstance(seen[-1], model.TurnEnded) and seen[-1].stop == "no"
        assert [type(event) for event in watched].count(model.TurnEnded) == 2
        (launch,) = adapter.assigned
        assert (launch.mode, launch.model, dict(launch.way.env)) == (
            "plan",
            "large",
            {"A": "1", "B": "2"},
        )
        said = [event.text for event in seen if isinstance(event, model.MessageDelta)]
        assert said == ["one\n\ntwo 0 ", "one\n\ntwo 1 "]


@pytest.mark.parametrize("deaf", [False, True])
@aio
async def test_a_cancelled_adapter_has_a_cancelled_turn_and_the_next_one_works(deaf: bool) -> None:
    adapter = TalkingAdapter(waits=True, deaf=deaf)
    async with adapted(adapter, []) as peer:
        conversation = await peer.open(opening())
        for _ in range(2):
            async with conversation.prompt("x") as turn:
                async for event in turn:
                    if isinstance(event, model.MessageDelta):
                        turn.cancel()
            assert turn.result.outcome is Outcome.CANCELLED
            assert turn.result.text.startswith("x 0 ")


@aio
async def test_a_failing_adapter_ends_its_turn() -> None:
    async with adapted(ActedAdapter(end=LookupError("no")), []) as peer:
        result = await (await peer.open(opening())).ask("x")
    assert result.outcome is Outcome.FAILED and isinstance(result.error, AdapterFailed)


@aio
async def test_an_adapter_is_stopped_that_prompts_in_a_mode_that_does_not_ask() -> None:
    table = Enforcement(modes=("plan",))
    descriptor = Descriptor(name="tool", title="Tool", protocol="acp", launch=(), enforcement=table)
    way = LaunchSpec(command=("tool",), descriptor=descriptor)
    enforced = Enforced(way=way, restricts=True)
    adapter = TalkingAdapter(waits=True, mode="code")
    async with adapted(adapter, [], enforced=enforced) as peer:
        result = await (await peer.open(opening())).ask("x")
    assert isinstance(result.error, PolicyNotEnforced)


@aio
async def test_what_an_adapter_cannot_be_handed_is_refused() -> None:
    async with adapted(TalkingAdapter(), []) as peer:
        with pytest.raises(Unsupported, match="cannot continue a session"):
            await peer.open(opening(how="resume", session_id="old"))
        assert [each async for each in peer.list_sessions()] == []
        conversation = await peer.open(opening())
        with pytest.raises(UsageError, match="accepts only text prompts: leave out the image"):
            conversation.prompt([Image("", "image/png")])
        with pytest.raises(Unsupported):
            await conversation.set_option("loud", True)
        await conversation.set_mode("code")
        await conversation.set_model("small")


# -- a run by an adapter

AGENT = (sys.executable, str(Path(__file__).parents[2] / "integration" / "cli_agent.py"))

DESCRIPTOR = """
name = "tool"
title = "Tool"
protocol = "acp"
roles = ["plan"]
adapter = "tool.py"
[[launch]]
command = {command}
"""

CODE = """
import asyncio
from dragoman.adapters import judge, open_peer
from dragoman.client.results import Result
from dragoman.events.words import Outcome

name, protocol, ROLES_CLAIMED, ROLE_PREFIX = "tool", "acp", ["draw", "plan"], {}

def claims(role):
    return role in ROLES_CLAIMED

async def asked(launch, text, on_notification):
    async with (
        open_peer(launch.way, launch.options(on_notification), workspace=launch.cwd) as peer,
        peer.session(mode=launch.mode, model=launch.model) as session,
    ):
        return judge(await session.ask(text), launch.way.quirks)

async def dispatch(launch, role, text, on_notification=None):
    BODY
"""

ASKS = 'return await asked(launch, f"{role}: {text}", on_notification)'
FORWARDS = "return await asked(launch, text, on_notification)"


class Heard(RunListener):
    """Remembers the callbacks."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def began(self, job: str, key: str) -> None:
        self.calls.append(f"began {job}")


def place_with(folder: Path, body: str | None) -> RunContext:
    """A place with a peer whose adapter has this `dispatch`."""
    peers = folder / "config_home" / "peers"
    peers.mkdir(parents=True)
    (peers / "tool.toml").write_text(DESCRIPTOR.format(command=list(AGENT)))
    if body is not None:
        (peers / "tool.py").write_text(CODE.replace("BODY", body))
    return place_in(folder)


def request_in(place: RunContext, text: str = "a house", **fields: Any) -> RunRequest:
    way = way_to("tool", catalogue=place.catalogue, environ=place.environ)
    plain: dict[str, Any] = {
        "peer": "tool",
        "adapter": None,
        "enforced": Enforced(way=way),
        "workspace": place.cwd,
        "prompt": [Text(text)],
        "approver": Approver(preset("deny-all"), "tool", str(place.cwd)),
        "unattended": "deny-all",
        "budgets": Budgets(),
        "paths": place.paths,
    }
    return RunRequest(**{**plain, **fields})


def run_of(place: RunContext, request: RunRequest, *, role: str | None = None, **how: Any) -> Run:
    work = adapter_work("tool", place, role=role)
    return Run(replace(request, adapter=work), **how)


def test_the_role_of_the_work_is_the_wanted_the_preferred_or_the_first_one(tmp_path: Path) -> None:
    place = place_with(tmp_path, ASKS)
    assert adapter_work("scout", place, role="plan") is None
    works = [
        adapter_work("tool", place),
        adapter_work("tool", place, role="plan"),
        adapter_work("tool", place, prefer="plan"),
        adapter_work("tool", place, prefer="debug"),
    ]
    assert [work and work.role for work in works] == ["draw", "plan", "plan", "draw"]
    with pytest.raises(RoleNotClaimed):
        adapter_work("tool", place, role="debug")


@aio
async def test_a_run_by_an_adapter_has_a_result_and_is_recorded(tmp_path: Path) -> None:
    place, heard = place_with(tmp_path, ASKS), Heard()
    request = request_in(place, job="j-1", model="large-preview", mode="plan")
    seen = await run_of(place, request, role="plan", listener=heard).run()
    assert seen.result is not None and seen.result.text == "you said plan: a house", seen
    assert (seen.job, seen.context, seen.model) == ("j-1", NEW, "large-preview")
    assert seen.prompted and seen.acted and seen.first_event_at is not None
    assert heard.calls == ["began j-1"]
    with open_store(paths=place.paths, read_only=True) as store:
        job = store.job("j-1")
        assert job is not None and (job.outcome, job.prompt) == ("ok", "a house")
        session = store.session(job.session_key)
        assert session is not None and session.closed_at is not None


@aio
async def test_every_prompt_of_a_run_is_a_piece_of_work_of_its_own(tmp_path: Path) -> None:
    place = place_with(tmp_path, ASKS)
    async with run_of(place, request_in(place)) as run:
        first = await run.prompt([Text("one")])
        second = await run.prompt([Text("two"), Link("file:///x", "x"), Resource("y:", "why")])
    assert first.result is not None and first.result.text == "you said draw: one"
    assert second.result is not None and second.result.text.endswith("two\n\nfile:///x\n\ny::\nwhy")
    assert first.job != second.job


TWICE = """first = await asked(launch, "one", on_notification)
    second = await asked(launch, "two", on_notification)
    return Result(Outcome.OK, f"{first.text}{second.text}")"""


@aio
async def test_all_prompts_of_an_adapter_are_recorded_as_its_job(tmp_path: Path) -> None:
    place = place_with(tmp_path, TWICE)
    seen = await run_of(place, request_in(place, job="j-1")).run()
    assert seen.result is not None and seen.result.text == "you said oneyou said two"
    with open_store(paths=place.paths, read_only=True) as store:
        job = store.job("j-1")
        assert job is not None and job.text == seen.result.text
        lines = dict(store.lines(job.session_key, 0))
        assert job.next_event == len(lines) and b"you said two" in lines[job.next_event - 1]


@aio
async def test_an_adapter_may_work_without_a_session(tmp_path: Path) -> None:
    place, heard = place_with(tmp_path, 'return Result(Outcome.OK, "done")'), Heard()
    seen = await run_of(place, request_in(place, job="j-1"), listener=heard).run()
    assert seen.result is not None and seen.prompted and heard.calls == ["began j-1"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"session": "talk"}, "opens a new session"),
        ({"mcp_servers": ["x"]}, "does not take MCP servers"),
    ],
)
@aio
async def test_a_session_that_goes_on_and_servers_are_refused(
    fields: dict[str, Any], words: str, tmp_path: Path
) -> None:
    place = place_with(tmp_path, ASKS)
    seen = await run_of(place, request_in(place, **fields)).run()
    assert isinstance(seen.error, UsageError) and words in str(seen.error)
    assert not seen.prompted


@aio
async def test_a_failure_behind_the_prompt_is_a_result_with_what_was_said(tmp_path: Path) -> None:
    place = place_with(tmp_path, "await asked(launch, text, on_notification); 1 / 0")
    seen = await run_of(place, request_in(place)).run()
    assert seen.error is None and seen.result is not None
    assert (seen.result.outcome, seen.result.text) == (Outcome.FAILED, "you said a house")
    assert isinstance(seen.result.error, AdapterFailed)


@aio
async def test_an_adapter_that_keeps_no_limit_of_time_ends_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_run, "TOTAL_GRACE", 0.01)
    # It ignores the first cancellation, and ends with the one that comes when the run is left.
    place = place_with(tmp_path, f"TRIES = [True, False]\n    {DEAF}")
    request = request_in(place, budgets=Budgets(total=0.01, cancel_grace=0.05))
    seen = await run_of(place, request).run()
    assert seen.result is not None and seen.result.outcome is Outcome.TIMED_OUT


DEAF = """while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if TRIES.pop():
                raise"""


@aio
async def test_a_limit_ends_the_adapter(tmp_path: Path) -> None:
    place = place_with(tmp_path, FORWARDS)
    over = Failure("too much", ErrorKind.QUOTA, None, False, None)

    def limit(event: Event) -> Failure | None:
        return over if isinstance(event, MessageDelta) else None

    seen = await run_of(place, request_in(place, "wait", limit=limit)).run()
    assert seen.result is not None and seen.over is over
    assert (seen.result.outcome, seen.result.failure) == (Outcome.TRUNCATED, over)


@aio
async def test_an_unexpected_error_after_the_adapters_work_ends_the_turn_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*args: Any, **options: Any) -> Result:
        raise LookupError("unexpected")

    monkeypatch.setattr(adapter_run, "dispatch", fail)
    async with asyncio.timeout(5), adapted(ActedAdapter(), []) as peer:
        result = await (await peer.open(opening())).ask("x")
    assert result.outcome is Outcome.FAILED
    assert "LookupError: unexpected" in str(result.error)
    assert any(record.exc_info for record in caplog.records)
