from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.descriptor import Quirks
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.conversation import Peer
from dragoman.errors import CallTimeout, ConfigInvalid, RemoteError, Unsupported
from dragoman.events.parts import Capabilities
from dragoman.verify.canary_prompts import Canaries
from dragoman.verify.rungs import second_process
from dragoman.verify.verification import TurnObservation
from tests.aio import aio
from tests.unit.verify.fakes import FakeClimb, climbing, piece, told, verdict

GONE = RemoteError(-32002, "no such session")


class _Listing(FakeClimb):
    known: tuple[str, ...] | Exception = ()

    async def peer(self) -> Peer:
        peer = await super().peer()

        async def list_sessions(cwd: object = None) -> AsyncIterator[Any]:
            if isinstance(self.known, Exception):
                raise self.known
            for id in self.known:
                yield SimpleNamespace(id=id)

        peer.list_sessions = list_sessions  # type: ignore[method-assign]
        return peer


def listing(tmp_path: Path, known: tuple[str, ...] | Exception, *, spoken: bool) -> _Listing:
    climb = climbing(tmp_path)
    climb.__class__ = _Listing
    assert isinstance(climb, _Listing)
    climb.known, climb.spoken = known, spoken
    return climb


@aio
async def test_a_session_that_another_process_lists_is_remembered(tmp_path: Path) -> None:
    found = await second_process.listing(listing(tmp_path, ("s-0", "s-1"), spoken=False))
    assert verdict(found) == (RungVerdict.PASS, {"lists_sessions": True})


@aio
async def test_a_list_is_read_until_the_session_is_found_or_the_limit_is_reached(
    tmp_path: Path,
) -> None:
    class Endless(tuple[str, ...]):
        asked = 0

        def __iter__(self) -> Iterator[str]:
            for Endless.asked in count(1):
                yield f"other-{Endless.asked}"

    found = await second_process.listing(listing(tmp_path, Endless(), spoken=True))
    assert verdict(found) == (RungVerdict.WARN, {"lists_sessions": False})
    assert Endless.asked == second_process.MAX_LISTED
    climb = listing(tmp_path, ("s-0", "s-1"), spoken=True)
    climb.session_id = "s-1"
    assert "at position 2" in (await second_process.listing(climb)).evidence


@aio
async def test_a_session_without_a_turn_that_is_not_listed_is_unknown_and_not_a_no(
    tmp_path: Path,
) -> None:
    assert (await second_process.listing(listing(tmp_path, (), spoken=False))).facts == {}
    found = await second_process.listing(listing(tmp_path, (), spoken=True))
    assert verdict(found) == (RungVerdict.WARN, {"lists_sessions": False})


@pytest.mark.parametrize("spoken", [True, False])
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (CallTimeout("session/list", 1), "no answer to session/list within 1 s"),
        (TimeoutError(), "it did not finish within "),
    ],
)
@aio
async def test_a_list_that_is_never_answered_is_a_no_in_any_case(
    tmp_path: Path, error: Exception, why: str, spoken: bool
) -> None:
    found = await second_process.listing(listing(tmp_path, error, spoken=spoken))
    assert found.facts == {"lists_sessions": False}
    assert found.evidence.startswith(f"no answer when asked to list: {why}")


