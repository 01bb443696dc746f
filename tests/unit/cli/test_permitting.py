"""Who decides about permissions, and what a person at a terminal can answer."""

from __future__ import annotations

import asyncio
import inspect
from typing import cast

import pytest

from dragoman.cli.permitting import (
    Asking,
    Policy,
    choices_of,
    guard_of,
    may_write,
    permit_of,
    policy_of,
    unattended,
    whole_policy,
)
from dragoman.cli.stage import Interrupted, Stage
from dragoman.client.permissions import (
    Answer,
    Chosen,
    Permit,
    Question,
    approve_all,
    approve_reads,
    deny_all,
)
from dragoman.errors import UsageError
from dragoman.events.parts import PermissionOption
from dragoman.events.words import PermissionKind
from dragoman.hub.policy import Policy as RulesPolicy
from dragoman.hub.policy import PolicySettings, Rule
from tests.aio import aio

OPTIONS = (
    PermissionOption("o1", "Allow \x1b[2J", PermissionKind.ALLOW_ONCE),
    PermissionOption("o2", "Always", PermissionKind.ALLOW_ALWAYS),
    PermissionOption("o3", "Always here", PermissionKind.ALLOW_ALWAYS),
    PermissionOption("o4", "No", PermissionKind.REJECT_ONCE),
    PermissionOption("o5", "Whatever", PermissionKind.OTHER),
)


def question(kind: str = "edit", options: tuple[PermissionOption, ...] = OPTIONS) -> Question:
    return Question("s1", "c1", "Write it", kind, options, None)


class Typed:
    """A stage where these lines are typed; an error is raised in the place of a line."""

    def __init__(self, *lines: str | Exception | None) -> None:
        self.lines = list(lines)
        self.presses = 0

    async def line(self, prompt: str = "") -> str | None:
        await asyncio.sleep(0)
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line

    def press(self) -> None:
        self.presses += 1


def asking(*lines: str | Exception | None) -> tuple[Asking, Typed]:
    typed = Typed(*lines)
    return Asking(cast(Stage, typed)), typed


def policy(*flags: str, interactive: bool = False, default: str = "ask") -> Policy:
    given = {name: name in flags for name in ("approve_all", "approve_reads", "deny_all")}
    return policy_of(**given, interactive=interactive, default=default)


def test_a_flag_says_it_else_the_configuration_else_a_person_or_reads_only() -> None:
    assert policy("deny_all", interactive=True, default="approve-all") is Policy.DENY_ALL
    assert policy(default="approve-all") is Policy.APPROVE_ALL
    assert policy(interactive=True) is Policy.ASK
    assert policy(interactive=False) is Policy.APPROVE_READS


def test_two_flags_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="--approve-all and --deny-all"):
        policy("approve_all", "deny_all")


def test_each_policy_has_its_permit_and_only_two_let_files_be_written() -> None:
    stage = cast(Stage, Typed())
    assert permit_of(Policy.APPROVE_ALL, stage) is approve_all
    assert permit_of(Policy.APPROVE_READS, stage) is approve_reads
    assert permit_of(Policy.DENY_ALL, stage) is deny_all
    assert isinstance(permit_of(Policy.ASK, stage), Asking)
    assert [each for each in Policy if each.writes] == [Policy.APPROVE_ALL, Policy.ASK]


def test_the_first_option_of_a_kind_has_a_letter_others_a_number_unknown_ones_nothing() -> None:
    choices = choices_of(question())
    assert choices == {
        "y": ("Allow ␛[2J", Chosen("o1", Answer.ALLOW_ONCE)),
        "a": ("Always", Chosen("o2", Answer.ALLOW_ALWAYS)),
        "3": ("Always here", Chosen("o3", Answer.ALLOW_ALWAYS)),
        "n": ("No", Chosen("o4", Answer.REJECT_ONCE)),
    }


def test_refusing_is_possible_even_if_it_was_not_offered() -> None:
    assert choices_of(question(options=OPTIONS[:1]))["n"][1] is Answer.REJECT_ONCE


@aio
async def test_reading_needs_no_question() -> None:
    permit, typed = asking()
    assert await permit(question("read")) is Answer.ALLOW_ONCE


@aio
async def test_the_person_is_asked_until_the_answer_is_one() -> None:
    permit, typed = asking("", "perhaps", " YES ")
    assert await permit(question()) == Chosen("o1", Answer.ALLOW_ONCE)
    assert typed.lines == []


