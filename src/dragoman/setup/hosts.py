"""Check other machines for what is installed and what is missing, and install dragoman on them.

`host_scripts` runs the scripts `probe` and `install` there, `host_wheels` collects the wheels to
send, `cli.hosts` prints the results, and `catalogue.host_checks` stores them.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dragoman.broker.client.ssh_command import Host
from dragoman.broker.host_protocol import HELLO, PROTOCOL, HostHello
from dragoman.catalogue.descriptor import Descriptor
from dragoman.catalogue.host_checks import Finding, HostAgent, HostCheck, store_check
from dragoman.catalogue.load import built_in
from dragoman.catalogue.validate import MAX_NAME_SIZE, NAME
from dragoman.config.edit import set_host
from dragoman.config.hosts import destination_of
from dragoman.errors import FileFailed, HostUnavailable, UsageError
from dragoman.paths import Paths
from dragoman.setup.host_scripts import run_script
from dragoman.setup.host_wheels import Target, collect
from dragoman.version import __version__

CHECK_TIMEOUT: Final = 180.0
"""Seconds for a check: the login, and a few programs to run."""

INSTALL_TIMEOUT: Final = 1800.0
"""Seconds to send and unpack the wheels: 15 MB over a slow connection."""

NEEDED_SIZE: Final = 150 * 1024 * 1024
"""Free bytes that a machine should have. The wheels, their files and the compiled modules take
about a third of that; the rest is for sessions."""

CHUNK_SIZE: Final = 256 * 1024


async def check(host: Host, paths: Paths, *, python: str | None = None) -> HostCheck:
    """Check a machine and store the result. `python` is the path of the Python to use there; by
    default, one is looked for. Raises `HostUnavailable` if the machine cannot be reached or has no
    suitable Python, and `FileFailed` if the result cannot be stored."""
    report = await run_script(host, "probe", _wanted(host), timeout=CHECK_TIMEOUT, python=python)
    found = judge(host, report)
    try:
        store_check(paths, found)
    except OSError as error:
        detail = f"the check of {host.name} could not be stored: {error.strerror or error}"
        raise FileFailed(str(paths.state), detail, error.errno) from error
    return found


def _wanted(host: Host) -> dict[str, Any]:
    programs: dict[str, None] = {}
    variables: dict[str, None] = {}
    for peer in _descriptors():
        for launch in peer.launch:
            if launch.command:
                programs[launch.command[0]] = None
        variables |= dict.fromkeys(peer.credentials.env)
    hello = HostHello(protocol=PROTOCOL, version=__version__)
    request = {"jsonrpc": "2.0", "id": 1, "method": HELLO, "params": hello}
    return {
        "dragoman": host.settings.dragoman,
        "hello": msgspec.json.encode(request).decode(),
        "programs": list(programs),
        "variables": list(variables),
    }


def _descriptors() -> list[Descriptor]:
    return sorted((known.descriptor for known in built_in()), key=lambda each: each.name)


def judge(host: Host, report: Mapping[str, Any]) -> HostCheck:
    """Judge a host by a report of the script `probe`, and return the result. Stores nothing. Raises
    `HostUnavailable` if the report is malformed."""
    try:
        target = Target.from_report(report)
        version = ".".join(map(str, report["python"]["version"]))
        agents = tuple(_agents(report))
        findings = tuple(_findings(host, report, agents))
        there = report.get("dragoman") or {}
        return HostCheck(
            host=host.name,
            destination=destination_of(host.name, host.settings),
            findings=findings,
            agents=agents,
            python=f"{report['python']['executable']} ({version})",
            platform=str(target),
            dragoman=there.get("path") if there.get("version") else None,
            version=there.get("version") or None,
            checked_at=time.time(),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise HostUnavailable(host.name, f"unexpected report from the host: {error!r}") from error


def _findings(
    host: Host, report: Mapping[str, Any], agents: Sequence[HostAgent]
) -> Iterator[Finding]:
    python = report["python"]
    version = ".".join(map(str, python["version"]))
    yield Finding(
        "Python", "ok", f"{python['executable']}, {version}, {Target.from_report(report)}"
    )
    yield _dragoman(host, report.get("dragoman"), report.get("dragoman_on_path"))
    installed = [agent.name for agent in agents if agent.installed]
    if installed:
        yield Finding("agents", "ok", ", ".join(installed))
    else:
        yield Finding(
            "agents",
            "warning",
            f"none found on the PATH of a remote command ({report.get('path', '')})",
            "install one there; if one is installed, add its directory to the PATH in a file that "
            "the shell reads without a terminal, such as ~/.zshenv, or ~/.bashrc before its "
            "`return` for scripts",
        )
    if report.get("git"):
        yield Finding("git", "ok", str(report["git"]))
    else:
        yield Finding(
            "git", "warning", "not installed", "--send and --isolate need it: install git"
        )
    yield _disk(report)
    yield _log_out(report.get("log_out") or {})


def _dragoman(host: Host, there: Mapping[str, Any] | None, on_path: str | None) -> Finding:
    """Return the finding about dragoman on the host: whether it runs, whether commands would use
    it, and whether its version fits. `on_path` is the path that the remote shell finds."""
    bootstrap = f"install version {__version__} with `dragoman hosts bootstrap {host.name}`"
    if there is None:
        return Finding("dragoman", "missing", "not installed", bootstrap)
    if there.get("problem"):
        text = f"{there['path']} does not run: {there['problem']}"
        return Finding("dragoman", "missing", text, bootstrap)
    text = f"{there['path']}, version {there['version']}"
    configured = host.settings.dragoman
    named = f"dragoman hosts add {host.name} --dragoman {there['path']}"
    if configured and configured != there["path"]:
        text = f"{configured}, which your settings name, does not work there, but {text}, does"
        return Finding("dragoman", "missing", text, named)
    if not configured and on_path != there["path"]:
        text = f"{text}, is not on the PATH of a remote command, and your settings do not name it"
        return Finding("dragoman", "missing", text, named)
    if there.get("protocol", PROTOCOL) != PROTOCOL:
        number = there["protocol"]
        speaks = "is too old for `--host`" if number is None else f"speaks protocol {number}"
        text += f", {speaks}; version {__version__} on this machine speaks protocol {PROTOCOL}"
        return Finding("dragoman", "missing", text, bootstrap)
    if there["version"] != __version__:
        text += f"; this machine has {__version__}"
        return Finding("dragoman", "warning", text, bootstrap)
    return Finding("dragoman", "ok", text)


def _disk(report: Mapping[str, Any]) -> Finding:
    free = report.get("free_size")
    if not report.get("home_writable", True):
        return Finding("disk", "missing", f"{report['home']} is not writable", "make it writable")
    if free is None:
        return Finding("disk", "warning", "unknown")
    text = f"{free >> 20} MiB free in {report['home']}"
    if free < NEEDED_SIZE:
        remedy = f"dragoman needs about {NEEDED_SIZE >> 20} MiB: free some space"
        return Finding("disk", "warning", text, remedy)
    return Finding("disk", "ok", text)


def _log_out(said: Mapping[str, Any]) -> Finding:
    """Return the finding about logout: whether work continues when the connection ends."""
    kills, linger = said.get("kills"), said.get("linger")
    if kills is False:
        return Finding("log-out", "ok", "processes keep running")
    if linger:
        return Finding("log-out", "ok", "processes keep running, because lingering is enabled")
    if kills is None:
        text = "unknown whether the system ends a user's processes at logout"
        return Finding("log-out", "warning", text, "run there: loginctl enable-linger")
    return Finding(
        "log-out",
        "warning",
        "the system ends a user's processes at logout (KillUserProcesses), so work ends with the "
        "connection",
        "run there: loginctl enable-linger",
    )


def _agents(report: Mapping[str, Any]) -> Iterator[HostAgent]:
    there = report.get("dragoman") or {}
    rows = there.get("peers")
    if rows is not None:
        for row in rows:
            name = str(row["name"])
            if NAME.fullmatch(name) is None or len(name) > MAX_NAME_SIZE:
                raise ValueError(f"{name[:80]!r} is not the name of an agent")
            yield HostAgent(
                name=name,
                installed=bool(row["installed"]),
                enabled=bool(row.get("enabled")),
                version=row.get("version"),
                roles=tuple(map(str, row.get("roles", ()))),
                login=_login(row) if row["installed"] else "",
            )
        return
    # Without dragoman on the machine, it is only known which programs exist.
    programs = report.get("programs") or {}
    variables = set(report.get("variables") or ())
    for peer in _descriptors():
        commands = [launch.command[0] for launch in peer.launch if launch.command]
        found = any(programs.get(command) for command in commands)
        keys = [name for name in peer.credentials.env if name in variables]
        yield HostAgent(
            name=peer.name,
            installed=found,
            roles=peer.roles,
            login=f"{', '.join(keys)} set" if keys else "unknown" if found else "",
        )


def _login(row: Mapping[str, Any]) -> str:
    parked = row.get("parked")
    if parked:
        return f"parked: {parked.get('why')}"
    if row.get("login"):
        return str(row["login"])
    keys = row.get("credentials_set") or ()
    return f"{', '.join(map(str, keys))} set" if keys else "unknown"


async def bootstrap(
    host: Host,
    paths: Paths,
    *,
    wheels: Path | None = None,
    python: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> HostCheck:
    """Install this version of dragoman on a machine, write its path into the settings, and return a
    new check of the machine.

    Nothing is downloaded on that machine, and its previous version stays in use until the new one
    has been tested. `wheels` is a directory with wheels for the machine; without it, pip downloads,
    on this machine, the wheels that cannot be built from installed packages. Raises
    `HostUnavailable` if the machine cannot be reached or the installation fails there, `UsageError`
    if a wheel is missing, and `FileFailed` if the disk here is full or broken.
    """
    progress(f"checking {host.name}")
    report = await run_script(host, "probe", _wanted(host), timeout=CHECK_TIMEOUT, python=python)
    found = judge(host, report)
    implementation = report["python"].get("implementation")
    if implementation != "cpython":
        raise HostUnavailable(
            host.name,
            f"Python there is {implementation}, but dragoman needs CPython",
            remedy="name another Python with --python PATH",
        )
    target = Target.from_report(report)
    if not target.libc and target.system == "linux":
        raise HostUnavailable(
            host.name,
            "cannot determine the C library of Python there (neither glibc nor musl was found)",
            remedy="install dragoman there manually, and set its path with "
            f"`dragoman hosts add {host.name} --dragoman PATH`",
        )
    with tempfile.TemporaryDirectory(prefix="dragoman-wheels-") as scratch:
        progress(f"collecting wheels for {target}")
        try:
            chosen = await collect(target, wheels=wheels, scratch=Path(scratch))
            files = [_described(path) for path in chosen]
        except OSError as error:
            detail = f"the wheels could not be collected: {error.strerror or error}"
            raise FileFailed(scratch, detail, error.errno) from error
        size = sum(int(file["size"]) for file in files)
        progress(f"sending {len(files)} wheels, {size / 1e6:.1f} MB")
        said = await run_script(
            host,
            "install",
            {"version": __version__, "files": files},
            timeout=INSTALL_TIMEOUT,
            payload=_contents(chosen),
            python=report["python"]["executable"],
        )
    if said.get("error"):
        raise _install_error(host, said)
    set_host(
        paths,
        host.name,
        {"destination": found.destination, "dragoman": str(said["program"])},
    )
    progress(f"installed {said['program']}")
    settings = msgspec.structs.replace(host.settings, dragoman=str(said["program"]))
    return await check(Host(host.name, settings), paths, python=python)


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": path.name, "size": path.stat().st_size, "sha256": digest}


def _contents(files: Sequence[Path]) -> Iterator[bytes]:
    for path in files:
        with path.open("rb") as file:
            while data := file.read(CHUNK_SIZE):
                yield data


def _install_error(host: Host, said: Mapping[str, Any]) -> HostUnavailable:
    kind, problem = str(said["error"]), str(said.get("problem"))
    if kind == "full":
        return HostUnavailable(
            host.name,
            f"the disk there is full: {problem}; the previous installation still works",
            remedy=f"free about {NEEDED_SIZE >> 20} MiB in the home directory there and try again",
        )
    remedies = {
        "damaged": "try again; if it happens again, check the connection",
        "broken": "Python there may lack a part of its standard library (Debian: "
        "`apt install python3-full`); or name another Python with --python PATH",
    }
    return HostUnavailable(
        host.name,
        f"could not install dragoman: {problem}",
        remedy=remedies.get(kind, "make ~/.local/share there writable for your user"),
    )


def wheels_folder(path: Path | None) -> Path | None:
    """Check that the directory given with `--wheels` has wheels, and return it; None without the
    option. Raises `UsageError` if there are none."""
    if path is not None and not any(path.glob("*.whl")):
        raise UsageError(f"--wheels: no .whl files in {path}")
    return path
