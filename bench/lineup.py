"""The contestants.

Lists how the client and the agent of each contestant are started, and what a program has to import
to use it. A contestant can also combine the client of one library with the agent of another.
`programme` defines what they have to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.contestants.typescript import is_installed


@dataclass(frozen=True, slots=True)
class Contestant:
    name: str
    title: str
    client: tuple[str, ...]
    """The command of a client process. The workload and the agent's command are appended."""
    agent: tuple[str, ...]
    imports: str
    """The imports of a program that uses the library, for a client and for an agent."""
    subject: bool = False
    """Whether it has goals. The others are what it is compared with."""
    usual: bool = True
    """Whether it runs by default, without being named on the command line."""
    direct: str = ""
    """For a contestant with a process between client and agent: the same pair without it."""
    works: tuple[str, ...] = ()
    """The ids of the programme entries that it runs; all if empty."""

    def does(self, entry: str) -> bool:
        return not self.works or entry in self.works


CEILING = "ceiling"
OFFICIAL = "official"
TYPESCRIPT = "typescript"
RPC = "dragoman_rpc"
ACP = "dragoman_acp"
EVENTS = "dragoman_events"
CODEX = "dragoman_codex"
BRIDGE = "bridge"
BROKER = "broker"

TALK = ("W1", "W2.sequential", "W2.in_flight", "W4")
"""The entries that are measured for pairs from different libraries."""


def module(name: str, python: str) -> tuple[str, ...]:
    """The command that starts a contestant's module like the entry point of a program."""
    return (python, "-c", f"from bench.contestants.{name} import main; main()")


def lineup(python: str) -> Sequence[Contestant]:
    """All contestants, to be run with the interpreter `python`."""
    return (
        Contestant(
            CEILING,
            "a bare asyncio loop with msgspec",
            client=(*module("ceiling", python), "client"),
            agent=(*module("ceiling", python), "agent"),
            imports="import asyncio, msgspec",
        ),
        Contestant(
            RPC,
            "dragoman, at the level of dragoman.rpc",
            client=(*module("dragoman_rpc", python), "client"),
            agent=(*module("dragoman_rpc", python), "agent"),
            imports="import dragoman.rpc; from dragoman.transports import open_stdio, spawn",
            subject=True,
        ),
        Contestant(
            ACP,
            "dragoman's ACP client and agent kit",
            client=(*module("dragoman_acp", python), "client"),
            agent=(*module("dragoman_acp", python), "agent"),
            imports="from dragoman.agent import Agent; from dragoman.client.acp import open_agent",
            subject=True,
        ),
        Contestant(
            EVENTS,
            "dragoman's conversation API, with an agent of its kit",
            client=module("dragoman_events", python),
            agent=(*module("dragoman_acp", python), "agent"),
            imports="from dragoman.client.acp.peer import AcpPeer",
            subject=True,
            works=("W1",),
        ),
        Contestant(
            CODEX,
            "dragoman's conversation API over the Codex app-server, with a scripted server",
            client=(*module("codex", python), "client"),
            agent=(*module("codex", python), "agent"),
            imports="from dragoman.client.codex import CodexPeer",
            subject=True,
            works=("W1",),
        ),
        Contestant(
            BRIDGE,
            "dragoman's ACP client and agent kit with dragoman.gateway between them",
            client=(*module("dragoman_acp", python), "client"),
            agent=(
                *(python, "-m", "dragoman.gateway", "--inherit", "PYTHONPATH"),
                *("--inherit", "PYTHONHASHSEED", "--dialect", "acp", "--"),
                *(*module("dragoman_acp", python), "agent"),
            ),
            imports="import dragoman.gateway",
            subject=True,
            direct=ACP,
            works=("W1", "W2.sequential", "W4"),
        ),
        Contestant(
            BROKER,
            "dragoman's ACP client and agent kit with a warm broker between them",
            client=(*module("broker", python), "client"),
            agent=(*module("dragoman_acp", python), "agent"),
            imports="import dragoman.broker.client.connect",
            subject=True,
            direct=ACP,
            works=("W1", "W2.sequential", "W4"),
        ),
        Contestant(
            OFFICIAL,
            "the official Python SDK for ACP",
            client=(*module("official", python), "client"),
            agent=(*module("official", python), "agent"),
            imports="import acp",
        ),
        Contestant(
            TYPESCRIPT,
            "the official TypeScript SDK for ACP",
            client=(*module("typescript", python), "client"),
            agent=(*module("typescript", python), "agent"),
            imports="",
            usual=is_installed(),
            works=(*TALK, "W5"),
        ),
        Contestant(
            "our_client",
            "dragoman's ACP client with an agent of the official SDK",
            client=(*module("dragoman_acp", python), "client"),
            agent=(*module("official", python), "agent"),
            imports="from dragoman.client.acp import open_agent",
            subject=True,
            works=TALK,
        ),
        Contestant(
            "our_agent",
            "dragoman's agent kit with a client of the official SDK",
            client=(*module("official", python), "client"),
            agent=(*module("dragoman_acp", python), "agent"),
            imports="from dragoman.agent import Agent",
            subject=True,
            works=TALK,
        ),
    )
