from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.conversation import Peer
from dragoman.errors import CallTimeout, ConnectionEnded, RemoteError
from dragoman.verify import probes, remedies
from dragoman.verify.peer_process import ExitBehaviour
from dragoman.verify.rungs import robustness
from dragoman.verify.verification import ConnectedPeer
from tests.aio import aio
from tests.unit.verify.fakes import FakeClimb, climbing, verdict


class _Answering(FakeClimb):
    """`answer` is handed the method and the params of each call, and returns what is raised."""

    ended = ExitBehaviour(exited=True, code=0, survivors=0)

    @asynccontextmanager
    async def victim(self) -> AsyncIterator[Peer]:
        yield await self.peer()

    async def successor(self) -> ConnectedPeer:
        connected = await super().successor()

        async def end_input(timeout: float) -> ExitBehaviour:
            return self.ended

        async def aclose() -> None: ...

        connected.running = SimpleNamespace(end_input=end_input)  # type: ignore[assignment]
        connected.peer.aclose = aclose  # type: ignore[method-assign]
        self.second = connected
        return connected


def answering(tmp_path: Path, answer: Any, **fields: Any) -> _Answering:
    climb = climbing(tmp_path, **fields)
    climb.__class__ = _Answering
    assert isinstance(climb, _Answering)

    async def call(method: str, params: Any, *, timeout: float) -> bytes:
        error = answer(method, params)
        if error is not None:
            raise error
        return b"{}"

    climb.client = SimpleNamespace(connection=SimpleNamespace(call=call))
    return climb


CODES = {probes.UNKNOWN_METHOD: -32601, "session/load": -32002, "session/new": -32602}


def usual(method: str, params: Any) -> RemoteError:
    return RemoteError(CODES[method], "no")


@aio
async def test_the_codes_of_three_mistakes_are_recorded(tmp_path: Path) -> None:
    assert verdict(await robustness.codes(answering(tmp_path, usual))) == (
        RungVerdict.PASS,
        {"unknown_method_code": -32601, "unknown_session_code": -32002, "bad_params_code": -32602},
    )


@aio
async def test_a_mistake_that_is_not_answered_leaves_its_code_unknown(tmp_path: Path) -> None:
    def answer(method: str, params: Any) -> Exception:
        return CallTimeout(method, 1) if method == "session/load" else usual(method, params)

    finding = await robustness.codes(answering(tmp_path, answer))
    assert finding.verdict is RungVerdict.WARN
    assert "unknown_session_code" not in finding.facts
    assert finding.facts["bad_params_code"] == -32602


@aio
async def test_a_mistake_that_ends_the_connection_is_a_failure(tmp_path: Path) -> None:
    def answer(method: str, params: Any) -> Exception:
        return ConnectionEnded() if method == "session/new" else usual(method, params)

    finding = await robustness.codes(answering(tmp_path, answer))
    assert finding.verdict is RungVerdict.FAIL
    assert finding.facts.keys() == {"unknown_method_code", "unknown_session_code"}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([RemoteError(-32602, "no")], (RungVerdict.PASS, {"survives_oversized_line": True})),
        ([None], (RungVerdict.PASS, {"survives_oversized_line": True})),
        ([ConnectionEnded()], (RungVerdict.WARN, {"survives_oversized_line": False})),
        (
            [CallTimeout("m", 1), RemoteError(-32602, "no")],
            (RungVerdict.WARN, {"survives_oversized_line": True}),
        ),
        (
            [CallTimeout("m", 1), CallTimeout("m", 1)],
            (RungVerdict.WARN, {"survives_oversized_line": False}),
        ),
    ],
)
@aio
async def test_a_peer_survives_a_long_line_if_it_answers_then_or_afterwards(
    tmp_path: Path, answers: list[Exception | None], expected: Any
) -> None:
    left = iter(answers)
    climb = answering(tmp_path, lambda method, params: next(left))
    climb.facts["bad_params_code"] = -32602
    assert verdict(await robustness.oversized(climb)) == expected


@aio
async def test_a_question_that_was_never_answered_is_not_asked_in_a_long_line(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    def answer(method: str, params: Any) -> Exception:
        asked.append(method)
        return RemoteError(-32601, "no")

    climb = answering(tmp_path, answer)
    assert (await robustness.oversized(climb)).verdict is RungVerdict.SKIPPED
    climb.facts["unknown_method_code"] = -32601
    assert (await robustness.oversized(climb)).facts == {"survives_oversized_line": True}
    assert asked == [probes.UNKNOWN_METHOD]


@pytest.mark.parametrize(
    ("ended", "clean", "remedy"),
    [
        (ExitBehaviour(exited=True, code=0, survivors=0), True, ""),
        (ExitBehaviour(exited=True, code=1, survivors=0), True, ""),
        (ExitBehaviour(exited=True, signal=6, survivors=0), False, remedies.CRASH),
        (ExitBehaviour(exited=False), False, remedies.STAYS),
    ],
)
@aio
async def test_a_clean_exit_is_one_by_itself(
    tmp_path: Path, ended: ExitBehaviour, clean: bool, remedy: str
) -> None:
    climb = answering(tmp_path, usual)
    climb.ended = ended
    finding = await robustness.exit(climb)
    assert finding.facts == {"clean_exit": clean}
    assert finding.remedy == remedy


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        (ExitBehaviour(exited=True, code=0, survivors=0), (RungVerdict.PASS, {"survivors": 0})),
        (ExitBehaviour(exited=True, code=0, survivors=2), (RungVerdict.WARN, {"survivors": 2})),
        (ExitBehaviour(exited=True, code=0), (RungVerdict.SKIPPED, {})),
        (ExitBehaviour(exited=False), (RungVerdict.SKIPPED, {})),
    ],
)
@aio
async def test_survivors_are_known_only_after_an_exit_that_could_be_watched(
    tmp_path: Path, ended: ExitBehaviour, expected: Any
) -> None:
    climb = answering(tmp_path, usual)
    climb.ended = ended
    await robustness.exit(climb)
    assert verdict(await robustness.survivors(climb)) == expected


@aio
async def test_a_peer_behind_an_address_is_not_ended(tmp_path: Path) -> None:
    climb = climbing(tmp_path, way=LaunchSpec(address="ws://127.0.0.1:1"))
    assert (await robustness.exit(climb)).verdict is RungVerdict.SKIPPED
    assert (await robustness.survivors(climb)).verdict is RungVerdict.SKIPPED


@aio
async def test_ids_noise_and_stray_answers_are_what_the_witness_saw(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    assert (await robustness.ids(climb)).facts == {"id_format": "none seen"}
    assert verdict(await robustness.noise(climb)) == (RungVerdict.PASS, {"noise_lines": 0})
    assert verdict(await robustness.answers(climb)) == (RungVerdict.PASS, {"duplicate_answers": 0})
    climb.witness.id_formats |= {"string", "integer"}
    climb.witness.noise_lines, climb.witness.stray_answers = 3, 2
    assert (await robustness.ids(climb)).facts == {"id_format": "integer and string"}
    assert verdict(await robustness.noise(climb)) == (RungVerdict.WARN, {"noise_lines": 3})
    assert verdict(await robustness.answers(climb)) == (RungVerdict.WARN, {"duplicate_answers": 2})
