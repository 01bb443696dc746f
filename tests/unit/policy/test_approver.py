"""Answering the questions of a session, in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from dragoman.client import file_guard
from dragoman.client.permissions import SHOWN_SIZE, Answer, Chosen, Decision, Question, settled
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import ConnectionClosed, UsageError
from dragoman.events.parts import PermissionOption
from dragoman.events.words import PermissionKind
from dragoman.policy.approver import Approver, Ruling
from dragoman.policy.rules import Policy, Rule
from tests.aio import aio

OPTIONS = tuple(
    PermissionOption(f"id-{kind.value}", kind.value, kind)
    for kind in (
        PermissionKind.ALLOW_ALWAYS,
        PermissionKind.ALLOW_ONCE,
        PermissionKind.REJECT_ONCE,
        PermissionKind.REJECT_ALWAYS,
    )
)


def question(kind: str = "edit", **call: Any) -> Question:
    tool_call = msgspec.convert({"toolCallId": "1", "kind": kind, **call}, acp.ToolCallUpdate)
    return Question(
        session_id="s",
        tool_call_id="1",
        title=tool_call.title or "",
        kind=kind,
        options=OPTIONS,
        tool_call=tool_call,
    )


def edit(path: str) -> Question:
    return question(locations=[{"path": path}])


def run(line: str) -> Question:
    return question("execute", rawInput={"command": line})


@dataclass
class Caller:
    """Somebody who answers."""

    answer: Decision
    asked: list[str] = field(default_factory=list)

    def __call__(self, question: Question) -> Decision:
        self.asked.append(question.kind)
        return self.answer


def desk(policy: Policy, caller: Any = None, **more: Any) -> Approver:
    return Approver(policy, peer="someone", workspace="/nowhere", caller=caller, **more)


def denials(at: Approver) -> list[Ruling]:
    return [each for each in at.rulings if not each.allowed]


def grants(at: Approver) -> list[Ruling]:
    """What was allowed by an answer, and not by the policy."""
    return [each for each in at.rulings if each.allowed and each.by != "policy"]


ASK = Policy(preset="ask")


@aio
async def test_what_the_policy_allows_is_not_asked() -> None:
    caller = Caller(Answer.REJECT_ONCE)
    at = desk(Policy(preset="approve-all"), caller)
    assert await at(edit("a")) is Answer.ALLOW_ONCE
    assert caller.asked == [] and denials(at) == [] and grants(at) == []
    assert [ruling.by for ruling in at.rulings] == ["policy"]


@aio
@pytest.mark.parametrize("preset", ["deny-all", "approve-all"])
async def test_what_a_rule_denies_is_not_asked(preset: Any) -> None:
    caller = Caller(Answer.ALLOW_ALWAYS)
    at = desk(Policy(preset=preset, rules=(Rule(action="deny"),)), caller)
    assert await at(edit("a")) is Answer.REJECT_ONCE
    assert caller.asked == []
    assert denials(at)[0].why == "it matches everything"


@aio
async def test_the_caller_comes_before_the_refusal_of_the_default() -> None:
    caller = Caller(Answer.ALLOW_ONCE)
    at = desk(Policy(), caller)
    assert await at(edit("a")) is Answer.ALLOW_ONCE
    assert await at(question("read", locations=[{"path": "a"}])) is Answer.ALLOW_ONCE
    assert caller.asked == ["edit"]
    assert [ruling.by for ruling in grants(at)] == ["caller"]


@aio
async def test_if_the_user_cannot_be_asked_it_is_refused_by_an_option_that_rejects() -> None:
    for policy in (ASK, Policy(), Policy(rules=(Rule(action="escalate"),))):
        at = desk(policy)
        answer = await at(edit("a"))
        assert settled(OPTIONS, answer)[0] == "id-reject_once"
        assert len(denials(at)) == 1
    assert "no one to ask" in denials(at)[0].why


@aio
async def test_always_is_kept_here_and_the_agent_gets_once() -> None:
    always = Chosen("id-allow_always", Answer.ALLOW_ALWAYS)
    for said in (Answer.ALLOW_ALWAYS, always):
        caller = Caller(said)
        at = desk(ASK, caller)
        assert await at(edit("/nowhere/a")) is Answer.ALLOW_ONCE
        assert await at(edit("/nowhere/x/../a")) is Answer.ALLOW_ONCE
        assert caller.asked == ["edit"]
        assert [ruling.by for ruling in grants(at)] == ["caller", "grant"]


@aio
async def test_always_is_for_the_same_thing_only() -> None:
    caller = Caller(Answer.ALLOW_ALWAYS)
    at = desk(ASK, caller)
    for asked in (
        *(edit("a"), edit("b"), question("delete", locations=[{"path": "a"}])),
        *(run("git status"), run("git status; rm x"), run("git push")),
        *(question("other", title="x", rawInput={"a": 1}), question("other", title="x")),
    ):
        await at(asked)
    assert len(caller.asked) == 8


@aio
async def test_always_for_what_cannot_be_said_counts_once() -> None:
    caller = Caller(Answer.ALLOW_ALWAYS)
    at = desk(ASK, caller)
    for asked in (question("execute", title="x"), edit("/proc/self/cwd/a")):
        await at(asked)
        await at(asked)
    assert len(caller.asked) == 4


@aio
async def test_never_is_kept_as_well() -> None:
    caller = Caller(Answer.REJECT_ALWAYS)
    at = desk(ASK, caller)
    assert await at(edit("a")) is Answer.REJECT_ONCE
    caller.answer = Answer.ALLOW_ONCE
    assert await at(edit("a")) is Answer.REJECT_ONCE
    assert [ruling.by for ruling in denials(at)] == ["caller", "grant"]


@aio
async def test_what_is_escalated_is_asked_every_time() -> None:
    caller = Caller(Answer.ALLOW_ALWAYS)
    at = desk(Policy(rules=(Rule(action="escalate", kind="edit"),)), caller)
    assert await at(edit("a")) is Answer.ALLOW_ONCE
    assert await at(edit("a")) is Answer.ALLOW_ONCE
    assert caller.asked == ["edit", "edit"]


@aio
async def test_a_choice_that_counts_once_is_passed_on_as_it_is() -> None:
    chosen = Chosen("id-allow_once", Answer.ALLOW_ONCE)
    assert await desk(ASK, Caller(chosen))(edit("a")) is chosen
    assert await desk(ASK, Caller(Answer.CANCEL))(edit("a")) is Answer.CANCEL


@aio
async def test_a_caller_that_has_gone_or_is_silent_refuses() -> None:
    async def gone(question: Question) -> Decision:
        raise ConnectionClosed("gone")

    async def silent(question: Question) -> Decision:
        await asyncio.Event().wait()
        return Answer.ALLOW_ONCE

    assert await desk(ASK, gone)(edit("a")) is Answer.REJECT_ONCE
    assert await desk(ASK, silent, answer_timeout=0.01)(edit("a")) is Answer.REJECT_ONCE


@aio
async def test_a_time_limit_of_the_caller_itself_is_its_error_and_no_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def unreachable(question: Question) -> Decision:
        raise TimeoutError("the chat server did not answer")

    with pytest.raises(TimeoutError, match="the chat server"):
        await desk(ASK, unreachable, answer_timeout=3600.0)(edit("a"))
    assert "no answer to" not in caplog.text


@aio
async def test_a_caller_may_take_its_time() -> None:
    async def later(question: Question) -> Decision:
        await asyncio.sleep(0)
        return Answer.ALLOW_ONCE

    assert await desk(ASK, later)(edit("a")) is Answer.ALLOW_ONCE


@aio
async def test_a_parent_that_may_not_cannot_be_overruled_by_the_caller() -> None:
    child = Policy(preset="ask", ceilings=(Policy(),))
    at = desk(child, Caller(Answer.ALLOW_ALWAYS))
    assert await at(edit("a")) is Answer.REJECT_ONCE
    assert denials(at)[0].verdict.by == "parent"


@aio
async def test_where_only_rules_ask_the_preset_refuses_by_itself() -> None:
    caller = Caller(Answer.ALLOW_ONCE)
    policy = Policy(rules=(Rule(action="ask", kind="delete"),))
    at = desk(policy, caller, ask_before_preset=False)
    assert await at(edit("a")) is Answer.REJECT_ONCE
    assert await at(question("delete", locations=[{"path": "a"}])) is Answer.ALLOW_ONCE
    assert caller.asked == ["delete"]


@aio
async def test_a_file_that_was_allowed_to_be_edited_may_be_written() -> None:
    at = desk(ASK, Caller(Answer.ALLOW_ONCE))
    assert not at.guard_alone(writing("/nowhere/a")).allows
    await at(edit("/nowhere/a"))
    for _ in range(2):
        assert at.guard_alone(writing("/nowhere/x/../a")).allows
    assert not at.guard_alone(writing("/nowhere/b")).allows
    assert [ruling.act.paths for ruling in denials(at)] == [("/nowhere/a",), ("/nowhere/b",)]


@aio
async def test_a_record_keeps_long_texts_shortened_and_judges_the_whole_ones() -> None:
    policy = Policy(rules=(Rule(action="allow", commands=("git log *",)),))
    at = desk(policy)
    line = "git log " + "x" * 5000
    assert await at(run(line)) is Answer.ALLOW_ONCE
    assert await at(run(line + " && rm y")) is Answer.REJECT_ONCE
    first, second = at.rulings
    assert first.act.line == second.act.line == line[:SHOWN_SIZE]
    assert await at(question("execute", title="x" * 5000)) is Answer.REJECT_ONCE
    assert len(at.rulings[-1].act.title) == SHOWN_SIZE


def test_a_file_without_a_permission_request_is_written_as_the_policy_says() -> None:
    policy = Policy(preset="approve-all", rules=(Rule(action="deny", paths=(".env",)),))
    assert desk(policy).guard_alone(writing("src/a")).allows
    assert not desk(policy).guard_alone(writing("src/../.env")).allows
    assert not desk(Policy()).guard_alone(writing("src/a")).allows


def writing(path: str) -> Question:
    return file_guard.writing("s", path)


def running(command: str, *args: str, cwd: str | None = None, env: Any = ()) -> Question:
    return file_guard.running("s", command, args, cwd=cwd, env=env)


@aio
async def test_what_is_done_for_the_agent_is_judged_like_what_it_asks() -> None:
    policy = Policy(
        preset="approve-all",
        rules=(Rule(action="deny", paths=(".env",), kind=("edit", "read")),),
    )
    at = desk(policy)
    assert (await at.guard(writing("/nowhere/a"))).allows
    assert not (await at.guard(writing("/nowhere/x/../.env"))).allows
    assert not at.guard_alone(file_guard.reading("s", "/nowhere/.env")).allows
    assert [ruling.act.kind for ruling in denials(at)] == ["edit", "read"]
    commands = Policy(rules=(Rule(action="allow", commands=("git status",)),))
    assert desk(commands).guard_alone(running("git", "status")).allows
    assert desk(commands).guard_alone(running("git status")).allows
    assert not desk(commands).guard_alone(running("git status; rm x")).allows
    assert not desk(commands).guard_alone(running("git", "status", env={"A": "b"})).allows


@aio
@pytest.mark.parametrize(("answer", "times"), [(Answer.ALLOW_ONCE, 3), (Answer.ALLOW_ALWAYS, 1)])
async def test_a_file_is_written_without_a_question_only_after_an_answer_for_always(
    answer: Answer, times: int
) -> None:
    caller = Caller(answer)
    at = desk(ASK, caller)
    for _ in range(3):
        assert (await at.guard(writing("/nowhere/a"))).allows
    assert caller.asked == ["edit"] * times
    assert not at.guard_alone(writing("/nowhere/b")).allows


@aio
async def test_protected_files_are_asked_about_also_where_everything_is_approved() -> None:
    caller = Caller(Answer.ALLOW_ALWAYS)
    at = desk(Policy(preset="approve-all"), caller)
    for path in (".git/hooks/pre-commit", ".git/config"):
        for _ in range(2):
            assert (await at.guard(writing(f"/nowhere/{path}"))).allows
    assert caller.asked == ["edit"] * 4, "each time, whatever was answered"
    assert (await at.guard(writing("/nowhere/a"))).allows and len(caller.asked) == 4
    alone = desk(Policy(preset="approve-all"))
    assert not alone.guard_alone(writing("/nowhere/.git/config")).allows
    assert not alone.alone(edit("/nowhere/.git/config")).allows
    assert "never written without a question" in denials(alone)[0].why


@aio
@pytest.mark.parametrize("preset", ["ask", "approve-reads", "approve-all"])
async def test_one_permission_is_for_one_writing_of_a_protected_file(preset: Any) -> None:
    caller = Caller(Answer.ALLOW_ONCE)
    at = desk(Policy(preset=preset), caller)
    await at(edit("/nowhere/.git/config"))
    assert (await at.guard(writing("/nowhere/.git/config"))).allows
    assert caller.asked == ["edit"]
    assert (await at.guard(writing("/nowhere/.git/config"))).allows
    assert caller.asked == ["edit"] * 2
    assert not at.guard_alone(writing("/nowhere/.git/config")).allows


def test_only_a_policy_that_approves_everything_is_unrestricted() -> None:
    assert desk(Policy(preset="approve-all")).unrestricted
    assert not desk(Policy(preset="ask")).unrestricted
    assert not desk(Policy(preset="approve-all", rules=(Rule(action="ask"),))).unrestricted


@aio
async def test_what_is_to_be_asked_every_time_is_asked_for_every_writing() -> None:
    caller = Caller(Answer.ALLOW_ALWAYS)
    at = desk(Policy(rules=(Rule(action="escalate", kind="edit"),)), caller)
    await at(edit("/nowhere/a"))
    assert (await at.guard(writing("/nowhere/a"))).allows
    assert caller.asked == ["edit"]
    for _ in range(2):
        assert (await at.guard(writing("/nowhere/a"))).allows
    assert caller.asked == ["edit"] * 3


@aio
async def test_a_command_that_was_allowed_once_runs_once_in_its_folder() -> None:
    at = desk(ASK, Caller(Answer.ALLOW_ONCE))
    await at(run("make test"))
    assert not at.guard_alone(running("make test", cwd="/elsewhere")).allows
    assert not at.guard_alone(running("make test", env={"A": "b"})).allows
    assert not at.guard_alone(running("make", "test; x")).allows
    assert at.guard_alone(running("bash", "-c", "make test")).allows
    assert not at.guard_alone(running("bash", "-c", "make test")).allows


@aio
async def test_what_a_rule_denies_is_denied_although_it_was_allowed_before() -> None:
    at = desk(Policy(preset="ask", rules=(Rule(action="deny", paths=(".env",)),)))
    at.was_allowed(edit("/nowhere/.env"))
    at.was_allowed(edit("/nowhere/a"))
    assert not at.guard_alone(writing("/nowhere/.env")).allows
    assert not (await at.guard(writing("/nowhere/.env"))).allows
    assert at.guard_alone(writing("/nowhere/a")).allows


def test_alone_what_would_be_asked_is_refused_and_the_reason_kept() -> None:
    at = desk(ASK, Caller(Answer.ALLOW_ONCE))
    assert at.alone(edit("/nowhere/a")) is Answer.REJECT_ONCE
    assert at.alone(question("read", locations=[{"path": "a"}])) is Answer.ALLOW_ONCE
    assert "no one to ask" in denials(at)[0].why


def test_a_title_is_a_command_where_the_peer_is_known_for_that() -> None:
    policy = Policy(rules=(Rule(action="allow", commands=("touch *",)),))
    asked = question("execute", title="touch x")
    assert desk(policy, titled=True).alone(asked).allows
    assert not desk(policy).alone(asked).allows


@aio
async def test_a_relative_path_in_another_directory_allows_no_file_of_the_workspace() -> None:
    there = question("edit", rawInput={"path": "a", "cwd": "/elsewhere", "content": "x"})
    here = question("edit", rawInput={"path": "a", "content": "x"})
    caller = Caller(Answer.ALLOW_ALWAYS)
    at = desk(ASK, caller)
    await at(there)
    assert not at.guard_alone(writing("/nowhere/a")).allows
    await at(there)
    assert len(caller.asked) == 1
    await at(here)
    assert len(caller.asked) == 2
    assert at.guard_alone(writing("/nowhere/a")).allows


@aio
async def test_a_refusal_says_why_the_caller_gave_no_answer() -> None:
    async def never(question: Question) -> Decision:
        await asyncio.Event().wait()
        raise AssertionError

    async def gone(question: Question) -> Decision:
        raise ConnectionClosed()

    for policy in (ASK, Policy()):
        slow = desk(policy, never, answer_timeout=0.01)
        assert await slow(edit("a")) is Answer.REJECT_ONCE
        assert denials(slow)[0].why.startswith("there was no answer within 0.01 s; ")
        left = desk(policy, gone)
        assert await left(edit("a")) is Answer.REJECT_ONCE
        assert denials(left)[0].why.startswith("the caller did not answer: ")


@aio
@pytest.mark.parametrize("value", [True, None, "allow"])
async def test_an_answer_that_is_none_is_reported_and_refused(value: Any) -> None:
    async def inbox(question: Question, caller: Any, settle: object) -> Any:
        return caller(question)

    for more in ({}, {"inbox": inbox}):
        at = desk(ASK, lambda question: value, **more)
        failures: list[UsageError] = []
        assert await file_guard.decided(at, edit("a"), failures.append) is Answer.REJECT_ONCE
        assert f"returned {value!r}: it must return an Answer" in str(failures[0])
        assert [ruling.allowed for ruling in at.rulings] == [False]


@aio
async def test_an_answer_from_elsewhere_ends_the_question_here() -> None:
    asked = asyncio.Event()

    async def never(question: Question) -> Decision:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    approver = Approver(Policy(preset="ask"), "peer", "/work", caller=never)
    for answer in (Answer.ALLOW_ONCE, Answer.REJECT_ONCE):
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            deciding = group.create_task(_decided(approver, run("make")))
            await asked.wait()
            asked.clear()
            approver.answered_elsewhere("other", Answer.ALLOW_ONCE)
            approver.answered_elsewhere("1", answer)
            approver.answered_elsewhere("1", Answer.ALLOW_ALWAYS)
        assert deciding.result() is answer
    assert [ruling.allowed for ruling in approver.rulings] == [True, False]
    # Nothing waits any more.
    approver.answered_elsewhere("1", Answer.ALLOW_ONCE)


async def _decided(approver: Approver, question: Question) -> Decision:
    return await approver(question)


def test_a_question_is_open_where_neither_the_policy_nor_an_earlier_answer_decides() -> None:
    ask, reads = Policy(preset="ask"), Policy(preset="approve-reads")
    assert Approver(ask, "peer", "/work").leaves_open(run("make"))
    assert not Approver(ask, "peer", "/work").leaves_open(
        question("read", locations=[{"path": "a"}])
    )
    assert Approver(reads, "peer", "/work").leaves_open(run("make"))
    quiet = Approver(reads, "peer", "/work", ask_before_preset=False)
    assert not quiet.leaves_open(run("make"))
    assert not Approver(Policy(preset="deny-all"), "peer", "/work").leaves_open(run("make"))
    assert not Approver(Policy(preset="approve-all"), "peer", "/work").leaves_open(run("make"))
