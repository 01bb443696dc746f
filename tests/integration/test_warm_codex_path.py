"""What one warm prompt to Codex costs on its way: connections, and decodes of each update.

The broker and its caller run in this process, so that everything is seen; Codex is a child process.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from dragoman.client.acp.client import AcpClient
from dragoman.client.acp.options import ClientOptions
from dragoman.client.acp.peer import AcpPeer
from dragoman.client.conversation import Conversation
from dragoman.rpc import Connection
from dragoman.rpc.link import LinkEnd
from dragoman.transports.memory import memory_pair
from tests.aio import aio
from tests.conformance import codex, codex_server
from tests.integration.broker_stage import stage, stored

FEW, MANY = 50, 350
"""Updates of two turns: what one update costs is the difference by the number of them."""

MAX_DECODES = 4
"""Of one update: Codex's message and its body, the caller's message and its body."""

BATCHED = 0.05
"""Decodes of one update that stand for what is done once for many of them."""


@asynccontextmanager
async def warm_codex(folder: Path, script: codex.Script) -> AsyncIterator[Conversation]:
    """A session of a scripted Codex behind a broker, as a warm command has it."""
    program = (sys.executable, "-I", "-S", codex_server.__file__, str(folder / "wire.jsonl"))
    command = (*program, json.dumps(script))
    async with stage(folder, protocol="codex", command=command) as on:
        near, far = memory_pair()
        serving = on.broker.tasks.start(on.broker.serve(far), "serve a caller")
        async with AcpClient(near, ClientOptions()) as client:
            peer = AcpPeer(client, folder / "workspace")
            async with peer.session() as conversation:
                yield conversation
        await serving


@contextmanager
def decodes() -> Iterator[Counter[str]]:
    """Count the calls of a JSON decoder by the function that makes them."""
    found: Counter[str] = Counter()

    def profile(frame: Any, event: str, function: Any) -> None:
        if event == "c_call" and (
            function is msgspec.json.decode
            or isinstance(getattr(function, "__self__", None), msgspec.json.Decoder)
        ):
            code = frame.f_code
            found[f"{Path(code.co_filename).stem}.{code.co_qualname}"] += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(before)


def words(count: int) -> list[codex.Step]:
    return [codex.delta(f"word {number} ") for number in range(count)]


@aio
async def test_a_warm_codex_update_is_decoded_four_times(tmp_path: Path) -> None:
    script = codex.turns(words(10), words(FEW), words(MANY))
    async with warm_codex(tmp_path, script) as conversation:
        await conversation.ask("begin")
        with decodes() as few:
            short = await conversation.ask("some")
        with decodes() as many:
            long = await conversation.ask("more")
    assert (short.text.count("word"), long.text.count("word")) == (FEW, MANY)
    each = {name: (many[name] - few[name]) / (MANY - FEW) for name in many}
    per_update = {name: rate for name, rate in each.items() if rate > BATCHED}
    assert sum(each.values()) <= MAX_DECODES + BATCHED, per_update
    assert len(per_update) <= MAX_DECODES, per_update


@aio
async def test_a_warm_codex_prompt_has_three_connections_and_a_link(tmp_path: Path) -> None:
    before = {id(each) for each in gc.get_objects() if isinstance(each, Connection)}
    async with warm_codex(tmp_path, codex.turns(words(3))) as conversation:
        assert (await conversation.ask("begin")).text == "word 0 word 1 word 2 "
        ours = [
            each
            for each in gc.get_objects()
            if isinstance(each, Connection) and id(each) not in before
        ]
    # The caller's, the broker's with the caller, and Codex's own.
    assert len([each for each in ours if not isinstance(each, LinkEnd)]) == 3
    assert len([each for each in ours if isinstance(each, LinkEnd)]) == 2
    (session,) = stored(tmp_path)
    assert len(session["lines"]) >= 3
