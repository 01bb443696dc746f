from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.catalogue.card import RungVerdict
from dragoman.errors import CallTimeout, ConnectionEnded, RemoteError
from dragoman.verify import remedies
from dragoman.verify.rungs import wire_names
from tests.aio import aio
from tests.unit.verify.fakes import FakeClimb, climbing, verdict


def answering(tmp_path: Path, answer: Any) -> FakeClimb:
    """A climb whose peer answers each call with what `answer` says of its method and params."""
    climb = climbing(tmp_path)
    asked: list[tuple[str, dict[str, Any]]] = []

    async def call(method: str, params: Any, *, timeout: float) -> bytes:
        asked.append((method, params))
        error = answer(method, params)
        if error is not None:
            raise error
        return b"{}"

    climb.client = SimpleNamespace(connection=SimpleNamespace(call=call), asked=asked)
    return climb


@aio
async def test_a_param_without_which_a_request_is_refused_is_required(tmp_path: Path) -> None:
    def answer(method: str, params: Any) -> Exception | None:
        return None if "cwd" in params else RemoteError(-32602, "missing cwd")

    climb = answering(tmp_path, answer)
    finding = await wire_names.params(climb)
    assert verdict(finding) == (
        RungVerdict.PASS,
        {
            "required_params": {"session/new": ("cwd",)},
            "optional_params": {"session/new": ("mcpServers",)},
        },
    )
    assert finding.evidence == "session/new needs cwd, takes mcpServers"
    assert len(climb.client.asked) == 3


@aio
async def test_a_request_that_is_refused_as_it_should_be_says_nothing_of_its_params(
    tmp_path: Path,
) -> None:
    climb = answering(tmp_path, lambda method, params: RemoteError(-32603, "broken"))
    finding = await wire_names.params(climb)
    assert verdict(finding) == (RungVerdict.PASS, {})
    assert "refused even with all of its params" in finding.evidence


@pytest.mark.parametrize(
    ("error", "expected", "remedy"),
    [
        (CallTimeout("session/new", 1), RungVerdict.WARN, remedies.UNANSWERED),
        (ConnectionEnded(), RungVerdict.FAIL, remedies.CRASH),
    ],
)
@aio
async def test_a_request_without_an_answer_is_reported_and_leaves_the_params_unknown(
    tmp_path: Path, error: Exception, expected: RungVerdict, remedy: str
) -> None:
    finding = await wire_names.params(answering(tmp_path, lambda method, params: error))
    assert (finding.verdict, finding.remedy, finding.facts) == (expected, remedy, {})


@aio
async def test_a_dialect_without_such_a_request_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.verify.probes.with_all_params", lambda peer, workspace: [])
    assert (await wire_names.params(climbing(tmp_path))).verdict is RungVerdict.SKIPPED


@aio
async def test_the_methods_are_those_that_were_answered(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    assert (await wire_names.methods(climb)).facts == {}
    climb.facts |= {"sessions": True, "echo": True, "lists_sessions": False}
    finding = await wire_names.methods(climb)
    assert finding.facts == {"methods": {"create": "session/new", "prompt": "session/prompt"}}
    assert finding.evidence == "create: session/new, prompt: session/prompt"


@aio
async def test_the_notifications_are_those_that_came(tmp_path: Path) -> None:
    climb = climbing(tmp_path)
    assert verdict(await wire_names.events(climb)) == (RungVerdict.PASS, {})
    climb.witness.notifications = {f"n{number}": ["a", "b"] for number in range(20)}
    finding = await wire_names.events(climb)
    assert finding.facts["notifications"]["n19"] == ("a", "b")
    assert "20 kinds: n0, " in finding.evidence and "n19" not in finding.evidence
