"""The far machine of these tests: reached over ssh, with another user and HOME."""

from __future__ import annotations

import os
import subprocess

from tests.hosts.far_machine import FarMachine


def test_ssh_reaches_the_far_user_with_its_own_home_and_dragoman(far: FarMachine) -> None:
    words = ["ssh", "-F", str(far.ssh_config), "-T", "-oBatchMode=yes", "--", "box"]
    done = subprocess.run(
        [*words, f"id -u; echo $HOME; {far.dragoman} --version"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    uid, home, version, *_ = done.stdout.splitlines()
    assert int(uid) == far.uid
    assert home == str(far.home)
    assert version.startswith("dragoman ")
    assert far.is_other_user == (os.getuid() == 0)


def test_the_far_agent_answers_on_the_far_machine_itself(far: FarMachine) -> None:
    done = far.far_dragoman("run", "far", "hello", "--no-stdin")
    assert "far answer to: hello" in done.out
    assert far.prompts() == ["hello"]
