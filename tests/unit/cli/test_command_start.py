"""How a command is set up, and what an interrupt comes to."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.command_start import perform, prepare
from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.quiet import Quiet
from dragoman.cli.run_plan import RunOptions
from dragoman.errors import UsageError
from dragoman.redaction.redactor import Redactor
from dragoman.rpc import trace
from dragoman.rpc.connection import TRACE_VARIABLE
from tests.unit.cli.calling import Shell


@pytest.fixture(autouse=True)
def place(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    log = logging.getLogger("dragoman")
    before = (log.handlers[:], log.level, log.propagate)
    monkeypatch.setenv(TRACE_VARIABLE, "")
    yield
    log.handlers[:], log.level, log.propagate = before
    trace.redact_with(Redactor())


def wishes(**given: Any) -> RunOptions:
    return RunOptions(**{"peer": "scout", "command": None, **given})


def test_a_plan_comes_with_the_show_that_was_asked_for() -> None:
    plan, show = prepare(wishes(format="quiet"), None)
    assert plan.name == "scout" and isinstance(show, Quiet)
    _, show = prepare(wishes(json_strict=True), None)
    assert isinstance(show, JsonLines) and show.strict


def test_an_error_in_the_plan_is_told_in_the_format_that_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        prepare(wishes(peer="scuot", json_strict=True), None)
    assert left.value.code == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == "unknown_peer" and err == ""


def test_formats_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(UsageError, match="--format text"):
        prepare(wishes(format="text", json_strict=True), None)


def test_a_trace_goes_to_the_file_whatever_folder_the_agent_works_in(tmp_path: Path) -> None:
    prepare(wishes(), Path("wire.log"))
    assert os.environ[TRACE_VARIABLE] == str(Path.cwd() / "wire.log")


def test_values_of_credentials_are_in_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_API_KEY", "open sesame")
    prepare(wishes(), tmp_path / "wire.log")
    written = trace.from_environment()
    assert written is not None
    written.record("c", "send", b'{"text":"say open sesame"}')
    written.close()
    assert b"sesame" not in (tmp_path / "wire.log").read_bytes()


def test_notices_of_the_plan_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    prepare(wishes(env=["NOT_SET_AT_ALL"]), None)
    assert "NOT_SET_AT_ALL" in capsys.readouterr().err


def test_verbose_tells_the_log_and_strict_silences_it(capsys: pytest.CaptureFixture[str]) -> None:
    prepare(wishes(verbose=True), None)
    logging.getLogger("dragoman.test").debug("said in verbose")
    assert "said in verbose" in capsys.readouterr().err
    logging.getLogger("dragoman").handlers.clear()
    prepare(wishes(json_strict=True), None)
    logging.getLogger("dragoman.test").error("never said")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("terminated", "code"), [(False, 130), (True, 143)])
def test_work_that_an_interrupt_cancelled_ends_with_its_code(terminated: bool, code: int) -> None:
    stage = CommandLoop()

    async def work() -> int:
        stage.interrupts, stage.terminated = 1, terminated
        raise asyncio.CancelledError

    assert perform(stage, work) == code


def test_a_cancellation_that_nobody_asked_for_is_not_hidden() -> None:
    async def work() -> int:
        raise asyncio.CancelledError

    with pytest.raises(BaseException) as caught:
        perform(CommandLoop(), work)
    assert type(caught.value).__name__ == "CancelledError"
