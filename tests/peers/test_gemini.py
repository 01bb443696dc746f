"""Turns with the real Gemini CLI, whose model is the fake one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from dragoman.client.permissions import approve_all
from dragoman.events.words import Outcome, ToolStatus
from tests.peers.agents import GEMINI, Stage, on_stage, staged
from tests.peers.turns import Turns

BEGUN_AT = re.compile(r"(?<=session-)\d{4}(?=-)")
"""The year in the name of a file that holds a session, before the rest of the time."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(GEMINI, tmp_path_factory.mktemp("gemini")) as stage:
        yield stage


class TestGemini(Turns):
    agent = GEMINI
    calls_itself = "gemini-cli"
    capabilities = {
        "load": True,
        "resume": False,
        "list": False,
        "fork": False,
        "close": False,
        "delete": False,
        "logout": False,
        "image": True,
        "audio": True,
    }
    mode = "default"
    modes = ("default", "autoEdit", "yolo", "plan")
    # It takes each piece of a thought for one of its own, with a headline.
    thought = "****\nI think****\nabout****\nthis."
    usage_of_a_turn = (2, 3)
    writes_through_us = True
    after_refusal = (
        Outcome.DENIED,
        'The tool said: Tool "run_shell_command" was canceled by the user',
    )
    refused_status = ToolStatus.PENDING
    errors = {
        400: (Outcome.FAILED, "fake error 400"),
        401: (Outcome.AUTH_REQUIRED, "fake error 401"),
    }

    def let_time_pass(self, stage: Stage) -> None:
        # A file is named after the minute in which its session was begun, and a session that is
        # loaded in that very minute is overwritten before it is read.
        for path in stage.home.glob(".gemini/tmp/*/chats/session-*"):
            path.rename(path.with_name(BEGUN_AT.sub("2000", path.name)))


@on_stage
async def test_a_model_that_is_chosen_is_the_one_that_is_asked(
    stage: Stage, workspace: Path
) -> None:
    async with stage.talk(workspace, model="gemini-3.5-flash-lite") as talk:
        since = len(stage.model.questions)
        assert (await talk.ask("who are you")).ok
        await talk.set_model("gemini-2.5-pro")
        assert (await talk.ask("and now")).ok
    assert [asked.model for asked in stage.model.questions[since:]] == [
        "gemini-3.5-flash-lite",
        "gemini-2.5-pro",
    ]


@on_stage
async def test_a_new_file_cannot_be_written_if_its_absence_is_reported_as_an_error(
    stage: Stage, workspace: Path
) -> None:
    # Why the option is set for this agent. When this test fails, it is not needed any more.
    client = stage.peer.client
    usual = client.options
    async with stage.talk(workspace, approve_all) as talk:
        client.options = structs.replace(client.options, missing_file_is_empty=False)
        try:
            result = await talk.ask(f"WRITE:{workspace / 'made.txt'}:some content")
        finally:
            client.options = usual
    assert "Error checking existing file" in result.text
    assert not (workspace / "made.txt").exists()


@on_stage
async def test_a_command_that_only_looks_runs_without_a_question(
    stage: Stage, workspace: Path
) -> None:
    async with stage.talk(workspace) as talk:
        result = await talk.ask("SHELL:echo only-looking")
    assert result.ok
    assert result.denials == ()
    assert "only-looking" in result.text
