"""The real Codex and Gemini do a job of a fleet: a real server, coordinator and worker, all by
their commands, and only the models are fakes."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from dragoman.testing.fake_model import FakeModel
from tests.aio import aio
from tests.fleet.rig import Rig, nats_server
from tests.peers import codex
from tests.peers.agents import GEMINI
from tests.peers.commands import living_in
from tests.peers.programs import peer_environment

SETTINGS = """\
enabled_peers = ["codex", "gemini"]
permissions = "approve-all"
[peer.codex]
env = ["FAKE_KEY"]
"""


def furnish(rig: Rig, model: FakeModel) -> None:
    """A worker's machine with both programs, and a submitter's machine with neither."""
    home = rig.root / "w1"
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text(SETTINGS)
    codex.configure(home, model)
    found = peer_environment(home)
    rig.extra["w1"] = {
        "PATH": found["PATH"],
        "TERM": found["TERM"],
        "FAKE_KEY": "k",
        **GEMINI.provider(model.url),
    }


def work(rig: Rig) -> dict[str, dict[str, Any]]:
    """Submit a job for each program, and return their results."""
    rig.start_server(coordinator=True)
    rig.join("submitter", "s1")
    rig.join("worker", "w1")
    worker = rig.start_worker("w1", "--slots", "2")
    jobs = {
        name: rig.call(
            "s1", "fleet", "submit", "execute", f"SHELL:echo {name} > {name}.txt\nCHUNKS:2",
            "--peer", name, "--needs", name, "--approve-all",
        ).strip()
        for name in ("codex", "gemini")
    }  # fmt: skip
    results = {}
    for name, job in jobs.items():
        told = rig.call("s1", "fleet", "watch", job, "--format", "json").splitlines()
        results[name] = json.loads(told[-1])
        assert worker.child.poll() is None, worker.text()
        rig.call("s1", "fleet", "apply", job)
    return results


@pytest.mark.timeout(180)
@aio
async def test_codex_and_gemini_each_do_a_job_and_their_patches_come_back() -> None:
    assert nats_server() is not None, "run these tests with make test-peers"
    with tempfile.TemporaryDirectory(prefix="dgm") as folder:
        rig = Rig(Path(folder))
        async with FakeModel() as model:
            furnish(rig, model)
            try:
                results = await asyncio.to_thread(work, rig)
            finally:
                await asyncio.to_thread(rig.close)
        for name, told in results.items():
            assert told["result"]["peer"] == name and told["result"]["ok"], told
            assert told["result"]["worker"] == "w1" and len(told["attempts"]) == 1
            assert (rig.repository / f"{name}.txt").read_text() == f"{name}\n"
        rig.wait(lambda: not living_in(rig.root / "w1"))
