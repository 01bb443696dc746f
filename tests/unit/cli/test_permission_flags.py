"""Who decides about permissions, and what a person at a terminal can answer."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, cast

import pytest

from dragoman.cli.command_loop import CommandLoop, Interrupted
from dragoman.cli.permission_flags import (
    ApprovalMode,
    TerminalApprover,
    choices_of,
    permissions_of,
    permit_of,
    policy_of,
)
from dragoman.client import file_guard
from dragoman.client.permissions import (
    Answer,
    Chosen,
    Permit,
    Question,
)
from dragoman.errors import UsageError
from dragoman.events.parts import PermissionOption
from dragoman.events.words import PermissionKind
from dragoman.policy import Policy as RulesPolicy
from dragoman.policy import PolicySettings, Rule
from tests.aio import aio

OPTIONS = (
    PermissionOption("o1", "Allow \x1b[2J", PermissionKind.ALLOW_ONCE),
    PermissionOption("o2", "Always", PermissionKind.ALLOW_ALWAYS),
    PermissionOption("o3", "Always here", PermissionKind.ALLOW_ALWAYS),
    PermissionOption("o4", "No", PermissionKind.REJECT_ONCE),
    PermissionOption("o5", "Whatever", PermissionKind.OTHER),
)


def question(
    kind: str = "edit", options: tuple[PermissionOption, ...] = OPTIONS, **told: Any
) -> Question:
    call = {"locations": [{"path": "a.txt"}], **told}
    return Question("s1", "c1", "Write it", kind, options, call)


class Typed:
    """A stage where these lines are typed; an error is raised in the place of a line."""

    def __init__(self, *lines: str | Exception | None) -> None:
        self.lines = list(lines)
        self.presses = 0
        self.shown: list[str] = []

    async def line(self, prompt: str = "", *, question: str = "") -> str | None:
        self.shown.append(question)
        await asyncio.sleep(0)
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line

    def press(self) -> None:
        self.presses += 1


def asking(*lines: str | Exception | None) -> tuple[TerminalApprover, Typed]:
    typed = Typed(*lines)
    return TerminalApprover(cast(CommandLoop, typed)), typed


def policy(*flags: str, interactive: bool = False, default: str = "ask") -> ApprovalMode:
    given = {name: name in flags for name in ("approve_all", "approve_reads", "deny_all")}
    return policy_of(**given, interactive=interactive, default=default)


def test_a_flag_says_it_else_the_configuration_else_a_person_or_reads_only() -> None:
    assert policy("deny_all", interactive=True, default="approve-all") is ApprovalMode.DENY_ALL
    assert policy(default="approve-all") is ApprovalMode.APPROVE_ALL
    assert policy(interactive=True) is ApprovalMode.ASK
    assert policy(interactive=False) is ApprovalMode.APPROVE_READS


def test_two_flags_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="--approve-all and --deny-all"):
        policy("approve_all", "deny_all")


READS: tuple[dict[str, Any], ...] = (
    {"rawInput": {"command": "touch x"}},
    {"rawInput": {"path": "a", "content": "x"}},
    {"content": [{"type": "diff", "path": "a", "newText": "x"}]},
    {"rawInput": {"payload": "x"}},
    {"locations": []},
)
"""What agents may call a read, and is none."""


@pytest.mark.parametrize("told", READS)
@pytest.mark.parametrize(
    "flag", [ApprovalMode.APPROVE_READS, ApprovalMode.ASK, ApprovalMode.DENY_ALL]
)
@aio
async def test_without_rules_a_read_is_judged_by_what_would_be_done(
    told: dict[str, Any], flag: ApprovalMode
) -> None:
    permit = permit_of(flag, cast(CommandLoop, Typed()), workspace="/nowhere")
    assert not (await permit(question("read", **told))).allows
    allowed = (await permit(question("read"))).allows
    assert allowed is (flag is not ApprovalMode.DENY_ALL)


@pytest.mark.parametrize(
    ("flag", "line", "written"),
    [
        (ApprovalMode.APPROVE_ALL, None, True),
        (ApprovalMode.APPROVE_READS, None, False),
        (ApprovalMode.DENY_ALL, None, False),
        (ApprovalMode.ASK, None, False),
        (ApprovalMode.ASK, "y", True),
        (ApprovalMode.ASK, "n", False),
    ],
)
@aio
async def test_without_rules_a_file_is_written_for_the_agent_as_the_policy_says(
    monkeypatch: pytest.MonkeyPatch, flag: ApprovalMode, line: str | None, written: bool
) -> None:
    monkeypatch.setattr("dragoman.cli.permission_flags.is_interactive", lambda: line is not None)
    desk = permit_of(flag, cast(CommandLoop, Typed(line)), workspace="/nowhere")
    assert (await desk.guard(file_guard.writing("s", "/nowhere/a"))).allows is written


def test_the_first_option_of_a_kind_has_a_letter_others_a_number_unknown_ones_nothing() -> None:
    choices = choices_of(question())
    assert choices == {
        "y": ("allow once ('Allow ␛[2J')", Chosen("o1", Answer.ALLOW_ONCE)),
        "a": ("allow always ('Always')", Chosen("o2", Answer.ALLOW_ALWAYS)),
        "3": ("allow always ('Always here')", Chosen("o3", Answer.ALLOW_ALWAYS)),
        "n": ("refuse ('No')", Chosen("o4", Answer.REJECT_ONCE)),
    }


def test_an_option_says_what_it_does_whatever_the_agent_calls_it() -> None:
    lies = (
        *(PermissionOption(str(n), "x" * 500, PermissionKind.ALLOW_ONCE) for n in range(100)),
        PermissionOption("no", "Yes, allow it", PermissionKind.REJECT_ONCE),
    )
    choices = choices_of(question(options=lies))
    assert choices["n"] == ("refuse ('Yes, allow it')", Chosen("no", Answer.REJECT_ONCE))
    assert choices["y"][0].startswith("allow once ('xxx") and len(choices["y"][0]) < 80
    assert len(choices) == 10


def test_refusing_is_possible_even_if_it_was_not_offered() -> None:
    assert choices_of(question(options=OPTIONS[:1]))["n"][1] is Answer.REJECT_ONCE


@aio
async def test_the_person_is_asked_until_the_answer_is_one() -> None:
    permit, typed = asking("", "perhaps", " YES ", "n")
    assert await permit(question()) == Chosen("o1", Answer.ALLOW_ONCE)
    assert await permit(question()) == Chosen("o4", Answer.REJECT_ONCE)
    first, second, third, another = typed.shown
    assert first == second == another, "the whole question is above every prompt"
    assert third == "answer with one of y/a/3/n\n" + first
    assert typed.lines == []


@aio
async def test_the_end_of_input_refuses_and_an_interrupt_cancels_the_turn() -> None:
    permit, typed = asking(None)
    assert await permit(question()) is Answer.REJECT_ONCE
    permit, typed = asking(Interrupted())
    assert await permit(question()) is Answer.CANCEL
    assert typed.presses == 1


@aio
async def test_two_questions_at_once_are_asked_one_after_the_other() -> None:
    permit, typed = asking("n", "y")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(permit(question()))
        second = group.create_task(permit(question()))
    assert first.result() == Chosen("o4", Answer.REJECT_ONCE)
    assert second.result() == Chosen("o1", Answer.ALLOW_ONCE)
    for shown in typed.shown:
        assert shown.startswith("[permission] change files, which the agent calls 'Write it'\n")
        assert "\n  a.txt\n" in shown


RULES = PolicySettings(
    rules=(Rule(action="deny", kind="fetch"), Rule(action="ask", kind="delete", peer="codex"))
)


def by_rules(policy: ApprovalMode, *lines: str, monkeypatch: pytest.MonkeyPatch) -> Permit:
    monkeypatch.setattr("dragoman.cli.permission_flags.is_interactive", lambda: bool(lines))
    typed = cast(CommandLoop, Typed(*lines))
    return permit_of(policy, typed, rules=RULES, peer="codex", workspace="/nowhere")


async def answered(permit: Permit, kind: str) -> bool:
    answer = permit(question(kind))
    return (await answer if inspect.isawaitable(answer) else answer).allows


@aio
async def test_rules_go_before_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    permit = by_rules(ApprovalMode.APPROVE_ALL, monkeypatch=monkeypatch)
    allowed = [kind for kind in ("read", "edit", "fetch", "delete") if await answered(permit, kind)]
    assert allowed == ["read", "edit"]


@aio
async def test_a_rule_asks_the_person_and_a_flag_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    permit = by_rules(ApprovalMode.APPROVE_READS, "y", monkeypatch=monkeypatch)
    assert await answered(permit, "delete")
    assert not await answered(permit, "edit")


@aio
async def test_what_no_rule_fits_is_asked_where_asking_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    permit = by_rules(ApprovalMode.ASK, "n", "y", monkeypatch=monkeypatch)
    assert not await answered(permit, "edit")
    assert await answered(permit, "edit")


@aio
async def test_the_delegators_permissions_are_never_exceeded() -> None:
    stage, above = cast(CommandLoop, Typed()), (RulesPolicy(),)
    permit = permit_of(ApprovalMode.APPROVE_ALL, stage, ceilings=above, workspace="/nowhere")
    assert await answered(permit, "read") and not await answered(permit, "edit")


def test_flags_say_what_peers_may_do_and_nothing_leaves_it_to_the_settings() -> None:
    def chosen(*flags: str) -> str | None:
        names = ("approve_all", "approve_reads", "deny_all")
        return permissions_of(**{name: name in flags for name in names})

    assert chosen() is None
    assert chosen("approve_all") == "approve-all"
    assert chosen("approve_reads") == "approve-reads"
    assert chosen("deny_all") == "deny-all"
    with pytest.raises(UsageError, match="cannot be combined"):
        chosen("approve_all", "deny_all")
