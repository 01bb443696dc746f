"""One story, told by a child process in every dialect: our client sees the same, less the losses.

The tellers share no code with our dialects. What a dialect cannot say is in its LOSSES, and only
that may be missing: a loss that nobody wrote down fails here, and so does one that is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

import dragoman
from dragoman.agent.speech.choice import SPEECHES
from dragoman.client.connect import OPENERS
from dragoman.client.conversation import Peer, Result
from dragoman.client.permissions import Decision, Question, approve_all, deny_all
from dragoman.dialects import discovery
from dragoman.errors import Unsupported
from dragoman.events import model
from dragoman.events.model import Event
from dragoman.events.words import ErrorKind, Outcome, Part, PlanStatus, Role, ToolStatus
from dragoman.testing.storyteller import TELLERS, Story, command
from tests.aio import aio
from tests.integration.peers import ENVIRONMENT, WAIT_TIMEOUT
from tests.integration.stories import (
    ASKING,
    BROKEN,
    CHOOSING,
    CRASHING,
    DIALECTS,
    ENDLESS,
    LOSSES,
    LOST,
    OTHERS,
    PAST,
    WORK,
    picture,
)
from tests.integration.story_clients import LISTENERS

TELLABLE = ("acp", "oneshot", "tagged", "keyed")
"""Dialects that the answer to one handshake shows; the others have to be named."""


@asynccontextmanager
async def hearing(
    story: Story, dialect: str, workspace: Path, /, **options: Any
) -> AsyncIterator[Peer]:
    async with (
        asyncio.timeout(WAIT_TIMEOUT),
        dragoman.connect(
            command(story, dialect=dialect),
            workspace=workspace,
            env=ENVIRONMENT,
            **{"dialect": dialect, **options},
        ) as peer,
    ):
        yield peer


async def heard(
    story: Story, dialect: str, workspace: Path, /, **options: Any
) -> tuple[list[Event], Result]:
    """Every event of a connection with one turn, and how that ended."""
    events: list[Event] = []
    async with (
        hearing(story, dialect, workspace, on_event=events.append, **options) as peer,
        peer.session() as session,
        session.prompt("Tell me.") as turn,
    ):
        told = [event async for event in turn]
        result = await turn.wait()
    assert [event for event in told if event in events] == told
    return events, result


Told: TypeAlias = Mapping[str, list[Event]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The whole story, once in every dialect."""
    workspace = tmp_path_factory.mktemp("workspace")

    async def worked(dialect: str) -> list[Event]:
        events, result = await heard(WORK, dialect, workspace, permit=approve_all)
        assert result.outcome is Outcome.OK
        return events

    return {dialect: asyncio.run(worked(dialect)) for dialect in DIALECTS}


@pytest.mark.parametrize("dialect", OTHERS)
def test_a_story_is_the_same_in_every_dialect_less_its_losses(dialect: str, told: Told) -> None:
    assert picture(told[dialect], LOST["acp"]) == picture(told["acp"], LOST[dialect])


HISTORY = {Part.REPLAYED_ROLES, Part.REPLAYED_IDS, Part.REPLAYED_TURNS}
TROUBLE = {Part.FAILURES, Part.ERROR_REPORTS}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_says_nothing_that_it_counts_as_lost(dialect: str, told: Told) -> None:
    for part in LOST[dialect]:
        assert picture(told[dialect], {part}) == picture(told[dialect]), part


@pytest.mark.parametrize("dialect", OTHERS)
def test_the_story_has_everything_that_a_dialect_loses(dialect: str, told: Told) -> None:
    for part in LOST[dialect] - HISTORY - TROUBLE:
        assert picture(told["acp"], {part}) != picture(told["acp"]), part