@aio
async def test_what_a_peer_does_not_advertise_is_a_no_without_asking(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.ability = Capabilities()
    climb.reopening = AssertionError("it was asked")
    assert (await second_process.listing(climb)).facts == {"lists_sessions": False}
    assert (await second_process.load(climb)).facts == {"loads_sessions": False}
    assert (await second_process.resume(climb)).facts == {"resumes_sessions": False}


@pytest.mark.parametrize(("spoken", "facts"), [(True, {"loads_sessions": False}), (False, {})])
@aio
async def test_a_refused_load_is_a_no_only_for_a_session_with_a_turn(
    tmp_path: Path, spoken: bool, facts: dict[str, Any]
) -> None:
    climb = climbing(tmp_path)
    climb.spoken, climb.reopening = spoken, GONE
    assert (await second_process.load(climb)).facts == facts


@aio
async def test_a_load_that_brings_nothing_back_is_a_no(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.spoken = True
    assert verdict(await second_process.load(climb)) == (
        RungVerdict.WARN,
        {"loads_sessions": False},
    )
    climb.replayed = (piece(),)
    assert verdict(await second_process.load(climb)) == (RungVerdict.PASS, {"loads_sessions": True})


@aio
async def test_a_peer_that_loads_any_session_has_not_proved_that_it_remembers_one(
    tmp_path: Path,
) -> None:
    climb = climbing(tmp_path)
    climb.facts["unknown_session_code"] = 0
    assert (await second_process.load(climb)).facts == {}


@aio
async def test_a_peer_that_would_lose_its_session_is_not_asked_to_load_it_yet(
    tmp_path: Path,
) -> None:
    quirks = Quirks(loads_next_minute=True)
    climb = climbing(tmp_path, way=LaunchSpec(command=("x",), quirks=quirks))
    climb.spoken, climb.replayed = True, (piece(),)
    climb.session_began = datetime.now(UTC) + timedelta(minutes=1)
    assert verdict(await second_process.load(climb)) == (RungVerdict.SKIPPED, {})
    climb.session_began = datetime.now(UTC) - timedelta(minutes=1)
    assert verdict(await second_process.load(climb)) == (RungVerdict.PASS, {"loads_sessions": True})


@aio
async def test_a_resume_that_works_is_a_yes_and_one_that_hangs_a_no(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    assert (await second_process.resume(climb)).facts == {"resumes_sessions": True}
    climb.reopening = CallTimeout("session/resume", 1)
    assert (await second_process.resume(climb)).facts == {"resumes_sessions": False}


@aio
async def test_a_server_that_left_its_mark_was_started(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    (climb.surroundings.marks / "mcp").write_text("started\ninitialize\n")
    finding = await second_process.mcp(climb)
    assert verdict(finding) == (RungVerdict.PASS, {"mcp": True})
    assert "started, initialize" in finding.evidence


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes of POSIX")
@aio
async def test_a_mark_that_the_peer_made_a_named_pipe_is_an_error(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    os.mkfifo(climb.surroundings.marks / "mcp")
    with pytest.raises(ConfigInvalid, match="not a regular file"):
        await second_process.mcp(climb)


@aio
async def test_a_server_that_a_turn_would_start_is_unknown_without_turns(tmp_path: Path) -> None:
    climb = climbing(tmp_path, turns=False)
    assert verdict(await second_process.mcp(climb)) == (RungVerdict.PASS, {})


@aio
async def test_a_server_may_be_started_when_its_tool_is_asked_for(tmp_path: Path) -> None:
    climb = climbing(tmp_path)

    def act(prompt: str, climb: FakeClimb) -> TurnObservation:
        assert "dragoman-canary" in prompt
        (climb.surroundings.marks / "mcp").write_text("started\n")
        return told()

    climb.act = act
    assert (await second_process.mcp(climb)).facts == {"mcp": True}


@aio
async def test_a_server_that_not_even_a_turn_starts_is_a_no(tmp_path: Path) -> None:
    assert (await second_process.mcp(climbing(tmp_path))).facts == {"mcp": False}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Unsupported("it takes none"), (RungVerdict.SKIPPED, {})),
        (GONE, (RungVerdict.WARN, {"mcp": False})),
    ],
)
@aio
async def test_a_dialect_without_servers_is_distinguished_from_a_refusal(
    tmp_path: Path, error: Exception, expected: Any
) -> None:
    climb = climbing(tmp_path)
    climb.reopening = error
    assert verdict(await second_process.mcp(climb)) == expected


def test_the_server_is_run_by_its_path_so_that_nothing_has_to_be_installed(tmp_path: Path) -> None:
    server = second_process.canary(tmp_path / "mark")
    assert Path(server.args[0]).name == "canary_mcp_server.py"
    assert Path(server.args[0]).is_file()


@aio
async def test_a_peer_without_tools_is_a_no_at_once_and_is_handed_no_server(tmp_path: Path) -> None:
    climb = climbing(tmp_path, canaries=Canaries(tool=""))
    climb.reopening = AssertionError("a session was opened")
    assert verdict(await second_process.mcp(climb)) == (RungVerdict.PASS, {"mcp": False})
