"""From a program to its package."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from dragoman.catalogue.npm_package import package_name, package_version
from tests.unit.config.folders import write


def installed(folder: Path, name: str, version: object, program: str = "dist/cli.js") -> Path:
    """A package as npm installs it, and the link to its program."""
    home = folder / "node_modules" / name
    write(home / "package.json", json.dumps({"name": name, "version": version}))
    target = write(home / program, "#!/usr/bin/env node\n")
    link = folder / "node_modules" / ".bin" / "tool"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target)
    return link


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")


def test_a_link_leads_to_the_package_and_its_version(tmp_path: Path) -> None:
    link = installed(tmp_path, "@google/gemini-cli", "0.61.0")
    assert package_name(link) == "@google/gemini-cli"
    assert package_version(link, "@google/gemini-cli") == "0.61.0"


def test_the_version_of_another_package_is_not_taken_for_it(tmp_path: Path) -> None:
    link = installed(tmp_path, "other", "9.9")
    assert package_version(link, "@google/gemini-cli") is None


def test_a_file_that_only_says_what_kind_modules_are_is_passed_by(tmp_path: Path) -> None:
    link = installed(tmp_path, "tool", "1.0", "dist/esm/cli.js")
    write(tmp_path / "node_modules" / "tool" / "dist" / "esm" / "package.json", '{"type":"module"}')
    assert package_version(link, "tool") == "1.0"


@pytest.mark.parametrize("text", ["{", "[]", '{"name": 3}', "\0"])
def test_a_damaged_package_is_not_a_package(tmp_path: Path, text: str) -> None:
    link = installed(tmp_path, "tool", "1.0")
    write(tmp_path / "node_modules" / "tool" / "package.json", text)
    assert package_name(link) is None
    assert package_version(link, "tool") is None


@pytest.mark.parametrize("version", [None, 3, ""])
def test_a_package_without_a_version_has_none(tmp_path: Path, version: object) -> None:
    assert package_version(installed(tmp_path, "tool", version), "tool") is None


def test_what_lies_outside_of_the_modules_is_not_asked(tmp_path: Path) -> None:
    write(tmp_path / "package.json", '{"name": "mine", "version": "1"}')
    link = installed(tmp_path, "tool", "1.0")
    (tmp_path / "node_modules" / "tool" / "package.json").unlink()
    assert package_name(link) is None
    assert package_name(tmp_path / "nonexistent" / "x") in (None, "mine")


def test_a_named_pipe_in_the_place_of_the_file_is_passed_by(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "package.json")
    assert package_name(tmp_path / "bin" / "tool") is None
