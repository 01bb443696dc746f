"""Prompts from the page: which requests are refused, and on which terms a peer works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.console.actions import _request, continue_session, start_run
from dragoman.errors import UnknownPeer, UsageError
from dragoman.paths import VARIABLES, Paths
from tests.aio import aio
from tests.unit.console.place import short_paths
from tests.unit.store.stores import session


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    with short_paths() as paths:
        for name, variable in VARIABLES.items():
            monkeypatch.setenv(variable, str(getattr(paths, name)))
        yield paths


@aio
async def test_what_cannot_be_started_is_refused_before_anything_runs(
    paths: Paths, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="not a directory"):
        await start_run("scout", "x", tmp_path / "missing")
    with pytest.raises(UsageError, match="full path"):
        await start_run("scout", "x", Path("."))
    with pytest.raises(UsageError, match="enable codex"):
        await start_run("codex", "x", tmp_path)
    with pytest.raises((UnknownPeer, UsageError)):
        await start_run("missing", "x", tmp_path)
    with pytest.raises(UsageError, match="empty"):
        await start_run("scout", " ", tmp_path)
    with pytest.raises(UsageError, match="not a directory"):
        await continue_session(session(peer="scout", cwd=str(tmp_path / "gone")), "x")


def test_the_policy_is_that_of_the_settings_and_a_person_is_asked(
    paths: Paths, tmp_path: Path
) -> None:
    request = _request("scout", tmp_path, None)
    assert request.asks and request.unattended == "approve-reads"
    paths.config.mkdir(parents=True)
    paths.config_file.write_text('permissions = "deny-all"\n')
    request = _request("scout", tmp_path, None)
    assert not request.asks and request.unattended == "deny-all"
