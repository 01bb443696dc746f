"""Inspect a machine: its Python, dragoman, agents, git, disk, and what happens at logout.

A script for another machine, sent by `setup.host_scripts`. It runs there with only the standard
library of its Python, and changes nothing.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

REPORT = "dragoman-report: "
"""Prefix of the line with the result: a login shell may print other lines."""

TIMEOUT = 20.0
"""Seconds for each program that is run."""

MAX_SHOWN = 12
"""Maximum number of installed agents to inspect in detail."""


def probe(wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the complete report.

    `wanted` has the path of dragoman that the settings name, the hello message that asks it for its
    protocol, and the names of the programs and variables to look for.
    """
    home = os.path.expanduser("~")
    candidates = [
        wanted.get("dragoman"),
        os.path.join(data_folder(), "current", "bin", "dragoman"),
        shutil.which("dragoman"),
        os.path.join(home, ".local", "bin", "dragoman"),
    ]
    return {
        "python": python(),
        "platform": machine(),
        "home": home,
        "home_writable": os.access(home, os.W_OK),
        "free_size": free_size(home),
        "path": os.environ.get("PATH", ""),
        "dragoman": find_dragoman(candidates, hello=wanted.get("hello", "")),
        "dragoman_on_path": shutil.which("dragoman"),
        "programs": {name: shutil.which(name) for name in wanted.get("programs", ())},
        "variables": sorted(name for name in wanted.get("variables", ()) if os.environ.get(name)),
        "git": answer(["git", "--version"])[1].partition("git version ")[2],
        "log_out": log_out(),
    }


def data_folder() -> str:
    """Return the directory in which the script `install` installs dragoman."""
    given = os.environ.get("XDG_DATA_HOME", "")
    base = given if os.path.isabs(given) else os.path.expanduser("~/.local/share")
    return os.path.join(base, "dragoman", "installed")


def python() -> dict[str, Any]:
    return {
        "executable": sys.executable,
        "version": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    }


def machine() -> dict[str, Any]:
    """Return the properties of this machine that a wheel has to match: system, architecture, C
    library."""
    libc, version = "", ""
    if sys.platform == "linux":
        libc, version = c_library()
    elif sys.platform == "darwin":
        version = platform.mac_ver()[0]
    # A 32-bit Python on a 64-bit kernel needs 32-bit wheels.
    arch = platform.machine()
    if sys.maxsize <= 2**32:
        arch = {"x86_64": "i686", "aarch64": "armv7l"}.get(arch, arch)
    return {"system": sys.platform, "machine": arch, "libc": libc, "libc_version": version}


