"""Conversations whatever the dialect: what is refused, and what a turn makes of its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.client.acp.options import ClientOptions
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import (
    Conversation,
    ConversationTurn,
    Opening,
    Peer,
    Result,
    SessionSummary,
    blocks_of,
)
from dragoman.client.permissions import Denial, approve_all
from dragoman.errors import BudgetExceeded, RemoteError, Unsupported, UsageError
from dragoman.events import model
from dragoman.events.parts import Block, Capabilities, Cost, Failure, PeerInfo, Text, Usage
from dragoman.events.words import ChangeStage, Outcome, Role, ToolStatus
from dragoman.rpc import Call, Limits
from dragoman.rpc.lanes import Flow
from tests.aio import aio
from tests.unit.events.sayings import make


class Home:
    """A session for a turn."""

    id = "s"
    unusable = False

    def __init__(self) -> None:
        self.turn: Any = None

    def cancel_questions(self) -> None:
        pass

    async def wait_replayed(self) -> None:
        pass


class Talk(ConversationTurn):
    """A turn whose dialect is this test."""

    def __init__(self, budgets: Budgets | None = None) -> None:
        flow = Flow(lambda: None, lambda: None, Limits())
        super().__init__(Home(), flow, budgets or Budgets())
        self.told: list[model.Event] = []
        self.cancels = 0

    def _send(self) -> Call:
        return Call("prompt", lambda _: None, lambda *_: None)

    def _send_cancel(self) -> None:
        self.cancels += 1

    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        return make(model.TurnEnded, outcome, stop, failure)

    def made(self, event: model.Event) -> None:
        self.told.append(event)


OK = (Outcome.OK, "end_turn")


def said(text: str, message_id: str | None = None) -> model.Event:
    return make(model.MessageDelta, Role.AGENT, text, message_id=message_id)


async def result_of(
    *events: model.Event, ended: model.TurnEnded | None = None, max_text_size: int | None = None
) -> Result:
    async with Talk() as turn:
        turn.max_text_size = max_text_size
        for event in events:
            turn.event(event, 10)
        turn.conclude(ended or make(model.TurnEnded, *OK))
        seen = [event async for event in turn]
        assert seen[:-1] == list(events)
        assert isinstance(seen[-1], model.TurnEnded)
        return turn.result


@aio
async def test_the_text_of_a_result_is_what_the_agent_said() -> None:
    thought = make(model.MessageDelta, Role.THOUGHT, "hm")
    result = await result_of(said("a"), thought, said("b"))
    assert (result.text, result.outcome, result.stop) == ("ab", Outcome.OK, "end_turn")


@aio
async def test_a_result_has_as_much_of_the_text_as_was_asked_for_and_says_so() -> None:
    result = await result_of(said("abc"), said("def"), max_text_size=4)
    assert (result.text, result.truncated) == ("abcd", True)
    result = await result_of(said("abc"), said("def"))
    assert (result.text, result.truncated) == ("abcdef", False)


@aio
async def test_a_message_that_comes_whole_counts_once() -> None:
    whole = make(model.MessageSet, Role.AGENT, "1", (Text("all"),))
    assert (await result_of(whole)).text == "all"
    assert (await result_of(said("al", "1"), said("l", "1"), whole)).text == "all"
    other = make(model.MessageSet, Role.USER, "2", (Text("mine"),))
    assert (await result_of(said("x"), other)).text == "x"
    ended = make(model.TurnEnded, Outcome.OK, text="at the end")
    assert (await result_of(ended=ended)).text == "at the end"


@aio
async def test_a_turn_in_which_nothing_happened_is_empty() -> None:
    assert (await result_of()).outcome is Outcome.EMPTY
    assert (await result_of(make(model.ToolChanged, "t"))).outcome is Outcome.OK
    change = make(model.FilesChanged, (), ChangeStage.APPLIED)
    assert (await result_of(change)).outcome is Outcome.OK
    refused = make(model.TurnEnded, Outcome.REFUSED)
    assert (await result_of(ended=refused)).outcome is Outcome.REFUSED


@aio
async def test_usage_is_that_of_the_end_and_the_rest_the_last_that_was_reported() -> None:
    told = make(model.UsageReported, "context", Usage(context_used=5))
    assert (await result_of(told)).usage == Usage(context_used=5)
    ended = make(model.TurnEnded, Outcome.OK, usage=Usage(total_tokens=9))
    assert (await result_of(told, ended=ended)).usage == Usage(total_tokens=9, context_used=5)
    paid = make(model.UsageReported, "context", Usage(cost=Cost(0.5, "USD")))
    assert (await result_of(paid, ended=ended)).usage == Usage(
        total_tokens=9, cost=Cost(0.5, "USD")
    )


@aio
async def test_a_turn_used_what_its_calls_used_together() -> None:
    calls = [
        make(model.UsageReported, "call", Usage(input_tokens=2, total_tokens=5)),
        make(model.UsageReported, "call", Usage(input_tokens=3, output_tokens=1, total_tokens=4)),
    ]
    together = Usage(input_tokens=5, output_tokens=1, total_tokens=9)
    assert (await result_of(*calls)).usage == together
    full = make(model.UsageReported, "context", Usage(context_used=5, context_size=8))
    assert (await result_of(*calls, full)).usage == replace(
        together, context_used=5, context_size=8
    )


@pytest.mark.parametrize(
    ("after", "ends"),
    [
        ([], True),
        ([make(model.ToolChanged, "t", status=ToolStatus.FAILED)], True),
        ([make(model.ToolChanged, "other")], False),
        ([said("then I will not")], False),
    ],
)
@pytest.mark.parametrize("approvals", [0, 1])
@aio
async def test_a_turn_ends_because_of_a_refusal_if_nothing_but_its_failure_follows(
    after: list[model.Event], ends: bool, approvals: int
) -> None:
    async with Talk() as turn:
        turn.approvals = approvals
        turn.event(make(model.ToolChanged, "t"), 1)
        turn.denied(Denial("t", "Dig", "execute"))
        for event in after:
            turn.event(event, 1)
        turn.conclude(make(model.TurnEnded, *OK))
        result = await turn.wait()
    assert result.ended_by_denial is ends
    # Where nothing was approved, it does not matter what the agent says afterwards.
    assert result.outcome is (Outcome.DENIED if ends or not approvals else Outcome.OK)
    assert result.denials == (Denial("t", "Dig", "execute"),)
    assert result.approvals == approvals


@aio
async def test_an_error_is_a_result_and_is_not_raised() -> None:
    error = RemoteError(-32603, "broken")
    async with Talk() as turn:
        turn.event(said("so far"), 1)
        turn.failed(error)
        turn.failed(RemoteError(1, "a second one counts for nothing"))
        result = await turn.wait()
    assert (result.outcome, result.text, result.error) == (Outcome.FAILED, "so far", error)
    assert [type(event) for event in turn.told] == [model.TurnEnded]


@aio
async def test_a_budget_that_ran_out_is_the_reason_whatever_the_agent_says_then() -> None:
    async with Talk() as turn:
        turn._expired("total", 1.0)
        assert turn.cancels == 1
        said_end = make(model.TurnEnded, Outcome.CANCELLED, "cancelled")
        turn.conclude(said_end)
        (ended,) = [event async for event in turn]
    assert isinstance(ended, model.TurnEnded)
    assert (ended.outcome, ended.seq) == (Outcome.TIMED_OUT, said_end.seq)
    assert turn.told == [ended]
    assert isinstance(turn.result.error, BudgetExceeded)


@aio
async def test_a_cancel_that_is_never_answered_ends_as_cancelled() -> None:
    async with Talk(Budgets(cancel_grace=0.0)) as turn:
        turn.cancel()
        async with asyncio.timeout(10):
            (ended,) = [event async for event in turn]
    assert isinstance(ended, model.TurnEnded)
    assert turn.result.outcome is Outcome.CANCELLED
    assert turn.told == [ended]


@aio
async def test_what_is_ready_can_be_taken_without_waiting() -> None:
    async with Talk() as turn:
        assert not turn.ready
        turn.event(said("x"), 1)
        assert turn.ready
        turn.conclude(make(model.TurnEnded, *OK))


# -- peers


class Quiet(Conversation):
    id = "s"
    replayed: Sequence[model.Event] = ()
    turn = None
    closed = False

    async def wait_replayed(self) -> None:
        pass

    def prompt(self, prompt: str | Block | Sequence[Block]) -> ConversationTurn:
        raise NotImplementedError

    async def set_mode(self, mode_id: str) -> None: ...
    async def set_model(self, model_id: str) -> None: ...
    async def set_option(self, option_id: str, value: str | bool) -> None: ...

    async def close(self) -> None:
        self.closed = True


class Able(Peer):
    dialect = "test"
    info = PeerInfo("able")
    workspace = Path("/w")
    auth_methods = ()
    on_event = None

    def __init__(self, **able: bool | None) -> None:
        self.capabilities = Capabilities(**able)  # type: ignore[arg-type]
        self.openings: list[Opening] = []
        self.conversation = Quiet()
        self.closed = False

    async def open(self, opening: Opening) -> Conversation:
        self.openings.append(opening)
        return self.conversation

    async def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[SessionSummary]:
        yield SessionSummary("s")

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    "options",
    [
        {"load": "x"},
        {"resume": "x"},
        {"fork": "x"},
        {"mode": "m"},
        {"model": "m"},
        {"additional_directories": ["/a"]},
        {"load": "x", "resume": "y"},
    ],
    ids=str,
)
@aio
async def test_what_a_peer_cannot_do_is_refused_before_it_is_asked(options: dict[str, Any]) -> None:
    peer = Able()
    with pytest.raises(Unsupported):
        async with peer.session(**options):
            pytest.fail("it cannot")
    assert peer.openings == []


@aio
async def test_what_a_peer_can_do_or_cannot_tell_is_asked_for() -> None:
    peer = Able(load=True, set_mode=None, set_model=True, additional_directories=True)
    async with peer.session(
        load="x", mode="m", model="n", cwd="/c", additional_directories=["/a"]
    ) as session:
        assert not peer.conversation.closed
        assert session is peer.conversation
    assert peer.conversation.closed
    (opening,) = peer.openings
    assert (opening.how, opening.session_id, opening.cwd) == ("load", "x", Path("/c"))
    assert (opening.mode, opening.model) == ("m", "n")
    async with peer.session():
        pass
    assert (peer.openings[1].how, peer.openings[1].cwd) == ("new", Path("/w"))


@aio
async def test_what_most_dialects_lack_is_refused_by_name() -> None:
    async with Able() as peer:
        for refused in (peer.delete_session("x"), peer.authenticate("x"), peer.logout()):
            with pytest.raises(Unsupported, match=r"able \(test\) cannot"):
                await refused
        with pytest.raises(Unsupported):
            await peer.conversation.steer("x")
    assert peer.closed


def test_another_decider_takes_the_place_of_the_first() -> None:
    peer = Able()
    peer.client = SimpleNamespace(options=ClientOptions())
    peer.answer_with(approve_all)
    assert peer.client.options.permit is approve_all


def test_a_prompt_is_text_or_a_block_or_several() -> None:
    assert blocks_of("x") == (Text("x"),)
    assert blocks_of(Text("x")) == (Text("x"),)
    assert blocks_of([Text("x"), Text("y")]) == (Text("x"), Text("y"))


@aio
async def test_metadata_is_handed_to_a_new_session() -> None:
    peer = Able(load=True)
    async with peer.session(metadata={"branch": "main"}):
        assert peer.openings[0].metadata == {"branch": "main"}
    with pytest.raises(UsageError, match="for a new session"):
        async with peer.session(load="x", metadata={"branch": "main"}):
            pass


@pytest.mark.parametrize("metadata", [["branch"], {1: "a"}, {"dragoman": {}}, {"a": object()}])
@aio
async def test_metadata_that_cannot_be_sent_is_refused(metadata: Any) -> None:
    peer = Able()
    with pytest.raises(UsageError, match="metadata="):
        async with peer.session(metadata=metadata):
            pass
    assert peer.openings == []
