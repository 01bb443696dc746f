"""Install dragoman from wheels: verify them, unpack into a new directory, test it, switch to it.

A script for another machine, sent by `setup.host_scripts` with the wheels. It runs there with only
the standard library of its Python: no pip, no venv module, no network. A `pyvenv.cfg` beside a
symbolic link to the Python makes the directory a virtual environment.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import zipfile
from typing import Any, BinaryIO

REPORT = "dragoman-report: "
CHUNK_SIZE = 1024 * 1024
READ_TIMEOUT = 120.0
"""Timeout in seconds to read one chunk of the wheels. If the connection breaks, sshd may not notice
for hours."""

TRY_TIMEOUT = 120.0
"""Timeout in seconds for the first start, which compiles every module."""


class InstallError(Exception):
    """The installation failed. The previous installation still works. `kind` goes into the report,
    and `setup.hosts` shows a remedy for it."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


def install(wanted: dict[str, Any], wheels: BinaryIO) -> dict[str, Any]:
    """Install the version that `wanted` describes, and return the path of the command and the
    directory of this version. `wheels` has the contents of `wanted["files"]`, one after another.

    If that fails, an error is raised and the previous version stays in use.
    """
    root = os.path.join(data_home(), "dragoman", "installed")
    versions = os.path.join(root, "versions")
    os.makedirs(versions, mode=0o700, exist_ok=True)
    fresh = tempfile.mkdtemp(prefix=f"{wanted['version']}-", dir=versions)
    try:
        receive(wanted["files"], wheels, os.path.join(fresh, "wheels"))
        site = make_environment(fresh)
        for file in wanted["files"]:
            unpack(os.path.join(fresh, "wheels", file["name"]), site)
        shutil.rmtree(os.path.join(fresh, "wheels"))
        program = write_program(fresh)
        try_out(program, wanted["version"])
        before = switch(root, fresh)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    remove_others(versions, keep={fresh, before})
    return {"program": os.path.join(root, "current", "bin", "dragoman"), "folder": fresh}


def data_home() -> str:
    given = os.environ.get("XDG_DATA_HOME", "")
    return given if os.path.isabs(given) else os.path.expanduser("~/.local/share")


def receive(files: list[dict[str, Any]], source: BinaryIO, folder: str) -> None:
    """Read the wheels from `source`, write them into the new directory `folder`, and check the
    digest of each. Raises `InstallError` if one is incomplete or damaged."""
    os.mkdir(folder)
    for file in files:
        name = file["name"]
        if os.path.basename(name) != name or not name.endswith(".whl"):
            raise InstallError("damaged", f"not the name of a wheel file: {name!r}")
        digest = hashlib.sha256()
        left = file["size"]
        with open(os.path.join(folder, name), "wb") as target:
            while left:
                data = read(source, min(left, CHUNK_SIZE))
                if not data:
                    raise InstallError("damaged", "the connection ended before all files were sent")
                left -= len(data)
                digest.update(data)
                target.write(data)
        if digest.hexdigest() != file["sha256"]:
            raise InstallError("damaged", f"{name} arrived damaged: wrong digest")