def c_library() -> tuple[str, str]:
    """Return ``glibc`` or ``musl`` and its version; two empty strings if unknown."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        if name == "glibc":
            return name, version
    except (AttributeError, ValueError, OSError):
        pass
    # The musl loader prints its version to stderr and fails.
    for loader in musl_loaders():
        found = re.search(r"Version (\d+\.\d+)", answer([loader])[2])
        if found:
            return "musl", found[1]
    return ("musl", "1.1") if "musl" in (sysconfig.get_config_var("SOABI") or "") else ("", "")


def musl_loaders() -> list[str]:
    try:
        names = sorted(os.listdir("/lib"))
    except OSError:
        return []
    return [f"/lib/{name}" for name in names if name.startswith("ld-musl-")]


def answer(
    argv: list[str], text: str = "", env: dict[str, str] | None = None
) -> tuple[int | None, str, str]:
    """Run a program with `text` on its stdin, and return its exit code, stdout and stderr. If it
    cannot be run or does not end in time, the exit code is None, and the error replaces stderr."""
    try:
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
            text=True,
            errors="replace",
            env=env,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return None, "", str(error)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def find_dragoman(candidates: list[str | None], hello: str = "") -> dict[str, Any] | None:
    """Return what is known about the first dragoman that works, including its protocol if `hello`
    is given. If none works, return the first broken one; None if no candidate exists."""
    broken = None
    for path in dict.fromkeys(each for each in candidates if each):
        if not os.path.exists(path):
            continue
        code, said, errors = answer([path, "--version"])
        # "dragoman 0.2.0" is the first line.
        if code == 0 and said.startswith("dragoman "):
            found = {"path": path, "version": said.split()[1], "problem": "", **peers(path)}
            return {**found, "protocol": protocol(path, hello)} if hello else found
        problem = (errors or said or f"exit code {code}").splitlines()[-1]
        broken = broken or {"path": path, "version": "", "problem": problem, "peers": None}
    return broken


def protocol(path: str, hello: str) -> int | None:
    """Return the version of the protocol that this dragoman uses between machines, or None if it
    does not answer `hello`, because it is too old for the protocol."""
    # With this variable, it creates no directory for sockets.
    env = {**os.environ, "DRAGOMAN_RUNTIME_DIR": os.devnull}
    for line in answer([path, "broker", "stdio"], text=f"{hello}\n", env=env)[1].splitlines():
        try:
            return int(json.loads(line)["result"]["protocol"])
        except (ValueError, KeyError, TypeError):
            continue
    return None


def peers(path: str) -> dict[str, Any]:
    """Return the agents that this dragoman lists, under the key ``peers``; at most `MAX_SHOWN` of
    the installed ones have details about their login. The value is None if it cannot list them."""
    code, said, _ = answer([path, "peers", "list", "--format", "json"])
    if code != 0:
        return {"peers": None}
    try:
        rows = [json.loads(line) for line in said.splitlines()]
    except ValueError:
        return {"peers": None}
    for row in [row for row in rows if row.get("installed")][:MAX_SHOWN]:
        code, said, _ = answer([path, "peers", "show", str(row.get("name")), "--format", "json"])
        try:
            page = json.loads(said) if code == 0 else {}
        except ValueError:
            page = {}
        card = page.get("card")
        row["login"] = card.get("login") if isinstance(card, dict) else None
        row["credentials_set"] = page.get("credentials_set", [])
    return {"peers": rows}


def free_size(folder: str) -> int | None:
    try:
        space = os.statvfs(folder)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize


def log_out() -> dict[str, Any]:
    """Return whether the system uses systemd, kills a user's processes at logout, and lets the
    user's processes linger. None means unknown."""
    if not os.path.isdir("/run/systemd/system"):
        return {"systemd": False, "kills": False, "linger": None}
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or ""
    linger = os.path.exists(f"/var/lib/systemd/linger/{user}") if user else None
    manager = "org.freedesktop.login1"
    told = ["busctl", "get-property", manager, "/org/freedesktop/login1", f"{manager}.Manager"]
    code, said, _ = answer([*told, "KillUserProcesses"])
    kills = said == "b true" if code == 0 else configured_kills()
    return {"systemd": True, "kills": kills, "linger": linger}


def configured_kills() -> bool | None:
    """Return whether the files of the logind configuration enable KillUserProcesses, or None if
    they do not set it."""
    found = None
    files = ["/etc/systemd/logind.conf"]
    for folder in ("/usr/lib", "/run", "/etc"):
        try:
            drop_ins = sorted(os.listdir(f"{folder}/systemd/logind.conf.d"))
        except OSError:
            continue
        files += [f"{folder}/systemd/logind.conf.d/{name}" for name in drop_ins]
    for name in files:
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        for line in lines:
            key, equals, value = line.partition("=")
            if equals and key.strip() == "KillUserProcesses":
                found = value.strip().lower() in ("1", "yes", "true", "on")
    return found


def main() -> None:
    wanted = json.loads(sys.stdin.buffer.readline())
    sys.stdout.write("\n" + REPORT + json.dumps(probe(wanted)) + "\n")


if __name__ == "__main__":
    main()
