"""Doctor: check Python, node, PATH, settings, peers, cards, directories, stores, stray processes.

Each problem comes with the command or step that fixes it. Changes nothing, and starts only `node`,
to get its version; the trusted Python adapters of enabled peers are loaded. `cli` prints the
findings. `compose` turns them into a bug report: only allow-listed variables are shown, and
`redaction` removes secrets from the whole text.
"""

from __future__ import annotations

import enum
import os
import platform
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dragoman.catalogue import Descriptor
from dragoman.catalogue.agent_files import validate
from dragoman.catalogue.card import CardStore, to_know
from dragoman.catalogue.command_unwrap import refuse_described
from dragoman.catalogue.launch import LaunchSpec, current_platform, resolve
from dragoman.catalogue.node_runtime import check_runtime, node_version
from dragoman.catalogue.versions import installed_version
from dragoman.config.hosts import split_peer
from dragoman.config.secrets import report_redactor
from dragoman.config.trust import Trust
from dragoman.delegation.peer_status import credentials_set, overview
from dragoman.errors import (
    ConfigInvalid,
    FileFailed,
    NotInstalled,
    StoreCorrupt,
    StoreError,
    StoreTooNew,
    WrongLaunch,
)
from dragoman.paths import RUNTIME, VARIABLES, runtime_problem
from dragoman.rpc.tasks import in_thread
from dragoman.runs.adapters import adapter_source
from dragoman.runs.context import RunContext
from dragoman.setup.host_scripts import OLDEST_PYTHON
from dragoman.store.damage import COMPANIONS, aside_of, find_damage
from dragoman.store.database import Database
from dragoman.store.ledger.ledger import Ledger, ledger_path
from dragoman.store.store import Store, store_path
from dragoman.transports.process import warden
from dragoman.transports.process.environment import which
from dragoman.verify.report import proved

OLDEST_NODE: Final = 22
"""Oldest supported major version of Node.js. With an older one, npm installs outdated releases of
agents."""

STORES_TIMEOUT: Final = 600.0
"""Timeout in seconds to check the databases. They are read completely, and may be gigabytes in
size."""


