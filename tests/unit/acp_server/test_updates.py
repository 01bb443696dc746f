"""What happens in one session, told to its client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import Raw

from dragoman.agent import Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.transports.base import HIGH_WATER_SIZE
from dragoman.transports.memory import MemoryStream
from tests.aio import aio
from tests.unit.acp_server.stage import Peer, house
from tests.unit.rpc.other_side import soon, turns, until


def playing(peer: Peer, *updates: acp.SessionUpdate) -> Peer:
    async def play(turn: Turn) -> None:
        for update in updates:
            await turn.update(update)

    peer.agent.handlers.prompt = play
    return peer


@aio
async def test_updates_pass_as_they_came_under_the_clients_name_of_the_session(
    tmp_path: Path,
) -> None:
    said = acp.AgentMessageChunk(
        content=acp.TextContent(text="hi"), message_id="m", meta={"of": "the peer"}
    )
    call = acp.ToolCall(tool_call_id="t", title="Look", raw_input={"any": [1, {"thing": None}]})
    left = playing(Peer("left"), call, said)
    async with house(tmp_path, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "go")
        assert {update["session"] for update in editor.updates} == {session}
        (told,) = editor.told("tool_call")
        assert told["rawInput"] == {"any": [1, {"thing": None}]}
        (told,) = editor.told("agent_message_chunk")
        assert told["_meta"] == {"of": "the peer"} and told["messageId"] == "m"


@aio
async def test_half_an_emoji_costs_no_other_text(tmp_path: Path) -> None:
    left = Peer("left")

    async def play(turn: Turn) -> None:
        text = b'{"type":"text","text":"a smile \\ud83d here"}'
        update = b'{"sessionUpdate":"agent_message_chunk","content":%b}' % text
        params = b'{"sessionId":"%b","update":%b}' % (turn.session.id.encode(), update)
        await turn.client._notify("session/update", Raw(params))

    left.agent.handlers.prompt = play
    async with house(tmp_path, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "go")
        (told,) = editor.told("agent_message_chunk")
        assert told["content"]["text"] == "a smile \ufffd here"


@aio
async def test_what_the_client_does_not_support_is_sent_in_another_form_or_not_at_all(
    tmp_path: Path,
) -> None:
    notice = acp.Notice(severity="info", title="Look", description="there")
    echo = acp.UserMessageChunk(content=acp.TextContent(text="what was said"))
    left = playing(Peer("left"), notice, echo)
    async with house(tmp_path, left) as home:
        async with home.editor() as editor:
            await editor.hello()
            session = await editor.open(home.work, peer="left")
            await editor.prompt(session, "go")
            assert editor.told("notice") == [] and editor.told("user_message_chunk") == []
            assert editor.told("agent_thought_chunk")[0]["content"]["text"] == "Look: there\n"
        async with home.editor() as editor:
            await editor.hello(session={"notices": {}})
            session = await editor.open(home.work, peer="left")
            await editor.prompt(session, "go")
            assert [update["title"] for update in editor.told("notice")] == ["Look"]


@pytest.mark.parametrize("kind", ["forwarded", "translated"])
@aio
async def test_an_update_too_long_for_the_client_is_left_out_and_the_turn_succeeds(
    kind: str, tmp_path: Path
) -> None:
    long = acp.TextContent(text="x" * 9000)
    update = acp.AgentMessageChunk(content=long)
    notice = acp.Notice(severity="info", title=long.text)
    last = acp.AgentMessageChunk(content=acp.TextContent(text="last"))
    left = playing(Peer("left"), update if kind == "forwarded" else notice, last)
    async with house(tmp_path, left) as home, home.editor(max_line_size=8000) as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        assert await editor.prompt(session, "go") == "end_turn"
        (told,) = editor.told("agent_thought_chunk")
        assert "was left out: the message is 9" in told["content"]["text"]
        assert editor.text == "last"


@aio
async def test_option_changes_by_the_peer_are_sent_with_ours(tmp_path: Path) -> None:
    left = Peer("left")

    async def switch(turn: Turn) -> None:
        await turn.option("model", "large")
        await turn.mode("plan")

    left.agent.handlers.prompt = switch
    async with house(tmp_path, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "go")
        last = editor.told("config_option_update")[-1]
        now = {one["id"]: one["currentValue"] for one in last["configOptions"]}
        assert now == {"peer": "left", "role": "execute", "mode": "plan", "model": "large"}
        assert editor.told("current_mode_update")[-1]["currentModeId"] == "plan"


@aio
async def test_a_stalled_client_gets_the_events_around_a_turn_in_order(tmp_path: Path) -> None:
    left, go_on, gone_on = Peer("left"), asyncio.Event(), asyncio.Event()

    async def answer(turn: Turn) -> None:
        connection, word = turn.client._connection, turn.text

        def say(text: str) -> None:
            chunk = acp.AgentMessageChunk(content=acp.TextContent(text=text))
            update = acp.SessionNotification(session_id=turn.session.id, update=chunk)
            connection.post("session/update", update)

        async def later() -> None:
            await turn.ended.wait()
            await go_on.wait()
            for number in range(3):
                say(f"after {word}{number} {'x' * (0 if word else HIGH_WATER_SIZE)}")
            if word:
                gone_on.set()

        say(f"in {word}")
        connection.tasks.start(later(), "go on")

    left.agent.handlers.prompt = answer
    async with house(tmp_path, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        # Without text, so that the next prompt gives the session its title.
        await editor.prompt(session, "")
        editor.updates.clear()
        stream = editor.connection._stream
        assert isinstance(stream, MemoryStream)
        stream.pause_reading()
        go_on.set()
        await until(lambda: stream._twin.unsent_size > HIGH_WATER_SIZE)
        answered: list[int] = []
        editor.connection.begin(
            "session/prompt",
            {"sessionId": session, "prompt": [{"type": "text", "text": "two "}]},
            settle=lambda result, error: answered.append(len(editor.updates)),
        )
        await soon(gone_on.wait())
        await turns(100)
        stream.resume_reading()
        await editor.until(lambda it: it.text.endswith("after two 2 "))
        told = [
            update["content"]["text"].rstrip("x ") if "content" in update else update["title"]
            for update in editor.updates
        ]
    before = ["after 0", "after 1", "after 2"]
    turn, after = ["two", "in two"], ["after two 0", "after two 1", "after two 2"]
    assert told == [*before, *turn, *after]
    assert answered == [len(before) + len(turn)]


@aio
async def test_a_title_of_the_peer_is_the_title_of_the_session(tmp_path: Path) -> None:
    async with house(tmp_path, Peer("left")) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "title The great work")
        titles = [update["title"] for update in editor.told("session_info_update")]
        assert titles == ["title The great work", "The great work"]
        (listed,) = (await editor.call("session/list"))["sessions"]
        assert listed["title"] == "The great work"


@aio
async def test_every_piece_of_a_long_answer_comes_once_and_in_order(tmp_path: Path) -> None:
    left = Peer("left")

    async def talk(turn: Turn) -> None:
        for number in range(3_000):
            await turn.say(f"{number} ")

    left.agent.handlers.prompt = talk
    async with house(tmp_path, left) as home, home.editor() as editor:
        await editor.hello()
        session = await editor.open(home.work, peer="left")
        await editor.prompt(session, "go")
        assert editor.text == "".join(f"{number} " for number in range(3_000))
