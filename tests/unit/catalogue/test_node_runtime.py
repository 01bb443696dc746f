"""Whether node is there and new enough, said before anything of the peer is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.catalogue import Descriptor, Install, Launch
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.node_runtime import check_runtime, find_node, node_version
from dragoman.errors import NotInstalled
from tests.aio import aio
from tests.unit.config.folders import write

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="scripts of POSIX")


def script(file: Path, text: str) -> Path:
    write(file, text)
    file.chmod(0o755)
    return file


def fake_node(folder: Path, answer: str = "echo v20.11.0") -> Path:
    return script(folder / "node", f"#!/bin/sh\n{answer}\n")


def way(program: Path, node: int | None = 22) -> LaunchSpec:
    peer = Descriptor(
        name="kimi",
        title="Kimi",
        launch=(Launch(command=("kimi", "acp")),),
        install=Install(node=node),
    )
    return LaunchSpec(command=(str(program), "acp"), descriptor=peer)


@pytest.mark.parametrize(
    "first", ["#!/usr/bin/env node", "#!/usr/bin/env -S node --expose-gc", "#! /usr/bin/env node "]
)
def test_the_node_of_a_script_is_found_as_its_first_line_says(tmp_path: Path, first: str) -> None:
    node = fake_node(tmp_path / "bin")
    program = script(tmp_path / "tool", f"{first}\n")
    assert find_node(program, {"PATH": str(node.parent)}) == str(node)
    assert find_node(program, {"PATH": "/nonexistent"}) == ""


def test_a_script_may_name_its_node_by_path(tmp_path: Path) -> None:
    node = fake_node(tmp_path)
    assert find_node(script(tmp_path / "a", f"#!{node}\n"), {}) == str(node)
    assert find_node(script(tmp_path / "b", "#!/nonexistent/node\n"), {}) == ""


@pytest.mark.parametrize("text", ["\x7fELF", "#!/bin/sh\nnode x", "#!/usr/bin/env python3", ""])
def test_what_is_not_a_script_of_node_needs_none(tmp_path: Path, text: str) -> None:
    assert find_node(script(tmp_path / "tool", text)) is None
    assert find_node(tmp_path / "nonexistent") is None


def test_a_named_pipe_in_the_place_of_a_program_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tool", 0o700)
    assert find_node(tmp_path / "tool") is None


@aio
async def test_a_node_that_is_too_old_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = fake_node(tmp_path / "bin")
    program = script(tmp_path / "kimi", "#!/usr/bin/env node\nthrow")
    monkeypatch.setenv("PATH", f"{node.parent}:/usr/bin:/bin")
    with pytest.raises(NotInstalled) as caught:
        await check_runtime(way(program))
    text = str(caught.value)
    assert f"it needs node 22 or newer, and {node} is node 20.11.0" in text
    assert "install node 22" in caught.value.remedy
    assert await check_runtime(way(program, node=20)) == "20.11.0"
    assert await check_runtime(way(program, node=None)) is None


@aio
async def test_the_path_that_the_program_is_going_to_see_counts(tmp_path: Path) -> None:
    node = fake_node(tmp_path / "bin", "echo v22.0.1")
    program = script(tmp_path / "kimi", "#!/usr/bin/env node\n")
    path = {"PATH": f"{node.parent}:/usr/bin:/bin"}
    assert await check_runtime(replace(way(program), env=path)) == "22.0.1"
    assert await check_runtime(way(program), path) == "22.0.1"


@aio
async def test_no_node_at_all_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "kimi", "#!/usr/bin/env node\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotInstalled, match="node is not on the PATH"):
        await check_runtime(way(program))


@pytest.mark.parametrize("answer", ["exit 1", "echo hello", "kill -9 $$"])
@aio
async def test_a_node_that_does_not_say_is_let_pass(tmp_path: Path, answer: str) -> None:
    node = fake_node(tmp_path, answer)
    assert await node_version(str(node)) is None
    assert await node_version(str(tmp_path / "nonexistent")) is None


@aio
async def test_a_node_is_asked_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    node = fake_node(tmp_path, f"echo x >> {tmp_path}/asked; echo v22.1.0")
    assert await node_version(str(node)) == "22.1.0"
    assert await node_version(str(node)) == "22.1.0"
    assert (tmp_path / "asked").read_text() == "x\n"
    fake_node(tmp_path, f"echo x >> {tmp_path}/asked; echo v23.10.0")
    assert await node_version(str(node)) == "23.10.0"


@aio
async def test_an_address_needs_no_runtime() -> None:
    assert (
        await check_runtime(LaunchSpec(address="unix:/x", descriptor=way(Path("/x")).descriptor))
        is None
    )
    assert await check_runtime(LaunchSpec(command=("/x",))) is None
