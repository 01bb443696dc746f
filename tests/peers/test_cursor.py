"""Cursor, as far as its public documentation goes: a stand-in plays its part.

UNVERIFIED. Cursor's agent cannot be installed from a registry, so these tests show that what
dragoman knows of it fits what is written about it, and not that the real program behaves so.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from dragoman.catalogue.launch import resolve
from dragoman.catalogue.open import open_peer
from dragoman.client.conversation import Peer
from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import Answer, Permit, Question, deny_all
from dragoman.errors import AuthRequired, RemoteError
from dragoman.events import model as happened
from dragoman.events.fold import fold
from dragoman.events.words import Outcome, Role, ToolStatus
from tests.aio import aio
from tests.peers import cursor_agent, schema
from tests.peers.agents import BUDGETS, descriptor, surrounded
from tests.peers.commands import dragoman, living_in
from tests.peers.programs import peer_environment

KEY = {"CURSOR_API_KEY": "fake"}

TYPES = {
    "session/update": "SessionNotification",
    "session/request_permission": "RequestPermissionRequest",
}
"""What the official schema calls the params of what an agent sends."""


def installed(home: Path) -> dict[str, str]:
    """The environment of a user who has installed it."""
    folder = home / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / "cursor-agent"
    words = shlex.join([sys.executable, cursor_agent.__file__])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    return {**peer_environment(home), "PATH": f"{folder}:/usr/bin:/bin"}


@asynccontextmanager
async def cursor(
    home: Path, workspace: Path, *, permit: Permit = deny_all, login: bool = True
) -> AsyncIterator[tuple[Peer, list[happened.Event]]]:
    seen: list[happened.Event] = []
    async with AsyncExitStack() as stack:
        with surrounded({**installed(home), **(KEY if login else {})}):
            peer = await stack.enter_async_context(
                open_peer(
                    resolve(descriptor("cursor")),
                    ConnectOptions(permit=permit, budgets=BUDGETS, on_event=seen.append),
                    workspace=workspace,
                )
            )
        yield peer, seen


def test_the_facts_about_cursor_are_marked_as_unverified() -> None:
    known = descriptor("cursor")
    assert not known.verified
    assert "not tested" in known.source


@aio
async def test_a_turn_streams_thoughts_and_text(home: Path, workspace: Path) -> None:
    async with cursor(home, workspace) as (peer, _), peer.session() as talk:
        assert peer.info.name == "cursor-agent"
        async with talk.prompt("hello") as turn:
            view = fold([event async for event in turn])
        assert turn.result.ok
        assert turn.result.text == "You said: hello"
        assert [m.text for m in view.messages if m.role is Role.THOUGHT] == ["Hm."]


@pytest.mark.parametrize("allowed", [True, False])
@aio
async def test_cursor_asks_before_it_writes(allowed: bool, home: Path, workspace: Path) -> None:
    asked: list[Question] = []

    def permit(question: Question) -> Answer:
        asked.append(question)
        return Answer.ALLOW_ONCE if allowed else Answer.REJECT_ONCE

    async with cursor(home, workspace, permit=permit) as (peer, _), peer.session() as talk:
        async with talk.prompt("write made.txt") as turn:
            view = fold([event async for event in turn])
    assert [question.kind for question in asked] == ["edit"]
    # Told twice, it is still one call.
    (tool,) = view.tools.values()
    assert tool.status is (ToolStatus.COMPLETED if allowed else ToolStatus.FAILED)
    assert (workspace / "made.txt").exists() is allowed
    assert bool(turn.result.denials) is not allowed


@aio
async def test_a_cancelled_turn_ends_as_such(home: Path, workspace: Path) -> None:
    async with cursor(home, workspace) as (peer, _), peer.session() as talk:
        async with talk.prompt("slow") as turn:
            async for event in turn:
                if isinstance(event, happened.MessageDelta):
                    turn.cancel()
        assert turn.result.outcome is Outcome.CANCELLED
        assert (await talk.ask("again")).text == "You said: again"


@pytest.mark.parametrize(
    ("prompt", "text"), [("plan it", "The plan: none"), ("ask me", "The answer: none")]
)
@aio
async def test_its_own_methods_are_answered_as_unknown_and_do_not_stop_a_turn(
    prompt: str, text: str, home: Path, workspace: Path
) -> None:
    async with cursor(home, workspace) as (peer, seen), peer.session(mode="plan") as talk:
        result = await talk.ask(prompt)
    assert (result.outcome, result.text) == (Outcome.OK, text)
    unknown = {event.native for event in seen if isinstance(event, happened.Unknown)}
    assert unknown <= {"cursor/update_todos", "cursor/create_plan", "cursor/ask_question"}
    assert unknown


@aio
async def test_another_process_lists_and_loads_a_session(home: Path, workspace: Path) -> None:
    async with cursor(home, workspace) as (peer, _), peer.session() as talk:
        await talk.ask("remember me")
    async with cursor(home, workspace) as (peer, _):
        listed = [(one.id, one.title) async for one in peer.list_sessions()]
        assert listed == [(talk.id, "remember me")]
        async with peer.session(load=talk.id) as loaded:
            said = [m.text for m in fold(loaded.replayed).messages]
            assert said == ["remember me", "You said: remember me"]
        with pytest.raises(RemoteError, match="not found"):
            async with peer.session(load="nonsense"):
                pass


@aio
async def test_without_a_login_it_is_said_how_to_log_in(home: Path, workspace: Path) -> None:
    async with cursor(home, workspace, login=False) as (peer, _):
        with pytest.raises(AuthRequired, match="cursor-agent login"):
            async with peer.session():
                pass


@aio
async def test_the_command_runs_it_by_its_name(home: Path, workspace: Path) -> None:
    environment = {**installed(home), **KEY}
    ended = await dragoman("run", "cursor", "hello", cwd=workspace, environment=environment)
    assert ended.code == 0, ended.err
    assert "You said: hello" in ended.out
    wrong = await dragoman(
        *("run", "hello", "--", "cursor-agent", "--acp"), cwd=workspace, environment=environment
    )
    assert wrong.code == 2
    assert "`cursor-agent acp`" in wrong.err
    assert living_in(home) == []


@aio
async def test_the_stand_in_says_nothing_that_the_protocol_does_not_have(
    home: Path, workspace: Path
) -> None:
    schema.judge("InitializeResponse", cursor_agent.HELLO)
    async with cursor(home, workspace) as (peer, seen), peer.session() as talk:
        for prompt in ("hello", "write made.txt", "plan it"):
            await talk.ask(prompt)
    lines = {event.raw for event in seen if event.raw}
    judged = set()
    for message in map(json.loads, lines):
        name = TYPES.get(message.get("method", ""))
        if name is not None:
            schema.judge(name, message["params"])
            judged.add(name)
    assert judged == set(TYPES.values())
