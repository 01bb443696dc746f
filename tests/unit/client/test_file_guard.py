"""What an agent has done by us, put as a question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.client import file_guard
from dragoman.client.permissions import Answer, Permit, Question, settled
from dragoman.errors import NotPermitted
from tests.aio import aio


def test_a_file_is_reported_by_its_path_and_the_operation() -> None:
    for question, kind, title in (
        (file_guard.reading("s", "/w/a"), "read", "Read /w/a"),
        (file_guard.writing("s", "/w/a"), "edit", "Write /w/a"),
    ):
        assert (question.session_id, question.kind, question.title) == ("s", kind, title)
        assert question.tool_call.raw_input == {"path": "/w/a"}
        assert [each.path for each in question.tool_call.locations] == ["/w/a"]


def test_a_command_is_reported_as_words_or_a_line_and_its_environment_only_as_present() -> None:
    words = file_guard.running("s", "git", ["push", "-f"], cwd="/w", env={"KEY": "secret"})
    assert words.tool_call.raw_input == {
        "command": ["git", "push", "-f"],
        "cwd": "/w",
        "env": True,
    }
    line = file_guard.running("s", "git push; ls", [], cwd=None, env=[])
    assert line.tool_call.raw_input == {"command": "git push; ls"}
    assert (line.kind, line.title) == ("execute", "Run git push; ls")


def test_every_answer_has_an_option() -> None:
    question = file_guard.writing("s", "/w/a")
    assert settled(question.options, Answer.ALLOW_ONCE)[0] == "allow"
    assert settled(question.options, Answer.ALLOW_ALWAYS)[0] == "always"
    assert settled(question.options, Answer.REJECT_ALWAYS)[0] == "reject"


@aio
async def test_a_guard_may_be_a_function_or_a_coroutine() -> None:
    async def later(question: Question) -> Answer:
        return Answer.REJECT_ONCE

    question = file_guard.writing("s", "/w/a")
    assert await file_guard.decided(lambda _: Answer.ALLOW_ONCE, question) is Answer.ALLOW_ONCE
    assert await file_guard.decided(later, question) is Answer.REJECT_ONCE


def test_what_is_not_allowed_is_an_error_that_says_what() -> None:
    question = file_guard.writing("s", "/w/a")
    file_guard.require(question, Answer.ALLOW_ONCE)
    with pytest.raises(NotPermitted, match=r"Write /w/a.* is not permitted$"):
        file_guard.require(question, Answer.REJECT_ONCE)
    with pytest.raises(NotPermitted, match="being cancelled"):
        file_guard.require(question, Answer.CANCEL)


@aio
async def test_without_a_guard_files_are_read_and_the_permit_decides_about_the_rest() -> None:
    answers = [Answer.REJECT_ONCE, Answer.ALLOW_ONCE, Answer.REJECT_ONCE]
    permit, guard = file_guard.guarded(lambda _: answers.pop(0), None, Path("/w"))
    assert await file_guard.decided(guard, file_guard.reading("s", "/w/a")) is Answer.ALLOW_ONCE
    assert await file_guard.decided(guard, file_guard.writing("s", "/w/a")) is Answer.REJECT_ONCE
    running = file_guard.running("s", "make", [], cwd=None, env=())
    assert await file_guard.decided(guard, running) is Answer.ALLOW_ONCE
    assert await file_guard.decided(guard, running) is Answer.REJECT_ONCE
    assert file_guard.guarded(permit, permit, Path("/w")) == (permit, permit)


@aio
async def test_what_the_permit_allowed_is_not_asked_again_when_it_is_done() -> None:
    async def later(question: Question) -> Answer:
        asked.append(question.title)
        return Answer.ALLOW_ONCE

    def now(question: Question) -> Answer:
        asked.append(question.title)
        return Answer.ALLOW_ONCE

    asked: list[str] = []
    permits: tuple[Permit, ...] = (later, now)
    for given in permits:
        asked.clear()
        permit, guard = file_guard.guarded(given, None, Path("/w"))
        edit = Question("s", "c", "Edit", "edit", (), {"locations": [{"path": "x/../a"}]})
        run = Question("s", "c", "Run", "execute", (), {"rawInput": {"command": ["make", "x"]}})
        for question in (edit, run):
            assert (await file_guard.decided(permit, question)).allows
        for _ in range(2):
            assert (await file_guard.decided(guard, file_guard.writing("s", "/w/a"))).allows
        for cwd in ("/elsewhere", None, None):
            doing = file_guard.running("s", "make", ["x"], cwd=cwd, env=())
            assert (await file_guard.decided(guard, doing)).allows
        assert asked == ["Edit", "Run", "Run make x", "Run make x"], "a command counts once"
        await file_guard.decided(guard, file_guard.writing("s", "/w/b"))
        assert asked[-1] == "Write /w/b"


@aio
async def test_a_permission_for_another_directory_is_none_for_the_workspace() -> None:
    asker = file_guard.Asker(lambda _: Answer.ALLOW_ONCE, Path("/w"))
    writing = file_guard.writing("s", "/w/a")
    running = file_guard.running("s", "make", [], cwd=None, env=())
    for cwd, known in (("/elsewhere", Answer.REJECT_ONCE), ("/w/x/..", Answer.ALLOW_ONCE)):
        for kind, told in (
            ("edit", {"path": "a", "content": ""}),
            ("execute", {"command": "make"}),
        ):
            call = {"rawInput": {**told, "cwd": cwd}}
            await file_guard.decided(asker.permit, Question("s", "c", "Do", kind, (), call))
        asker.decide_with(lambda _: Answer.REJECT_ONCE)
        for question in (writing, running):
            assert await file_guard.decided(asker.guard, question) is known
        asker.decide_with(lambda _: Answer.ALLOW_ONCE)


@aio
async def test_only_the_latest_permissions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_guard, "MAX_REMEMBERED", 2)
    asker = file_guard.Asker(lambda _: Answer.ALLOW_ONCE, Path("/w"))
    for name in ("a", "b", "a", "c"):
        call: dict[str, Any] = {"locations": [{"path": name}]}
        await file_guard.decided(asker.permit, Question("s", "c", "Edit", "edit", (), call))
        call = {"rawInput": {"command": ["make", name]}}
        await file_guard.decided(asker.permit, Question("s", "c", "Run", "execute", (), call))
    asker.decide_with(lambda _: Answer.REJECT_ONCE)

    def allows(question: Question) -> bool:
        answer = asker.guard(question)
        assert isinstance(answer, Answer)
        return answer.allows

    assert [allows(file_guard.writing("s", f"/w/{name}")) for name in "abc"] == [True, False, True]
    runs = [file_guard.running("s", "make", [name], cwd=None, env=()) for name in "abc"]
    assert [allows(question) for question in runs] == [True, False, True]


@aio
async def test_a_guard_follows_a_permit_that_is_exchanged() -> None:
    asker = file_guard.Asker(lambda _: Answer.REJECT_ONCE, Path("/w"))
    asker.decide_with(lambda _: Answer.ALLOW_ONCE)
    question = file_guard.writing("s", "/w/a")
    assert await file_guard.decided(asker.guard, question) is Answer.ALLOW_ONCE
    assert await file_guard.decided(asker.permit, question) is Answer.ALLOW_ONCE


def test_a_permit_that_has_a_guard_of_its_own_is_guarded_by_it(tmp_path: Path) -> None:
    class Both:
        def __call__(self, question: Question) -> Answer:
            return Answer.ALLOW_ONCE

        def guard(self, question: Question) -> Answer:
            return Answer.REJECT_ONCE

    both = Both()
    assert file_guard.guarded(both, None, tmp_path) == (both, both.guard)
