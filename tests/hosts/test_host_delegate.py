"""Delegation to peers on another machine, such as `far@box`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.hosts.far_machine import SETTINGS, TIMEOUT, FarMachine
from tests.hosts.test_host_errors import program
from tests.hosts.test_hosts_files import repo as repo
from tests.unit.delegation.worktree.repositories import git

WRITE = "write made.txt"
Child: TypeAlias = "subprocess.Popen[str]"  # noqa: TID251 - a type


@pytest.fixture
def enabled(far: FarMachine, repo: Path) -> Iterator[FarMachine]:
    """A checked host with an enabled agent."""
    assert far.cli.child("hosts", "check", "box").code == 0
    done = far.cli.child("peers", "enable", "far@box")
    assert done.code == 0, done.err
    yield far
    # Remove the health and the record that this test created.
    for file in (far.cli.home / "state_home").glob("ledger.db*"):
        file.unlink()


def settings(far: FarMachine) -> Path:
    return far.cli.home / "config_home" / "config.toml"


def decision(far: FarMachine, role: str = "review") -> dict[str, Any]:
    done = far.cli.child("explain", role, "--format", "json")
    found: dict[str, Any] = json.loads(done.out)
    return found


def passed_over(far: FarMachine, peer: str = "far@box") -> dict[str, Any]:
    return next(one for one in decision(far)["passed_over"] if one["peer"] == peer)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def sent_trees(far: FarMachine) -> list[str]:
    folder = far.home / ".local" / "state" / "dragoman" / "sent" / "trees"
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


def test_explain_shows_the_host_of_a_candidate_and_in_its_reason(enabled: FarMachine) -> None:
    first = decision(enabled)["candidates"][0]
    assert (first["peer"], first["host"]) == ("far@box", "box")
    assert "on the host box, checked " in first["why"]
    shown = enabled.cli.child("explain", "review")
    assert "1. far@box: it claims review; on the host box" in shown.out


def test_a_peer_on_a_host_is_used_only_if_its_own_name_is_enabled(
    far: FarMachine, repo: Path
) -> None:
    assert far.cli.child("hosts", "check", "box").code == 0
    against = passed_over(far)
    assert (against["reason"], against["host"]) == ("not_enabled", "box")
    assert "`dragoman peers enable far@box`" in against["detail"]


def test_work_is_sent_and_its_changes_are_applied(enabled: FarMachine, repo: Path) -> None:
    before = git(repo, "status", "--porcelain")
    done = enabled.cli.child("delegate", "review", WRITE, "--approve-all", "--peer", "far@box")
    assert done.code == 0, done.err
    assert "wrote made.txt" in done.out
    assert "attempt 1: far@box [it was requested by name; it claims review; on the host" in done.err
    assert (repo / "made.txt").read_text() == "written on the far machine\n"
    assert (repo / "prompts").read_text().splitlines() == [WRITE]
    after = git(repo, "status", "--porcelain")
    assert set(after.splitlines()) - set(before.splitlines()) == {"?? made.txt", "?? prompts"}
    assert sent_trees(enabled) == []


def test_the_ledger_and_stats_record_the_machine(enabled: FarMachine, repo: Path) -> None:
    done = enabled.cli.child("delegate", "review", "hello", "--format", "json")
    assert done.code == 0, done.err
    begun = next(line for line in lines_of(done.out) if line["type"] == "AttemptBegun")
    assert (begun["peer"], begun["host"]) == ("far@box", "box")
    final = lines_of(done.out)[-1]
    assert final["answered"] == "far@box" and final["attempts"][0]["machine"] == "box"
    (row,) = lines_of(enabled.cli.child("stats", "--by", "machine", "--format", "json").out)
    assert (row["key"], row["attempts"], row["ok"]) == ("box", 1, 1)
    assert "far@box" in enabled.cli.child("stats").out
    exported = lines_of(enabled.cli.child("ledger", "export").out)
    posterior = next(line for line in exported if line["type"] == "Posterior")
    assert posterior["peer"] == "far@box"


def test_isolated_work_becomes_a_patch_and_changes_no_files(
    enabled: FarMachine, repo: Path
) -> None:
    done = enabled.cli.child("delegate", "review", WRITE, "--approve-all", "--isolate")
    assert done.code == 0, done.err
    assert "the patch is " in done.err and not (repo / "made.txt").exists()


def test_the_check_runs_locally_before_the_changes_are_applied(
    enabled: FarMachine, repo: Path
) -> None:
    words = ("delegate", "review", WRITE, "--approve-all", "--no-fallback")
    done = enabled.cli.child(*words, "--check", "test ! -e made.txt")
    assert done.code != 0 and "check failed" in done.err
    assert not (repo / "made.txt").exists()
    done = enabled.cli.child(*words, "--check", "test -e made.txt")
    assert done.code == 0 and (repo / "made.txt").exists()


def test_the_local_policy_applies_to_the_agent_on_the_host(enabled: FarMachine, repo: Path) -> None:
    with settings(enabled).open("a") as file:
        file.write('[[policy.rules]]\naction = "deny"\ncommands = ["make *"]\npeer = "far"\n')
    done = enabled.cli.child("delegate", "review", "ask", "--approve-all", "--format", "json")
    assert done.code == 5, done.err
    assert "step 1 refused" in lines_of(done.out)[-1]["text"]


def test_the_policy_of_the_host_applies_too(enabled: FarMachine, repo: Path) -> None:
    enabled.settings('[[policy.rules]]\naction = "deny"\ncommands = ["make *"]\n')
    try:
        done = enabled.cli.child("delegate", "review", "ask", "--approve-all")
        assert "step 1 refused" in done.out
    finally:
        enabled.settings(SETTINGS)


def test_a_rule_about_local_paths_excludes_the_host(enabled: FarMachine, repo: Path) -> None:
    with settings(enabled).open("a") as file:
        file.write(f'[[policy.rules]]\naction = "deny"\npaths = ["{repo}/secret/**"]\n')
    against = passed_over(enabled)
    assert against["reason"] == "not_enforced"
    assert "relative to the workspace" in against["detail"]


def test_a_host_is_not_used_outside_a_git_repository(enabled: FarMachine, tmp_path: Path) -> None:
    done = enabled.cli.child("explain", "review", "--format", "json", "--cwd", str(tmp_path))
    found = json.loads(done.out)
    against = next(one for one in found["passed_over"] if one["peer"] == "far@box")
    assert against["reason"] == "host_unusable" and "git repository" in against["detail"]


def test_an_unreachable_host_is_reported_and_the_next_peer_is_tried(
    enabled: FarMachine, repo: Path
) -> None:
    enabled.stop_sshd()
    try:
        done = enabled.cli.child("delegate", "review", "hello", "--format", "json")
        final = lines_of(done.out)[-1]
        first, second = final["attempts"][:2]
        assert (first["peer"], first["ok"]) == ("far@box", False)
        assert first["errorClass"] == "host_unavailable"
        assert "no SSH server is listening there" in first["failure"]["message"]
        assert second["peer"] == "scout" and "far@box failed: box: " in second["reason"]
        for _ in range(2):
            enabled.cli.child("delegate", "review", "hello")
        assert passed_over(enabled)["reason"] == "broken"
    finally:
        enabled.start_sshd()


def started(far: FarMachine, cwd: Path, *words: str) -> Child:
    return subprocess.Popen(  # noqa: TID251 - a test's own child, which the test ends
        far.cli.argv(*words),
        cwd=cwd,
        env=far.cli.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_interrupt_cancels_the_work_on_the_host(enabled: FarMachine, repo: Path) -> None:
    process = started(enabled, repo, "delegate", "review", "wait", "--format", "json")
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "waiting" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    assert process.returncode == 130, (out, err)
    final = json.loads(out.splitlines()[-1])
    assert final["attempts"][0]["outcome"] == "cancelled"
    found = re.search(r"job (j-\w+) on box", err)
    assert found, err
    there = enabled.far_dragoman("jobs", "result", found[1], "--format", "json", check=False)
    assert json.loads(there.out)["outcome"] == "cancelled"
    assert sent_trees(enabled) == []


def test_an_interrupt_while_the_changes_are_fetched_names_the_command_that_fetches_them(
    enabled: FarMachine, repo: Path
) -> None:
    # The third transfer fetches the changes; the two before it send the files.
    script = (
        '#!/bin/sh\nif [ "$2" = transfer ] && echo >>transfers && [ "$(wc -l <transfers)" = 3 ]\n'
        "then touch fetching; while [ -e fetching ]; do sleep 0.05; done; exit 1\n"
        f'fi\nexec {enabled.dragoman} "$@"\n'
    )
    words = ("delegate", "review", WRITE, "--approve-all", "--peer", "far@box")
    with program(enabled, script):
        # The other program is named in settings that are written anew.
        assert enabled.cli.child("peers", "enable", "far@box").code == 0
        process = started(enabled, repo, *words)
        try:
            enabled.wait_until((enabled.home / "fetching").exists)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
            (enabled.home / "fetching").unlink(missing_ok=True)
    assert process.returncode == 130, (out, err)
    (tree,) = sent_trees(enabled)
    assert f"fetch them with `dragoman hosts fetch box {tree}`" in err
    done = enabled.cli.child("hosts", "fetch", "box", tree)
    assert done.code == 0, done.err
    assert (repo / "made.txt").exists()
