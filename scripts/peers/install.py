"""Installs the programs that tests/peers talks to, and knows where they are.

Owns the cache of npm packages: a folder of its own for each exact version of pins.json, outside the
checkout. A folder gets its final name only when it is complete, so its name is the stamp, and two
set-ups at once do not disturb each other. Needs npm with any node; the programs themselves run with
the node that is pinned. Imported by tests/peers/programs.py, run by `make test-peers`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PINS = Path(__file__).with_name("pins.json")

INSTALL_TIMEOUT = 300.0
"""Seconds for one package. The largest has 440 MB; all of them at once take half a minute on a
good line, and a line ten times slower still gets there."""

LOG_TAIL_SIZE = 2_000
"""Characters of npm's output that are shown when it fails."""


TRUST = "NODE_EXTRA_CA_CERTS"
SYSTEM_TRUST = Path("/etc/ssl/certs/ca-certificates.crt")


def environment() -> dict[str, str]:
    """Ours, and whom the machine trusts: node asks nobody but itself unless it is told to, and on
    many networks every certificate is signed by somebody of that network."""
    trusted = os.environ.get(TRUST) or os.environ.get("SSL_CERT_FILE") or str(SYSTEM_TRUST)
    return {**os.environ, TRUST: trusted} if Path(trusted).is_file() else dict(os.environ)


@dataclass(frozen=True, slots=True)
class Pin:
    """One package in one exact version."""

    name: str
    package: str
    version: str
    scripts: bool = False
    """Whether its install script has to run: those of node and opencode put the program for this
    machine in its place. The others would compile parts that no test needs."""

    @property
    def folder(self) -> Path:
        return cache() / f"{self.name}-{self.version}"

    @property
    def module(self) -> Path:
        """The package itself inside its folder."""
        return self.folder / "node_modules" / self.package


def cache() -> Path:
    """Where the packages are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dragoman" / "peers"


def pins() -> dict[str, Pin]:
    """Every pinned package by its short name."""
    return {name: Pin(name=name, **pin) for name, pin in json.loads(PINS.read_text()).items()}


def node() -> Path:
    """The pinned node."""
    return pins()["node"].module / "bin" / "node"


def program(name: str) -> list[str]:
    """The command line of an installed program, to which its arguments are added."""
    pin = pins()[name]
    entries: dict[str, str] = json.loads((pin.module / "package.json").read_text())["bin"]
    (entry,) = entries.values()
    return [str(node()), str(pin.module / entry)]


def install(pin: Pin) -> str:
    """Install one package unless it is there. Returns a line about it; raises RuntimeError."""
    if pin.folder.is_dir():
        return f"  {pin.package} {pin.version}: there already"
    began_at = time.monotonic()
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{pin.name}-", dir=cache(), ignore_cleanup_errors=True
    ) as name:
        scratch = Path(name)
        folder = scratch / "folder"
        folder.mkdir()
        command = ["npm", "install", "--prefix", str(folder), f"{pin.package}@{pin.version}"]
        command += ["--no-package-lock", "--no-audit", "--no-fund", "--engine-strict=false"]
        command += [] if pin.scripts else ["--ignore-scripts"]
        # A file and not a pipe: a grandchild that survives a timeout would keep a pipe open, and
        # the end of npm would be waited for without end.
        with (scratch / "log").open("w+") as log:
            try:
                subprocess.run(
                    command,
                    check=True,
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=INSTALL_TIMEOUT,
                )
            except (OSError, subprocess.SubprocessError) as error:
                log.seek(0)
                raise RuntimeError(
                    f"{pin.package} {pin.version} could not be installed: {error}\n"
                    + log.read()[-LOG_TAIL_SIZE:]
                ) from error
        if pin.name == "node" and not (folder / "node_modules/node/bin/node").exists():
            raise RuntimeError("the package node has no program: were its scripts kept from it?")
        try:
            folder.rename(pin.folder)
        except OSError:
            # Another set-up was faster; what it installed is the same.
            if not pin.folder.is_dir():
                raise
    return f"  {pin.package} {pin.version}: {time.monotonic() - began_at:.0f} s"


def main() -> int:
    wanted = list(pins().values())
    if all(pin.folder.is_dir() for pin in wanted):
        return 0
    if shutil.which("npm") is None:
        sys.stderr.write("The tests against real programs need npm, which is not on the PATH.\n")
        return 1
    sys.stdout.write(f"Setting up the programs to test against in {cache()} (once) ...\n")
    sys.stdout.flush()
    failures = 0
    with ThreadPoolExecutor(len(wanted)) as pool:
        for future in [pool.submit(install, pin) for pin in wanted]:
            try:
                sys.stdout.write(future.result() + "\n")
            except (RuntimeError, OSError) as error:
                sys.stdout.write(f"  {error}\n")
                failures += 1
            sys.stdout.flush()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