def test_the_story_is_reported_in_acp_as_it_is_written(told: Told) -> None:
    """The measure of all the others is itself measured."""
    view, asked = picture(told["acp"])
    assert [(message.role, message.text) for message in view.messages] == [
        (Role.USER, "Tell me."),
        (Role.THOUGHT, "First a look."),
        (Role.AGENT, "I look at it."),
        (Role.AGENT, "Now I write."),
        (Role.THOUGHT, "Carefully."),
        (Role.AGENT, " Look:"),
        (Role.AGENT, "It is done."),
    ]
    tools = {id: (tool.title, tool.status, tool.output) for id, tool in view.tools.items()}
    assert tools == {
        "t-read": ("Read a.txt", ToolStatus.COMPLETED, "one\n"),
        "t-none": ("Read b.txt", ToolStatus.FAILED, "there is no such file"),
        "t-edit": ("Edit a.txt", ToolStatus.COMPLETED, "written"),
    }
    assert [(c.path, c.old_text, c.new_text) for c in view.tools["t-edit"].changes] == [
        ("/w/a.txt", "one\n", "two\n"),
        ("/w/c.txt", None, "new\n"),
    ]
    entries = view.plans["main"].entries
    assert [(e.text, e.status) for e in entries] == [
        ("Look", PlanStatus.COMPLETED),
        ("Write", PlanStatus.COMPLETED),
    ]
    assert (view.usage["context"].context_used, view.usage["turn"].output_tokens) == (5000, 34)
    assert asked == [("asked", "Edit a.txt", "edit", "t-edit"), ("answered", True)]
    assert ([mode.id for mode in view.modes], view.mode) == (["plan", "write"], "write")
    assert view.model == "house/small"
    assert [(option.id, option.value) for option in view.options] == [
        ("model", "house/small"),
        ("effort", "high"),
    ]
    assert [command.name for command in view.commands] == ["review", "help"]


def test_what_travels_in_another_shape_still_says_it(told: Told) -> None:
    view, _ = picture(told["oneshot"])
    diffs = {change.path: change.diff or "" for change in view.changes}
    assert set(diffs) == {"/w/a.txt", "/w/c.txt"}
    assert "-one\n+two\n" in diffs["/w/a.txt"] and "+new\n" in diffs["/w/c.txt"]
    view, _ = picture(told["tagged"])
    assert view.plans["main"].text == "Look: completed\nWrite: completed"
    assert view.tools["t-none"].error == "there is no such file"


# -- permission


@pytest.mark.parametrize("dialect", ASKING)
@aio
async def test_a_refusal_turns_the_story_in_every_dialect_that_asks(
    dialect: str, tmp_path: Path
) -> None:
    in_acp, _ = await heard(WORK, "acp", tmp_path, permit=deny_all)
    told, result = await heard(WORK, dialect, tmp_path, permit=deny_all)
    assert result.text.endswith("I left it.")
    assert [denial.tool_call_id for denial in result.denials] == ["t-edit"]
    assert picture(told, LOST["acp"]) == picture(in_acp, LOST[dialect])
    assert picture(told)[1][-1] == ("answered", False)


@pytest.mark.parametrize("dialect", sorted(set(DIALECTS) - set(ASKING)))
@aio
async def test_no_question_is_asked_in_a_dialect_that_cannot_ask(
    dialect: str, tmp_path: Path
) -> None:
    def permit(question: Question) -> Decision:
        raise AssertionError(question)

    _, result = await heard(WORK, dialect, tmp_path, permit=permit)
    assert result.text.endswith("It is done.")
    assert Part.PERMISSIONS in LOST[dialect]


# -- choices


async def chosen(peer: Peer, **opening: Any) -> Result:
    async with peer.session(**opening) as session:
        return await session.ask("What is chosen?")


@pytest.mark.parametrize("dialect", ["acp", "keyed"])
@aio
async def test_a_mode_is_chosen_where_a_dialect_has_modes(dialect: str, tmp_path: Path) -> None:
    events: list[Event] = []
    async with hearing(CHOOSING, dialect, tmp_path, on_event=events.append) as peer:
        assert (await chosen(peer)).text.startswith("the mode is plan;")
        assert (await chosen(peer, mode="write")).text.startswith("the mode is write;")
        assert picture(events)[0].mode == "write"
        async with peer.session() as session:
            with pytest.raises(Unsupported, match="dance"):
                await session.set_mode("dance")
            await session.set_mode("write")
            assert (await session.ask("And now?")).text.startswith("the mode is write;")
            await session.set_mode("plan")
            assert picture(events)[0].mode == "plan"


