"""Check that the Node.js version that a peer needs is installed.

Finds the interpreter from the first line of the peer's script and runs ``node --version``. Never
starts the peer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dragoman.errors import NotInstalled
from dragoman.transports.process.environment import which
from dragoman.transports.process.query import ask_program

if TYPE_CHECKING:
    from dragoman.catalogue.launch import LaunchSpec

NODE_TIMEOUT: Final = 10.0
"""Timeout in seconds for `node --version`, which takes 50 ms on an idle machine."""

FIRST_LINE_SIZE: Final = 256
"""Maximum number of bytes read from a script's first line; the kernel reads no more either."""

VERSION: Final = re.compile(r"v?(\d+)\.\d+")

_known: dict[tuple[str, int, int], str] = {}
"""Versions by file, size and mtime, for one process."""


def find_node(program: Path, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the path of the Node.js interpreter that runs a script, or None if the program is not
    a Node.js script.

    A Windows command file (`.cmd`, `.bat`, `.ps1`) is taken for a Node.js script. Returns an empty
    text if the interpreter is not installed.
    """
    environ = os.environ if environ is None else environ
    path = environ.get("PATH", os.defpath)
    if program.suffix.lower() in (".cmd", ".bat", ".ps1"):
        # npm's shims for Windows search their own directory first.
        beside = program.with_name("node.exe")
        return str(beside) if beside.exists() else which("node", path=path) or ""
    try:
        if not program.is_file():
            # Opening a named pipe would block forever.
            return None
        with program.open("rb") as file:
            first = file.readline(FIRST_LINE_SIZE)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].decode("utf-8", "replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words or Path(words[0]).name not in ("node", "nodejs"):
        return None
    if os.path.isabs(words[0]):
        return words[0] if os.access(words[0], os.X_OK) else ""
    return which(words[0], path=path) or ""


async def node_version(node: str) -> str | None:
    """Return the version of a Node.js interpreter, such as ``22.11.0``, or None if it cannot be
    determined."""
    key = _file_key(node)
    if key is None:
        return None
    if key not in _known:
        said = await ask_program([node, "--version"], timeout=NODE_TIMEOUT)
        found = VERSION.match(said.text.strip()) if said is not None else None
        if found is None or said is None:
            return None
        _known[key] = said.text.strip().removeprefix("v").split()[0]
    return _known[key]


def _file_key(file: str) -> tuple[str, int, int] | None:
    try:
        info = os.stat(file)
    except OSError:
        return None
    return os.path.realpath(file), info.st_size, info.st_mtime_ns


async def check_runtime(spec: LaunchSpec, environ: Mapping[str, str] | None = None) -> str | None:
    """Raise `NotInstalled` if the Node.js interpreter of the program is missing or too old.

    Returns its version, or None if the descriptor requires none, the program does not run in
    Node.js, or the version is unknown.
    """
    descriptor = spec.descriptor
    if descriptor is None or descriptor.install.node is None or not spec.command:
        return None
    if environ is None:
        # The environment of the program applies to the search for its interpreter too.
        environ = {**os.environ, **spec.env}
    program = which(spec.command[0], path=environ.get("PATH"))
    node = None if program is None else find_node(Path(program), environ)
    if node is None:
        return None
    wanted = descriptor.install.node
    remedy = f"install node {wanted} or newer and put it first on the PATH"
    if not node:
        raise NotInstalled(
            descriptor.name,
            f"it needs node {wanted} or newer, and node is not on the PATH",
            remedy=remedy,
            looked_for=("node",),
        )
    version = await node_version(node)
    if version is not None and int(version.partition(".")[0]) < wanted:
        raise NotInstalled(
            descriptor.name,
            f"it needs node {wanted} or newer, and {node} is node {version}",
            remedy=remedy,
            looked_for=("node",),
        )
    return version
