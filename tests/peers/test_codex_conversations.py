"""Conversations with the real Codex, whose model is the fake one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.client.codex import CodexConversation
from dragoman.client.permissions import Answer, Question, deny_all
from dragoman.client.results import explain
from dragoman.dialects.codex import shapes
from dragoman.errors import (
    ProcessExited,
    RemoteError,
    TurnInProgress,
    UsageError,
)
from dragoman.events import model as happened
from dragoman.events.fold import fold
from dragoman.events.parts import Image, Text
from dragoman.events.words import (
    ChangeStage,
    ErrorKind,
    FileOp,
    Outcome,
    PlanStatus,
    Role,
    ToolKind,
    ToolStatus,
    TurnPhase,
)
from dragoman.transports.process.environment import owner
from dragoman.transports.process.strays import find_owned
from scripts.peers import install
from tests.aio import aio
from tests.peers.codex import OPTIONS, WITH_KEY, WITH_LOGIN, codex, soon, with_budgets

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


async def events_of(conversation: CodexConversation, prompt: str) -> list[happened.Event]:
    async with conversation.prompt(prompt) as turn:
        return [event async for event in turn]


def thread_of(conversation: object) -> CodexConversation:
    assert isinstance(conversation, CodexConversation)
    return conversation


@aio
async def test_a_text_comes_in_pieces_and_the_turn_tells_what_it_used(
    home: Path, workspace: Path
) -> None:
    async with codex(home, workspace) as (peer, model), peer.session() as conversation:
        assert peer.info.version == install.pins()["codex"].version
        async with conversation.prompt("CHUNKS:5") as turn:
            events = [event async for event in turn]
        deltas = [e.text for e in events if isinstance(e, happened.MessageDelta)]
        assert deltas == [f"chunk-{number} " for number in range(1, 6)]
        assert turn.result.ok
        assert turn.result.text == "".join(deltas)
        assert turn.result.usage is not None
        assert (turn.result.usage.input_tokens, turn.result.usage.output_tokens) == (1, 5)
        assert sum(isinstance(event, happened.TurnStarted) for event in events) == 1
        assert isinstance(events[-1], happened.TurnEnded)
        view = fold(events)
        assert [(m.role, m.text) for m in view.messages] == [
            (Role.USER, "CHUNKS:5"),
            (Role.AGENT, "".join(deltas)),
        ]
        assert not view.running
        assert len(model.questions) == 1


@aio
async def test_nothing_that_a_usual_turn_says_is_unknown(home: Path, workspace: Path) -> None:
    seen: list[happened.Event] = []
    async with codex(home, workspace) as (peer, _):
        peer.on_event = seen.append
        async with peer.session() as conversation:
            await conversation.ask("THINK\nSHELL:touch made\nWRITE:a.txt:text")
    assert [e.native for e in seen if isinstance(e, happened.Unknown)] == []
    assert [e.seq for e in seen] == sorted(e.seq for e in seen)


@aio
async def test_thoughts_are_kept_apart_from_the_answer(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, _), peer.session() as conversation:
        events = await events_of(thread_of(conversation), "THINK please")
        thoughts = [
            e.text
            for e in events
            if isinstance(e, happened.MessageDelta) and e.role is Role.THOUGHT
        ]
        view = fold(events)
        assert "".join(thoughts) == "I think about this."
        assert [m.text for m in view.messages if m.role is Role.THOUGHT] == ["I think about this."]
        assert view.text == "You said: THINK please"


@aio
async def test_a_command_runs_once_it_is_allowed(home: Path, workspace: Path) -> None:
    asked: list[Question] = []

    async def permit(question: Question) -> Answer:
        asked.append(question)
        return Answer.ALLOW_ONCE

    options = structs.replace(OPTIONS, permit=permit)
    async with codex(home, workspace, options=options) as (peer, _), peer.session() as talk:
        events = await events_of(thread_of(talk), "SHELL:touch made.txt && echo done-it")
        view = fold(events)
        (tool,) = view.tools.values()
        assert "touch made.txt" in asked[0].title
        assert asked[0].kind == "execute"
        assert (tool.status, tool.exit_code, tool.kind) == (
            ToolStatus.COMPLETED,
            0,
            ToolKind.EXECUTE,
        )
        assert tool.output == "done-it\n"
        assert "done-it" in view.text
        assert (workspace / "made.txt").exists()
        assert view.waiting == set()
        phases = [e.phase for e in events if isinstance(e, happened.TurnState)]
        assert TurnPhase.WAITING in phases


@aio
async def test_a_command_that_is_refused_does_not_run_and_the_turn_goes_on(
    home: Path, workspace: Path
) -> None:
    options = structs.replace(OPTIONS, permit=deny_all)
    async with codex(home, workspace, options=options) as (peer, _), peer.session() as talk:
        async with talk.prompt("SHELL:touch made.txt") as turn:
            events = [event async for event in turn]
        (tool,) = fold(events).tools.values()
        assert tool.status is ToolStatus.DECLINED
        assert not (workspace / "made.txt").exists()
        assert [denial.kind for denial in turn.result.denials] == ["execute"]
        assert turn.result.text.startswith("The tool said: ")


@aio
async def test_a_command_without_a_decision_interrupts_the_turn(
    home: Path, workspace: Path
) -> None:
    options = structs.replace(OPTIONS, permit=lambda question: Answer.CANCEL)
    async with codex(home, workspace, options=options) as (peer, _), peer.session() as talk:
        result = await talk.ask("SHELL:touch made.txt")
        assert result.outcome is Outcome.CANCELLED
        assert not (workspace / "made.txt").exists()


@aio
async def test_a_command_that_only_reads_needs_no_permission_to_write(
    home: Path, workspace: Path
) -> None:
    (workspace / "there.txt").write_text("read-me\n")

    def permit(question: Question) -> Answer:
        return Answer.ALLOW_ONCE if question.kind == "read" else Answer.REJECT_ONCE

    # Reading is let through without a question, and would be allowed if there were one.
    options = structs.replace(OPTIONS, permit=permit)
    async with codex(home, workspace, options=options) as (peer, _), peer.session() as talk:
        events = await events_of(thread_of(talk), "SHELL:cat there.txt")
        (tool,) = fold(events).tools.values()
        assert (tool.kind, tool.status) == (ToolKind.READ, ToolStatus.COMPLETED)
        assert tool.output == "read-me\n"


@aio
async def test_a_change_of_a_file_names_the_file_and_shows_the_difference(
    home: Path, workspace: Path
) -> None:
    asked: list[Question] = []

    def permit(question: Question) -> Answer:
        asked.append(question)
        return Answer.ALLOW_ONCE

    options = structs.replace(OPTIONS, permit=permit)
    async with codex(home, workspace, options=options) as (peer, _), peer.session() as talk:
        events = await events_of(thread_of(talk), "WRITE:made.txt:some content")
        path = workspace / "made.txt"
        assert path.read_text() == "some content\n"
        assert asked[0].title == f"Edit {path}"
        stages = [e.stage for e in events if isinstance(e, happened.FilesChanged) and e.tool_id]
        assert stages == [ChangeStage.PROPOSED, ChangeStage.APPLIED]
        view = fold(events)
        (tool,) = view.tools.values()
        assert [(c.path, c.op) for c in tool.changes] == [(str(path), FileOp.ADD)]
        assert view.changes[0].diff is not None
        assert "+some content" in view.changes[0].diff


@aio
async def test_a_change_of_a_file_that_is_refused_leaves_the_disk_alone(
    home: Path, workspace: Path
) -> None:
    options = structs.replace(OPTIONS, permit=deny_all)
    async with codex(home, workspace, options=options) as (peer, _), peer.session() as talk:
        events = await events_of(thread_of(talk), "WRITE:made.txt:some content")
        assert not (workspace / "made.txt").exists()
        stages = [e.stage for e in events if isinstance(e, happened.FilesChanged) and e.tool_id]
        assert stages[-1] is ChangeStage.DECLINED


@aio
async def test_a_question_to_the_user_is_answered(home: Path, workspace: Path) -> None:
    asked: list[shapes.UserInputRequest] = []

    async def answer(request: shapes.UserInputRequest) -> dict[str, Sequence[str]]:
        asked.append(request)
        return {"colour": ["blue"]}

    question = (
        '{"questions":[{"id":"colour","header":"Colour","question":"Which colour?",'
        '"options":[{"label":"blue","description":"b"},{"label":"red","description":"r"}]}]}'
    )
    options = structs.replace(OPTIONS, answer_questions=answer)
    extra = WITH_KEY + "\n[features]\ndefault_mode_request_user_input = true\n"
    async with codex(home, workspace, options=options, extra=extra) as (peer, _):
        async with peer.session() as talk:
            events = await events_of(thread_of(talk), f"TOOL:request_user_input:{question}")
    assert asked[0].questions[0]["question"] == "Which colour?"
    told = [type(e) for e in events if isinstance(e, happened.InputAsked | happened.InputAnswered)]
    assert told[:2] == [happened.InputAsked, happened.InputAnswered]
    view = fold(events)
    assert "blue" in view.text
    assert view.waiting == set()


@aio
async def test_an_image_reaches_the_model(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, model), peer.session() as talk:
        result = await talk.ask([Text("look"), Image(PIXEL, "image/png")])
        assert result.ok
        assert PIXEL in str(model.requests[0].body["input"])


@aio
async def test_steering_adds_to_the_turn_that_runs(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, model), peer.session() as talk:
        thread = thread_of(talk)
        async with thread.prompt("HOLD it") as turn:
            async for event in turn:
                if isinstance(event, happened.MessageDelta):
                    break
            await thread.steer("and this")
            model.release()
            events = [event async for event in turn]
        users = [
            e.blocks
            for e in events
            if isinstance(e, happened.MessageSet) and e.role is Role.USER and e.final
        ]
        assert users == [(Text("and this"),)]
        assert turn.result.ok
        assert turn.result.text.endswith("You said: and this")
        assert len(model.questions) == 2


@aio
async def test_there_is_nothing_to_steer_when_no_turn_runs(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, _), peer.session() as talk:
        with pytest.raises(UsageError, match="no running turn"):
            await thread_of(talk).steer("now")


@aio
async def test_a_second_prompt_is_refused_here_while_a_turn_runs(
    home: Path, workspace: Path
) -> None:
    async with codex(home, workspace) as (peer, model), peer.session() as talk:
        async with talk.prompt("HOLD it") as turn:
            with pytest.raises(TurnInProgress):
                await talk.ask("me too")
            model.release()
            result = await turn.wait()
        assert result.text == "You said: HOLD it"
        assert (await talk.ask("now me")).text == "You said: now me"


@aio
async def test_an_interrupt_ends_a_turn_and_the_thread_goes_on(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, _), peer.session() as talk:
        async with talk.prompt("SLOW") as turn:
            async for event in turn:
                if isinstance(event, happened.MessageDelta):
                    turn.cancel()
            assert turn.result.outcome is Outcome.CANCELLED
            assert turn.result.text.startswith("slow-1 ")
        # A second interrupt of an ended turn is never answered; here it is not even sent.
        turn.cancel()
        assert (await talk.ask("again")).text == "You said: again"


@aio
async def test_leaving_a_turn_at_once_interrupts_it(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, _), peer.session() as talk:
        async with talk.prompt("SLOW"):
            pass
        assert (await talk.ask("again")).text == "You said: again"


@aio
async def test_an_interrupt_withdraws_a_question_that_is_open(home: Path, workspace: Path) -> None:
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def permit(question: Question) -> Answer:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        raise AssertionError

    options = structs.replace(OPTIONS, permit=permit)
    async with codex(home, workspace, options=options) as (peer, _), peer.session() as talk:
        async with talk.prompt("SHELL:touch made.txt") as turn:
            await soon(asked)
            turn.cancel()
            result = await turn.wait()
        await soon(withdrawn)
        assert result.outcome is Outcome.CANCELLED
        assert not (workspace / "made.txt").exists()
        assert (await talk.ask("again")).text == "You said: again"


@aio
async def test_a_budget_for_silence_does_not_run_while_we_are_asked(
    home: Path, workspace: Path
) -> None:
    loop = asyncio.get_running_loop()

    async def permit(question: Question) -> Answer:
        answered: asyncio.Future[Answer] = loop.create_future()
        loop.call_later(2.0, answered.set_result, Answer.ALLOW_ONCE)
        return await answered

    options = structs.replace(with_budgets(silence=1.5), permit=permit)
    async with codex(home, workspace, options=options) as (peer, _), peer.session() as talk:
        assert (await talk.ask("SHELL:touch made.txt")).ok


@aio
async def test_a_thread_is_resumed_in_another_process_with_its_history(
    home: Path, workspace: Path
) -> None:
    async with codex(home, workspace) as (peer, _), peer.session() as talk:
        live = await events_of(thread_of(talk), "THINK first")
        first_id = talk.id
    async with codex(home, workspace) as (peer, model):
        assert [(s.id, s.title) async for s in peer.list_sessions(workspace)] == [
            (first_id, "THINK first")
        ]
        async with peer.session(load=first_id) as talk:
            view = fold(talk.replayed)
            assert all(event.replay for event in talk.replayed)
            said = [(m.role, m.text) for m in view.messages]
            assert said == [(m.role, m.text) for m in fold(live).messages]
            assert [turn.outcome for turn in view.turns] == [Outcome.OK]
            result = await talk.ask("second")
            assert result.text == "You said: second"
            assert result.usage is not None
            # The usage of this turn only, although the thread's total is told when it is resumed.
            assert result.usage.input_tokens == 1
        assert "THINK first" in str(model.requests[0].body)


@aio
async def test_a_thread_is_resumed_without_its_history(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, model):
        async with peer.session() as talk:
            await talk.ask("first")
        async with peer.session(resume=talk.id) as again:
            assert (again.id, list(again.replayed)) == (talk.id, [])
            assert (await again.ask("second")).ok
        assert "first" in str(model.requests[1].body)


@aio
async def test_a_fork_is_another_thread_with_the_same_past(home: Path, workspace: Path) -> None:
    seen: list[happened.Event] = []
    async with codex(home, workspace) as (peer, model), peer.session() as talk:
        await talk.ask("first")
        peer.on_event = seen.append
        async with peer.session(fork=talk.id) as other:
            assert other.id != talk.id
            assert (await other.ask("second")).ok
        assert "first" in str(model.requests[1].body)
        (opened,) = [e for e in seen if isinstance(e, happened.SessionOpened)]
        assert (opened.how, opened.forked_from) == ("fork", talk.id)


@aio
async def test_threads_are_listed_renamed_read_archived_and_deleted(
    home: Path, workspace: Path
) -> None:
    async with codex(home, workspace) as (peer, _):
        seen: list[happened.Event] = []
        async with peer.session() as talk:
            await talk.ask("hello")
            peer.on_event = seen.append
            await thread_of(talk).rename("A name")
            assert [s.title async for s in peer.list_sessions()] == ["A name"]
            assert any(
                isinstance(event, happened.SessionChanged) and event.title == "A name"
                for event in seen
            )
        view = fold(await peer.read_session(talk.id))
        assert [m.text for m in view.messages] == ["hello", "You said: hello"]
        await peer.rename_session(talk.id, "Another")
        await peer.archive_session(talk.id)
        assert [s async for s in peer.list_sessions()] == []
        await peer.unarchive_session(talk.id)
        assert [(s.id, s.title) async for s in peer.list_sessions()] == [(talk.id, "Another")]
        assert [s async for s in peer.list_sessions(home)] == []
        await peer.delete_session(talk.id)
        assert [s async for s in peer.list_sessions()] == []


@aio
async def test_an_unknown_thread_is_said_to_be_unknown(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, _):
        for unknown in ("01a1e15f-64ee-7a70-a243-c8d3b71b8900", "nonsense"):
            with pytest.raises(RemoteError) as refused:
                async with peer.session(load=unknown):
                    pass
            assert explain(refused.value)[1].kind is ErrorKind.NOT_FOUND


@aio
async def test_two_threads_at_once_do_not_mix(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, _):
        async with peer.session() as one, peer.session() as two:
            results = await asyncio.gather(one.ask("CHUNKS:20"), two.ask("to the other"))
            assert results[0].text.count("chunk") == 20
            assert results[1].text == "You said: to the other"


@aio
async def test_a_model_that_refuses_the_request_fails_the_turn_and_not_the_thread(
    home: Path, workspace: Path
) -> None:
    async with codex(home, workspace) as (peer, _), peer.session() as talk:
        result = await talk.ask("HTTP:400")
        assert result.outcome is Outcome.FAILED
        assert result.failure is not None
        assert "fake error 400" in result.failure.message
        assert (await talk.ask("again")).ok


@aio
async def test_a_model_that_is_broken_is_retried_and_then_fails_the_turn(
    home: Path, workspace: Path
) -> None:
    async with codex(home, workspace) as (peer, model), peer.session() as talk:
        async with talk.prompt("HTTP:500") as turn:
            events = [event async for event in turn]
        retries = [e for e in events if isinstance(e, happened.Noticed) and e.retrying]
        assert len(retries) == 1
        assert turn.result.outcome is Outcome.FAILED
        assert turn.result.failure is not None
        assert turn.result.failure.retryable
        assert len(model.questions) == 2


@aio
async def test_a_model_that_recovers_does_not_fail_the_turn(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, model), peer.session() as talk:
        result = await talk.ask("HTTP:500*1")
        assert result.ok
        assert len(model.questions) == 2


@aio
async def test_retries_without_end_are_bounded_by_a_budget(home: Path, workspace: Path) -> None:
    options = with_budgets(total=2.0)
    patient = WITH_KEY + "\nstream_idle_timeout_ms = 300000"
    seen: list[happened.Event] = []
    async with codex(home, workspace, options=options, extra=patient) as (peer, _):
        peer.on_event = seen.append
        async with peer.session() as talk:
            async with talk.prompt("HANG") as turn:
                events = [event async for event in turn]
            assert turn.result.outcome is Outcome.TIMED_OUT
            ends = [event for event in events if isinstance(event, happened.TurnEnded)]
            assert [end.outcome for end in ends] == [Outcome.TIMED_OUT]
            assert [e.outcome for e in seen if isinstance(e, happened.TurnEnded)] == [
                Outcome.TIMED_OUT
            ]
            assert (await talk.ask("again")).ok


@pytest.mark.parametrize(
    ("status", "outcome"), [(401, Outcome.AUTH_REQUIRED), (429, Outcome.QUOTA)]
)
@aio
async def test_what_the_provider_answers_decides_the_outcome(
    status: int, outcome: Outcome, home: Path, workspace: Path
) -> None:
    async with codex(home, workspace) as (peer, _), peer.session() as talk:
        assert (await talk.ask(f"HTTP:{status}")).outcome is outcome


@aio
async def test_without_a_login_a_turn_says_that_one_is_needed_and_does_not_retry(
    home: Path, workspace: Path
) -> None:
    async with codex(home, workspace, extra=WITH_LOGIN) as (peer, _), peer.session() as talk:
        account = await peer.client.account()
        assert (account.account, account.requires_openai_auth) == (None, True)
        result = await talk.ask("HTTP:401")
        assert result.outcome is Outcome.AUTH_REQUIRED
        assert result.error is not None
        assert "codex login" in str(result.error)


@aio
async def test_a_killed_codex_is_a_crash_and_leaves_nothing(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, _):
        async with peer.session() as talk:
            async with talk.prompt("SLOW") as turn:
                async for event in turn:
                    if isinstance(event, happened.MessageDelta):
                        for pid in find_owned(owner()):
                            os.kill(pid, signal.SIGKILL)
            assert turn.result.outcome is Outcome.CRASHED
            assert isinstance(turn.result.error, ProcessExited)
            assert turn.result.error.may_have_run
            assert turn.result.text.startswith("slow-1")
    assert find_owned(owner()) == []


@aio
async def test_closing_in_the_middle_of_a_turn_is_not_a_crash(home: Path, workspace: Path) -> None:
    async with codex(home, workspace) as (peer, _):
        async with peer.session() as talk, talk.prompt("SLOW") as turn:
            async for event in turn:
                if isinstance(event, happened.MessageDelta):
                    await peer.aclose()
            assert turn.result.outcome is Outcome.CANCELLED


@aio
async def test_the_sandbox_is_what_was_asked_for_and_can_be_changed(
    home: Path, workspace: Path
) -> None:
    async with codex(home, workspace) as (peer, _):
        async with peer.session(mode="read-only") as talk:
            thread = thread_of(talk)
            assert thread.mode == "read-only"
            await thread.set_mode("workspace-write")
            await thread.set_option("approval_policy", "never")
            assert (await thread.ask("SHELL:touch made.txt")).ok
            assert (workspace / "made.txt").exists()
            # The next turn begins with reading the settings back.
            await thread.set_mode("read-only")
            result = await thread.ask("SHELL:touch another.txt")
            assert result.ok
            assert not (workspace / "another.txt").exists()


@aio
async def test_settings_are_reported_unasked_where_experimental_parts_are_used(
    home: Path, workspace: Path
) -> None:
    options = structs.replace(OPTIONS, experimental=True)
    seen: list[happened.Event] = []
    async with codex(home, workspace, options=options) as (peer, _):
        peer.on_event = seen.append
        async with peer.session() as talk:
            await talk.set_mode("read-only")
            assert (await talk.ask("hello")).ok
    told = [
        e
        for e in seen
        if isinstance(e, happened.SettingsChanged) and e.native == "thread/settings/updated"
    ]
    assert [e.mode for e in told] == ["read-only"]


@aio
async def test_the_model_of_another_provider_is_that_providers_business(
    home: Path, workspace: Path
) -> None:
    async with codex(home, workspace) as (peer, model):
        assert len(await peer.client.models()) > 0
        async with peer.session(model="another-model") as talk:
            assert (await talk.ask("hello")).ok
            await talk.set_model("third-model")
            assert (await talk.ask("hello")).ok
        assert [asked.model for asked in model.questions] == ["another-model", "third-model"]


@aio
async def test_a_plan_is_reported_step_by_step(home: Path, workspace: Path) -> None:
    extra = WITH_KEY + "\n[tools.update_plan]\nenabled = true\n"
    async with codex(home, workspace, extra=extra) as (peer, _), peer.session() as talk:
        events = await events_of(thread_of(talk), "PLAN:look;change")
        view = fold(events)
        assert [(e.text, e.status) for e in view.plans["main"].entries] == [
            ("look", PlanStatus.RUNNING),
            ("change", PlanStatus.PENDING),
        ]
