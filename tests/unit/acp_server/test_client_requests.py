"""What the peer wants of its client's side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import RemoteError
from tests.aio import aio
from tests.unit.acp_server.stage import Peer, allow, house


@aio
async def test_a_question_for_permission_goes_to_the_client_behind_its_tool_call(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, f"ask {home.work}/a.py")
        assert editor.text == "allowed"
        (asked,) = editor.requests
        assert asked["method"] == "session/request_permission"
        assert asked["sessionId"] == session
        told = [update.get("toolCallId") for update in editor.updates[: asked["after"]]]
        assert asked["toolCall"]["toolCallId"] in told


@aio
async def test_a_client_that_cannot_be_asked_leaves_it_to_the_policy(tmp_path: Path) -> None:
    def refuse(method: str, params: Any) -> Any:
        raise RemoteError(-32603, "no window")

    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        editor.serve = refuse
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "ask /a.py")
        assert editor.text == "refused"
        assert len(editor.requests) == 1


@pytest.mark.parametrize(("preset", "said"), [("approve-all", "allowed"), ("deny-all", "refused")])
@aio
async def test_what_the_policy_decides_the_client_is_not_asked(
    tmp_path: Path, preset: str, said: str
) -> None:
    more = f'permissions = "{preset}"\n'
    if preset == "deny-all":
        more += '[[policy.rules]]\nkind = "edit"\naction = "deny"\n'
    async with house(tmp_path, Peer("left"), more=more) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "ask a.py")
        assert (editor.text, editor.requests) == (said, [])


@aio
async def test_files_are_the_clients_where_it_offers_them(tmp_path: Path) -> None:
    def serve(method: str, params: Any) -> Any:
        return {"content": "unsaved"} if method == "fs/read_text_file" else allow(params)

    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        editor.serve = serve
        await editor.hello(fs={"readTextFile": True})
        session = await editor.open(home.work, peer="left")
        file = home.work / "a.txt"
        file.write_text("on disk")
        await editor.prompt(session, f"read {file}")
        assert editor.text == "unsaved"
        assert editor.requests[-1]["sessionId"] == session
        # Writing was not offered: it is done here, when the user has allowed it.
        await editor.prompt(session, f"write {file}")
        assert editor.text == "written" and file.read_text() == "new"
        assert editor.requests[-1]["method"] == "session/request_permission"


@aio
async def test_a_file_that_the_policy_denies_is_not_asked_of_the_client(tmp_path: Path) -> None:
    rule = '[[policy.rules]]\nkind = "read"\npaths = ["secret*"]\naction = "deny"\n'
    async with house(tmp_path, Peer("left"), more=rule) as home, home.editor() as editor:
        await editor.hello(fs={"readTextFile": True})
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, f"read {home.work / 'secret.txt'}")
        assert editor.text.startswith("error: ")
        assert editor.requests == []


@aio
async def test_commands_are_run_by_the_client_when_its_user_allows_them(tmp_path: Path) -> None:
    def serve(method: str, params: Any) -> Any:
        match method:
            case "terminal/create":
                return {"terminalId": "t"}
            case "terminal/output":
                return {"output": "made", "truncated": False}
            case "terminal/wait_for_exit":
                return {"exitCode": 0}
            case "terminal/release":
                return {}
        return allow(params)

    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        editor.serve = serve
        await editor.hello(terminal=True)
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "run")
        assert editor.text == "made"
        methods = [request["method"] for request in editor.requests]
        assert methods[:2] == ["session/request_permission", "terminal/create"]
        assert {request["sessionId"] for request in editor.requests} == {session}


@aio
async def test_the_user_is_asked_with_a_form_where_the_client_has_forms(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        editor.serve = lambda method, params: {"action": "accept", "content": {}}
        await editor.hello(elicitation={"form": {}})
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "form")
        assert editor.text == "ElicitationAccepted"
        (asked,) = editor.requests
        assert (asked["method"], asked["sessionId"]) == ("elicitation/create", session)
