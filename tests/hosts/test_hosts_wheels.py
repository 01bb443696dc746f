"""`dragoman hosts bootstrap --wheels` on a laptop without a package index, over a real sshd.

None of the packages that are installed here fit the far machine, so every wheel has to come from
the directory.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

import dragoman
from dragoman.setup.host_wheels import Target, collect
from dragoman.setup.remote_scripts import probe
from dragoman.version import __version__
from tests.hosts.far_machine import FarMachine
from tests.hosts.test_hosts_command import INSTALLED
from tests.hosts.test_hosts_command import empty as empty
from tests.integration.cli_shell import Done

NO_INDEX = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_RETRIES": "1",
}
"""pip settings with an index where nothing listens."""


@dataclass
class Laptop:
    """A machine with another platform than the far one, and a directory with wheels for that."""

    far: FarMachine
    wheels: Path

    def bootstrap(self, *words: str) -> Done:
        return self.far.cli.child("hosts", "bootstrap", "box", "--python", self.far.python, *words)

    def refused(self, *words: str) -> str:
        """Run a bootstrap that installs nothing, and return its error."""
        done = self.bootstrap("--wheels", str(self.wheels), *words)
        assert done.code == 2 and "Traceback" not in done.err, done
        assert not any(self.far.home.iterdir())
        assert "dragoman =" not in self.settings
        return done.err

    @property
    def settings(self) -> str:
        return (self.far.cli.home / "config_home" / "config.toml").read_text()

    def wheel(self, package: str) -> Path:
        (found,) = self.wheels.glob(f"{package}-*.whl")
        return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels for a machine like this one, which the far machine is."""
    folder = tmp_path_factory.mktemp("prepared")
    report = {"python": probe.python(), "platform": probe.machine()}
    asyncio.run(collect(Target.from_report(report), wheels=None, scratch=folder))
    for own in folder.glob("dragoman-*.whl"):
        own.unlink()
    return folder


@pytest.fixture
def laptop(empty: FarMachine, prepared: Path, tmp_path: Path) -> Iterator[Laptop]:
    wheels = tmp_path / "wheels"
    shutil.copytree(prepared, wheels)
    packages = tmp_path / "packages"
    for wheel in prepared.iterdir():
        pretend_other_platform(packages, wheel.name.partition("-")[0])
    source = Path(dragoman.__file__).parents[1]
    before = empty.cli.extra
    empty.cli.extra = before | NO_INDEX | {"PYTHONPATH": f"{packages}:{source}"}
    yield Laptop(empty, wheels)
    empty.cli.extra = before


def pretend_other_platform(folder: Path, name: str) -> None:
    """Write the description of an installed package again, but for another platform."""
    found = metadata.distribution(name)
    info = folder / f"{name}-{found.version}.dist-info"
    info.mkdir(parents=True)
    for file in ("METADATA", "RECORD"):
        (info / file).write_text(found.read_text(file) or "")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp311-cp311-macosx_11_0_arm64\n")


def test_every_wheel_comes_from_the_directory_and_dragoman_runs_there(laptop: Laptop) -> None:
    done = laptop.bootstrap("--wheels", str(laptop.wheels))
    assert done.code == 0, done
    far = laptop.far
    program = far.home / INSTALLED / "current" / "bin" / "dragoman"
    assert f"ok       dragoman: {program}, version {__version__}" in done.out
    assert f'dragoman = "{program}"' in laptop.settings
    ran = far.cli.child("--host", "box", "run", "scout", "/help", "--cwd", str(far.home))
    far.as_far(str(program), "broker", "stop", "--all", cwd=far.home)
    assert ran.code == 0, ran.err


def test_without_the_directory_the_error_says_how_to_make_it(laptop: Laptop) -> None:
    done = laptop.bootstrap()
    assert done.code == 2
    assert "no wheels of msgspec" in done.err and "pip cannot reach the package index" in done.err
    assert "with --wheels DIR: pip download --dest DIR" in done.err
    assert not any(laptop.far.home.iterdir())


def test_a_missing_wheel_is_named_and_the_command_in_the_error_downloads_it(
    laptop: Laptop, prepared: Path
) -> None:
    laptop.wheel("msgspec").unlink()
    said = laptop.refused()
    assert "has no wheel of msgspec for Python 3" in said and "another Python" not in said
    command = said[said.index("pip download") :].splitlines()[0]
    words = [str(laptop.wheels) if word == "DIR" else word for word in shlex.split(command)]
    # The index of the machine with internet access.
    source = ["--no-index", f"--find-links={prepared}"]
    env = os.environ | {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    argv = [sys.executable, "-m", *words, *source]
    subprocess.run(argv, env=env, check=True, capture_output=True, timeout=60)
    done = laptop.bootstrap("--wheels", str(laptop.wheels))
    assert done.code == 0, done


def test_a_wheel_for_another_python_is_named(laptop: Laptop) -> None:
    wheel = laptop.wheel("msgspec")
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    other = wheel.rename(wheel.with_name(wheel.name.replace(version, "cp310")))
    said = laptop.refused()
    assert "has no wheel of msgspec" in said
    assert f"made for another Python or platform: {other.name}" in said
    assert "pip download --dest DIR" in said


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_wheel_is_named_before_anything_is_sent(laptop: Laptop, damage: str) -> None:
    wheel = laptop.wheel("msgspec")
    data = bytearray(wheel.read_bytes())
    middle = len(data) // 2
    data[middle] ^= 0xFF
    wheel.write_bytes(data[:middle] if damage == "cut" else data)
    said = laptop.refused()
    assert f"{wheel}: the wheel is damaged" in said and "sending" not in said
    assert "remove it, and download it again" in said and "pip download --dest DIR" in said
