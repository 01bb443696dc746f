from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dragoman.errors import ProgramNotFound, SpawnError
from dragoman.transports.process import environment, warden
from dragoman.transports.process.environment import (
    build_environment,
    check_folder,
    find_program,
    new_mark,
    owner,
    which,
)

BASE = {
    "PATH": "/usr/bin",
    "HOME": "/home/me",
    "LC_ALL": "C.UTF-8",
    "XDG_CONFIG_HOME": "/home/me/.config",
    "https_proxy": "http://proxy:3128",
    "NO_PROXY": "localhost",
    "NODE_EXTRA_CA_CERTS": "/etc/company.pem",
    "SSH_AUTH_SOCK": "/run/agent",
    "OPENAI_API_KEY": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "ACME_ONE": "1",
    "ACME_TWO": "2",
    "DRAGOMAN_MARK": "stranger.1",
}


def test_only_what_is_on_the_list_is_passed_on() -> None:
    built = build_environment(base=BASE, platform="linux")
    assert built == {
        name: BASE[name]
        for name in (
            "PATH",
            "HOME",
            "LC_ALL",
            "XDG_CONFIG_HOME",
            "https_proxy",
            "NO_PROXY",
            "NODE_EXTRA_CA_CERTS",
            "SSH_AUTH_SOCK",
        )
    }


def test_names_and_patterns_of_the_caller_are_passed_on() -> None:
    built = build_environment(base=BASE, inherit=["OPENAI_API_KEY", "ACME_*"], platform="linux")
    assert built["OPENAI_API_KEY"] == "secret"
    assert (built["ACME_ONE"], built["ACME_TWO"]) == ("1", "2")
    assert "AWS_SECRET_ACCESS_KEY" not in built


def test_a_name_that_is_not_set_stays_unset() -> None:
    assert "MISSING" not in build_environment(base=BASE, inherit=["MISSING"], platform="linux")


def test_values_of_the_caller_win() -> None:
    built = build_environment(base=BASE, extra={"HOME": "/elsewhere", "NEW": ""}, platform="linux")
    assert built["HOME"] == "/elsewhere"
    assert built["NEW"] == ""


def test_the_mark_is_never_inherited_however_it_is_asked_for() -> None:
    built = build_environment(
        base=BASE,
        inherit=["DRAGOMAN_MARK", "*"],
        extra={"DRAGOMAN_MARK": "forged.1"},
        platform="linux",
    )
    assert "DRAGOMAN_MARK" not in built


def test_names_are_compared_with_case_except_on_windows() -> None:
    base = {
        "Path": "C:\\bin",
        "SystemRoot": "C:\\Windows",
        "ProgramFiles(x86)": "C:\\P",
        "Secret": "",
    }
    assert build_environment(base=base, platform="linux") == {}
    built = build_environment(base=base, inherit=["secret"], platform="win32")
    assert built == base


def test_a_value_replaces_the_other_spelling_of_its_name_on_windows() -> None:
    built = build_environment(base={"Path": "C:\\a"}, extra={"PATH": "C:\\b"}, platform="win32")
    assert built == {"PATH": "C:\\b"}


@pytest.mark.parametrize(
    ("path", "platform", "expected"),
    [
        (".:/bin::bin:/usr/bin:", "linux", "/bin:/usr/bin"),
        (".", "linux", os.defpath),
        ("", "linux", os.defpath),
        ('.;"C:\\x y";D:\\z;bin;', "win32", '"C:\\x y";D:\\z'),
    ],
)
def test_a_child_finds_nothing_by_a_relative_path(path: str, platform: str, expected: str) -> None:
    for given in ({"base": {"PATH": path}}, {"base": {}, "extra": {"PATH": path}}):
        assert build_environment(**given, platform=platform) == {"PATH": expected}


def test_the_variables_of_windows_are_not_passed_on_elsewhere() -> None:
    assert build_environment(base={"APPDATA": "x"}, platform="linux") == {}
    assert build_environment(base={"APPDATA": "x"}, platform="win32") == {"APPDATA": "x"}


def test_the_environment_of_this_process_is_the_usual_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/from/here")
    monkeypatch.setenv("SOME_SECRET", "x")
    built = build_environment()
    assert built["PATH"] == "/from/here"
    assert "SOME_SECRET" not in built


def test_threads_that_start_their_first_children_at_once_have_one_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = threading.Barrier(2)

    def name(size: int) -> bytes:
        # Both have found that there is no owner yet.
        together.wait(10)
        return threading.current_thread().name.encode()

    monkeypatch.setattr(environment, "_owner", {})
    monkeypatch.setattr(os, "urandom", name)
    with ThreadPoolExecutor(2) as pool:
        marks = [task.result(10) for task in [pool.submit(new_mark) for _ in range(2)]]
    assert len(set(marks)) == 2
    assert {mark.rpartition(".")[0] for mark in marks} == {owner()}


def test_every_mark_is_new_and_names_its_owner() -> None:
    first, second = new_mark(), new_mark()
    assert first != second
    assert first.rpartition(".")[0] == second.rpartition(".")[0] == owner()
    assert len(owner()) == 16


def test_a_fork_is_another_owner() -> None:
    reader, writer = os.pipe()
    mine = owner()
    pid = os.fork()
    if pid == 0:
        os.write(writer, f"{owner()} {new_mark()}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    theirs, mark = os.read(reader, 100).decode().split()
    os.close(reader)
    assert theirs != mine
    assert mark == f"{theirs}.1"
    assert owner() == mine


def test_the_mark_has_the_name_that_the_warden_looks_for() -> None:
    assert environment.MARK_NAME == warden.MARK_NAME


# -- programs


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
    assert "not on the PATH, which has 1 directory" in str(caught.value)


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


def test_a_path_that_cannot_be_followed_is_not_a_missing_program(tools: Path) -> None:
    (tools / "circle").symlink_to("circle")
    with pytest.raises(SpawnError, match="symbolic links") as caught:
        find_program(str(tools / "circle"), environment={})
    assert not isinstance(caught.value, ProgramNotFound)
    with pytest.raises(ProgramNotFound):
        find_program(str(tools / "notes" / "agent"), environment={})


def test_a_folder_is_not_a_program(tools: Path) -> None:
    with pytest.raises(SpawnError, match="is a directory"):
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
    with pytest.raises(SpawnError, match="is not a directory"):
        check_folder(tools / "notes")
    with pytest.raises(SpawnError, match="null"):
        check_folder("a\0b")
