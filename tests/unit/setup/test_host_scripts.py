"""Scripts for another machine, with a fake ssh that runs the command locally."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dragoman.broker.client.ssh_command import Host
from dragoman.config.schema import HostSettings
from dragoman.errors import HostUnavailable
from dragoman.setup import host_scripts
from dragoman.setup.host_scripts import FIND_PYTHON, LOADER, run_script
from tests.aio import aio
from tests.unit.broker.client.fake_ssh import fake_ssh

HOST = Host("box", HostSettings())


@aio
async def test_a_script_reports_despite_other_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch, 'echo "Welcome"; echo dragoman-report: {; eval "$last"; echo x')
    report = await run_script(HOST, "probe", {"programs": ["sh"]}, timeout=60)
    assert report["programs"]["sh"]


@pytest.mark.parametrize(
    ("body", "words", "remedy"),
    [
        ("echo 'ssh: Permission denied (publickey)' >&2; exit 255", "password", "ssh-copy-id"),
        ("echo broken >&2; exit 3", "the command failed there: broken", "hosts check box"),
        ("exit 3", "exit code 3", "hosts check box"),
        ("yes", "prints too much", "startup files"),
        ("sleep 60", "no answer within 1 s", "try again"),
        ("echo dragoman-no-python:", "Python was not found", "apt install"),
        ("echo 'dragoman-no-python: python3 3.9.2;'", "too old (python3 3.9.2)", "uv python"),
    ],
)
@aio
async def test_a_failure_has_a_reason_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str, remedy: str
) -> None:
    fake_ssh(tmp_path, monkeypatch, body)
    with pytest.raises(HostUnavailable) as caught:
        await run_script(HOST, "probe", {}, timeout=1 if body.startswith("sleep") else 30)
    assert words in str(caught.value) and remedy in caught.value.remedy


@aio
async def test_a_python_that_does_not_exist_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch)
    with pytest.raises(HostUnavailable, match="Python was not found"):
        await run_script(HOST, "probe", {}, timeout=30, python="/no such/'python'")


@aio
async def test_a_python_in_the_users_own_bin_directory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    python = tmp_path / ".local" / "bin" / "python9.99"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    path = os.environ["PATH"]
    report = await run_script(HOST, "probe", {}, timeout=60, python="python9.99")
    assert report["python"]["executable"] == str(python)
    # Agents are looked up in the PATH as it is.
    assert report["path"] == path


@aio
async def test_all_pythons_that_were_looked_for_or_are_too_old_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch)
    old = tmp_path / "old"
    old.write_text('#!/bin/sh\ncase "$2" in *exit*) exit 1;; *) echo 3.6.9;; esac\n')
    old.chmod(0o755)
    monkeypatch.setattr(host_scripts, "PYTHONS", ("/nowhere/a", "/nowhere/b"))
    with pytest.raises(HostUnavailable, match=r"not found \(/nowhere/a, /nowhere/b\)"):
        await run_script(HOST, "probe", {}, timeout=30)
    monkeypatch.setattr(host_scripts, "PYTHONS", ("/nowhere/a", str(old), str(old)))
    with pytest.raises(HostUnavailable) as caught:
        await run_script(HOST, "probe", {}, timeout=30)
    assert f"too old ({old} 3.6.9)" in str(caught.value)


@aio
async def test_the_python_of_the_remote_dragoman_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ssh(tmp_path, monkeypatch)
    monkeypatch.setattr(host_scripts, "PYTHONS", ("/nowhere/python3",))
    (tmp_path / "python").symlink_to(sys.executable)
    host = Host("box", HostSettings(dragoman=str(tmp_path / "dragoman")))
    report = await run_script(host, "probe", {}, timeout=60)
    assert report["python"]["executable"] == str(tmp_path / "python")


def test_the_command_for_the_remote_shell_is_one_line() -> None:
    assert "\n" not in FIND_PYTHON + LOADER
    assert "!" not in FIND_PYTHON + LOADER
