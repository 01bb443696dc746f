"""The request of `run --host`: which options are sent, and which are rejected."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.client.ssh_command import Host
from dragoman.broker.host_protocol import HostPrompt, HostSubmitted
from dragoman.cli import error_messages, host_run
from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.host_run import (
    HostTurns,
    folder_for_host,
    left_running,
    options_for_host,
    prompt_of,
)
from dragoman.cli.output.jsonl import JsonLines
from dragoman.cli.output.quiet import Quiet
from dragoman.cli.prompt_options import COMMANDS
from dragoman.config.schema import HostSettings
from dragoman.errors import (
    CallTimeout,
    ConnectionLost,
    DragomanError,
    HostUnavailable,
    UsageError,
)
from dragoman.events import fold
from dragoman.runs.host_link import FollowedJob, HostLink
from dragoman.store.records import JobRecord
from tests.aio import aio

BOX = Host("box", HostSettings(workspace="/srv/work"))
PROMPT = HostPrompt(job="j-1", peer="codex")


def given(**more: Any) -> dict[str, Any]:
    initial = {option.name: option.initial for option in COMMANDS["run"]} | {"command": None}
    return initial | more


def test_only_given_options_are_sent() -> None:
    options = options_for_host(given(model="big", approve_all=True, verbose=True, format="json"))
    assert options == {"model": "big", "approve_all": True}


@pytest.mark.parametrize(
    "more",
    [{"cold": True}, {"env": ["A"]}, {"command": ("x",)}, {"mcp_config": Path("x")}],
)
def test_options_that_refer_to_the_local_machine_are_rejected(more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="cannot be used with --host"):
        options_for_host(given(**more))


def test_a_system_prompt_file_is_read_locally(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text("be brief")
    options = options_for_host(given(system_prompt=f"@{tmp_path / 'rules'}"))
    assert options == {"system_prompt": "be brief"}


def test_the_directory_comes_from_the_option_or_the_settings() -> None:
    assert folder_for_host(BOX, None) == "/srv/work"
    assert folder_for_host(BOX, Path("~/other")) == "~/other"


def test_each_prompt_has_its_own_job() -> None:
    show = Quiet()
    words = given(no_stdin=True, prompt=["fix it"])
    del words["peer"], words["host"]
    one = prompt_of(BOX, peer="codex", show=show, **words)
    two = prompt_of(BOX, peer="codex", show=show, **words)
    assert one.job != two.job
    assert (one.peer, one.words, one.cwd) == ("codex", ["fix it"], "/srv/work")


def test_the_error_for_an_unreachable_host_names_the_watch_command() -> None:
    error = left_running(BOX, "j-1", ConnectionLost("gone"))
    assert error.retryable == ConnectionLost.retryable
    assert not left_running(BOX, "j-1", ConnectionLost("gone"), may_have_run=True).retryable
    assert "the job continues there" in str(error)
    assert error.remedy == "follow it with `dragoman jobs watch j-1 --host box`"
    # The watching command did not start the job.
    assert not error.may_have_run


def turns(monkeypatch: pytest.MonkeyPatch, error: DragomanError) -> HostTurns:
    async def submit(link: HostLink, prompt: HostPrompt) -> Any:
        raise error

    monkeypatch.setattr(HostLink, "submit", submit)
    return HostTurns(BOX, CommandLoop(), Quiet())


@pytest.mark.parametrize(
    "error",
    [
        HostUnavailable("box", "cannot reconnect", passing=True, may_have_run=True),
        CallTimeout("_dragoman/host/submit", 600.0),
    ],
)
@aio
async def test_an_unconfirmed_job_may_have_run_and_the_error_names_the_command_to_check(
    monkeypatch: pytest.MonkeyPatch, error: DragomanError
) -> None:
    async with turns(monkeypatch, error) as host:
        with pytest.raises(
            HostUnavailable, match="box: the start of the job was not confirmed"
        ) as lost:
            await host.submit(HostPrompt(job="j-1", peer="codex"))
    assert lost.value.may_have_run and not lost.value.retryable
    told = error_messages.message(lost.value)
    assert "dragoman jobs result j-1 --host box" in told
    assert "try again:   check first: part of the work may already be done" in told


@aio
async def test_a_host_that_was_never_reached_did_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = HostUnavailable("box", "no route", passing=True)
    async with turns(monkeypatch, away) as host:
        with pytest.raises(HostUnavailable, match="no route") as refused:
            await host.submit(HostPrompt(job="j-1", peer="codex"))
    assert refused.value is away
    assert "nothing has been done yet" in error_messages.message(away)


@aio
async def test_a_turn_whose_host_becomes_unreachable_may_have_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def submit(link: HostLink, prompt: HostPrompt) -> HostSubmitted:
        return HostSubmitted(job=prompt.job, session="s-1", peer="codex")

    async def events(followed: FollowedJob) -> AsyncGenerator[Any, None]:
        raise HostUnavailable("box", "cannot reconnect", passing=True)
        yield

    monkeypatch.setattr(HostLink, "submit", submit)
    monkeypatch.setattr(FollowedJob, "events", events)
    async with HostTurns(BOX, CommandLoop(), Quiet()) as host:
        with pytest.raises(HostUnavailable, match="the job continues there") as left:
            await host.turn(HostPrompt(job="j-1", peer="codex"))
    assert left.value.may_have_run


@aio
async def test_a_job_is_no_longer_followed_when_an_event_cannot_be_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over: list[str] = []

    async def submit(link: HostLink, prompt: HostPrompt) -> HostSubmitted:
        return HostSubmitted(job=prompt.job, session="s-1", peer="codex")

    async def events(followed: FollowedJob) -> AsyncGenerator[Any, None]:
        try:
            yield None, None
        finally:
            over.append(followed.job)

    def show(event: Any) -> None:
        raise LookupError("a mistake of ours")

    monkeypatch.setattr(HostLink, "submit", submit)
    monkeypatch.setattr(FollowedJob, "events", events)
    monkeypatch.setattr(fold, "apply_settings", lambda view, event: None)
    async with HostTurns(BOX, CommandLoop(), Quiet()) as host:
        monkeypatch.setattr(host.show, "event", show)
        with pytest.raises(LookupError):
            await host.turn(HostPrompt(job="j-1", peer="codex"))
        assert over == ["j-1"]


@aio
async def test_a_job_that_was_cancelled_before_it_was_confirmed_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancelled: list[str] = []

    async def cancel(link: HostLink, job: str) -> None:
        cancelled.append(job)

    async def submit(link: HostLink, prompt: HostPrompt) -> HostSubmitted:
        # The interrupt arrives while an earlier connection still submits the prompt.
        host.interrupted(1)
        await asyncio.sleep(0)
        return HostSubmitted(job=prompt.job, session="s-1", peer="codex")

    monkeypatch.setattr(HostLink, "cancel", cancel)
    monkeypatch.setattr(HostLink, "submit", submit)
    async with HostTurns(BOX, CommandLoop(), Quiet()) as host:
        await host.submit(HostPrompt(job="j-1", peer="codex"))
    assert cancelled == ["j-1", "j-1"]


def test_a_job_whose_cancel_failed_is_not_reported_as_cancelled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    live = CommandLoop()

    async def submit(link: HostLink, prompt: HostPrompt) -> HostSubmitted:
        live.press()
        await asyncio.sleep(0)
        return HostSubmitted(job=prompt.job, session="s-1", peer="codex")

    async def cancel(link: HostLink, job: str) -> None:
        raise HostUnavailable("box", "no route")

    monkeypatch.setattr(HostLink, "submit", submit)
    monkeypatch.setattr(HostLink, "cancel", cancel)
    monkeypatch.setattr(host_run, "CommandLoop", lambda: live)
    monkeypatch.setattr(host_run, "prepared", lambda host, given: (Quiet(), BOX))
    monkeypatch.setattr(host_run, "prompt_of", lambda *given, **more: PROMPT)
    assert host_run.run("box", peer="codex", no_wait=True) == 130
    told = capsys.readouterr().err
    assert "could not cancel job j-1: box: no route" in told
    assert "was cancelled" not in told


@aio
async def test_what_the_remote_shell_prints_is_a_notice_that_strict_output_omits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for show in (Quiet(), JsonLines(strict=True)):
        async with HostTurns(BOX, CommandLoop(), show) as host:
            assert host.link._on_stderr is not None
            host.link._on_stderr(b"reboot at noon\n")
    assert capsys.readouterr().err == "dragoman: box: reboot at noon\n"


def test_a_turn_on_a_host_is_cancelled_if_the_output_is_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cancelled: list[str] = []
    over = asyncio.Event()
    ended = JobRecord(
        id="j-1",
        session_key="s-1",
        peer="codex",
        root="/",
        created_at=1.0,
        state="ended",
        outcome="cancelled",
    )

    async def submit(link: HostLink, prompt: HostPrompt) -> HostSubmitted:
        return HostSubmitted(job=prompt.job, session="s-1", peer="codex")

    async def cancel(link: HostLink, job: str) -> None:
        cancelled.append(job)
        over.set()

    async def events(followed: FollowedJob) -> AsyncGenerator[Any, None]:
        show.write("the first words")
        await over.wait()
        followed.ended = ended
        return
        yield

    monkeypatch.setattr(HostLink, "submit", submit)
    monkeypatch.setattr(HostLink, "cancel", cancel)
    monkeypatch.setattr(FollowedJob, "events", events)
    monkeypatch.setattr(host_run, "prompt_of", lambda *given, **more: PROMPT)
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out:
        show = Quiet(out)
        monkeypatch.setattr(host_run, "prepared", lambda host, given: (show, BOX))
        assert host_run.run("box", peer="codex", no_wait=False) == 130
    assert cancelled == ["j-1"]
    assert capsys.readouterr().err == ""
