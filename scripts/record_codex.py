"""Record conversations with the real Codex for the tests that replay them.

Plays the scenarios of tests/integration/codex_scenarios.py and writes each to a file in
tests/fixtures/codex: both directions, one message per line, without paths of this machine. Needs
the programs that `make test-peers` installs. Run it after changing the pinned version of Codex, or
when our client sends different messages:

    python -m scripts.record_codex [SCENARIO ...]
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dragoman.client.codex import CodexPeer
from dragoman.errors import ConnectionLost
from dragoman.testing.fake_model import FakeModel
from dragoman.transports import spawn
from dragoman.transports.base import Receiver, Stream
from tests.integration.codex_scenarios import SCENARIOS, Scenario, Stage
from tests.peers.programs import peer_environment, peer_program

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "codex"

SCENARIO_TIMEOUT = 60.0
"""Timeout in seconds for one scenario, which usually takes a few."""

CONFIG = """\
model = "fake-model"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
request_max_retries = 0
stream_max_retries = 1
"""


class Tap(Stream):
    """A stream that records everything that passes through it."""

    def __init__(self, inner: Stream, lines: list[tuple[str, bytes]]) -> None:
        self._inner = inner
        self._lines = lines
        self._receiver: Receiver | None = None
        self._held = b""

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._inner.start(self)

    def data_received(self, data: bytes) -> None:
        assert self._receiver is not None
        *lines, self._held = (self._held + data).split(b"\n")
        self._lines += [("recv", line) for line in lines]
        self._receiver.data_received(data)

    def stream_ended(self, failure: ConnectionLost) -> None:
        assert self._receiver is not None
        self._receiver.stream_ended(failure)

    def write(self, data: bytes) -> None:
        self._lines += [("send", line) for line in data.splitlines()]
        self._inner.write(data)

    @property
    def unsent_size(self) -> int:
        return self._inner.unsent_size

    async def drain(self) -> None:
        await self._inner.drain()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    async def aclose(self) -> None:
        await self._inner.aclose()


async def play(scenario: Scenario, home: Path, workspace: Path) -> list[tuple[str, bytes]]:
    """Play a scenario and return the recorded lines."""
    lines: list[tuple[str, bytes]] = []
    async with FakeModel() as model:
        folder = home / ".codex"
        folder.mkdir()
        config = CONFIG.format(url=model.url) + scenario.config
        (folder / "config.toml").write_text(config, encoding="utf-8")
        environment = {**peer_environment(home), "FAKE_KEY": "k"}
        argv = [*peer_program("codex"), "app-server"]
        stream = Tap(await spawn(argv, cwd=workspace, env=environment), lines)
        options = scenario.options(lambda: stage)
        async with await CodexPeer.connect(stream, workspace, options) as peer:
            stage = Stage(peer, model.release)
            async with asyncio.timeout(SCENARIO_TIMEOUT):
                await scenario.play(stage)
    return lines


def masked(text: str, home: Path, workspace: Path) -> str:
    """Replace the parts of a recording that are specific to this machine."""
    text = text.replace(str(workspace), "/workspace").replace(str(home), "/home/user")
    text = re.sub(r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:1", text)
    return re.sub(r'"(/bin/|/usr/bin/)(\w+) -lc', r'"/bin/\2 -lc', text)


def main(names: Sequence[str]) -> int:
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name in names or SCENARIOS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            home, workspace = Path(scratch) / "home", Path(scratch) / "workspace"
            home.mkdir()
            workspace.mkdir()
            lines = asyncio.run(play(SCENARIOS[name], home, workspace))
            text = "".join(
                json.dumps({"dir": direction, "msg": json.loads(line)}) + "\n"
                for direction, line in lines
            )
            text = masked(text, home, workspace)
        (FIXTURES / f"{name}.jsonl").write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name}: {len(lines)} messages, {len(text)} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