@pytest.mark.parametrize("dialect", ["acp", "keyed"])
@aio
async def test_a_session_is_opened_with_a_model_where_a_dialect_names_one(
    dialect: str, tmp_path: Path
) -> None:
    async with hearing(CHOOSING, dialect, tmp_path) as peer:
        assert "model is house/small" in (await chosen(peer)).text
        assert "model is house/large" in (await chosen(peer, model="house/large")).text


@aio
async def test_models_and_options_are_chosen_in_an_open_session(tmp_path: Path) -> None:
    events: list[Event] = []
    async with (
        hearing(CHOOSING, "acp", tmp_path, on_event=events.append) as peer,
        peer.session() as session,
    ):
        await session.set_model("house/large")
        await session.set_option("effort", "high")
        told = "the mode is plan; model is house/large; effort is high"
        assert (await session.ask("And now?")).text == told
        view, _ = picture(events)
        assert view.model == "house/large"
        assert [option.value for option in view.options] == ["house/large", "high"]


@pytest.mark.parametrize("dialect", DIALECTS)
@aio
async def test_choosing_what_a_dialect_lacks_is_refused_before_anything_is_sent(
    dialect: str, tmp_path: Path
) -> None:
    lost = LOST[dialect]
    async with hearing(CHOOSING, dialect, tmp_path) as peer, peer.session() as session:
        asked: list[Part] = []
        for part, choose in (
            (Part.MODES, session.set_mode("write")),
            (Part.MODELS, session.set_model("house/large")),
            (Part.OPTIONS, session.set_option("effort", "high")),
        ):
            try:
                await choose
            except Unsupported:
                asked.append(part)
        assert set(asked) == lost & {Part.MODES, Part.MODELS, Part.OPTIONS}


# -- the end of a turn


@pytest.mark.parametrize("dialect", DIALECTS)
@aio
async def test_an_error_ends_a_turn_alike_in_every_dialect(dialect: str, tmp_path: Path) -> None:
    in_acp, _ = await heard(BROKEN, "acp", tmp_path)
    told, result = await heard(BROKEN, dialect, tmp_path)
    assert picture(told, LOST["acp"]) == picture(in_acp, LOST[dialect])
    for part in LOST[dialect]:
        assert picture(told, {part}) == picture(told), part
    if dialect == "tagged":
        assert (result.outcome, result.failure) == (Outcome.FAILED, None)
        return
    assert result.outcome is Outcome.QUOTA
    assert result.failure is not None
    assert result.failure.kind is ErrorKind.RATE_LIMITED
    assert "Rate limit exceeded" in result.failure.message


@pytest.mark.parametrize("dialect", DIALECTS)
@aio
async def test_a_crash_ends_a_turn_alike_in_every_dialect(dialect: str, tmp_path: Path) -> None:
    in_acp, _ = await heard(CRASHING, "acp", tmp_path)
    told, result = await heard(CRASHING, dialect, tmp_path)
    assert (result.outcome, result.stop) == (Outcome.CRASHED, "process_exited")
    # Who goes on without an answer knows why; a dialect has no say in it.
    assert picture(told, LOST["acp"]) == picture(in_acp, LOST[dialect] - {Part.FAILURES})


@pytest.mark.parametrize("dialect", DIALECTS)
@aio
async def test_a_cancel_ends_a_turn_alike_in_every_dialect(dialect: str, tmp_path: Path) -> None:
    async def cancelled(dialect: str) -> list[Event]:
        events: list[Event] = []
        async with (
            hearing(ENDLESS, dialect, tmp_path, on_event=events.append) as peer,
            peer.session() as session,
            session.prompt("Tell me.") as turn,
        ):
            async for event in turn:
                # The first sign of life; what comes before the cancel is known by the story.
                sign = model.MessageDelta if dialect == "threads" else model.ToolChanged
                if isinstance(event, sign | model.Unknown):
                    turn.cancel()
            assert (await turn.wait()).outcome is Outcome.CANCELLED
        return events

    assert picture(await cancelled(dialect), LOST["acp"]) == picture(
        await cancelled("acp"), LOST[dialect]
    )


