from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import Raw

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.conversation import Peer
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

ACP = b'{"protocolVersion": 1}'
KEYED = b'{"protocolVersion": 1, "authMethods": ["login"]}'


class _Greeted(FakeClimb):
    """`answers` says what comes of a handshake in each dialect."""

    answers: dict[str, bytes | DragomanError]
    tried: list[str]
    closed: int

    async def connect(self, dialect: str) -> ConnectedPeer:
        self.tried.append(dialect)
        answer = self.answers[dialect]
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
    climb.answers, climb.tried, climb.closed = answers, [], 0
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
    assert climb.tried == ["acp", "codex"]
    assert climb.dialect == "codex"


@aio
async def test_a_dialect_that_looks_like_acp_is_told_apart(tmp_path: Path) -> None:
    climb = greeted(tmp_path, {"acp": KEYED, "keyed": KEYED})
    await handshake.handshake(climb)
    assert climb.dialect == "keyed"
    assert climb.closed == 1


@aio
async def test_codex_words_that_want_a_version_lead_to_acp(tmp_path: Path) -> None:
    refusal = RemoteError(-32602, "protocolVersion is missing")
    climb = greeted(tmp_path, {"codex": refusal, "acp": ACP}, command=("x", "app-server"))
    await handshake.handshake(climb)
    assert climb.tried == ["codex", "acp"]
    assert climb.dialect == "acp"


@aio
async def test_a_dialect_that_was_named_is_the_only_one_tried(tmp_path: Path) -> None:
    shown = ProtocolMismatch("it speaks acp", dialect="acp")
    climb = greeted(tmp_path, {"codex": shown, "acp": ACP}, protocol="codex")
    await handshake.handshake(climb)
    assert climb.tried == ["codex"]
    assert (await handshake.dialect(climb)).verdict is RungVerdict.FAIL


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
    assert climb.tried == ["acp", "codex"]
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
async def test_the_ways_of_not_answering_are_told_apart(
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
    climb = greeted(tmp_path, {"acp": RemoteError(-32601, "what?")})
    assert (await handshake.handshake(climb)).verdict is RungVerdict.PASS
    finding = await handshake.dialect(climb)
    assert (finding.verdict, finding.remedy) == (RungVerdict.FAIL, remedies.REFUSED)
    assert "neither protocol" in finding.evidence and "what?" in finding.evidence


@aio
async def test_a_version_that_nobody_speaks_is_not_taken_for_another_protocol(
    tmp_path: Path,
) -> None:
    climb = greeted(tmp_path, {"acp": ProtocolMismatch("version 77")})
    climb.witness.greeting = b'{"result": {"protocolVersion": 77}}'
    await handshake.handshake(climb)
    assert (await handshake.dialect(climb)).remedy == remedies.VERSION


@aio
async def test_a_login_before_the_first_word_is_asked_for(tmp_path: Path) -> None:
    climb = greeted(tmp_path, {"acp": AuthRequired()})
    await handshake.handshake(climb)
    assert (await handshake.dialect(climb)).remedy == remedies.LOGIN