@aio
async def test_the_end_of_input_refuses_and_an_interrupt_cancels_the_turn() -> None:
    permit, typed = asking(None)
    assert await permit(question()) is Answer.REJECT_ONCE
    permit, typed = asking(Interrupted())
    assert await permit(question()) is Answer.CANCEL
    assert typed.presses == 1


@aio
async def test_two_questions_at_once_are_asked_one_after_the_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    permit, typed = asking("n", "y")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(permit(question()))
        second = group.create_task(permit(question()))
    assert first.result() == Chosen("o4", Answer.REJECT_ONCE)
    assert second.result() == Chosen("o1", Answer.ALLOW_ONCE)
    out, err = capsys.readouterr()
    assert (out, err.count("[permission] Write it (edit)")) == ("", 2)
    assert "\x1b" not in err


RULES = PolicySettings(
    rules=(Rule(action="deny", kind="fetch"), Rule(action="ask", kind="delete", peer="codex"))
)


def by_rules(policy: Policy, *lines: str, monkeypatch: pytest.MonkeyPatch) -> Permit:
    monkeypatch.setattr("dragoman.cli.permitting.is_interactive", lambda: bool(lines))
    typed = cast(Stage, Typed(*lines))
    return permit_of(policy, typed, rules=RULES, peer="codex", workspace="/nowhere")


async def answered(permit: Permit, kind: str) -> bool:
    answer = permit(question(kind))
    return (await answer if inspect.isawaitable(answer) else answer).allows


@aio
async def test_rules_go_before_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    permit = by_rules(Policy.APPROVE_ALL, monkeypatch=monkeypatch)
    allowed = [kind for kind in ("read", "edit", "fetch", "delete") if await answered(permit, kind)]
    assert allowed == ["read", "edit"]


@aio
async def test_a_rule_asks_the_person_and_a_flag_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    permit = by_rules(Policy.APPROVE_READS, "y", monkeypatch=monkeypatch)
    assert await answered(permit, "delete")
    assert not await answered(permit, "edit")


@aio
async def test_what_no_rule_fits_is_asked_where_asking_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    permit = by_rules(Policy.ASK, "n", "y", monkeypatch=monkeypatch)
    assert not await answered(permit, "edit")
    assert await answered(permit, "edit")


@aio
async def test_behind_rules_a_reading_is_asked_about_like_everything() -> None:
    typed = Typed("n")
    assert not (await Asking(cast(Stage, typed), reads=False)(question("read"))).allows


def test_without_rules_the_flag_alone_decides() -> None:
    stage = cast(Stage, Typed())
    assert permit_of(Policy.APPROVE_ALL, stage, rules=PolicySettings()) is approve_all


def test_files_are_guarded_by_whoever_knows_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = cast(Stage, Typed())
    assert guard_of(permit_of(Policy.APPROVE_ALL, stage)) is None
    assert guard_of(permit_of(Policy.ASK, stage)) is None
    assert guard_of(by_rules(Policy.APPROVE_ALL, monkeypatch=monkeypatch)) is not None


def test_rules_say_whether_files_can_be_written_at_all() -> None:
    allow = PolicySettings(rules=(Rule(action="allow", kind="edit", paths=("src/**",)),))
    deny = PolicySettings(limits=(Rule(action="deny", kind="edit"),))
    for policy, rules, writes in (
        (Policy.APPROVE_READS, allow, True),
        (Policy.APPROVE_READS, None, False),
        (Policy.ASK, PolicySettings(), True),
        (Policy.ASK, deny, False),
    ):
        assert may_write(policy, whole_policy(policy, rules)) is writes


def test_when_the_person_has_left_the_rules_are_still_there() -> None:
    assert unattended(Policy.ASK, whole_policy(Policy.ASK, None), peer="x") == "approve-reads"
    left = unattended(Policy.ASK, whole_policy(Policy.ASK, RULES), peer="gemini")
    assert left == RulesPolicy(preset="ask", rules=(Rule(action="deny", kind="fetch"),))


@aio
async def test_whoever_delegated_is_never_exceeded() -> None:
    stage, above = cast(Stage, Typed()), (RulesPolicy(),)
    permit = permit_of(Policy.APPROVE_ALL, stage, ceilings=above, workspace="/nowhere")
    assert await answered(permit, "read") and not await answered(permit, "edit")
    assert not may_write(Policy.APPROVE_ALL, whole_policy(Policy.APPROVE_ALL, None, above))