@pytest.mark.parametrize("dialect", ["acp", "tagged", "keyed"])
@aio
async def test_a_session_goes_on_after_a_cancel_where_a_dialect_can_say_it(
    dialect: str, tmp_path: Path
) -> None:
    async with hearing(ENDLESS, dialect, tmp_path) as peer, peer.session() as session:
        for _ in range(2):
            async with session.prompt("Tell me.") as turn:
                async for event in turn:
                    if isinstance(event, model.ToolChanged):
                        turn.cancel()
                assert (await turn.wait()).outcome is Outcome.CANCELLED


# -- sessions


@pytest.mark.parametrize("dialect", ["acp", "chained"])
@aio
async def test_earlier_sessions_are_listed(dialect: str, tmp_path: Path) -> None:
    async with hearing(WORK, dialect, tmp_path) as peer:
        found = [(s.id, s.title) async for s in peer.list_sessions()]
    assert found == [(PAST.id, PAST.title)]


@pytest.mark.parametrize("dialect", ["threads", "keyed", "chained"])
@aio
async def test_an_earlier_session_is_loaded_alike(dialect: str, tmp_path: Path) -> None:
    async def loaded(dialect: str) -> list[Event]:
        async with (
            hearing(WORK, dialect, tmp_path) as peer,
            peer.session(load=PAST.id) as session,
        ):
            await session.wait_replayed()
            assert all(event.replay for event in session.replayed)
            return list(session.replayed)

    in_acp, told = await loaded("acp"), await loaded(dialect)
    view, _ = picture(told, LOST["acp"])
    assert (view, []) == picture(in_acp, LOST[dialect])
    assert [message.text for message in view.messages] == [text for _, text in PAST.messages]
    for part in LOST[dialect]:
        assert picture(told, {part}) == picture(told), part
    for part in LOST[dialect] & HISTORY:
        assert picture(in_acp, {part}) != picture(in_acp), part


@pytest.mark.parametrize("dialect", ["oneshot", "tagged"])
@aio
async def test_loading_is_refused_where_there_is_nothing_to_load(
    dialect: str, tmp_path: Path
) -> None:
    async with hearing(WORK, dialect, tmp_path) as peer:
        with pytest.raises(Unsupported, match="load"):
            async with peer.session(load=PAST.id):
                pass


# -- every dialect


def test_every_dialect_has_its_place_everywhere() -> None:
    """Codex has programs of its own to be tested with, and nobody writes an agent of it here."""
    names = set(discovery.DIALECTS) - {discovery.CODEX}
    assert set(TELLERS) == set(LOSSES) == set(LISTENERS) == names
    assert {*SPEECHES, discovery.ACP} == names
    assert {*OPENERS} == set(discovery.DIALECTS)


# -- the handshake


@pytest.mark.parametrize("dialect", TELLABLE)
@aio
async def test_the_handshake_shows_the_dialect(dialect: str, tmp_path: Path) -> None:
    async with hearing(WORK, dialect, tmp_path, dialect="auto") as peer:
        assert peer.dialect == dialect
        if dialect != "oneshot":
            assert (peer.info.name, peer.info.version) == ("storyteller", "1.0")


@aio
async def test_the_first_thread_may_come_with_a_handshake(tmp_path: Path) -> None:
    in_acp, _ = await heard(WORK, "acp", tmp_path, permit=approve_all)
    told, _ = await heard(WORK, "threads", tmp_path, details={"handshake": True})
    assert picture(told, LOST["acp"]) == picture(in_acp, LOST["threads"])


@pytest.mark.parametrize("dialect", DIALECTS)
@aio
async def test_what_a_client_can_never_do_is_in_the_losses(dialect: str, tmp_path: Path) -> None:
    async with hearing(WORK, dialect, tmp_path) as peer:
        can = msgspec.to_builtins(peer.capabilities)
    never = {name for loss in LOSSES[dialect] for name in loss.cannot}
    unable = {name for name, able in can.items() if able is False}
    assert never <= unable
    if dialect in OTHERS:
        # These say of every agent the same, or nothing; so what is missing is the dialect's fault.
        assert unable - {"prompt_acknowledged"} == never
