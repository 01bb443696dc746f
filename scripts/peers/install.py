"""Install the programs that tests/peers talks to, and find them.

Each exact version in pins.json is installed in its own directory, in a cache outside the checkout.
A directory gets its final name only when it is complete, so its existence means that the package is
installed, and two installations at the same time do not interfere. Needs npm with any version of
node; the programs themselves run with the pinned node. Imported by tests/peers/programs.py, run by
`make test-peers`.
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
"""Timeout in seconds for one package. The largest has 440 MB. All of them together take half a
minute on a fast connection, so a connection ten times slower is fast enough."""

LOG_TAIL_SIZE = 2_000
"""Maximum number of characters of npm's output to show when it fails."""

TRUST = "NODE_EXTRA_CA_CERTS"
SYSTEM_TRUST = Path("/etc/ssl/certs/ca-certificates.crt")


def environment() -> dict[str, str]:
    """Our environment, with the system's CA certificates for node. By default, node trusts only its
    own list, which fails on networks whose proxy signs all certificates itself."""
    trusted = os.environ.get(TRUST) or os.environ.get("SSL_CERT_FILE") or str(SYSTEM_TRUST)
    return {**os.environ, TRUST: trusted} if Path(trusted).is_file() else dict(os.environ)


@dataclass(frozen=True, slots=True)
class Pin:
    """One package with its exact version."""

    name: str
    package: str
    version: str
    scripts: bool = False
    """Whether its install scripts must run. Those of node and opencode install the program for this
    machine. The others would compile parts that no test needs."""

    @property
    def folder(self) -> Path:
        return cache() / f"{self.name}-{self.version}"

    @property
    def module(self) -> Path:
        """The package itself inside its directory."""
        return self.folder / "node_modules" / self.package


def cache() -> Path:
    """The directory in which packages are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dragoman" / "peers"


def pins() -> dict[str, Pin]:
    """All pinned packages by their short names."""
    return {name: Pin(name=name, **pin) for name, pin in json.loads(PINS.read_text()).items()}


def node() -> Path:
    """The pinned node."""
    return pins()["node"].module / "bin" / "node"


def program(name: str) -> list[str]:
    """The command line of an installed program, without arguments."""
    pin = pins()[name]
    entries: dict[str, str] = json.loads((pin.module / "package.json").read_text())["bin"]
    (entry,) = entries.values()
    return [str(node()), str(pin.module / entry)]


def install(pin: Pin) -> str:
    """Install one package unless it is already installed. Returns a status line. Raises
    RuntimeError."""
    if pin.folder.is_dir():
        return f"  {pin.package} {pin.version}: already installed"
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
        # A file, not a pipe: a grandchild that survives the timeout would keep a pipe open, and we
        # would wait forever for npm to end.
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
                    f"cannot install {pin.package} {pin.version}: {error}\n"
                    + log.read()[-LOG_TAIL_SIZE:]
                ) from error
        if pin.name == "node" and not (folder / "node_modules/node/bin/node").exists():
            raise RuntimeError("the package node has no program: did its install scripts run?")
        try:
            folder.rename(pin.folder)
        except OSError:
            # Another process was faster and installed the same.
            if not pin.folder.is_dir():
                raise
    return f"  {pin.package} {pin.version}: {time.monotonic() - began_at:.0f} s"


def main() -> int:
    wanted = list(pins().values())
    if all(pin.folder.is_dir() for pin in wanted):
        return 0
    if shutil.which("npm") is None:
        sys.stderr.write("npm not found: the tests against real agent programs need it\n")
        return 1
    sys.stdout.write(f"Installing the programs to test against in {cache()} (once) ...\n")
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
