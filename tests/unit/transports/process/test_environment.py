from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dragoman.transports.process import environment, warden
from dragoman.transports.process.environment import build_environment, new_mark, owner

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
