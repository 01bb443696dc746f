"""Run a script of `setup/remote_scripts` on another machine over SSH, with the Python there.

The scripts are data of this package, not modules: nothing imports them, and they import only the
standard library, because dragoman may not be installed on that machine.

The remote shell looks for a Python that is new enough. That Python reads stdin: a line with the
length of the script, its source, a line of JSON with its argument, and its payload. The script
prints its result as one marked line of JSON, so that other output of a login shell does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import PurePosixPath
from typing import Any, Final, Literal

import msgspec

from dragoman.broker.client.ssh_command import Host
from dragoman.broker.client.ssh_once import failure, run_on_host
from dragoman.errors import HostUnavailable
from dragoman.wire.messages import UNDECODABLE

Script = Literal["probe", "install"]
"""The name of a script."""

REPORT: Final = "dragoman-report: "
"""Prefix of the line with the result, the same as in the scripts."""

OLDEST_PYTHON: Final = (3, 11)
PYTHONS: Final = (
    "python3", "python3.14", "python3.13", "python3.12", "python3.11",
    "/usr/bin/python3", "/usr/local/bin/python3", "/opt/homebrew/bin/python3",
)  # fmt: skip
"""The Pythons to try, in this order."""

NO_PYTHON: Final = "dragoman-no-python:"
"""Prefix of the line that says that no suitable Python was found. A list of those that are too old
follows it."""

OUTPUT_SIZE: Final = 4 * 1024 * 1024
"""Maximum size of the output in bytes. A report has a few thousand bytes, and a login shell may add
some text."""

FIND_PYTHON: Final = (
    'for p in "$@"; do p=$(PATH="$PATH:$HOME/.local/bin"; command -v "$p" 2>/dev/null) '
    """|| continue; if "$p" -c """
    f"'import sys; sys.exit(sys.version_info < {OLDEST_PYTHON})' </dev/null >/dev/null 2>&1; "
    'then exec "$p" -I -c "$0"; fi; '
    """v=$("$p" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' """
    "</dev/null 2>/dev/null) "
    f'&& old="$old $p $v;"; done; printf "\\n{NO_PYTHON}%s\\n" "$old"'
)
"""Script for the remote shell. Its arguments are the Pythons to try; $0 is the code to run. It is
one line: some login shells, such as csh, do not accept a line break in quotes. uv installs Pythons
in ~/.local/bin, which is often not on the PATH of a remote command."""

LOADER: Final = (
    # If the connection dies now, the alarm ends the process.
    "import signal, sys; signal.alarm(600); f = sys.stdin.buffer; n = int(f.readline()); "
    "exec(compile(f.read(n), 'dragoman', 'exec'), {'__name__': '__main__'})"
)


async def run_script(
    host: Host,
    script: Script,
    wanted: Mapping[str, Any],
    *,
    timeout: float,
    payload: Iterable[bytes] = (),
    python: str | None = None,
) -> dict[str, Any]:
    """Run a script on a host, and return its report.

    `wanted` is the script's argument, and `payload` follows it on stdin. If `python` is given, no
    other Python is tried. Raises `HostUnavailable` if the host cannot be reached or has no suitable
    Python, or if the script sends no report within `timeout` seconds.
    """
    pythons = (python,) if python else (*PYTHONS, *_own_python(host))
    done = await run_on_host(
        host,
        ["sh", "-c", FIND_PYTHON, LOADER, *pythons],
        timeout=timeout,
        limit_size=OUTPUT_SIZE,
        input=_input(script, wanted, payload),
    )
    lines = done.output.decode("utf-8", "replace").splitlines()
    for line in reversed(lines):
        if line.startswith(REPORT):
            try:
                report: dict[str, Any] = msgspec.json.decode(
                    line[len(REPORT) :], type=dict[str, Any]
                )
            except UNDECODABLE:
                continue
            return report
        if line.startswith(NO_PYTHON):
            raise no_python(host, line[len(NO_PYTHON) :].strip(" ;"), pythons)
    raise failure(host, done, timeout=timeout, limit_size=OUTPUT_SIZE)


def _own_python(host: Host) -> tuple[str, ...]:
    """Return the path of the Python beside the dragoman on the host, which may be the only Python
    there that is new enough. Empty if the path of that dragoman is not known."""
    program = PurePosixPath(host.program)
    return (str(program.with_name("python")),) if program.is_absolute() else ()


def _input(script: Script, wanted: Mapping[str, Any], payload: Iterable[bytes]) -> Iterator[bytes]:
    folder = resources.files("dragoman.setup") / "remote_scripts"
    source = (folder / f"{script}.py").read_bytes()
    yield b"%d\n%b" % (len(source), source)
    yield msgspec.json.encode(wanted) + b"\n"
    yield from payload


def no_python(host: Host, old: str, tried: Sequence[str]) -> HostUnavailable:
    """Return the error for a machine without a Python that is new enough. `old` lists those found,
    separated by semicolons, and `tried` has the names that were looked for."""
    oldest = ".".join(map(str, OLDEST_PYTHON))
    if old:
        found = dict.fromkeys(each.strip() for each in old.split(";"))
        problem = f"Python there is too old ({', '.join(found)})"
    else:
        problem = f"Python was not found ({', '.join(dict.fromkeys(tried))})"
    return HostUnavailable(
        host.name,
        f"{problem}; dragoman needs Python {oldest} or newer",
        remedy="install Python there (Debian and Ubuntu: `apt install python3`; without root: "
        "`uv python install`), or name one with --python PATH",
    )
