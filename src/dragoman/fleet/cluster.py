"""A cluster of servers: its addresses, and the `cluster` section of each server's configuration.

All servers of a cluster have the same keys. Every stream is replicated, so the fleet keeps working
while most of the servers run. No I/O; `server` starts the servers.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.errors import UsageError
from dragoman.transports.addresses import MAX_PORT, bracketed, parse_address

EXAMPLE: Final = "127.0.0.1:4222"
"""An example of an address, for error messages."""

SIZES: Final = (3, 5)
"""Allowed numbers of servers. An even number tolerates no more failures than one server fewer."""

ROUTE_OFFSET: Final = 2000
"""The servers connect to each other on the members' port plus this: 6222 for 4222."""

MAX_REPLICAS: Final = 3
"""Maximum number of copies of each stream. A write waits until most copies are stored."""


class Cluster(Struct, frozen=True, kw_only=True):
    """The servers of a cluster, and which of them this one is."""

    nodes: tuple[tuple[str, int], ...]
    """Host and port of each server, for members. The servers reach each other at the port plus
    `ROUTE_OFFSET`."""
    number: int
    """The position of this server in `nodes`, from 1."""

    @property
    def own(self) -> tuple[str, int]:
        return self.nodes[self.number - 1]

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(host for host, _ in self.nodes))


def parse_cluster(text: str, number: int | None) -> Cluster:
    """Parse the options --cluster and --node. Raises `UsageError`."""
    nodes = tuple(
        parse_address(part, option="--cluster", example=EXAMPLE) for part in text.split(",")
    )
    if len(nodes) not in SIZES or len(set(nodes)) != len(nodes):
        raise UsageError(
            "--cluster takes the addresses of three or five servers, separated by commas"
        )
    if any(not 0 < port <= MAX_PORT - ROUTE_OFFSET for _, port in nodes):
        raise UsageError(f"--cluster: ports must be between 1 and {MAX_PORT - ROUTE_OFFSET}")
    if number is None or not 1 <= number <= len(nodes):
        raise UsageError(
            f"--cluster needs --node, the position of this server in the list: 1 to {len(nodes)}"
        )
    return Cluster(nodes=nodes, number=number)


def replicas(nodes: int) -> int:
    """Return the number of copies of each stream. `nodes` is 0 for a server without a cluster."""
    return min(max(nodes, 1), MAX_REPLICAS)


def cluster_lines(
    cluster: Cluster, *, operator_seed: str, host: str, folder: Path, tls: bool
) -> list[str]:
    """Return the lines that `cluster` adds to this server's configuration. `host` is the address to
    listen on."""
    quoted = json.dumps
    # Derived from the keys, which every server has, so nothing else has to be copied.
    secret = hashlib.sha256(b"dragoman fleet routes " + operator_seed.encode()).hexdigest()
    own_host, own_port = cluster.own
    routes = [
        f"nats-route://route:{secret}@{bracketed(name)}:{port + ROUTE_OFFSET}"
        for name, port in cluster.nodes
    ]
    lines = [
        f"client_advertise: {quoted(f'{bracketed(own_host)}:{own_port}')}",
        "cluster {",
        f"  name: {quoted('dragoman-' + secret[:8])}",
        f"  listen: {quoted(f'{bracketed(host)}:{own_port + ROUTE_OFFSET}')}",
        f"  cluster_advertise: {quoted(f'{bracketed(own_host)}:{own_port + ROUTE_OFFSET}')}",
        f"  authorization {{ user: route, password: {quoted(secret)} }}",
        f"  routes: [{', '.join(quoted(one) for one in routes)}]",
    ]
    if tls:
        lines += [
            "  tls {",
            f"    cert_file: {quoted(str(folder / 'server.crt'))}",
            f"    key_file: {quoted(str(folder / 'server.key'))}",
            f"    ca_file: {quoted(str(folder / 'authority.crt'))}",
            "    verify: true",
            "    timeout: 5",
            "  }",
        ]
    return [*lines, "}"]
