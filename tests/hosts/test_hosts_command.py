"""`dragoman hosts` with a real sshd: add, check, bootstrap into an empty home, list, remove."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.host_protocol import PROTOCOL
from dragoman.version import __version__
from tests.hosts.far_machine import FarMachine, mounted
from tests.integration.cli_shell import Done

INSTALLED = ".local/share/dragoman/installed"


@pytest.fixture
def empty(far: FarMachine) -> Iterator[FarMachine]:
    """The far machine with an empty home, known as `box` only to the ssh configuration."""
    # A broker of an earlier test would write to the new home.
    far.far_dragoman("broker", "stop", "--all")
    assert not (left := far.wait_until_gone()), left
    kept = far.folder / "kept-home"
    far.home.rename(kept)
    far.home.mkdir()
    os.chown(far.home, far.uid, far.gid)
    (far.cli.home / "config_home" / "config.toml").unlink()
    try:
        added = far.cli("hosts", "add", "box", *options(far))
        assert added.code == 0, added
        yield far
    finally:
        # Moved, not removed: a process may still write to it, and the next test needs its home.
        used = far.folder / f"used-home-{os.urandom(4).hex()}"
        far.home.rename(used)
        kept.rename(far.home)
        shutil.rmtree(used, ignore_errors=True)
        far.name_host()


def options(far: FarMachine) -> list[str]:
    return [f"--ssh-option={word}" for word in ("-F", str(far.ssh_config))]


def checked(far: FarMachine, *words: str) -> tuple[Done, dict[str, Any]]:
    done = far.cli("hosts", "check", "box", "--format", "json", *words)
    assert done.out, done.err
    return done, json.loads(done.out)


def files(folder: Path) -> set[Path]:
    """Everything in a directory, except compiled modules."""
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def states(found: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["state"] for each in found["findings"]}


def test_a_check_reports_what_is_installed_and_what_is_missing(empty: FarMachine) -> None:
    done, found = checked(empty)
    assert done.code == 1 and not found["ok"]
    assert states(found)["Python"] == "ok" and states(found)["dragoman"] == "missing"
    text = empty.cli("hosts", "check", "box")
    assert "missing  dragoman: not installed" in text.out
    assert "with `dragoman hosts bootstrap box`" in text.out
    assert not any(empty.home.iterdir())
    listed = empty.cli("hosts")
    assert "box" in listed.out and "not installed" in listed.out


def test_bootstrap_installs_this_version_into_an_empty_home_without_internet(
    empty: FarMachine, tmp_path: Path
) -> None:
    done = empty.cli("hosts", "bootstrap", "box", "--python", empty.python)
    assert done.code == 0, (done.out, done.err)
    program = empty.home / INSTALLED / "current" / "bin" / "dragoman"
    assert f"ok       dragoman: {program}, version {__version__}" in done.out
    settings = (empty.cli.home / "config_home" / "config.toml").read_text()
    assert f'dragoman = "{program}"' in settings
    # It needs nothing from this checkout: no variables, and no files in the current directory.
    asked = subprocess.run(
        [str(program), "run", "scout", "--cold", "--format", "quiet", "/help"],
        env={"HOME": str(empty.home), "PATH": os.defpath},
        cwd=empty.home,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **empty.as_user,
    )
    assert asked.returncode == 0, asked
    before = files(empty.home)
    _, found = checked(empty)
    assert found["ok"] and found["version"] == __version__
    assert files(empty.home) == before
    assert "scout" in [agent["name"] for agent in found["agents"] if agent["installed"]]


def test_a_second_bootstrap_switches_and_keeps_the_previous_version(empty: FarMachine) -> None:
    words = ("hosts", "bootstrap", "box", "--format", "json", "--python", empty.python)
    current = empty.home / INSTALLED / "current"
    seen = []
    for _ in range(3):
        done = empty.cli(*words)
        assert done.code == 0, done.err
        seen.append(current.resolve())
    assert len(set(seen)) == 3
    left = set((empty.home / INSTALLED / "versions").iterdir())
    assert left == set(seen[1:])


def test_a_directory_without_any_wheel_is_rejected(empty: FarMachine, tmp_path: Path) -> None:
    done = empty.cli("hosts", "bootstrap", "box", "--wheels", str(tmp_path))
    assert done.code == 2 and "no .whl files in" in done.err


def test_a_machine_without_python_is_an_error_with_a_remedy(empty: FarMachine) -> None:
    done = empty.cli("hosts", "check", "box", "--python", "/nowhere/python3")
    assert done.code != 0
    assert "Python was not found (/nowhere/python3); dragoman needs Python 3.11" in done.err
    assert "apt install python3" in done.err


def test_an_old_python_is_reported_with_its_version(empty: FarMachine) -> None:
    old = empty.write(
        empty.home / "old-python",
        '#!/bin/sh\ncase "$2" in *exit*) exit 1;; *) echo 3.6.9;; esac\n',
        mode=0o755,
    )
    done = empty.cli("hosts", "bootstrap", "box", "--python", str(old))
    assert done.code != 0
    assert f"Python there is too old ({old} 3.6.9)" in done.err


def test_other_output_of_the_shell_does_not_matter(empty: FarMachine) -> None:
    with empty.talkative_shell("seq 1 2000\necho 'dragoman-report: {broken'"):
        _, found = checked(empty)
    assert states(found)["Python"] == "ok"


def test_a_changed_host_key_is_an_error_with_a_remedy(empty: FarMachine) -> None:
    known = empty.folder / "known_hosts"
    before = known.read_text()
    other = (empty.folder / "key.pub").read_text()
    known.write_text(f"[{empty.address}]:{empty.port} {other}")
    try:
        done = empty.cli("hosts", "check", "box")
    finally:
        known.write_text(before)
    assert done.code != 0
    assert "host key has changed" in done.err and "ssh-keygen -R" in done.err


def test_a_host_that_asks_for_a_password_is_an_error_with_a_remedy(
    empty: FarMachine,
) -> None:
    keys = empty.folder / "authorized_keys"
    before = keys.read_text()
    keys.write_text("")
    try:
        done = empty.cli("hosts", "bootstrap", "box")
    finally:
        keys.write_text(before)
    assert done.code != 0
    assert "asks for a password" in done.err and "ssh-copy-id" in done.err


def test_another_version_on_the_host_is_reported(empty: FarMachine) -> None:
    greeting = json.dumps({"id": 1, "result": {"protocol": PROTOCOL, "version": "0.0.1"}})
    script = f"[ $1 = broker ] || exec echo dragoman 0.0.1\nread hello; echo '{greeting}'"
    other = empty.write(empty.home / "dragoman", f"#!/bin/sh\n{script}\n", mode=0o755)
    empty.cli("hosts", "add", "box", "--dragoman", str(other))
    done, found = checked(empty)
    assert done.code == 0 and found["version"] == "0.0.1"
    (finding,) = [each for each in found["findings"] if each["name"] == "dragoman"]
    assert finding["state"] == "warning" and f"this machine has {__version__}" in finding["text"]
    assert "dragoman hosts bootstrap box" in finding["remedy"]


def test_a_full_disk_is_reported_and_leaves_no_new_version(empty: FarMachine) -> None:
    place = empty.home / ".local"
    place.mkdir()
    with mounted(place, "-t", "tmpfs", "-o", f"size=1m,uid={empty.uid}", "tmpfs"):
        done = empty.cli.child("hosts", "bootstrap", "box", "--python", empty.python)
        left = list((empty.home / INSTALLED / "versions").iterdir())
    assert done.code != 0
    assert "the disk there is full" in done.err and "free about" in done.err
    assert left == []


def test_a_host_is_removed_only_from_the_settings(empty: FarMachine) -> None:
    done = empty.cli("hosts", "remove", "box")
    assert done.code == 0 and "nothing was changed on the machine" in done.out
    assert "No machines are set up" in empty.cli("hosts").err
    unknown = empty.cli("hosts", "check", "box")
    assert unknown.code == 2 and "dragoman hosts add box" in unknown.err


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a b", "a.b"])
def test_an_invalid_host_name_is_rejected(far: FarMachine, name: str) -> None:
    done = far.cli("hosts", "add", "--", name)
    assert done.code == 2 and "is not a valid host name" in done.err
