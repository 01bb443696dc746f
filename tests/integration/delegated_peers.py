"""Peers that fail as they are told, a place in which work is delegated to them, and what was kept.

The peers are real child processes (`delegated_agent`), which count what they are prompted.
"""

from __future__ import annotations

import json
import os
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.delegation import (
    CancelHandle,
    Delegation,
    DelegationListener,
    DelegationRequest,
    delegate_request,
)
from dragoman.delegation.attempt_report import AttemptReport
from dragoman.delegation.routing import Candidate
from dragoman.runs.context import RunContext, load_context
from dragoman.store.ledger import AttemptRecord, Ledger, ledger_path

PROGRAM = Path(__file__).with_name("delegated_agent.py")
FOLDERS = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")

QUICK = """
[timeouts]
initialize = 20
first_event = 2.5
silence = 2.5
cancel_grace = 0.5
"""
"""Time limits for peers that hang on purpose. They hold for the others too, which must keep them on
a busy machine."""


class Heard(DelegationListener):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.asked: list[tuple[int, str, str]] = []
        self.reports: list[AttemptReport] = []
        self.notices: list[str] = []

    def job(self, job: str) -> None:
        self.jobs.append(job)

    def attempt(self, number: int, candidate: Candidate, reason: str) -> None:
        self.asked.append((number, candidate.peer, reason))

    def reported(self, number: int, report: AttemptReport) -> None:
        self.reports.append(report)

    def notice(self, text: str) -> None:
        self.notices.append(text)


@dataclass
class Bench:
    """A workspace, folders of dragoman's own beside it, and peers."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    pauses: list[float] = field(default_factory=list)
    heard: Heard = field(default_factory=Heard)

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def config(self) -> Path:
        return self.folder / "config_home"

    @property
    def state(self) -> Path:
        return self.folder / "state_home"

    def peer(self, name: str, how: str, *roles: str, more: str = "") -> None:
        add_peer(self.config, self.folder, name, how, roles or ("review",), more=more)

    def settings(self, *enabled: str, more: str = QUICK) -> None:
        self.config.mkdir(exist_ok=True)
        (self.config / "config.toml").write_text(f"enabled_peers = {list(enabled)}\n{more}")

    def place(self) -> RunContext:
        own = {f"DRAGOMAN_{name}": str(self.folder / name.lower()) for name in FOLDERS}
        base = {"PATH": os.environ["PATH"], "DRAGOMAN_WARM": "0"}
        return load_context(self.work, environ={**base, **own, **self.environ})

    async def delegate(
        self, prompt: str = "look at it", *, role: str = "review",
        cancel: CancelHandle | None = None, **request: Any,
    ) -> Delegation:  # fmt: skip
        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)

        self.heard = Heard()
        return await delegate_request(
            DelegationRequest(role=role, prompt=prompt, workspace=self.work, **request),
            place=self.place(),
            listener=self.heard,
            rng=random.Random(7),
            pause=pause,
            cancel=cancel,
        )

    def told(self, name: str, what: str = "prompts") -> list[Any]:
        """What an agent has noted down of its prompts or starts."""
        return read_lines(self.folder / f"{name}.{what}")

    def attempts(self, job: str) -> list[AttemptRecord]:
        with Ledger.open(ledger_path(self.state), read_only=True) as ledger:
            return ledger.attempts(job)

    def events(self) -> list[dict[str, Any]]:
        return read_lines(self.state / "events.jsonl")


def bench_in(folder: Path) -> Bench:
    (folder / "work").mkdir()
    return Bench(folder)


def add_peer(
    config: Path, notes: Path, name: str, how: str, roles: tuple[str, ...], *, more: str = ""
) -> None:
    """Describe a peer that fails in some way, and notes down in a folder what it gets."""
    file = config / "peers" / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(PROGRAM), name, str(notes), how]
    file.write_text(
        f'name = "{name}"\ntitle = "{name}"\nprotocol = "acp"\nroles = {list(roles)}\n{more}\n'
        f"[[launch]]\ncommand = {json.dumps(command)}\n"
    )


def read_lines(path: Path) -> list[Any]:
    """The JSON lines of a file; none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


__all__ = ["QUICK", "Bench", "Heard", "add_peer", "bench_in", "read_lines"]
