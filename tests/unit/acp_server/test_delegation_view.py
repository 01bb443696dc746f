"""A delegation as a client sees it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dragoman.agent import Turn
from dragoman.errors import RemoteError
from dragoman.runs.run_values import BrokerNotes
from tests.aio import aio
from tests.unit.acp_server.stage import Editor, Peer, allow, house


def progress(editor: Editor) -> list[str]:
    return [update["content"][0]["content"]["text"] for update in editor.told("tool_call_update")]


@aio
async def test_the_progress_of_the_peer_is_shown_in_the_tool_call(tmp_path: Path) -> None:
    left = Peer("left")

    async def work(turn: Turn) -> None:
        await turn.say("half of it")
        async with turn.tool("Look closely"):
            await turn.ask_permission("May I?")
        await turn.say(" and the rest")

    left.agent.handlers.prompt = work
    async with house(tmp_path, left) as home, home.editor() as editor:

        async def look(method: str, params: Any) -> Any:
            # The user takes the time to see what happens.
            await editor.until(
                lambda it: any(
                    "10 characters of the answer so far" in text for text in progress(it)
                )
            )
            return allow(params)

        editor.serve = look
        await editor.hello()
        session = await editor.open(home.work)
        await editor.prompt(session, "/delegate review it")
        shown = progress(editor)
        assert any(text.startswith("1. left: it claims review") for text in shown)
        assert any("· Look closely" in text for text in shown[:-1])
        assert not any("half of it" in str(update) for update in editor.told("tool_call_update"))
        # Its questions come to the client, too.
        (asked,) = editor.requests
        assert asked["method"] == "session/request_permission"
        assert editor.text.strip() == "half of it and the rest"


@aio
async def test_a_fallback_is_shown_with_the_reason(tmp_path: Path) -> None:
    left, right = Peer("left"), Peer("right")
    async with house(tmp_path, left, right) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        (tmp_path / "left.sock").unlink()
        await editor.prompt(session, "/delegate review it")
        assert editor.text.strip() == "right heard it"
        last = editor.told("tool_call_update")[-1]
        assert last["title"] == "Delegate review → right"
        shown = last["content"][0]["content"]["text"]
        assert shown.startswith("1. left: ") and "\n2. right (small): ok after" in shown
        assert [one["peer"] for one in last["rawOutput"]["attempts"]] == ["left", "right"]


@aio
async def test_work_that_no_peer_could_do_fails_and_lists_the_attempts(tmp_path: Path) -> None:
    more = 'fallback = "none"\n'
    async with house(tmp_path, Peer("left"), more=more) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        with pytest.raises(RemoteError, match="no peer completed the task: 1. left") as refused:
            await editor.prompt(session, "/delegate review fail now")
        data = refused.value.data
        assert data.pop("job").startswith("j-")
        assert data == {
            "outcome": "failed", "errorClass": "remote_error", "blame": "peer",
            "retryable": False, "mayHaveRun": True,
        }  # fmt: skip
        assert editor.told("tool_call_update")[-1]["status"] == "failed"


@pytest.mark.parametrize(
    ("text", "status"), [("/delegate review it", "completed"), ("/delegate review fail", "failed")]
)
@aio
async def test_the_notices_of_a_delegation_are_in_the_tool_call_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, status: str
) -> None:
    def report(self: BrokerNotes) -> None:
        self._on_notice("a question was declined")

    monkeypatch.setattr(BrokerNotes, "report", report)
    async with house(tmp_path, Peer("left"), more='fallback = "none"\n') as home:
        async with home.editor() as editor:
            await editor.hello()
            session = await editor.open(home.work)
            with nullcontext() if status == "completed" else pytest.raises(RemoteError):
                await editor.prompt(session, text)
            assert editor.told("tool_call_update")[-1]["status"] == status
            first, *_, last = progress(editor)[-1].splitlines()
            assert first.startswith("1. left")
            assert last == "a question was declined"


@aio
async def test_the_tool_call_ends_after_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*args: object, **options: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("dragoman.acp_server.delegation_view.delegate_request", broken)
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work)
        with pytest.raises(RemoteError):
            await editor.prompt(session, "/delegate review it")
        assert editor.told("tool_call_update")[-1]["status"] == "failed"


@aio
async def test_a_delegation_that_would_be_too_deep_reaches_no_peer(tmp_path: Path) -> None:
    left = Peer("left")
    async with house(tmp_path, left) as home:
        # Whoever started us was started by a delegation itself.
        home.extra["DRAGOMAN_DEPTH"] = "5"
        async with home.editor() as editor:
            await editor.hello()
            session = await editor.open(home.work)
            assert await editor.prompt(session, "/delegate review it") == "refusal"
            assert "this is delegated work already, at depth 5" in editor.text
            assert editor.told("tool_call_update")[-1]["status"] == "failed"
            assert left.prompts == []
