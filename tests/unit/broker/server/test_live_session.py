"""One session of the peer, shared by callers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec import Raw

from dragoman.broker.server.live_session import FLUSH_SIZE, LiveSession
from dragoman.broker.server.recorder import BrokerRecorder
from dragoman.dialects.acp import v1 as acp
from dragoman.wire.messages import Notification
from tests.aio import aio
from tests.unit.broker.near import NearAgent, Notes, called, near, notice


@asynccontextmanager
async def session(tmp_path: Path) -> AsyncIterator[tuple[LiveSession, Notes]]:
    notes = Notes()
    async with near(NearAgent()) as far:
        live = LiveSession(
            cast(BrokerRecorder, notes),
            far,
            "s1",
            key="s-k",
            name=None,
            cwd=tmp_path,
            mcp_servers=Raw(b"[]"),
        )
        far.upstream.route("s1", live)
        yield live, notes


@aio
async def test_outside_of_turns_all_who_have_it_open_hear_and_in_a_turn_its_owner(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as (live, _), called() as (one, first, _):
        async with called() as (two, second, _), called() as (three, third, _):
            live.open_for(one, "s1")
            live.open_for(two, "s1")
            live.reader(three).attached = True
            live.reader(three).want()
            live.update(notice("s1", "outside"))
            live.turn_began(one)
            live.update(notice("s1", "turn"))
            live.turn_ended()
            live.update(notice("s1", "after"))
            await first.until(lambda: "after" in first.heard)
            await second.until(lambda: "after" in second.heard)
            await third.until(lambda: "after" in third.heard)
            assert first.heard == ["outside", "turn", "after"]
            assert second.heard == ["outside", "after"]
            assert third.heard == ["outside", "turn", "after"]
            assert live.log.next == 3


@aio
async def test_what_happens_is_marked_to_be_stored_once_and_handed_over_when_it_is_much(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as (live, notes):
        live.update(notice("s1", "a"))
        live.update(notice("s1", "b"))
        assert (notes.marked, notes.saved) == ([live], [])
        live.update(notice("s1", "x" * FLUSH_SIZE))
        assert notes.saved == [live]


@aio
async def test_updates_that_come_together_reach_log_and_readers_like_single_ones(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as (live, notes), called() as (one, first, _):
        live.open_for(one, "s1")
        live.update_all([notice("s1", "a"), notice("s1", "b")])
        assert (notes.marked, notes.saved) == ([live], [])
        live.update_all([notice("s1", "x" * FLUSH_SIZE), notice("s1", "c")])
        assert notes.saved == [live]
        await first.until(lambda: "c" in first.heard)
        assert first.heard == ["a", "b", "x" * FLUSH_SIZE, "c"]
        assert live.log.next == 4
        live.hold_updates()
        live.update_all([notice("s1", "d"), notice("s1", "e")])
        assert live.log.next == 4
        live.pass_held_updates()
        await first.until(lambda: "e" in first.heard)
        assert first.heard[4:] == ["d", "e"]


@aio
async def test_one_update_that_is_too_long_is_left_out_and_not_those_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with session(tmp_path) as (live, _), called() as (one, first, _):
        live.open_for(one, "s1")
        limit = one.connection.settings.max_line_size
        live.update_all([notice("s1", "a"), notice("s1", "x" * limit), notice("s1", "b")])
        await first.until(lambda: "b" in first.heard)
        assert first.heard == ["a", "b"]
        assert "could not send an update to a caller" in caplog.text


@aio
async def test_a_reader_that_is_slow_gets_updates_that_came_together_later(tmp_path: Path) -> None:
    async with session(tmp_path) as (live, _), called() as (one, first, _):
        live.open_for(one, "s1")
        for number in range(200):
            live.update_all([notice("s1", f"{number}-{part}" + "x" * 20_000) for part in "ab"])
        await first.until(lambda: len(first.heard) == 400)
        expected = [f"{number}-{part}" for number in range(200) for part in "ab"]
        assert [text.rstrip("x") for text in first.heard] == expected


@aio
async def test_history_that_is_repeated_is_not_logged_and_goes_to_who_asked(tmp_path: Path) -> None:
    async with session(tmp_path) as (live, _), called() as (one, first, _):
        async with called() as (two, second, _):
            live.open_for(one, "s1")
            live.open_for(two, "s1")
            live.begin_replay(one)
            live.update(notice("s1", "old"))
            live.end_replay()
            live.update(notice("s1", "new"))
            await first.until(lambda: "new" in first.heard)
            await second.until(lambda: "new" in second.heard)
            assert (first.heard, second.heard) == (["old", "new"], ["new"])
            assert live.log.next == 1


@aio
async def test_settings_are_taken_over_from_updates_and_from_what_callers_set(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as (live, _):
        modes = acp.SessionModeState(
            current_mode_id="a",
            available_modes=[acp.SessionMode(id=each, name=each) for each in "abc"],
        )
        live.sheltered.opened(modes, None, None)
        assert live.settings()["modes"]["currentModeId"] == "a"
        live.update(_update({"sessionUpdate": "current_mode_update", "currentModeId": "b"}))
        assert live.settings()["modes"]["currentModeId"] == "b", "also before it is stored"
        params = Raw(b'{"sessionId":"s1","modeId":"c"}')
        live.was_set("session/set_mode", params, Raw(b"{}"))
        assert live.settings()["modes"]["currentModeId"] == "c"
        live.was_set("session/set_mode", Raw(b"[]"), Raw(b"{}"))
        options: dict[str, Any] = {"configOptions": []}
        live.was_set("session/set_config_option", params, Raw(msgspec.json.encode(options)))
        assert live.settings()["configOptions"] == []


def _update(update: dict[str, Any]) -> Notification:
    raw = msgspec.json.encode({"sessionId": "s1", "update": update})
    return Notification("session/update", Raw(raw), raw)


@aio
async def test_a_session_that_moved_is_reported_under_the_old_name(tmp_path: Path) -> None:
    async with session(tmp_path) as (live, _), called() as (one, first, _):
        live.open_for(one, "s1")
        async with near(NearAgent(), 2) as second:
            live.moved(second, "s9")
            assert (live.id, live.name_for(one), live.renamed) == ("s9", "s1", True)
            assert second.upstream.__contains__("s9")
            live.update(notice("s9", "here"))
            await first.until(lambda: first.heard)
            live.lost()
            assert live.far.generation == 1


@aio
async def test_a_caller_that_leaves_hears_nothing_more(tmp_path: Path) -> None:
    async with session(tmp_path) as (live, _), called() as (one, _, _):
        live.open_for(one, "s1")
        assert one.sessions == {"s1": live}
        live.close_for(one)
        assert (live.live, live.readers, one.sessions) == ([], {}, {})
        live.close_for(one)
