"""Checks of other machines: what is installed, what is missing, and the remedies."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.client.ssh_command import Host
from dragoman.catalogue.host_checks import Finding
from dragoman.config.schema import HostSettings
from dragoman.errors import FileFailed, HostUnavailable, UsageError
from dragoman.setup import hosts
from dragoman.setup.hosts import (
    bootstrap,
    judge,
    wheels_folder,
)
from dragoman.version import __version__
from tests.aio import aio
from tests.unit.config.folders import paths_in

HOST = Host("box", HostSettings(destination="me@box", dragoman="/opt/dragoman"))


def report(**more: Any) -> dict[str, Any]:
    return {
        "python": {"executable": "/usr/bin/python3", "version": [3, 12, 4],
                   "implementation": "cpython"},
        "platform": {"system": "linux", "machine": "x86_64", "libc": "glibc",
                     "libc_version": "2.36"},
        "home": "/home/me", "home_writable": True, "free_size": 10**10, "path": "/usr/bin",
        "dragoman": {"path": "/opt/dragoman", "version": __version__, "problem": "", "peers": []},
        "programs": {}, "variables": [], "git": "2.39", "log_out": {"kills": False},
        **more,
    }  # fmt: skip


def found(name: str, **more: Any) -> Finding:
    (finding,) = [each for each in judge(HOST, report(**more)).findings if each.name == name]
    return finding


def test_a_complete_machine_is_ok() -> None:
    check = judge(HOST, report())
    assert check.ok and check.version == __version__ and check.destination == "me@box"
    assert check.platform == "Python 3.12, linux x86_64, glibc 2.36"


@pytest.mark.parametrize(
    ("name", "more", "state", "words", "remedy"),
    [
        ("dragoman", {"dragoman": None}, "missing", "not installed", "hosts bootstrap box"),
        (
            "dragoman",
            {"dragoman": {"path": "/x", "version": "", "problem": "no module"}},
            "missing",
            "/x does not run: no module",
            "hosts bootstrap box",
        ),
        (
            "dragoman",
            {"dragoman": {"path": "/opt/dragoman", "version": "0.0.1", "peers": None}},
            "warning",
            "version 0.0.1",
            "hosts bootstrap box",
        ),
        (
            "dragoman",
            {"dragoman": {"path": "/opt/dragoman", "version": "0.0.1", "protocol": 0}},
            "missing",
            f"version 0.0.1, speaks protocol 0; version {__version__} on this machine speaks",
            "hosts bootstrap box",
        ),
        (
            "dragoman",
            {"dragoman": {"path": "/opt/dragoman", "version": "0.0.1", "protocol": None}},
            "missing",
            "version 0.0.1, is too old for `--host`",
            "hosts bootstrap box",
        ),
        ("git", {"git": ""}, "warning", "not installed", "install git"),
        ("disk", {"free_size": 5_000_000}, "warning", "4 MiB free", "free some space"),
        ("disk", {"home_writable": False}, "missing", "not writable", "writable"),
        ("agents", {}, "warning", "PATH of a remote command (/usr/bin)", "install one"),
        ("log-out", {"log_out": {"kills": True}}, "warning", "ends a user", "enable-linger"),
        ("log-out", {"log_out": {"kills": None}}, "warning", "unknown", "enable-linger"),
        ("log-out", {"log_out": {"kills": True, "linger": True}}, "ok", "lingering", ""),
    ],
)
def test_each_finding_has_a_remedy(
    name: str, more: dict[str, Any], state: str, words: str, remedy: str
) -> None:
    finding = found(name, **more)
    assert finding.state == state and words in finding.text and remedy in finding.remedy


def test_a_configured_path_that_does_not_exist_is_reported() -> None:
    host = Host("box", HostSettings(dragoman="/gone/dragoman"))
    (finding,) = [each for each in judge(host, report()).findings if each.name == "dragoman"]
    assert finding.state == "missing"
    assert finding.remedy == "dragoman hosts add box --dragoman /opt/dragoman"


def test_an_installation_that_commands_would_not_find_is_reported() -> None:
    """Another device has installed it, or it is in a folder that only a login shell knows."""
    host = Host("box", HostSettings())

    def finding(**more: Any) -> Finding:
        (one,) = [each for each in judge(host, report(**more)).findings if each.name == "dragoman"]
        return one

    missing = finding(dragoman_on_path=None)
    assert missing.state == "missing" and "your settings do not name it" in missing.text
    assert missing.remedy == "dragoman hosts add box --dragoman /opt/dragoman"
    assert finding(dragoman_on_path="/opt/dragoman").state == "ok"


def test_agents_and_logins_come_from_the_remote_dragoman() -> None:
    rows = [
        {"name": "codex", "installed": True, "login": "chatgpt", "roles": ["execute"]},
        {"name": "gemini", "installed": True, "credentials_set": ["GEMINI_API_KEY"]},
        {"name": "qwen", "installed": True, "parked": {"why": "no login"}},
        {"name": "kimi", "installed": False},
    ]
    there = {"path": "/opt/dragoman", "version": __version__, "problem": "", "peers": rows}
    agents = {each.name: each for each in judge(HOST, report(dragoman=there)).agents}
    assert agents["codex"].login == "chatgpt" and agents["codex"].roles == ("execute",)
    assert agents["gemini"].login == "GEMINI_API_KEY set"
    assert agents["qwen"].login == "parked: no login"
    assert not agents["kimi"].installed


def test_without_a_remote_dragoman_agents_are_found_by_their_programs() -> None:
    check = judge(
        HOST,
        report(dragoman=None, programs={"codex": "/usr/bin/codex"}, variables=["OPENAI_API_KEY"]),
    )
    codex = next(each for each in check.agents if each.name == "codex")
    assert codex.installed and codex.login == "OPENAI_API_KEY set"


@pytest.mark.parametrize("name", ["codex@other", "../x", "x\x1b[2J", "x" * 500])
def test_a_name_that_no_agent_can_have_is_an_error(name: str) -> None:
    rows = [{"name": name, "installed": True}]
    there = {"path": "/opt/dragoman", "version": __version__, "problem": "", "peers": rows}
    with pytest.raises(HostUnavailable, match="is not the name of an agent"):
        judge(HOST, report(dragoman=there))


@pytest.mark.parametrize("wrong", [{}, {"python": 3}, {"python": {"version": "x"}}])
def test_an_invalid_report_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(HostUnavailable, match="unexpected report"):
        judge(HOST, wrong)


@pytest.mark.parametrize(
    ("said", "words", "remedy"),
    [
        ({"error": "full", "problem": "x"}, "disk there is full", "free about"),
        ({"error": "damaged", "problem": "x"}, "could not install dragoman: x", "try again"),
        ({"error": "broken", "problem": "x"}, "could not install dragoman: x", "python3-full"),
        ({"error": "system", "problem": "x"}, "could not install dragoman: x", "writable"),
    ],
)
@aio
async def test_a_failed_installation_has_a_reason_and_changes_no_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], words: str, remedy: str
) -> None:
    answers = iter([report(dragoman=None), said])

    async def run(*_: object, **__: object) -> dict[str, Any]:
        return next(answers)

    async def none(*_: object, **__: object) -> list[Path]:
        return []

    monkeypatch.setattr(hosts, "run_script", run)
    monkeypatch.setattr(hosts, "collect", none)
    paths = paths_in(tmp_path)
    with pytest.raises(HostUnavailable, match=words) as caught:
        await bootstrap(HOST, paths)
    assert remedy in caught.value.remedy
    assert not paths.config_file.exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"python": {**report()["python"], "implementation": "pypy"}}, "pypy"),
        ({"platform": {**report()["platform"], "libc": ""}}, "C library"),
    ],
)
@aio
async def test_an_unsupported_python_is_reported_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], words: str
) -> None:
    async def run(*_: object, **__: object) -> dict[str, Any]:
        return report(**more)

    monkeypatch.setattr(hosts, "run_script", run)
    with pytest.raises(HostUnavailable, match=words):
        await bootstrap(HOST, paths_in(tmp_path))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("collect", "the wheels could not be collected: the disk is full"),
        ("store_check", "the check of box could not be stored: the disk is full"),
    ],
)
@aio
async def test_a_full_disk_on_this_machine_is_named_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    async def run(host: Host, script: str, *_: object, **__: object) -> dict[str, Any]:
        return report(dragoman=None) if script == "probe" else {"program": "/opt/dragoman"}

    async def none(*_: object, **__: object) -> list[Path]:
        return []

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(hosts, "run_script", run)
    monkeypatch.setattr(hosts, "collect", none)
    monkeypatch.setattr(hosts, name, full)
    with pytest.raises(FileFailed, match=words):
        await bootstrap(HOST, paths_in(tmp_path))


def test_a_wheels_directory_must_contain_a_wheel(tmp_path: Path) -> None:
    assert wheels_folder(None) is None
    with pytest.raises(UsageError, match="no .whl files in"):
        wheels_folder(tmp_path)
    (tmp_path / "x.whl").touch()
    assert wheels_folder(tmp_path) == tmp_path
