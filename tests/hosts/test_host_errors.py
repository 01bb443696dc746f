"""Failures to reach another machine: each is a clear error that says what to do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.far_machine import FarMachine, free_port
from tests.integration.cli_shell import Done

pytestmark = pytest.mark.timeout(120)


def refused(far: FarMachine) -> str:
    """Run a command that cannot reach the host, and return its error."""
    done: Done = far.cli.child("run", "far", "hello", "--host", "box")
    assert done.code != 0
    assert "Traceback" not in done.err, done.err
    assert far.prompts() == []
    return " ".join(done.err.split())


@contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    before = path.read_text()
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(before)


@contextmanager
def program(far: FarMachine, text: str) -> Iterator[None]:
    """Replace the remote dragoman with another program."""
    file = far.write(far.home / "other-dragoman", text, mode=0o755)
    far.name_host(dragoman=str(file))
    try:
        yield
    finally:
        far.name_host()


def test_a_changed_host_key_is_rejected_with_a_warning(far: FarMachine) -> None:
    key = far.folder / "changed_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text()
    with changed(far.folder / "known_hosts", f"[{far.address}]:{far.port} {public}"):
        said = refused(far)
    assert "the host key has changed" in said
    assert "ssh-keygen -R" in said and "do not connect" in said
    for file in (key, key.with_suffix(".pub")):
        file.unlink()


def test_an_unknown_host_key_is_rejected_with_a_remedy(far: FarMachine) -> None:
    with changed(far.folder / "known_hosts", ""):
        assert "connect once manually and compare the key" in refused(far)


def test_a_host_that_asks_for_a_password_is_rejected_with_a_remedy(far: FarMachine) -> None:
    with changed(far.folder / "authorized_keys", ""):
        said = refused(far)
    assert "asks for a password, which dragoman cannot enter" in said and "ssh-copy-id" in said


def test_a_job_that_cannot_be_watched_has_the_reason_and_what_to_do(far: FarMachine) -> None:
    with changed(far.folder / "authorized_keys", ""):
        done = far.cli.child("jobs", "watch", "last", "--host", "box")
    assert done.code == 1
    assert "ssh-copy-id" in done.err and "the job continues there" not in done.err


def test_a_host_name_that_does_not_resolve_is_reported(far: FarMachine) -> None:
    config = far.ssh_config.read_text()
    with changed(far.ssh_config, config.replace(far.address, "no-such-host.invalid")):
        assert "the host name cannot be resolved" in refused(far)


def test_a_port_without_a_listener_is_reported(far: FarMachine) -> None:
    config = far.ssh_config.read_text()
    with changed(far.ssh_config, config.replace(f"Port {far.port}", f"Port {free_port()}")):
        assert "no SSH server is listening there" in refused(far)


def test_a_host_without_dragoman_needs_a_bootstrap(far: FarMachine) -> None:
    far.name_host(dragoman="/nowhere/dragoman")
    said = refused(far)
    assert (
        "/nowhere/dragoman or its Python was not found" in said
        and "dragoman hosts bootstrap box" in said
    )


def test_a_host_without_python_needs_a_bootstrap(far: FarMachine) -> None:
    with program(far, '#!/bin/sh\nexec /nowhere/python3 -m dragoman "$@"\n'):
        said = refused(far)
    assert "Python" in said and "dragoman hosts bootstrap box" in said


def test_another_version_with_the_same_protocol_works_and_is_reported(far: FarMachine) -> None:
    code = (
        'import sys, dragoman.version; dragoman.version.__version__ = "0.1.77"; '
        "from dragoman.cli.entry import run; run(sys.argv[1:])"
    )
    with program(far, f"#!/bin/sh\nexec {far.python_program} -c '{code}' \"$@\"\n"):
        done = far.cli.child("run", "far", "hello", "--host", "box")
    assert done.out.strip() == "far answer to: hello", done.err
    assert "box has dragoman 0.1.77" in done.err


def test_shell_output_before_the_greeting_is_skipped_up_to_a_limit(far: FarMachine) -> None:
    noise = f"#!/bin/sh\nprintf 'Welcome\\n{{}}\\nno end'\nexec {far.dragoman} \"$@\"\n"
    with program(far, noise):
        done = far.cli.child("run", "far", "hello", "--host", "box")
    assert done.out.strip() == "far answer to: hello", done.err
    (far.work / "prompts").unlink()
    with program(far, "#!/bin/sh\nwhile echo noise; do :; done\n"):
        said = refused(far)
    assert "prints too much" in said and "[ -t 1 ] || return" in said


def test_a_missing_login_on_the_host_says_where_to_log_in(far: FarMachine) -> None:
    file = far.write(far.home / "logged-out", "")
    try:
        done = far.cli.child("run", "far", "hello", "--host", "box", "--format", "json")
    finally:
        file.unlink()
    assert done.code == 6, done.err
    error = json.loads(done.out.splitlines()[-1])
    assert (error["error"], error["may_have_run"]) == ("auth_required", False)
    assert "log in to the agent on box: `ssh " in error["message"]


def test_stderr_of_the_host_is_shown(far: FarMachine) -> None:
    with program(far, f"#!/bin/sh\necho 'reboot at noon' >&2\nexec {far.dragoman} \"$@\"\n"):
        done = far.cli.child("run", "far", "hello", "--host", "box")
        listed = far.cli.child("--host", "box", "jobs")
    assert done.code == 0 and "box: reboot at noon" in done.err
    assert listed.code == 0 and "box: reboot at noon" in listed.err
