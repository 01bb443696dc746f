"""The real Codex with the fake model behind it, as the tests of this folder use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs

from dragoman.client.budgets import Budgets
from dragoman.client.codex import CodexOptions, CodexPeer
from dragoman.client.permissions import approve_all
from dragoman.testing.fake_model import FakeModel
from dragoman.transports import spawn
from dragoman.transports.base import Stream
from tests.peers.programs import peer_environment, peer_program

WAIT = 30.0
"""Seconds for anything that the program does by itself, on a machine that is busy."""

OPTIONS = CodexOptions(
    permit=approve_all,
    approval_policy="untrusted",
    sandbox="workspace-write",
    budgets=Budgets(silence=WAIT, first_event=WAIT, cancel_grace=WAIT),
)
"""Everything but reading is asked about, and allowed."""

CONFIG = """\
model = "fake-model"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 1
{extra}
"""

WITH_KEY = 'env_key = "FAKE_KEY"'
WITH_LOGIN = "requires_openai_auth = true"


def configure(home: Path, model: FakeModel, extra: str = WITH_KEY) -> None:
    """Let Codex use the fake model."""
    folder = home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(CONFIG.format(url=model.url, extra=extra))


async def start(home: Path, workspace: Path) -> Stream:
    """The running program."""
    environment = {**peer_environment(home), "FAKE_KEY": "k"}
    return await spawn([*peer_program("codex"), "app-server"], cwd=workspace, env=environment)


@asynccontextmanager
async def codex(
    home: Path,
    workspace: Path,
    *,
    options: CodexOptions = OPTIONS,
    extra: str = WITH_KEY,
) -> AsyncIterator[tuple[CodexPeer, FakeModel]]:
    """A connected Codex and the model behind it."""
    async with FakeModel() as model:
        configure(home, model, extra)
        stream = await start(home, workspace)
        peer = await CodexPeer.connect(stream, workspace, options)
        async with peer:
            yield peer, model


def with_budgets(**budgets: float) -> CodexOptions:
    """The usual options with other budgets."""
    changed = structs.replace(OPTIONS.budgets or Budgets(), **budgets)
    return structs.replace(OPTIONS, budgets=changed)


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(WAIT):
        await event.wait()
