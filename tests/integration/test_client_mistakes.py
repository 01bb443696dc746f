"""Mistakes of a program that uses `dragoman.connect`: one clear sentence for each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.client import acp
from dragoman.client.permissions import Answer, Question
from dragoman.errors import RemoteError, UsageError
from dragoman.events.parts import Text
from dragoman.events.words import Outcome
from tests.aio import aio

AGENT = [sys.executable, str(Path(__file__).with_name("mistaken_agent.py"))]
connect: Any = dragoman.connect
connect_sync: Any = dragoman.connect_sync


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("python parrot.py", r"looks like a command line: pass it as a list .*'python', 'parrot"),
        (Path("/opt/agent"), r"a command line is a list of strings: pass \['/opt/agent'\]"),
        (b"agent", r"a command line \(a list\), not bytes"),
        (7, r"a command line \(a list\), not int"),
        ([sys.executable, Path("a.py")], "the arguments of a command line must be strings"),
        (["python parrot.py"], r"pass each word .* item of the list: \['python', 'parrot.py'\]"),
        ({"python"}, r"a command line \(a list\), not set"),
        ({"python": 1}, r"a command line \(a list\), not dict"),
    ],
    ids=repr,
)
def test_a_target_that_is_none_is_refused_at_the_call(target: object, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        connect(target)
    with pytest.raises(UsageError, match=told):
        connect_sync(target)


@pytest.mark.parametrize("permit", ["approve-all", True, None, Answer.ALLOW_ONCE], ids=repr)
def test_a_permit_that_cannot_be_asked_is_refused_at_the_call(permit: object) -> None:
    for opens in (connect, connect_sync):
        with pytest.raises(UsageError, match="permit= takes a function"):
            opens(AGENT, permit=permit)
    with pytest.raises(UsageError, match=r"such as dragoman\.approve_all"):
        connect(AGENT, permit="approve-all")


@aio
async def test_what_connect_returns_says_that_it_has_to_be_entered() -> None:
    with pytest.raises(AttributeError, match=r"write `async with connect\(…\) as peer:`"):
        connect(AGENT).session()
    with pytest.raises(TypeError, match=r"write `async with connect\(…\) as peer:`"):
        await connect(AGENT)
    with pytest.raises(AttributeError, match=r"write `with connect_sync\(…\) as peer:`"):
        connect_sync(AGENT).session()


@aio
async def test_what_session_returns_says_that_it_has_to_be_entered(tmp_path: Path) -> None:
    async with connect(AGENT, workspace=tmp_path) as peer:
        with pytest.raises(AttributeError, match=r"write `async with peer\.session\(…\) as sess"):
            await peer.session().ask("stderr")
        with pytest.raises(TypeError, match=r"write `async with peer\.session\(…\) as session:`"):
            await peer.session()


def test_an_inquire_that_cannot_be_asked_is_refused_at_the_call() -> None:
    for opens in (connect, connect_sync):
        with pytest.raises(UsageError, match="inquire= takes a function"):
            opens(AGENT, inquire="me")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("workspace", None),
        ("workspace", b"/tmp"),
        ("env", ["A=b"]),
        ("env", {"A": 1}),
        ("inherit", "PATH"),
        ("on_event", "me"),
        ("on_stderr", "me"),
        ("budgets", 5),
    ],
)
def test_an_option_that_would_fail_later_is_refused_at_the_call(option: str, value: object) -> None:
    for opens in (connect, connect_sync):
        with pytest.raises(UsageError, match=f"{option}= takes"):
            opens(AGENT, **{option: value})


def test_what_the_blocking_calls_return_says_that_it_has_to_be_entered(tmp_path: Path) -> None:
    with connect_sync(AGENT, workspace=tmp_path) as peer:
        with pytest.raises(AttributeError, match=r"write `with peer\.session\(…\) as session:`"):
            peer.session().ask("stderr")
        with peer.session() as session:
            with pytest.raises(TypeError, match=r"write `with session\.prompt\(…\) as turn:`"):
                list(session.prompt("stderr"))


@aio
async def test_mistakes_with_open_agent_are_named_at_the_call() -> None:
    open_agent: Any = acp.open_agent
    with pytest.raises(UsageError, match=r"list of strings: pass \['python', 'parrot.py'\]"):
        open_agent("python parrot.py")
    with pytest.raises(UsageError, match=r"list of strings: pass \['/opt/agent'\]"):
        open_agent(Path("/opt/agent"))
    with pytest.raises(UsageError, match="permit= takes a function"):
        careless: Any = "approve-all"
        open_agent(AGENT, options=acp.ClientOptions(permit=careless))
    with pytest.raises(AttributeError, match=r"write `async with open_agent\(…\) as client:`"):
        open_agent(AGENT).new_session("/")
    with pytest.raises(TypeError, match=r"write `async with open_agent\(…\) as client:`"):
        await open_agent(AGENT)


@aio
async def test_a_prompt_that_is_none_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with connect(AGENT, workspace=tmp_path) as peer, peer.session() as session:
        for prompt, told in (
            (b"hi", "not bytes: decode it first"),
            ({"text": "hi"}, "not dict"),
            (["a"], "not list of str"),
            (None, "not NoneType"),
        ):
            with pytest.raises(UsageError, match=f"a prompt is text, or a list of blocks.*{told}"):
                await session.ask(prompt)
        with pytest.raises(UsageError, match="not Unicode text"):
            await session.ask("a\udce4")
        assert (await session.ask([Text("stderr")])).text == "said"
        with pytest.raises(UsageError, match="mcp_servers= takes a list of servers, not dict"):
            async with peer.session(mcp_servers={"a": {"command": "b"}}):
                pytest.fail("opened")
        with pytest.raises(UsageError, match="permit= takes a function"):
            peer.answer_with("approve-all")


def truth(question: Question) -> Any:
    return True


async def nothing(question: Question) -> Any:
    return None


@pytest.mark.parametrize("permit", [truth, nothing])
@aio
async def test_a_permit_that_returns_no_answer_is_named(
    permit: Callable[[Question], Any], tmp_path: Path
) -> None:
    async with connect(AGENT, workspace=tmp_path, permit=permit) as peer:
        async with peer.session() as session:
            result = await session.ask("refused")
            assert not result.ok
            assert isinstance(result.error, UsageError)
            assert f"the permission callback {permit.__name__} returned" in str(result.error)
            assert "did it" not in result.text


def raising(question: Question) -> Any:
    raise ValueError("my bug")


async def raising_later(question: Question) -> Any:
    raise ValueError("my bug")


async def whose_dialog_closes(question: Question) -> Any:
    dialog = asyncio.get_running_loop().create_future()
    dialog.cancel()
    await dialog


async def whose_group_fails(question: Question) -> Any:
    raise asyncio.CancelledError


ESCAPED = "RuntimeError: something that it awaited was cancelled"

RAISED = {
    "without_argument": "TypeError",
    "whose_dialog_closes": ESCAPED,
    "whose_group_fails": ESCAPED,
}


def without_argument() -> Any:
    return Answer.ALLOW_ONCE


@pytest.mark.parametrize(
    "permit",
    [raising, raising_later, without_argument, whose_dialog_closes, whose_group_fails],
)
@pytest.mark.parametrize("dialect", ["acp", "keyed"])
@aio
async def test_a_permit_that_raises_fails_the_turn_and_is_named(
    permit: Callable[..., Any], dialect: str, tmp_path: Path
) -> None:
    async with connect(AGENT, workspace=tmp_path, permit=permit, dialect=dialect) as peer:
        async with peer.session() as session:
            result = await session.ask("refused")
            assert result.outcome is Outcome.FAILED
            assert isinstance(result.error, UsageError)
            kind = RAISED.get(permit.__name__, "ValueError: my bug")
            assert f"the permission callback {permit.__name__} raised {kind}" in str(result.error)
            assert "did it" not in result.text


def test_a_plain_permit_of_the_blocking_calls_is_named(tmp_path: Path) -> None:
    with connect_sync(AGENT, workspace=tmp_path, permit=truth) as peer, peer.session() as session:
        assert "the permission callback truth returned True" in str(session.ask("refused").error)


@aio
async def test_an_exception_in_the_agent_is_shown_where_its_client_raises(tmp_path: Path) -> None:
    async with connect(AGENT, workspace=tmp_path) as peer, peer.session() as session:
        result = await session.ask("divide")
        assert result.outcome is Outcome.FAILED and "incident" in result.failure.message
        with pytest.raises(RemoteError) as caught:
            result.require_ok()
        (note,) = caught.value.__notes__
        assert note.startswith("the agent's stderr:\n")
        assert "ZeroDivisionError: division by zero" in note


@aio
async def test_a_turn_that_was_left_early_says_how_to_get_its_result(tmp_path: Path) -> None:
    async with connect(AGENT, workspace=tmp_path) as peer, peer.session() as session:
        async with session.prompt("stderr") as turn:
            async for _ in turn:
                break
            with pytest.raises(UsageError, match=r"iterate to its end, call turn\.wait"):
                _ = turn.result
        assert turn.result.outcome in (Outcome.CANCELLED, Outcome.OK)
