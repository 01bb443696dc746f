from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.descriptor import Descriptor, Install, Launch, WrongForm
from dragoman.catalogue.launch import LaunchSpec
from dragoman.verify import remedies
from dragoman.verify.rungs import launch
from tests.aio import aio
from tests.unit.verify.fakes import FakeClimb, climbing, verdict

QWEN = Descriptor(
    name="qwen",
    title="Qwen Code",
    launch=(Launch(command=("qwen", "--acp")),),
    wrong_forms=(
        WrongForm(
            command=("qwen", "acp"),
            effect="it sends what it reads to its model",
            remedy="`qwen --acp`",
            dangerous=True,
        ),
    ),
    install=Install(hint="npm install -g @qwen-code/qwen-code"),
)

SHIM = """@ECHO off
GOTO start
:find_dp0
SET dp0=%~dp0
EXIT /b
:start
SETLOCAL
CALL :find_dp0

IF EXIST "%dp0%\\node.exe" (
  SET "_prog=%dp0%\\node.exe"
) ELSE (
  SET "_prog=node"
  SET PATHEXT=%PATHEXT:;.JS;=;%
)

endLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & "%_prog%"  "%dp0%\\cli.js" %*
"""


class Files:
    """The files of a machine with Windows."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = {name.lower(): text for name, text in files.items()}

    def is_file(self, path: str) -> bool:
        return path.lower() in self._files

    def read_text(self, path: str) -> str:
        return self._files.get(path.lower(), "")


@aio
async def test_a_program_that_is_there_is_found_with_its_path(tmp_path: Path) -> None:
    climb = climbing(tmp_path, way=LaunchSpec(command=(sys.executable, "-V")))
    assert verdict(await launch.binary(climb)) == (RungVerdict.PASS, {"executable": sys.executable})


@aio
async def test_a_program_that_is_not_there_fails_with_how_to_install_it(tmp_path: Path) -> None:
    way = LaunchSpec(command=("no-such-program-here", "--acp"), descriptor=QWEN)
    finding = await launch.binary(climbing(tmp_path, way=way))
    assert finding.verdict is RungVerdict.FAIL
    assert "not on the PATH" in finding.evidence
    assert finding.remedy == f"{remedies.INSTALL} Try: {QWEN.install.hint}"


@aio
async def test_a_file_that_may_not_be_run_is_not_a_program(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    finding = await launch.binary(climbing(tmp_path, way=LaunchSpec(command=(str(program),))))
    assert finding.verdict is RungVerdict.FAIL
    assert finding.remedy == remedies.START


@aio
async def test_a_node_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho v18.1.0\n")
    program = tmp_path / "copilot"
    program.write_text("#!/usr/bin/env node\n")
    for file in (node, program):
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    descriptor = Descriptor(
        name="copilot",
        title="Copilot",
        launch=(Launch(command=("copilot",)),),
        install=Install(node=22),
    )
    way = LaunchSpec(command=(str(program),), descriptor=descriptor)
    finding = await launch.binary(climbing(tmp_path, way=way))
    assert finding.verdict is RungVerdict.FAIL
    assert "node 22" in finding.evidence and "18.1.0" in finding.evidence


@aio
async def test_what_is_reached_at_an_address_needs_no_program(tmp_path: Path) -> None:
    climb = climbing(tmp_path, way=LaunchSpec(address="unix:/run/x"))
    assert (await launch.binary(climb)).verdict is RungVerdict.PASS
    assert (await launch.entry(climb)).verdict is RungVerdict.SKIPPED


@pytest.mark.parametrize(
    "command",
    [
        ("qwen", "acp"),
        ("/usr/bin/qwen", "acp"),
        ("npx", "qwen", "acp"),
        ("qwen", "--debug", "acp"),
    ],
)
@aio
async def test_a_form_that_is_known_to_be_wrong_is_refused_with_its_effect(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    climb = climbing(tmp_path, way=LaunchSpec(command=command, descriptor=QWEN))
    finding = await launch.entry(climb)
    assert finding.verdict is RungVerdict.FAIL
    assert "was not started" in finding.evidence
    assert "sends what it reads to its model" in finding.evidence
    assert "`qwen --acp`" in finding.remedy


@pytest.mark.parametrize(
    "command", [("qwen", "--acp"), ("qwen", "--acp", "acp"), ("other", "acp"), ("qwen",)]
)
@aio
async def test_other_forms_are_left_to_the_handshake(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    climb = climbing(tmp_path, way=LaunchSpec(command=command, descriptor=QWEN))
    assert verdict(await launch.entry(climb)) == (RungVerdict.PASS, {"launch": command})


@aio
async def test_a_way_that_will_be_taken_away_is_worth_knowing(tmp_path: Path) -> None:
    way = LaunchSpec(command=("qwen", "--experimental-acp"), descriptor=QWEN, deprecated=True)
    assert (await launch.entry(climbing(tmp_path, way=way))).verdict is RungVerdict.WARN


@aio
async def test_elsewhere_than_on_windows_there_is_nothing_to_see(tmp_path: Path) -> None:
    finding = await launch.windows(climbing(tmp_path, platform="macos"))
    assert finding.verdict is RungVerdict.SKIPPED
    assert "macos" in finding.evidence


def on_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str]
) -> FakeClimb:
    monkeypatch.setenv("PATH", "C:\\npm;C:\\node")
    monkeypatch.setenv("PATHEXT", ".EXE;.CMD")
    climb = climbing(tmp_path, way=LaunchSpec(command=("qwen", "--acp")), platform="windows")
    climb.files = Files(files)
    return climb


@aio
async def test_on_windows_a_shim_is_followed_to_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"C:\\npm\\qwen.cmd": SHIM, "C:\\npm\\cli.js": "", "C:\\node\\node.exe": ""}
    climb = on_windows(tmp_path, monkeypatch, files)
    finding = await launch.windows(climb)
    assert finding.verdict is RungVerdict.PASS
    assert "node.exe" in finding.evidence and "without a shell" in finding.evidence
    found = await launch.binary(climb)
    assert str(found.facts["executable"]).lower() == "c:\\npm\\qwen.cmd"


@aio
async def test_on_windows_a_batch_file_that_is_not_a_shim_needs_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"C:\\npm\\qwen.cmd": "call something-else\n"}
    finding = await launch.windows(on_windows(tmp_path, monkeypatch, files))
    assert finding.verdict is RungVerdict.WARN
    assert finding.remedy == remedies.SHIM


@aio
async def test_on_windows_a_plain_program_has_no_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    climb = on_windows(tmp_path, monkeypatch, {"C:\\npm\\qwen.exe": ""})
    assert (await launch.windows(climb)).verdict is RungVerdict.PASS