def read(source: BinaryIO, size: int) -> bytes:
    """Read `size` bytes, or fewer at the end of the input. Raises `InstallError` if they do not
    arrive within `READ_TIMEOUT`."""

    def silent(number: int, frame: Any) -> None:
        raise InstallError("damaged", f"no data arrived for {READ_TIMEOUT:g} s")

    before = signal.signal(signal.SIGALRM, silent)
    signal.setitimer(signal.ITIMER_REAL, READ_TIMEOUT)
    try:
        return source.read(size)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def make_environment(folder: str) -> str:
    """Create a virtual environment without the module `venv`. Returns its package directory."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    suffix = "t" if "t" in getattr(sys, "abiflags", "") else ""
    site = os.path.join(folder, "lib", f"python{version}{suffix}", "site-packages")
    os.makedirs(site)
    os.mkdir(os.path.join(folder, "bin"))
    # If this Python is itself in a virtual environment, link to its base Python: that environment
    # may be removed one day.
    base = getattr(sys, "_base_executable", None) or sys.executable
    os.symlink(base, os.path.join(folder, "bin", "python"))
    with open(os.path.join(folder, "pyvenv.cfg"), "w", encoding="utf-8") as file:
        file.write(
            f"home = {os.path.dirname(base)}\ninclude-system-site-packages = false\n"
            f"version = {version}.{sys.version_info[2]}\n"
        )
    return site


def unpack(wheel: str, site: str) -> None:
    """Unpack the packages of a wheel, without scripts and headers. Raises `InstallError` for a path
    that would leave the directory."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            parts = entry.filename.split("/")
            if entry.is_dir():
                continue
            if os.path.isabs(entry.filename) or ".." in parts or "\\" in entry.filename:
                raise InstallError(
                    "damaged", f"{wheel} contains the unsafe path {entry.filename!r}"
                )
            if parts[0].endswith(".data"):
                if len(parts) < 3 or parts[1] not in ("purelib", "platlib"):
                    continue
                parts = parts[2:]
            target = os.path.join(site, *parts)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with archive.open(entry) as source, open(target, "wb") as file:
                shutil.copyfileobj(source, file)
            if entry.external_attr >> 16 & stat.S_IXUSR:
                os.chmod(target, 0o755)


def write_program(folder: str) -> str:
    """Write the `dragoman` command and return its path. The command contains the path of this
    version's directory, so it runs this version even if it was started through the `current`
    link."""
    path = os.path.join(folder, "bin", "dragoman")
    python = os.path.join(folder, "bin", "python").replace("'", "'\\''")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\nexec '{python}' -P -m dragoman \"$@\"\n")
    os.chmod(path, 0o755)
    return path


def try_out(program: str, version: str) -> None:
    """Run the new version before `current` points to it. Raises `InstallError` if it does not
    work."""
    python = os.path.join(os.path.dirname(program), "python")
    modules = "import dragoman.cli.app, dragoman.broker.__main__, dragoman.policy.shell_parser"
    for argv in ([program, "--version"], [python, "-P", "-c", modules]):
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TRY_TIMEOUT,
                check=False,
                text=True,
                errors="replace",
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise InstallError("broken", f"the new version does not start: {error}") from error
        for problem in ("No space left on device", "Disk quota exceeded"):
            if problem in done.stderr:
                raise InstallError("full", problem)
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise InstallError("broken", f"the new version does not start: {''.join(last)}")
        if argv[0] == program and done.stdout.split()[1:2] != [version]:
            raise InstallError(
                "broken", f"the new version prints {done.stdout[:80]!r} instead of {version}"
            )


def switch(root: str, fresh: str) -> str | None:
    """Point `current` atomically to the new directory. Returns the previous target, or None if
    there was none."""
    current = os.path.join(root, "current")
    before = os.path.realpath(current) if os.path.islink(current) else None
    link = f"{fresh}.link"
    os.symlink(os.path.join("versions", os.path.basename(fresh)), link)
    os.replace(link, current)
    return before


def remove_others(versions: str, keep: set[Any]) -> None:
    """Remove all versions except those in `keep`. Callers keep the previous version too, because a
    broker may still run from it."""
    kept = {os.path.realpath(each) for each in keep if each}
    for name in os.listdir(versions):
        path = os.path.join(versions, name)
        if os.path.realpath(path) not in kept:
            shutil.rmtree(path, ignore_errors=True)


def main() -> None:
    wanted = json.loads(sys.stdin.buffer.readline())
    try:
        report = install(wanted, sys.stdin.buffer)
    except InstallError as error:
        report = {"error": error.kind, "problem": str(error)}
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        report = {"error": "full" if full else "system", "problem": str(error)}
    except zipfile.BadZipFile as error:
        report = {"error": "damaged", "problem": str(error)}
    sys.stdout.write("\n" + REPORT + json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
