from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.errors import ProgramNotFound, SpawnError
from dragoman.transports.process.programs import check_folder, find_program, which


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "agent").write_text("#!/bin/sh\n")
    (folder / "agent").chmod(0o755)
    (folder / "notes").write_text("no program")
    (folder / "notes").chmod(0o644)
    return folder


def test_relative_entries_of_the_path_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "git"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (".", "", ":", "./", f"..{os.sep}{tmp_path.name}"):
        with pytest.raises(ProgramNotFound):
            find_program("git", environment={"PATH": path})
        assert which("git", path=path) is None
    assert which("git", path=f".:{tmp_path}") == str(tool)
    monkeypatch.setenv("PATH", f".:{tmp_path}")
    assert which("git") == str(tool)


def test_a_name_is_looked_for_on_the_given_path(tools: Path) -> None:
    environment = {"PATH": f"/nowhere:{tools}"}
    assert find_program("agent", environment=environment) == str(tools / "agent")


def test_a_program_that_is_nowhere_is_not_found(tools: Path) -> None:
    with pytest.raises(ProgramNotFound) as caught:
        find_program("missing", environment={"PATH": str(tools)})
    assert caught.value.program == "missing"
    assert str(tools) in str(caught.value)


def test_without_a_path_the_usual_places_are_searched() -> None:
    assert find_program("sh", environment={}).endswith("/sh")


def test_a_file_on_the_path_that_is_not_executable_is_named(tools: Path) -> None:
    with pytest.raises(SpawnError, match="notes is not executable"):
        find_program("notes", environment={"PATH": str(tools)})


def test_a_relative_path_counts_from_the_working_folder(tools: Path) -> None:
    for name, folder in (("./agent", tools), ("tools/agent", tools.parent)):
        found = find_program(name, environment={}, folder=folder)
        assert os.path.samefile(found, tools / "agent")


def test_a_path_that_leads_nowhere_is_not_found(tools: Path) -> None:
    with pytest.raises(ProgramNotFound, match="there is no"):
        find_program(str(tools / "missing"), environment={"PATH": str(tools)})


def test_a_path_that_cannot_be_followed_is_no_missing_program(tools: Path) -> None:
    (tools / "circle").symlink_to("circle")
    with pytest.raises(SpawnError, match="symbolic links") as caught:
        find_program(str(tools / "circle"), environment={})
    assert not isinstance(caught.value, ProgramNotFound)
    with pytest.raises(ProgramNotFound):
        find_program(str(tools / "notes" / "agent"), environment={})


def test_a_folder_is_not_a_program(tools: Path) -> None:
    with pytest.raises(SpawnError, match="is a folder"):
        find_program(str(tools), environment={})


def test_a_path_to_a_file_that_is_not_executable_is_named(tools: Path) -> None:
    with pytest.raises(SpawnError, match="is not executable"):
        find_program(str(tools / "notes"), environment={})


def test_a_null_character_is_refused() -> None:
    with pytest.raises(SpawnError, match="null character"):
        find_program("a\0b", environment={"PATH": "/bin"})


def test_a_working_folder_must_be_a_folder(tools: Path) -> None:
    check_folder(None)
    check_folder(tools)
    with pytest.raises(SpawnError, match="No such file"):
        check_folder(tools / "missing")
    with pytest.raises(SpawnError, match="is not a folder"):
        check_folder(tools / "notes")
    with pytest.raises(SpawnError, match="null"):
        check_folder("a\0b")
