from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.descriptor import Quirks
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.conversation import Conversation
from dragoman.client.results import Result
from dragoman.errors import BudgetExceeded, DragomanError, LineTooLong, RemoteError
from dragoman.events import model
from dragoman.events.parts import Usage
from dragoman.events.words import Outcome
from dragoman.verify import remedies
from dragoman.verify.canary_prompts import Canaries
from dragoman.verify.rungs import turns
from tests.aio import aio
from tests.unit.verify.fakes import OK, FakeClimb, climbing, piece, told, verdict


def ended(outcome: Outcome, stop: str = "", error: DragomanError | None = None) -> Result:
    return Result(outcome, "", stop, error=error)


@aio
async def test_a_turn_with_text_is_an_echo_and_proves_the_login(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    assert verdict(await turns.echo(climb)) == (
        RungVerdict.PASS,
        {"echo": True, "authenticated": True},
    )
    assert climb.told is not None
    assert climb.spoken


@pytest.mark.parametrize(
    ("result", "remedy"),
    [
        (ended(Outcome.CRASHED), remedies.CRASHED),
        (ended(Outcome.PROTOCOL_ERROR, error=LineTooLong(16)), remedies.LONG_LINE),
        (ended(Outcome.PROTOCOL_ERROR), remedies.ECHO),
        (
            ended(Outcome.PROTOCOL_ERROR, error=RemoteError(-32602, "missing content")),
            remedies.OTHER_PARAMS,
        ),
        (ended(Outcome.TIMED_OUT), remedies.HANGS),
        (ended(Outcome.EMPTY, "end_turn"), remedies.EMPTY),
        (ended(Outcome.OK, "end_turn"), remedies.EMPTY),
        (ended(Outcome.QUOTA), remedies.ECHO),
    ],
)
@aio
async def test_a_turn_without_an_answer_fails_with_what_to_do_about_it(
    tmp_path: Path, result: Result, remedy: str
) -> None:
    climb = climbing(tmp_path)
    climb.act = lambda prompt, climb: told(result)
    finding = await turns.echo(climb)
    assert verdict(finding) == (RungVerdict.FAIL, {"echo": False})
    assert finding.remedy == remedy
    assert not climb.spoken


@aio
async def test_a_login_that_shows_only_in_a_prompt_is_reported(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.act = lambda prompt, climb: told(ended(Outcome.AUTH_REQUIRED))
    finding = await turns.echo(climb)
    assert verdict(finding) == (RungVerdict.FAIL, {"echo": False, "authenticated": False})
    assert finding.remedy == remedies.LOGIN


@aio
async def test_a_text_that_is_known_to_be_an_error_is_not_an_echo(tmp_path: Path) -> None:
    way = LaunchSpec(command=("x",), quirks=Quirks(error_texts=("Error:",)))
    climb = climbing(tmp_path, way=way)
    climb.act = lambda prompt, climb: told(Result(Outcome.OK, "Error: 400", "end_turn"))
    assert (await turns.echo(climb)).facts == {"echo": False}


@aio
async def test_empty_pieces_do_not_make_a_stream(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.told = told(OK, piece("all"), piece(""))
    assert (await turns.streaming(climb)).facts == {"streaming": False}
    climb.told = told(OK, piece("a"), piece("b"))
    assert (await turns.streaming(climb)).facts == {"streaming": True}


@aio
async def test_how_full_a_context_is_says_nothing_about_a_turns_tokens(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.told = told(Result(Outcome.OK, "x", usage=Usage(context_used=5, context_size=10)))
    assert (await turns.usage(climb)).facts == {"usage": False}
    climb.told = told(Result(Outcome.OK, "x", usage=Usage(output_tokens=0)))
    assert (await turns.usage(climb)).facts == {"usage": True}


@aio
async def test_every_update_has_to_name_its_turn(tmp_path: Path) -> None:
    named = b'{"params":{"turnId":"t"}}'
    climb = climbing(tmp_path)
    climb.told = told(OK, piece("a", named), piece("b", b'{"params":{}}'))
    assert (await turns.turn_ids(climb)).facts == {"turn_ids": False}
    climb.told = told(OK, piece("a", named))
    assert (await turns.turn_ids(climb)).facts == {"turn_ids": True}
    climb.told = told(OK)
    assert (await turns.turn_ids(climb)).verdict is RungVerdict.SKIPPED


@aio
async def test_what_came_after_the_end_is_named(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    climb.told = told(OK, after=(piece(),))
    finding = await turns.late_updates(climb)
    assert verdict(finding) == (RungVerdict.WARN, {"late_updates": True})
    assert "session/update" in finding.evidence


@aio
async def test_no_failure_is_provoked_if_the_trigger_is_unknown(tmp_path: Path) -> None:
    assert (await turns.errors(climbing(tmp_path))).verdict is RungVerdict.SKIPPED


@aio
async def test_a_failure_that_is_silent_is_neither_a_text_nor_an_error(tmp_path: Path) -> None:
    climb = climbing(tmp_path, canaries=Canaries(failure="fail"))
    silent = ended(Outcome.TIMED_OUT, "timeout", BudgetExceeded("silence", 1))
    climb.act = lambda prompt, climb: told(silent)
    assert verdict(await turns.errors(climb)) == (RungVerdict.WARN, {})


@aio
async def test_a_failure_that_ends_cleanly_without_a_word_is_an_error_as_text_too(
    tmp_path: Path,
) -> None:
    climb = climbing(tmp_path, canaries=Canaries(failure="fail"))
    climb.act = lambda prompt, climb: told(ended(Outcome.EMPTY, "end_turn"))
    assert (await turns.errors(climb)).facts == {"errors_as_text": True}


class _Slow(FakeClimb):
    """Its turn sends one piece, at which it is cancelled, and then some more."""

    after = 0
    outcome = Outcome.CANCELLED
    unusable = False
    prompts: list[str] = []

    async def conversation(self) -> Conversation:
        return SimpleNamespace(id="s-1", unusable=self.unusable)  # type: ignore[return-value]

    @asynccontextmanager
    async def turning(self, conversation: Conversation, prompt: str) -> AsyncIterator[Any]:
        climb = self
        climb.prompts = [*climb.prompts, prompt]

        class Turn:
            result = Result(climb.outcome, "x", "end_turn")

            def cancel(self) -> None:
                pass

            async def __aiter__(self) -> AsyncIterator[model.Event]:
                yield piece()
                for _ in range(climb.after):
                    yield piece()

        yield Turn()


@pytest.mark.parametrize(
    ("outcome", "after", "unusable", "expected"),
    [
        (Outcome.CANCELLED, 2, False, (RungVerdict.PASS, {"cancel": True})),
        (Outcome.CANCELLED, 0, True, (RungVerdict.WARN, {"cancel": False})),
        (Outcome.OK, 3, False, (RungVerdict.WARN, {"cancel": False})),
        (Outcome.FAILED, 0, False, (RungVerdict.WARN, {"cancel": False})),
    ],
)
@aio
async def test_a_cancel_is_honoured_only_by_a_turn_that_ends_as_cancelled(
    tmp_path: Path, outcome: Outcome, after: int, unusable: bool, expected: Any
) -> None:
    climb = climbing(tmp_path)
    climb.__class__ = _Slow
    assert isinstance(climb, _Slow)
    climb.outcome, climb.after, climb.unusable = outcome, after, unusable
    climb.limits = replace(climb.limits, cancel_arrival=-1.0)
    assert verdict(await turns.cancel(climb)) == expected
    assert climb.prompts == [climb.canaries.slow]


@pytest.mark.parametrize("after", [0, 50])
@aio
async def test_a_turn_that_ends_before_the_cancel_can_arrive_is_repeated_and_then_not_measured(
    tmp_path: Path, after: int
) -> None:
    climb = climbing(tmp_path)
    climb.__class__ = _Slow
    assert isinstance(climb, _Slow)
    climb.outcome, climb.after = Outcome.OK, after
    climb.limits = replace(climb.limits, cancel_arrival=600.0)
    found = await turns.cancel(climb)
    assert verdict(found) == (RungVerdict.SKIPPED, {})
    assert "not measured" in found.evidence
    assert climb.prompts == [climb.canaries.slow, climb.canaries.slower]
    assert climb.canaries.slow != climb.canaries.slower
