from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import Raw

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.conversation import Peer
from dragoman.client.programs import launch_of, program_of
from dragoman.dialects import discovery
from dragoman.dialects.discovery import MemoryCache
from dragoman.errors import (
    AuthRequired,
    CallTimeout,
    ConnectError,
    ConnectionEnded,
    DragomanError,
    LineTooLong,
    ProcessExited,
    ProtocolMismatch,
    RemoteError,
    SpawnError,
)
from dragoman.events.parts import PeerInfo
from dragoman.verify import remedies
from dragoman.verify.rungs import handshake
from dragoman.verify.verification import ConnectedPeer
from tests.aio import aio
from tests.unit.verify.fakes import FakeClimb, climbing, verdict

ACP = b'{"protocolVersion": 1, "agentCapabilities": {"loadSession": true}}'
BARE = b'{"protocolVersion": 1}'
KEYED = b'{"protocolVersion": 1, "authMethods": ["login"]}'


class _Greeted(FakeClimb):
    """`answers` says what comes of a handshake in each dialect."""

    answers: dict[str, bytes | DragomanError]
    greetings: list[str]
    closed: int

    async def connect(
        self, dialect: str, *, proving: bool = False, timeout: float | None = None
    ) -> ConnectedPeer:
        self.greetings.append(dialect)
        answer = self.answers.get(dialect, RemoteError(-32602, f"not {dialect}"))
        if isinstance(answer, DragomanError):
            raise answer

        async def aclose() -> None:
            self.closed += 1

        client = SimpleNamespace(hello=Raw(answer))
        peer = SimpleNamespace(
            client=client, dialect=dialect, info=PeerInfo("agent", None, "1.2"), aclose=aclose
        )
        return ConnectedPeer(cast(Peer, peer), cast(Any, None), 0.25)


def greeted(tmp_path: Path, answers: dict[str, bytes | DragomanError], **way: Any) -> _Greeted:
    climb = climbing(tmp_path, way=LaunchSpec(**{"command": ("x", "--acp"), **way}))
    climb.__class__ = _Greeted
    assert isinstance(climb, _Greeted)
    climb.answers, climb.greetings, climb.closed = answers, [], 0
    return climb


@aio
async def test_an_answer_in_acp_is_a_handshake(tmp_path: Path) -> None:
    climb = greeted(tmp_path, {"acp": ACP})
    assert verdict(await handshake.handshake(climb)) == (
        RungVerdict.PASS,
        {"handshake_seconds": 0.25},
    )
    found = await handshake.dialect(climb)
    assert found.facts["dialect"] == "acp"
    assert found.facts["agent_version"] == "1.2"


@aio
async def test_an_ambiguous_handshake_is_reported(tmp_path: Path) -> None:
    for answer, protocol, shown in (
        (ACP, "auto", True),
        (BARE, "auto", False),
        (BARE, "acp", True),
    ):
        climb = greeted(tmp_path, {"acp": answer}, protocol=protocol)
        await handshake.handshake(climb)
        found = await handshake.dialect(climb)
        assert found.facts["dialect_shown"] is shown
        assert ("may speak keyed" in found.evidence) is not shown


@aio
async def test_what_an_agent_calls_itself_fits_into_one_line_of_a_card(tmp_path: Path) -> None:
    climb = greeted(tmp_path, {"acp": ACP})
    await handshake.handshake(climb)
    assert climb.first is not None
    lie = "x\nok    permission    it asks" + "!" * 1_000_000
    cast(Any, climb.first.peer).info = PeerInfo(lie, None, lie)
    facts = (await handshake.dialect(climb)).facts
    for name in ("agent_name", "agent_version"):
        assert "\n" not in facts[name]
        assert len(facts[name]) <= 200


@aio
async def test_the_same_launch_is_started_again_for_the_dialect_that_the_answer_shows(
    tmp_path: Path,
) -> None:
    shown = ProtocolMismatch("it speaks codex", dialect="codex")
    climb = greeted(tmp_path, {"acp": shown, "codex": b"{}"})
    assert (await handshake.handshake(climb)).verdict is RungVerdict.PASS
    assert climb.greetings == ["acp", "codex"]
    assert climb.dialect == "codex"


@aio
async def test_a_dialect_that_looks_like_acp_is_distinguished(tmp_path: Path) -> None:
    climb = greeted(tmp_path, {"acp": KEYED, "keyed": KEYED})
    await handshake.handshake(climb)
    assert climb.dialect == "keyed"
    assert climb.closed == 1


@aio
async def test_codex_words_that_want_a_version_lead_to_acp(tmp_path: Path) -> None:
    refusal = RemoteError(-32602, "protocolVersion is missing")
    climb = greeted(tmp_path, {"codex": refusal, "acp": ACP}, command=("x", "app-server"))
    await handshake.handshake(climb)
    assert climb.greetings == ["codex", "acp"]
    assert climb.dialect == "acp"


@aio
async def test_a_dialect_that_was_named_is_the_only_one_tried(tmp_path: Path) -> None:
    shown = ProtocolMismatch("it speaks acp", dialect="acp")
    climb = greeted(tmp_path, {"codex": shown, "acp": ACP}, protocol="codex")
    await handshake.handshake(climb)
    assert climb.greetings == ["codex"]
    finding = await handshake.dialect(climb)
    assert (finding.verdict, finding.remedy) == (RungVerdict.FAIL, remedies.OTHER_DIALECT)
    assert "does not speak codex" in finding.evidence


