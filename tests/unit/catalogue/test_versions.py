"""Versions, learned from files and from flags that are known to be safe."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import dragoman
from dragoman.catalogue import Descriptor, Launch, VersionSource
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.versions import installed_version, learn_version
from tests.aio import aio
from tests.unit.catalogue.test_node_runtime import script
from tests.unit.catalogue.test_npm_package import installed

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="scripts of POSIX")


def way(program: Path, source: VersionSource) -> LaunchSpec:
    peer = Descriptor(
        name="tool", title="Tool", launch=(Launch(command=("tool",)),), version=source
    )
    return LaunchSpec(command=(str(program), "acp"), descriptor=peer)


@aio
async def test_a_package_tells_its_version_and_nothing_is_started(tmp_path: Path) -> None:
    link = installed(tmp_path, "@x/tool", "1.2.3")
    source = VersionSource(how="package", package="@x/tool")
    # The program cannot even be started: it is not executable.
    assert installed_version(way(link, source)) == "1.2.3"
    assert await learn_version(way(link, source)) == "1.2.3"


@pytest.mark.parametrize(
    ("code", "version"),
    [
        ("echo tool 1.2.3-beta.1", "1.2.3-beta.1"),
        ("echo goose  v2.40 >&2", "2.40"),
        ("echo nothing", None),
        ("echo 1.2.3; exit 1", None),
    ],
)
@aio
async def test_a_safe_flag_is_asked(tmp_path: Path, code: str, version: str | None) -> None:
    program = script(tmp_path / "tool", f'#!/bin/sh\n[ "$*" = --version ] || exit 9\n{code}\n')
    source = VersionSource(how="flag", flag="--version")
    assert installed_version(way(program, source)) is None
    assert await learn_version(way(program, source)) == version


@aio
async def test_no_flag_is_tried_that_the_descriptor_does_not_name(tmp_path: Path) -> None:
    program = script(tmp_path / "tool", f"#!/bin/sh\ntouch {tmp_path}/mark\n")
    for source in (VersionSource(), VersionSource(how="package", package="x")):
        assert await learn_version(way(program, source)) is None
    assert not (tmp_path / "mark").exists()
    assert await learn_version(LaunchSpec(command=(str(program),))) is None
    assert await learn_version(LaunchSpec(address="unix:/x")) is None


@aio
async def test_our_own_version_is_known(tmp_path: Path) -> None:
    assert await learn_version(way(tmp_path, VersionSource(how="ours"))) == dragoman.__version__
