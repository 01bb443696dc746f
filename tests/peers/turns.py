"""What every real agent that speaks ACP has to do with our client, test by test.

Owns the tests that all of them pass; a test file per agent subclasses `Turns`, says where that
agent differs, and adds what only it does. Every test plays on the stage of its module, in a folder
and a session of its own; a process of its own has only a test that kills it or needs a second one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import ClassVar

import pytest

from dragoman.client.conversation import Conversation
from dragoman.client.permissions import Answer, Question, approve_all, deny_all
from dragoman.client.results import Result, error_kind
from dragoman.errors import ProcessExited, RemoteError
from dragoman.events import model as happened
from dragoman.events.fold import fold
from dragoman.events.parts import Capabilities, Image, Text
from dragoman.events.view import View
from dragoman.events.words import ErrorKind, Outcome, Role, ToolStatus
from dragoman.testing.fake_model import FakeModel
from dragoman.transports.process.environment import owner
from dragoman.transports.process.strays import find_owned
from scripts.peers import install
from tests.aio import aio
from tests.integration.conftest import own_children
from tests.peers.agents import Agent, Stage, kept_processes, on_stage, opened, soon

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)

SHORT_SILENCE = 1.5
"""Seconds of silence that are enough to know that an agent retries without a word."""


class Turns:
    """The tests. The attributes are what is known of one agent."""

    agent: ClassVar[Agent]
    calls_itself: ClassVar[str]
    capabilities: ClassVar[dict[str, bool]]
    modes: ClassVar[tuple[str, ...]]
    mode: ClassVar[str]
    """The mode in which a session is once it is open."""
    vendor_methods: ClassVar[set[str]] = set()
    """What it says that is in no schema."""
    thought: ClassVar[str] = "I think about this."
    """How the model's thought reaches us."""
    usage_of_a_turn: ClassVar[tuple[int, int] | None]
    """Tokens in and out that a first turn with two words in and three chunks out reports."""
    shows_images: ClassVar[bool] = True
    """Whether it shows images to a model that it does not know."""
    writes_through_us: ClassVar[bool]
    """Whether its tool for files uses our files."""
    after_refusal: ClassVar[tuple[Outcome, str]]
    """How a turn ends whose command was refused, and the beginning of its text."""
    refused_status: ClassVar[ToolStatus]
    """What it says of the call that was refused."""
    errors: ClassVar[dict[int, tuple[Outcome, str]]]
    """By status of the model: how the turn ends, and a part of what it says about it."""

    # -- the beginning

    @on_stage
    async def test_it_says_who_it_is_and_what_it_can_do(self, stage: Stage) -> None:
        assert stage.peer.info.name == self.calls_itself
        assert stage.peer.info.version == install.pins()[self.agent.name].version
        assert _told(stage.peer.capabilities) == self.capabilities

    @on_stage
    async def test_its_modes_are_known(self, stage: Stage, workspace: Path) -> None:
        async with stage.talk(workspace) as talk:
            modes = talk.modes  # type: ignore[attr-defined]
            assert tuple(mode.id for mode in modes.available_modes) == self.modes
            assert modes.current_mode_id == self.mode

    # -- turns

    @on_stage
    async def test_a_text_comes_in_pieces(self, stage: Stage, workspace: Path) -> None:
        async with stage.talk(workspace) as talk, talk.prompt("CHUNKS:5") as turn:
            events = [event async for event in turn]
            pieces = [f"chunk-{number} " for number in range(1, 6)]
            assert [text for text in _spoken(events) if text] == pieces
            assert turn.result.ok
            assert (turn.result.text, turn.result.stop) == ("".join(pieces), "end_turn")
            assert isinstance(events[0], happened.TurnStarted)
            assert isinstance(events[-1], happened.TurnEnded)

    @on_stage
    async def test_a_conversation_is_remembered(self, stage: Stage, workspace: Path) -> None:
        async with stage.talk(workspace) as talk:
            assert (await talk.ask("the first thing")).text == "You said: the first thing"
            assert (await talk.ask("the second thing")).text == "You said: the second thing"
        (last,) = [
            request.body
            for request in stage.model.requests
            if request.asked and request.asked.text == "the second thing" and request.asked.stream
        ]
        assert "the first thing" in str(last)

    @on_stage
    async def test_thoughts_are_kept_apart_from_the_answer(
        self, stage: Stage, workspace: Path
    ) -> None:
        async with stage.talk(workspace) as talk:
            view, result = await _view(talk, "THINK please")
        thoughts = [message.text for message in view.messages if message.role is Role.THOUGHT]
        assert thoughts == [self.thought]
        assert result.text == "You said: THINK please"

    @on_stage
    async def test_an_image_reaches_the_model_where_the_agent_lets_it(
        self, stage: Stage, workspace: Path
    ) -> None:
        async with stage.talk(workspace) as talk:
            assert (await talk.ask([Text("look at it"), Image(PIXEL, "image/png")])).ok
        shown = any(PIXEL in str(request.body) for request in stage.model.requests)
        assert shown is self.shows_images

    @on_stage
    async def test_tokens_are_reported_if_the_agent_reports_them(
        self, stage: Stage, workspace: Path
    ) -> None:
        async with stage.talk(workspace) as talk:
            usage = (await talk.ask("CHUNKS:3 now")).usage
        told = None if usage is None else (usage.input_tokens, usage.output_tokens)
        assert told == self.usage_of_a_turn

    @on_stage
    async def test_two_sessions_at_once_do_not_mix(
        self, stage: Stage, workspace: Path, tmp_path: Path
    ) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        async with stage.talk(workspace) as one, stage.talk(elsewhere) as two:
            results = await asyncio.gather(one.ask("CHUNKS:20"), two.ask("to the other"))
        assert results[0].text.count("chunk") == 20
        assert results[1].text == "You said: to the other"

    # -- tools

    @on_stage
    async def test_a_command_runs_once_it_is_allowed(self, stage: Stage, workspace: Path) -> None:
        asked: list[Question] = []

        async def permit(question: Question) -> Answer:
            asked.append(question)
            assert not (workspace / "made.txt").exists()
            return Answer.ALLOW_ONCE

        async with stage.talk(workspace, permit) as talk:
            view, result = await _view(talk, "SHELL:touch made.txt && echo done-it")
        (question,) = asked
        assert question.kind == "execute"
        assert {"allow_once", "reject_once"} <= {option.kind for option in question.options}
        assert (workspace / "made.txt").exists()
        (tool,) = view.tools.values()
        assert (tool.tool_id, tool.status) == (question.tool_call_id, ToolStatus.COMPLETED)
        assert result.ok
        assert "done-it" in result.text
        assert view.waiting == set()

    @on_stage
    async def test_a_command_that_is_refused_does_not_run(
        self, stage: Stage, workspace: Path
    ) -> None:
        outcome, beginning = self.after_refusal
        async with stage.talk(workspace, deny_all) as talk:
            view, result = await _view(talk, "SHELL:touch made.txt && echo done-it")
            assert not (workspace / "made.txt").exists()
            assert [denial.kind for denial in result.denials] == ["execute"]
            assert stage.judge(result).outcome is outcome
            assert result.text.startswith(beginning)
            assert [tool.status for tool in view.tools.values()] == [self.refused_status]
            assert (await talk.ask("go on")).text == "You said: go on"

    @on_stage
    async def test_a_file_is_written_once_it_is_allowed(
        self, stage: Stage, workspace: Path
    ) -> None:
        asked: list[Question] = []

        def permit(question: Question) -> Answer:
            asked.append(question)
            return Answer.ALLOW_ONCE

        path = workspace / "made.txt"
        since = len(stage.seen)
        async with stage.talk(workspace, permit) as talk:
            view, result = await _view(talk, f"WRITE:{path}:some content")
        assert [question.kind for question in asked] == ["edit"]
        assert path.read_text().strip() == "some content"
        (tool,) = view.tools.values()
        assert tool.status is ToolStatus.COMPLETED
        assert [change.path for change in tool.changes] == [str(path)]
        assert result.ok
        services = {
            event.operation
            for event in stage.seen[since:]
            if isinstance(event, happened.ServiceCalled)
        }
        assert ("write_text_file" in services) is self.writes_through_us

    @on_stage
    async def test_a_file_that_is_refused_is_not_written(
        self, stage: Stage, workspace: Path
    ) -> None:
        path = workspace / "made.txt"
        async with stage.talk(workspace, deny_all) as talk:
            result = await talk.ask(f"WRITE:{path}:some content")
        assert [denial.kind for denial in result.denials] == ["edit"]
        assert not path.exists()

    # -- cancelling

    @on_stage
    async def test_a_cancelled_turn_ends_as_such_and_the_session_goes_on(
        self, stage: Stage, workspace: Path
    ) -> None:
        async with stage.talk(workspace) as talk:
            async with talk.prompt("SLOW") as turn:
                async for event in turn:
                    if isinstance(event, happened.MessageDelta):
                        turn.cancel()
            assert turn.result.outcome is Outcome.CANCELLED
            assert turn.result.stop == "cancelled"
            assert turn.result.text.startswith("slow-1 ")
            assert (await talk.ask("again")).text == "You said: again"

    @on_stage
    async def test_leaving_a_turn_early_cancels_it(self, stage: Stage, workspace: Path) -> None:
        async with stage.talk(workspace) as talk:
            async with talk.prompt("SLOW") as turn:
                async for event in turn:
                    if isinstance(event, happened.MessageDelta):
                        break
            assert (await talk.ask("again")).text == "You said: again"

    @on_stage
    async def test_cancelling_withdraws_a_question_that_is_open(
        self, stage: Stage, workspace: Path
    ) -> None:
        asked, withdrawn = asyncio.Event(), asyncio.Event()

        async def permit(question: Question) -> Answer:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                withdrawn.set()
            raise AssertionError

        async with stage.talk(workspace, permit) as talk:
            async with talk.prompt("SHELL:touch made.txt") as turn:
                await soon(asked)
                turn.cancel()
                result = await turn.wait()
            await soon(withdrawn)
            assert result.outcome is Outcome.CANCELLED
            assert result.stop == "cancelled"
            assert not (workspace / "made.txt").exists()
            assert (await talk.ask("again")).text == "You said: again"

    # -- a model that fails

    @pytest.mark.parametrize("status", [400, 401])
    @on_stage
    async def test_a_model_that_refuses_fails_the_turn_and_not_the_session(
        self, status: int, stage: Stage, workspace: Path
    ) -> None:
        outcome, words = self.errors[status]
        async with stage.talk(workspace) as talk:
            result = stage.judge(await talk.ask(f"HTTP:{status}"))
            assert result.outcome is outcome
            assert result.failure is not None
            assert words in result.failure.message
            assert (await talk.ask("again")).text == "You said: again"

    @on_stage
    async def test_retries_without_a_word_are_bounded_by_a_budget(
        self, stage: Stage, workspace: Path
    ) -> None:
        async with stage.talk(workspace) as talk:
            with stage.budgets(first_event=SHORT_SILENCE, silence=SHORT_SILENCE):
                result = await talk.ask("HTTP:429")
            assert result.outcome is Outcome.TIMED_OUT
            assert result.failure is not None
            assert result.failure.retryable
            assert (await talk.ask("again")).text == "You said: again"

    # -- other processes

    @on_stage
    async def test_a_session_is_found_again_by_another_process(
        self, stage: Stage, workspace: Path
    ) -> None:
        async with stage.talk(workspace, approve_all) as talk:
            await talk.ask("THINK of me")
        self.let_time_pass(stage)
        async with stage.another_process(workspace) as peer:
            if self.capabilities["list"]:
                sessions = [summary async for summary in peer.list_sessions(workspace)]
                assert [(s.id, s.cwd, s.title) for s in sessions] == [
                    (talk.id, str(workspace), "THINK of me")
                ]
            async with peer.session(load=talk.id) as loaded:
                await loaded.wait_replayed()
                modes = loaded.modes  # type: ignore[attr-defined]
                assert modes.current_mode_id == self.mode
                assert all(event.replay for event in loaded.replayed)
                said = [(m.role, m.text) for m in fold(loaded.replayed).messages if m.text]
                assert said[-1] == (Role.AGENT, "You said: THINK of me")
                assert said[0][0] is Role.USER
                assert said[0][1].endswith("THINK of me")
                assert (await loaded.ask("you again")).text == "You said: you again"
            assert "THINK of me" in str(stage.model.requests[-1].body)
            if self.capabilities["resume"]:
                async with peer.session(resume=talk.id) as resumed:
                    assert (resumed.id, list(resumed.replayed)) == (talk.id, [])
                    assert (await resumed.ask("and again")).text == "You said: and again"

    def let_time_pass(self, stage: Stage) -> None:
        """What has to happen before a session can be loaded."""

    @on_stage
    async def test_an_unknown_session_is_reported_as_unknown(
        self, stage: Stage, workspace: Path
    ) -> None:
        with pytest.raises(RemoteError) as refused:
            async with stage.talk(workspace, load="01a1e15f-64ee-7a70-a243-c8d3b71b8900"):
                pass
        error = refused.value
        assert error_kind(error.code, error.message, error.data) is ErrorKind.NOT_FOUND

    @pytest.mark.parametrize("whom", ["all of it", "the launcher"])
    @aio
    async def test_a_kill_in_the_middle_of_a_turn_is_a_crash_and_leaves_nothing(
        self, whom: str, home: Path, workspace: Path
    ) -> None:
        async with FakeModel() as model, opened(self.agent, home, workspace, model) as peer:
            async with peer.session() as talk, talk.prompt("SLOW") as turn:
                async for event in turn:
                    if isinstance(event, happened.MessageDelta):
                        running = set(find_owned(owner())) - kept_processes()
                        if whom == "the launcher":
                            running &= own_children()
                        for pid in running:
                            # A helper process of the agent may have just ended by itself.
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(pid, signal.SIGKILL)
            assert turn.result.outcome is Outcome.CRASHED
            assert isinstance(turn.result.error, ProcessExited)
            assert turn.result.error.signal == signal.SIGKILL
            assert turn.result.error.may_have_run
            assert turn.result.text.startswith("slow-1")
            assert set(find_owned(owner())) <= kept_processes()

    # -- in the end

    @on_stage
    async def test_nothing_that_it_said_is_unknown(self, stage: Stage) -> None:
        unknown = {
            (event.native, event.reason)
            for event in stage.seen
            if isinstance(event, happened.Unknown) and event.native not in self.vendor_methods
        }
        # Not every agent can be told that a session is over, and some go on talking about it.
        assert unknown <= {("", "session/update: no such session is open here")}
        assert [e.seq for e in stage.seen] == sorted(e.seq for e in stage.seen)
        assert not any(isinstance(e, happened.ConnectionOver) for e in stage.seen)


def _told(capabilities: Capabilities) -> dict[str, bool]:
    """Those abilities in which agents differ."""
    names = ("load", "resume", "list", "fork", "close", "delete", "logout", "image", "audio")
    return {name: getattr(capabilities, name) for name in names}


def _spoken(events: list[happened.Event]) -> list[str]:
    return [
        event.text
        for event in events
        if isinstance(event, happened.MessageDelta) and event.role is Role.AGENT
    ]


async def _view(talk: Conversation, prompt: str) -> tuple[View, Result]:
    async with talk.prompt(prompt) as turn:
        view = fold([event async for event in turn])
    return view, turn.result