@aio
async def test_two_dialects_that_point_at_each_other_are_given_up(tmp_path: Path) -> None:
    climb = greeted(
        tmp_path,
        {
            "acp": ProtocolMismatch("codex", dialect="codex"),
            "codex": ProtocolMismatch("acp", dialect="acp"),
        },
    )
    await handshake.handshake(climb)
    assert climb.greetings == ["acp", "codex", "oneshot", "tagged", "keyed", "threads", "chained"]
    assert climb.first is None


@pytest.mark.parametrize(
    ("error", "noise", "remedy"),
    [
        (ProcessExited(exit_code=2, stderr_tail="Usage: x"), "", remedies.USAGE),
        (ProcessExited(exit_code=0), "'hello'", remedies.USAGE),
        (ProcessExited(exit_code=None, signal=11), "", remedies.CRASH),
        (CallTimeout("initialize", 30), "", remedies.SILENT),
        (CallTimeout("initialize", 30), "'Welcome'", remedies.PERSON),
        (LineTooLong(16), "", remedies.PERSON),
        (SpawnError("no interpreter"), "", remedies.START),
        (ConnectError("refused"), "", remedies.SILENT),
        (ConnectionEnded(), "", remedies.SILENT),
    ],
)
@aio
async def test_the_ways_of_not_answering_are_distinguished(
    tmp_path: Path, error: DragomanError, noise: str, remedy: str
) -> None:
    climb = greeted(tmp_path, {"acp": error})
    climb.witness.noise_sample = noise
    finding = await handshake.handshake(climb)
    assert verdict(finding) == (RungVerdict.FAIL, {})
    assert finding.remedy == remedy
    assert noise in finding.evidence
    if isinstance(error, ProcessExited):
        assert error.stderr_tail in finding.evidence


@aio
async def test_a_peer_that_speaks_no_protocol_is_refused_with_what_it_said(tmp_path: Path) -> None:
    climb = greeted(tmp_path, {"acp": RemoteError(-32600, "what?")})
    assert (await handshake.handshake(climb)).verdict is RungVerdict.PASS
    finding = await handshake.dialect(climb)
    assert (finding.verdict, finding.remedy) == (RungVerdict.FAIL, remedies.REFUSED)
    assert "no known protocol" in finding.evidence and "what?" in finding.evidence
    assert "acp, oneshot, tagged, keyed, threads, chained were tried" in finding.evidence


@pytest.mark.parametrize(
    ("refusal", "dialect", "greetings"),
    [
        (-32602, "oneshot", ["acp", "oneshot"]),
        (-32602, "tagged", ["acp", "oneshot", "tagged"]),
        (-32601, "threads", ["acp", "threads"]),
        (-32601, "chained", ["acp", "threads", "chained"]),
    ],
)
@aio
async def test_a_peer_that_refuses_acp_is_greeted_in_the_other_dialects(
    tmp_path: Path, refusal: int, dialect: str, greetings: list[str]
) -> None:
    cache = MemoryCache()
    answers: dict[str, bytes | DragomanError] = {
        "acp": RemoteError(refusal, "no"),
        dialect: b"{}",
    }
    climb = greeted(tmp_path, answers, command=(sys.executable, "agent"))
    climb.cache = cache
    found = await handshake.handshake(climb)
    assert (found.verdict, climb.dialect) == (RungVerdict.PASS, dialect)
    assert climb.greetings == greetings
    assert (await handshake.dialect(climb)).facts["dialect"] == dialect
    program = program_of([sys.executable])
    assert program is not None
    key = discovery.dialect_concept(launch_of((sys.executable, "agent")))
    assert cache.get(program, key) == dialect


@aio
async def test_a_greeting_that_makes_it_exit_is_followed_by_the_next(tmp_path: Path) -> None:
    answers: dict[str, bytes | DragomanError] = {
        "acp": RemoteError(-32602, "no"),
        "oneshot": ProcessExited(exit_code=1),
        "tagged": CallTimeout("initialize", 10),
        "keyed": KEYED,
    }
    climb = greeted(tmp_path, answers)
    assert (await handshake.handshake(climb)).verdict is RungVerdict.PASS
    assert climb.dialect == "keyed"


@aio
async def test_an_unknown_version_is_not_taken_for_another_protocol(
    tmp_path: Path,
) -> None:
    climb = greeted(tmp_path, {"acp": ProtocolMismatch("version 77", version="77")})
    climb.witness.greeting = b'{"result": {"protocolVersion": 77}}'
    await handshake.handshake(climb)
    assert climb.greetings == ["acp"]
    assert (await handshake.dialect(climb)).remedy == remedies.VERSION


@aio
async def test_a_login_before_the_first_word_is_asked_for(tmp_path: Path) -> None:
    climb = greeted(tmp_path, {"acp": AuthRequired()})
    await handshake.handshake(climb)
    assert climb.greetings == ["acp"]
    assert (await handshake.dialect(climb)).remedy == remedies.LOGIN
