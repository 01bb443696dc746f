"""What holds in a folder, put together from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.runs.context import RunContext, load_context


@pytest.fixture
def place(tmp_path: Path) -> RunContext:
    return look(tmp_path)


def look(folder: Path) -> RunContext:
    environ = {f"DRAGOMAN_{name}_HOME": str(folder / name) for name in ("CONFIG", "DATA", "CACHE")}
    environ |= {"DRAGOMAN_STATE_HOME": str(folder / "S"), "DRAGOMAN_RUNTIME_DIR": str(folder / "R")}
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return load_context(work, environ=environ)


def test_scout_is_enabled_and_nobody_else_is(place: RunContext) -> None:
    assert place.is_enabled("scout")
    assert not place.is_enabled("codex")
    assert "codex" in place.catalogue


def test_agent_files_are_found_from_the_projects_folder(tmp_path: Path) -> None:
    place = look(tmp_path)
    (place.cwd / ".git").mkdir()
    (place.cwd / "dragoman.toml").write_text('agent_files = ["staff/*.md"]\n')
    below = place.cwd / "below"
    (place.cwd / "staff").mkdir()
    below.mkdir()
    file = place.cwd / "staff" / "a.md"
    file.touch()
    inner = load_context(below, environ=place.environ)
    assert inner.agent_folder == place.cwd
    assert inner.agent_files() == [file]
    assert inner.find_agent_files(("a",)) == [file]


def test_everything_that_is_wrong_is_collected(tmp_path: Path) -> None:
    place = look(tmp_path)
    assert place.troubles() == []
    place.paths.peers_folder.mkdir(parents=True)
    (place.paths.peers_folder / "mine.toml").write_text("nonsense = 1\n")
    place.paths.config_file.write_text("enabeld_peers = []\n")
    (place.cwd / "agents").mkdir()
    (place.cwd / "agents" / "a.md").write_text("---\ndelegate_to: x-y\n---\n")
    told = [str(problem) for problem in place.again().troubles()]
    assert len(told) == 3
    assert "did you mean `enabled_peers`?" in told[0]
    assert "mine.toml: nonsense" in told[1]
    assert "a.md:2: 'x-y' cannot be delegated to" in told[2]


def test_cards_are_looked_for_where_the_ladder_keeps_them(place: RunContext) -> None:
    from dragoman.catalogue.card_store import CARDS

    assert place.cards().folder == place.paths.data / CARDS
