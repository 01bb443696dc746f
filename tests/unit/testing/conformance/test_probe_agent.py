"""The program writes its report while it plays, and completes it at the end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from dragoman.testing.conformance.probe_agent import main, serve
from dragoman.testing.conformance.report import Verdict, from_json
from dragoman.transports.base import Stream
from dragoman.transports.memory import memory_pair
from tests.unit.testing.conformance.faulty_client import FaultyClient

MODULE = "dragoman.testing.conformance.probe_agent"


def test_a_report_is_written_and_marked_as_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = None, None
    report = tmp_path / "out" / "report.json"
    report.parent.mkdir()

    async def open_stdio() -> Stream:
        nonlocal near, far
        near, far = memory_pair()
        FaultyClient(near, frozenset(), tmp_path, ["hello"])
        return far

    monkeypatch.setattr(f"{MODULE}.open_stdio", open_stdio)
    asyncio.run(serve(report, scenario="main", timeout=20.0))
    found = from_json(report.read_bytes())
    assert found.finding("large_update_is_taken").verdict is Verdict.PASSED
    assert sorted(path.name for path in report.parent.iterdir()) == ["report.done", "report.json"]


def test_the_command_line_needs_a_place_for_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "--report" in capsys.readouterr().err


def test_the_command_line_is_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    async def record(report: Path, *, scenario: str, timeout: float) -> None:
        calls.append((report, scenario, timeout))

    monkeypatch.setattr(sys.modules[MODULE], "serve", record)
    main(["--report", str(tmp_path / "r"), "--scenario", "version", "--timeout", "3"])
    assert calls == [(tmp_path / "r", "version", 3.0)]
