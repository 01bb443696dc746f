"""What a keyed agent asks of its client: the document's requests, answered in its shapes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dragoman.client import file_guard
from dragoman.client.conversation import Conversation
from dragoman.client.legacy import DocumentOptions
from dragoman.client.permissions import Answer, Permit, Question, approve_all, deny_all
from dragoman.client.services.terminals import ExitStatus, Terminals
from dragoman.dialects.legacy.keyed import shapes
from dragoman.events import model
from dragoman.events.words import Outcome
from dragoman.rpc.tasks import TaskOwner
from tests.aio import aio
from tests.unit.client.clock import LoopClock
from tests.unit.client.legacy.far_end import QUICK, SILENCE, HostAgent, examples, meet
from tests.unit.rpc.other_side import until

KEYED = examples("keyed")


class Asking:
    """A session whose turn runs, and the agent that asks in it."""

    def __init__(self, agent: HostAgent, events: list[model.Event]) -> None:
        self.agent = agent
        self.events = events
        self._next = 100

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """A request from the agent, and what it is answered with."""
        self._next += 1
        id = self._next
        body = {"sessionId": "ses_1", **params}
        self.agent.say({"jsonrpc": "2.0", "id": id, "method": method, "params": body})
        await until(lambda: self._answer(id) is not None)
        return self._answer(id)

    def _answer(self, id: int) -> Any:
        return next((m for m in self.agent.heard if "method" not in m and m.get("id") == id), None)


@asynccontextmanager
async def asking(
    workspace: Path, permit: Permit = approve_all, **options: Any
) -> AsyncIterator[tuple[Asking, Conversation, model.TurnEnded | None]]:
    chosen = DocumentOptions(permit=permit, budgets=QUICK, **options)
    replies = {"session/prompt": SILENCE}
    async with meet("keyed", replies, options=chosen, workspace=str(workspace)) as (peer, agent):
        events: list[model.Event] = []
        peer.on_event = events.append
        async with peer.session() as session, session.prompt("x") as turn:
            yield Asking(agent, events), session, None
            prompt = next(m for m in agent.heard if m.get("method") == "session/prompt")
            agent.answer(prompt, {"stopReason": "end_turn"})
            await turn.wait()


def test_a_permission_is_answered_in_the_documents_words(tmp_path: Path) -> None:
    decisions: dict[Answer, Any] = {
        Answer.ALLOW_ONCE: {"decision": "once"},
        Answer.ALLOW_ALWAYS: {"decision": "always"},
        Answer.REJECT_ONCE: {"decision": "reject"},
        Answer.REJECT_ALWAYS: {"decision": "reject"},
        Answer.CANCEL: {"decision": "reject", "cancelled": True},
    }
    asked: list[Question] = []

    def deciding(answer: Answer) -> Callable[[Question], Answer]:
        def permit(question: Question) -> Answer:
            asked.append(question)
            return answer

        return permit

    @aio
    async def run() -> None:
        for answer, decision in decisions.items():
            async with asking(tmp_path, deciding(answer)) as (far, _, _):
                body = KEYED["permission"]
                told = await far.ask("session/request_permission", body)
                assert told["result"] == decision
                answered = [e for e in far.events if isinstance(e, model.PermissionAnswered)]
                assert [(e.request_id, e.allowed) for e in answered] == [("per_1", answer.allows)]

    run()
    assert {(q.title, q.kind, q.tool_call_id, q.request_id) for q in asked} == {
        ("Edit c.py", "edit", "call_1", "per_1")
    }


def test_a_permission_id_that_comes_again_is_another_request(tmp_path: Path) -> None:
    @aio
    async def run() -> None:
        async with asking(tmp_path) as (far, _, _):
            for _ in range(2):
                await far.ask("session/request_permission", KEYED["permission"])
            told = [e.request_id for e in far.events if isinstance(e, model.PermissionAsked)]
            settled = [e.request_id for e in far.events if isinstance(e, model.PermissionAnswered)]
            assert told == settled == ["per_1", "per_1#2"]

    run()


@aio
async def test_a_refusal_that_ends_a_turn_is_its_outcome() -> None:
    replies = {"session/prompt": SILENCE}
    async with meet("keyed", replies) as (peer, agent), peer.session() as session:
        async with session.prompt("x") as turn:
            far = Asking(agent, [])
            await far.ask("session/request_permission", KEYED["permission"])
            prompt = next(m for m in agent.heard if m.get("method") == "session/prompt")
            agent.answer(prompt, {"stopReason": "end_turn"})
            result = await turn.wait()
        assert result.outcome is Outcome.DENIED
        assert [denial.title for denial in result.denials] == ["Edit c.py"]


@aio
async def test_cancelling_answers_an_open_question_as_cancelled() -> None:
    never = asyncio.Event()

    async def permit(question: Question) -> Answer:
        await never.wait()
        return Answer.ALLOW_ONCE

    options = DocumentOptions(permit=permit, budgets=QUICK)
    async with meet("keyed", {"session/prompt": SILENCE}, options=options) as (peer, agent):
        async with peer.session() as session, session.prompt("x") as turn:
            far = Asking(agent, [])
            asked = asyncio.get_running_loop().create_task(
                far.ask("session/request_permission", KEYED["permission"])
            )
            await until(lambda: turn.ready)
            await until(lambda: bool(session.questions))  # type: ignore[attr-defined]
            turn.cancel()
            assert (await asked)["result"] == KEYED["reject"]
            again = await far.ask("session/request_permission", KEYED["permission"])
            assert again["result"] == KEYED["reject"]


@aio
async def test_nothing_is_allowed_after_a_cancel_that_was_not_heard() -> None:
    options = DocumentOptions(permit=approve_all, budgets=QUICK)
    async with meet("keyed", {"session/prompt": SILENCE}, options=options) as (peer, agent):
        async with peer.session() as session:
            async with session.prompt("x") as turn:
                turn.cancel()
                await turn.wait()
            far = Asking(agent, [])
            told = await far.ask("session/request_permission", KEYED["permission"])
            assert told["result"] == KEYED["reject"]


def test_files_are_read_and_written_in_the_workspace_only(tmp_path: Path) -> None:
    @aio
    async def run() -> None:
        (tmp_path / "c.py").write_text("one\ntwo\nthree\n")
        path = str(tmp_path / "c.py")
        async with asking(tmp_path) as (far, _, _):
            read = await far.ask("fs/read_text_file", {"path": path, "line": 2, "limit": 1})
            assert read["result"] == {"content": "two\n"}
            written = await far.ask("fs/write_text_file", {"path": path, "content": "new"})
            assert "result" in written and written["result"] is None
            missing = await far.ask("fs/read_text_file", {"path": str(tmp_path / "no")})
            assert missing["error"]["code"] == -32002
            outside = await far.ask("fs/read_text_file", {"path": "/etc/passwd"})
            assert outside["error"]["data"] == {"errorClass": "path_refused"}
            relative = await far.ask("fs/read_text_file", {"path": "c.py"})
            assert relative["error"]["code"] == -32602
            used = [e for e in far.events if isinstance(e, model.ServiceCalled)]
            assert {e.service for e in used} == {"fs"}
            # What is asked is told with its line when it comes; why it was refused, behind it.
            well, refused = (False, True), [(False, True), (True, False)]
            told = [(e.error is not None, e.raw is not None) for e in used]
            assert told == [well, well, *refused, *refused, *refused]
        assert (tmp_path / "c.py").read_text() == "new"

    run()


def test_a_terminal_has_flat_exit_fields_and_an_environment_that_is_a_map(tmp_path: Path) -> None:
    @aio
    async def run() -> None:
        code = "import os; print(os.environ['A'])"
        async with asking(tmp_path, terminals=True) as (far, _, _):
            made = await far.ask(
                "terminal/create",
                {
                    "command": sys.executable,
                    "args": ["-I", "-S", "-c", code],
                    "env": {"A": "hi"},
                    "outputBytesLimit": 1024,
                },
            )
            named = {"terminalId": made["result"]["terminalId"]}
            assert (await far.ask("terminal/wait_for_exit", named))["result"] == {"exitCode": 0}
            shown = await far.ask("terminal/output", named)
            assert shown["result"] == {"output": "hi\n", "exitCode": 0}
            assert (await far.ask("terminal/kill", named))["result"] is None
            assert (await far.ask("terminal/release", named))["result"] is None
            gone = await far.ask("terminal/output", named)
            assert gone["error"]["code"] == -32002
            nothing = await far.ask("terminal/create", {"command": "no-such-program-anywhere"})
            assert nothing["error"]["code"] == -32002

    run()


def test_a_terminal_that_still_runs_is_ended_with_its_session(tmp_path: Path) -> None:
    @aio
    async def run() -> None:
        async with asking(tmp_path, terminals=True) as (far, _, _):
            code = "import time; time.sleep(60)"
            made = await far.ask(
                "terminal/create", {"command": sys.executable, "args": ["-c", code]}
            )
            shown = await far.ask("terminal/output", made["result"])
            assert shown["result"] == {"output": ""}

    run()


def test_what_was_not_offered_is_not_a_method(tmp_path: Path) -> None:
    @aio
    async def run() -> None:
        async with asking(tmp_path, read_files=False, write_files=False) as (far, _, _):
            for method in ("fs/read_text_file", "fs/write_text_file", "terminal/create"):
                answer = await far.ask(method, {"path": "/x", "content": "", "command": "x"})
                assert answer["error"]["code"] == -32601

    run()


@pytest.mark.parametrize(
    ("params", "code"),
    [({"path": 7}, -32602), ({"sessionId": "ses_9", "path": "/x"}, -32002)],
)
def test_a_request_that_makes_no_sense_is_refused(
    tmp_path: Path, params: dict[str, Any], code: int
) -> None:
    @aio
    async def run() -> None:
        async with asking(tmp_path) as (far, _, _):
            answer = await far.ask("fs/read_text_file", params)
            assert answer["error"]["code"] == code

    run()


def test_a_guard_is_asked_before_a_file_or_a_command_is_served(tmp_path: Path) -> None:
    path = str(tmp_path / "a.txt")

    def guard(question: Question) -> Answer:
        return Answer.ALLOW_ONCE if question.kind == "read" else Answer.REJECT_ONCE

    @aio
    async def run() -> None:
        async with asking(tmp_path, guard=guard, terminals=True) as (far, _, _):
            (tmp_path / "a.txt").write_text("old")
            read = await far.ask(shapes.READ, {"path": path})
            assert read["result"]["content"] == "old"
            for told in (
                await far.ask(shapes.WRITE, {"path": path, "content": "new"}),
                await far.ask(shapes.TERMINAL_CREATE, {"command": "rm", "args": [path]}),
            ):
                assert told["error"]["data"] == {"errorClass": "not_permitted"}

    run()
    assert (tmp_path / "a.txt").read_text() == "old"


@aio
async def test_the_silence_of_an_agent_that_waits_for_a_command_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = LoopClock(monkeypatch)
    exited = asyncio.Event()
    waiting = asyncio.Event()

    async def wait(terminals: Terminals, terminal_id: str) -> ExitStatus:
        waiting.set()
        await exited.wait()
        return ExitStatus(0, None)

    monkeypatch.setattr(Terminals, "wait_for_exit", wait)
    limits = structs.replace(QUICK, first_event=0.02, silence=0.02)
    options = DocumentOptions(budgets=limits, terminals=True)
    replies = {"session/prompt": SILENCE}
    tasks = TaskOwner("test")
    async with meet("keyed", replies, options=options, workspace=str(tmp_path)) as (peer, agent):
        async with peer.session() as session, session.prompt("x") as turn:
            await until(lambda: agent.prompts == 1)
            prompt = agent.heard[-1]
            asking = Asking(agent, []).ask("terminal/wait_for_exit", {"terminalId": "t"})
            answered = tasks.start(asking, "ask")
            await waiting.wait()
            await clock.advance(0.2)
            assert not turn.cancelling
            exited.set()
            assert (await answered)["result"] == {"exitCode": 0}
            agent.answer(prompt, {"stopReason": "end_turn"})
            assert (await turn.wait()).error is None


@pytest.mark.parametrize("guarded", [False, True])
@aio
async def test_another_permit_also_decides_about_files(tmp_path: Path, guarded: bool) -> None:
    permit, guard = file_guard.guarded(approve_all, None, tmp_path)
    options = {"guard": guard} if guarded else {}
    async with asking(tmp_path, permit, **options) as (far, session, _):
        session.peer.answer_with(deny_all)  # type: ignore[attr-defined]
        written = {"path": str(tmp_path / "x"), "content": "x"}
        told = await far.ask("fs/write_text_file", written)
        assert ("error" in told) is guarded
        assert (tmp_path / "x").exists() is not guarded
        told = await far.ask("session/request_permission", KEYED["permission"])
        assert told["result"] == {"decision": "reject"}
