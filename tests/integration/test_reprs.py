"""What a program sees when it prints a peer, a session, a turn, an event or a result."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dragoman import Agent, connect, connect_sync
from tests.aio import aio

AGENT = [sys.executable, str(Path(__file__).with_name("shown_agent.py"))]


@aio
async def test_what_a_connection_gives_says_what_it_is(tmp_path: Path) -> None:
    opening = connect(AGENT, workspace=tmp_path)
    assert "write `async with connect(…) as peer:`" in repr(opening)
    async with opening as peer:
        assert repr(peer) == f"<Peer 'shown 1.2', acp, in {str(tmp_path)!r}>"
        assert "write `async with peer.session(…) as session:`" in repr(peer.session())
        async with peer.session() as session:
            assert repr(session) == f"<Session {session.id!r}, idle>"
            async with session.prompt("hi") as turn:
                assert repr(turn) == f"<Turn of session {session.id!r}, running>"
                assert repr(session) == f"<Session {session.id!r}, in a turn>"
                events = [repr(event) async for event in turn]
            place = rf"seq=\d+, session='{session.id}', turn='t1'\)"
            assert re.fullmatch(rf"TurnStarted\(prompt=\(Text\(text='hi'\),\), {place}", events[0])
            said = r"MessageDelta\(role=<Role.AGENT: 'agent'>, text="
            assert any(re.match(said, event) for event in events)
            result = "Result(outcome=<Outcome.OK: 'ok'>, text="
            assert repr(turn.result).startswith(result)
            assert repr(turn.result).endswith(", stop='end_turn')")
            assert repr(turn).startswith(f"<Turn of session {session.id!r}, ended, {result}")
            # The agent said what its own values look like.
            agent, own_session, own_turn, tool, over = turn.result.text.splitlines()
    assert agent == "<Agent 'shown' 1.2>"
    assert own_session == f"<Session {session.id!r} in {str(tmp_path)!r}>"
    assert own_turn == f"<Turn of session {session.id!r}, running, 'hi'>"
    assert re.fullmatch(r"<ToolCall '.+', running, 'Look'>", tool)
    assert re.fullmatch(r"<ToolCall '.+', done, 'Look'>", over)


def test_what_a_blocking_connection_gives_says_what_it_is(tmp_path: Path) -> None:
    opening = connect_sync(AGENT, workspace=tmp_path)
    assert "write `with connect_sync(…) as peer:`" in repr(opening)
    with opening as peer, peer.session() as session:
        assert repr(peer).startswith("<BlockingPeer 'shown 1.2', acp")
        assert repr(session).startswith("<BlockingSession ")
        with session.prompt("hi") as turn:
            assert repr(turn).startswith("<BlockingTurn of session ")


def test_an_agent_is_named() -> None:
    assert repr(Agent("parrot")) == "<Agent 'parrot' 0.0.0>"