class CheckState(enum.StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    """It works or is not needed, but the user should know something."""
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Result of one check."""

    check: str
    state: CheckState
    text: str
    cure: str = ""
    """The command or step that fixes the problem."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A running process that dragoman started and whose warden is gone."""

    pid: int
    command: str


def find_leftovers(proc: Path = Path("/proc"), *, platform: str = sys.platform) -> list[Leftover]:
    """Return the running processes that dragoman started and whose warden is gone. Always empty on
    systems other than Linux."""
    if platform != "linux":
        return []
    lines = {pid: _read(proc / str(pid) / "cmdline") for pid in _processes(proc)}
    guarded = {found[1] for line in lines.values() if (found := WARDEN.search(line))}
    left: list[Leftover] = []
    for pid, line in sorted(lines.items()):
        mark = MARK.search(b"\0" + _read(proc / str(pid) / "environ") + b"\0")
        # A zombie process has no command line.
        if mark is not None and mark[1] not in guarded and line:
            words = line.decode("utf-8", "replace").replace("\0", " ").strip()
            left.append(Leftover(pid, words[:MAX_SHOWN]))
    return left


def _processes(proc: Path) -> list[int]:
    try:
        return [int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the checks need to know about the machine; tests replace it."""

    python: tuple[int, ...] = tuple(sys.version_info[:3])
    leftovers: Callable[[], list[Leftover]] = find_leftovers
    writable: Callable[[Path], bool] = lambda path: os.access(path, os.W_OK | os.X_OK)


async def examine(place: RunContext, machine: Machine | None = None) -> AsyncIterator[Diagnosis]:
    """Run all checks and yield their results."""
    machine = machine or Machine()
    yield _python(machine)
    async for finding in _node(place):
        yield finding
    for check in (_path, _config, _trust, _descriptors, _adapters, _agent_files):
        for finding in check(place):
            yield finding
    async for finding in _peers(place):
        yield finding
    for finding in _folders(place, machine):
        yield finding
    try:
        findings = await in_thread(
            str(place.paths.state), lambda _: list(_stores(place)), timeout=STORES_TIMEOUT
        )
    except FileFailed as error:
        findings = [
            Diagnosis(
                "stores",
                CheckState.BAD,
                str(error),
                "check the disk that contains the state directory",
            )
        ]
    for finding in findings:
        yield finding
    for finding in _leftovers(machine):
        yield finding


# -- the machine


def _python(machine: Machine) -> Diagnosis:
    version = ".".join(map(str, machine.python))
    if machine.python[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return Diagnosis(
            "python",
            CheckState.BAD,
            f"Python {version} is too old",
            f"install Python {wanted} or newer",
        )
    return Diagnosis("python", CheckState.OK, f"Python {version}")


async def _node(place: RunContext) -> AsyncIterator[Diagnosis]:
    node = which("node", path=place.environ.get("PATH", os.defpath))
    cure = f"install node {OLDEST_NODE} or newer and put it first on the PATH"
    if node is None:
        yield Diagnosis(
            "node", CheckState.WARN, "node is not installed; agents from npm need it", cure
        )
        return
    version = await node_version(node)
    if version is None:
        yield Diagnosis("node", CheckState.WARN, f"{node} does not report its version", cure)
    elif int(version.partition(".")[0]) < OLDEST_NODE:
        text = f"node {version} ({node}) is old; npm silently installs old agents for it"
        yield Diagnosis("node", CheckState.WARN, text, cure)
    else:
        yield Diagnosis("node", CheckState.OK, f"node {version} ({node})")


def _path(place: RunContext) -> Iterator[Diagnosis]:
    path = place.environ.get("PATH", "")
    if not path:
        yield Diagnosis(
            "PATH", CheckState.BAD, "PATH is not set", "set PATH in your shell's profile"
        )
        return
    folders = path.split(os.pathsep)
    relative = [folder or "(empty)" for folder in folders if not os.path.isabs(folder)]
    if relative:
        yield Diagnosis(
            "PATH",
            CheckState.WARN,
            f"relative directories on the PATH are ignored: {', '.join(relative)}",
            "remove them from PATH: a repository could put its own programs there",
        )
    missing = sum(not os.path.isdir(folder) for folder in folders if os.path.isabs(folder))
    gone = f", {missing} of them missing" if missing else ""
    yield Diagnosis("PATH", CheckState.OK, f"{len(folders)} directories{gone}")


def _folders(place: RunContext, machine: Machine) -> Iterator[Diagnosis]:
    for name in ("config", "data", "cache", "state", "runtime"):
        folder: Path = getattr(place.paths, name)
        there = folder
        while not os.path.exists(there) and there != there.parent:
            there = there.parent
        if not os.path.isdir(there):
            yield Diagnosis(
                "directories",
                CheckState.BAD,
                f"{there} is not a directory, so {folder} cannot be used",
                f"mv {_word(there)} {_word(f'{there}.old')}",
            )
        elif not machine.writable(there):
            yield Diagnosis(
                "directories",
                CheckState.BAD,
                f"{folder} ({name}) is not writable",
                f"chown -R $USER {_word(there)}, or set DRAGOMAN_{_variable(name)} to another "
                "directory",
            )
        else:
            yield Diagnosis("directories", CheckState.OK, f"{name}: {folder}")
    yield from _runtime_folder(place)


def _runtime_folder(place: RunContext) -> Iterator[Diagnosis]:
    """Yield a warning if XDG_RUNTIME_DIR names a directory that is not used because it is
    unsuitable. No other command reports that."""
    given = place.environ.get(RUNTIME)
    if not given or place.paths.runtime != place.paths.state / "run":
        return
    problem = runtime_problem(given)
    if problem is not None:
        yield Diagnosis(
            "directories",
            CheckState.WARN,
            f"{RUNTIME} is {given}, which is not used: {problem}",
            f"set it to your own directory with mode 0700, or unset {RUNTIME}",
        )


def _stores(place: RunContext) -> Iterator[Diagnosis]:
    """Yield the findings about the databases, which are read completely, and about damaged ones
    that were set aside."""
    state = place.paths.state
    kinds: tuple[tuple[Path, type[Database]], ...] = (
        (store_path(state), Store),
        (ledger_path(state), Ledger),
    )
    for path, kind in kinds:
        refusal = _refusal(path, kind)
        if isinstance(refusal, StoreTooNew):
            yield Diagnosis("stores", CheckState.WARN, f"{path}: {refusal.problem}", refusal.remedy)
        elif problems := find_damage(path) or _damage_of(refusal):
            # A leftover write-ahead log would be applied to the new file.
            files = [suffix for suffix in ("", *COMPANIONS) if os.path.exists(f"{path}{suffix}")]
            moves = "; ".join(
                f"mv {_word(f'{path}{suffix}')} {_word(f'{path}.old{suffix}')}" for suffix in files
            )
            yield Diagnosis(
                "stores",
                CheckState.BAD,
                f"{path} is damaged: {'; '.join(problems)}",
                f"dragoman broker stop --all; {moves}",
            )
        elif os.path.exists(path):
            yield Diagnosis("stores", CheckState.OK, f"{path} is intact")
        for aside in aside_of(path):
            yield Diagnosis(
                "stores",
                CheckState.WARN,
                f"{aside} is a damaged database that was set aside",
                f"copy what you need from it, then rm {_word(aside)}*",
            )


def _word(path: object) -> str:
    """Return a path as one word of a shell command. On macOS, our directories have spaces in their
    paths."""
    return shlex.quote(str(path))


def _refusal(path: Path, kind: type[Database]) -> StoreError | None:
    """Return the error that opening a database raises, or None if it can be opened."""
    try:
        kind.open(path, read_only=True).close()
    except StoreError as error:
        return error
    return None


def _damage_of(refusal: StoreError | None) -> list[str]:
    damaged = isinstance(refusal, StoreCorrupt) and refusal.damaged
    return [refusal.problem] if refusal is not None and damaged else []


def _variable(name: str) -> str:
    return "RUNTIME_DIR" if name == "runtime" else f"{name.upper()}_HOME"


def _leftovers(machine: Machine) -> Iterator[Diagnosis]:
    left = machine.leftovers()
    for process in left:
        yield Diagnosis(
            "processes",
            CheckState.WARN,
            f"process {process.pid} ({process.command}) outlived the dragoman that started it",
            f"kill {process.pid}",
        )
    if not left:
        yield Diagnosis("processes", CheckState.OK, "no leftover processes")


# -- files


def _config(place: RunContext) -> Iterator[Diagnosis]:
    for error in place.config.problems:
        yield Diagnosis("config", CheckState.BAD, str(error), f"edit {error.origin}")
    settings = place.config.settings
    unknown = [name for name in settings.enabled_peers if not _is_known(name, place)]
    for name in unknown:
        host = split_peer(name)[1]
        yield Diagnosis(
            "config",
            CheckState.BAD,
            f"{name} is enabled by {place.config.origin('enabled_peers')}, but "
            + (f"your settings have no host {host}" if host else "there is no such peer"),
            f"dragoman peers disable {name}",
        )
    if not place.config.problems and not unknown:
        file = place.paths.config_file
        there = str(file) if os.path.exists(file) else f"no {file}, so the defaults apply"
        yield Diagnosis("config", CheckState.OK, there)


def _is_known(name: str, place: RunContext) -> bool:
    host = split_peer(name)[1]
    return name in place.catalogue if host is None else host in place.config.settings.hosts


def _trust(place: RunContext) -> Iterator[Diagnosis]:
    try:
        Trust(place.paths).record()
    except ConfigInvalid as error:
        yield Diagnosis("trust", CheckState.BAD, str(error), f"rm {_word(place.paths.trust_file)}")
    if place.config.project_file is None:
        yield Diagnosis("trust", CheckState.OK, "no project file here")
    elif place.config.untrusted:
        keys = ", ".join(dict.fromkeys(ignored.key for ignored in place.config.untrusted))
        yield Diagnosis(
            "trust",
            CheckState.WARN,
            f"{place.config.project_file} is not trusted, so these are ignored: {keys}",
            "dragoman config trust",
        )
    else:
        how = "is trusted" if place.config.trusted else "has nothing that needs trust"
        yield Diagnosis("trust", CheckState.OK, f"{place.config.project_file} {how}")


def _descriptors(place: RunContext) -> Iterator[Diagnosis]:
    for error in place.catalogue.problems:
        yield Diagnosis("descriptors", CheckState.BAD, str(error), f"edit {error.origin}")
    if not place.catalogue.problems:
        yield Diagnosis("descriptors", CheckState.OK, f"{len(place.catalogue)} peers are known")


def _adapters(place: RunContext) -> Iterator[Diagnosis]:
    """Load the Python adapter of each enabled peer that has one, as `run` would, and yield whether
    it works."""
    for name in place.catalogue.adapted:
        if not place.is_enabled(name):
            continue
        try:
            found = place.adapter(name)
        except ConfigInvalid as error:
            source = adapter_source(place.catalogue.known(name), place.config)
            cure = f"fix {source}, or run `dragoman config trust` if the project is not trusted"
            yield Diagnosis("adapters", CheckState.BAD, str(error), cure)
        else:
            assert found is not None
            roles = ", ".join(found.roles) or "no role"
            yield Diagnosis("adapters", CheckState.OK, f"{name}: {found.source} claims {roles}")


def _agent_files(place: RunContext) -> Iterator[Diagnosis]:
    files = place.agent_files()
    problems = validate(files, place.role_catalogue())
    for problem in problems:
        cure = problem.remedy or f"edit {problem.path}"
        yield Diagnosis("agents", CheckState.BAD, str(problem), cure)
    if not problems:
        yield Diagnosis(
            "agents", CheckState.OK, f"{len(files)} agent files in {place.agent_folder}"
        )


# -- peers


async def _peers(place: RunContext) -> AsyncIterator[Diagnosis]:
    store = place.cards()
    absent: list[str] = []
    for peer in place.catalogue:
        enabled = place.is_enabled(peer.name)
        try:
            way = resolve(peer, environ=place.environ)
            refuse_described(way, place.catalogue)
            node = await check_runtime(way, place.environ)
        except WrongLaunch as error:
            state = CheckState.BAD if enabled else CheckState.WARN
            yield Diagnosis("peers", state, f"{peer.name}: {error}", f"use {error.remedy}")
            continue
        except NotInstalled as error:
            if enabled:
                yield Diagnosis(
                    "peers", CheckState.BAD, str(error), error.remedy or peer.install.hint
                )
            elif error.looked_for == ("node",):
                yield Diagnosis("peers", CheckState.WARN, str(error), error.remedy)
            else:
                absent.append(peer.name)
            continue
        version = installed_version(way)
        told = " ".join(filter(None, [peer.name, version, f"on node {node}" if node else ""]))
        yield Diagnosis("peers", CheckState.OK, f"{told}: {way.shown}")
        for finding in _card(peer, way, version, store, enabled=enabled):
            yield finding
    if absent:
        yield Diagnosis("peers", CheckState.OK, f"not installed: {', '.join(absent)}")
    for trouble in store.trouble.values():
        yield Diagnosis("cards", CheckState.WARN, trouble, "dragoman peers verify NAME")


def _card(
    peer: Descriptor, way: LaunchSpec, version: str | None, store: CardStore, *, enabled: bool
) -> Iterator[Diagnosis]:
    cure = f"dragoman peers verify {peer.name}"
    card = store.load(peer.name, version, current_platform()) if version else None
    card = card or store.latest(peer.name)
    if card is None:
        # A peer that is not enabled need not be verified.
        if enabled and peer.version.how != "ours":
            yield Diagnosis("cards", CheckState.WARN, f"{peer.name} was never verified", cure)
    elif version is not None and card.version != version:
        text = f"the card of {peer.name} is for version {card.version}, but {version} is installed"
        yield Diagnosis("cards", CheckState.WARN, text, cure)
    elif not card.usable:
        state = CheckState.BAD if enabled else CheckState.WARN
        yield Diagnosis("cards", state, f"{peer.name} failed its verification", cure)
    else:
        text = f"{peer.name}, on {card.measured_at[:10]}: {proved(card)}"
        yield Diagnosis("cards", CheckState.OK, text)
        for line in to_know(card) if enabled else ():
            yield Diagnosis(
                "cards", CheckState.WARN, f"{peer.name}: {line}", f"dragoman peers show {peer.name}"
            )


MARK: Final = re.compile(rb"\0" + warden.MARK_NAME.encode() + rb"=([0-9a-f]+)\.[0-9]+\0")
WARDEN: Final = re.compile(rb"warden\.py\0([0-9a-f]+)\0")

MAX_SHOWN: Final = 160
"""Maximum number of characters of a command line to show: an interpreter's path alone may take
half."""


SHOWN: Final = (
    *("PATH", "SHELL", "TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "CI", "NO_COLOR"),
    *("FORCE_COLOR", "VIRTUAL_ENV", "PYTHONPATH", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", *VARIABLES.values()),
)
"""Environment variables to show in a bug report: their values are useful and not secret."""


def shown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that a bug report may show, with their values."""
    return {name: environ[name] for name in SHOWN if name in environ}


def compose(place: RunContext, findings: Iterable[Diagnosis], *, versions: str) -> str:
    """Return a bug report, with secrets removed: the text `versions`, the system, the findings, the
    installed or enabled peers, the settings that are not defaults, and the variables in `SHOWN`."""
    names = [name for peer in place.catalogue for name in peer.credentials.env]
    redact = report_redactor(place.environ, names=names)
    return redact("\n".join(_lines(place, findings, versions)) + "\n")


def _lines(place: RunContext, findings: Iterable[Diagnosis], versions: str) -> Iterator[str]:
    yield from versions.splitlines()
    yield f"{platform.system()} {platform.release()} {platform.machine()}"
    yield ""
    yield "Findings"
    for finding in findings:
        yield f"  {finding.state.value:<4}  {finding.check:<11}  {finding.text}"
    yield ""
    yield "Peers"
    for row in overview(place):
        if not (row.installed or row.enabled):
            continue
        login = ", ".join(credentials_set(row.descriptor, place)) or "none"
        yield (
            f"  {row.descriptor.name} {row.version or 'unknown'}: "
            f"{'enabled' if row.enabled else 'not enabled'}, card {row.card_state}, "
            f"credential variables set: {login}"
        )
    yield ""
    yield "Settings that are not defaults"
    for key, value, origin in place.config.values():
        if origin != "default":
            yield f"  {key} = {value!r}  ({origin})"
    yield ""
    yield "Variables"
    for name, value in shown_variables(place.environ).items():
        yield f"  {name}={value}"
