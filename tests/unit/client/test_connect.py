"""The choice of the dialect, without any agent: what is decided before anything is started.

With agents it is in tests/integration/test_conversation_connect.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragoman import transports
from dragoman.client import connect as client_connect
from dragoman.client.budgets import Budgets
from dragoman.client.connect import OPENERS, PlannedHandshake, connect
from dragoman.client.conversation import Peer
from dragoman.client.options import ConnectOptions
from dragoman.client.programs import program_of
from dragoman.dialects import discovery
from dragoman.dialects.discovery import MemoryCache
from dragoman.errors import (
    CallTimeout,
    ConnectionEnded,
    HandshakeFailed,
    ProtocolMismatch,
    RemoteError,
    Unsupported,
    UsageError,
)
from dragoman.transports import memory_pair
from dragoman.transports.base import Stream
from tests.aio import aio

WORKSPACE = Path("/w")


@dataclass
class Fake:
    """A table of dialects that answers as it is told, and notes what was tried."""

    replies: dict[str, Any]

    def __post_init__(self) -> None:
        self.tried: list[str] = []
        self.timeouts: list[float] = []

    def prepare(self, plan: PlannedHandshake) -> Any:
        async def open(stream: Stream) -> Peer:
            await stream.aclose()
            self.tried.append(plan.dialect)
            self.timeouts.append((plan.options.budgets or Budgets()).initialize)
            reply = self.replies[plan.dialect]
            if isinstance(reply, Exception):
                raise reply
            return reply  # type: ignore[no-any-return]

        return open


class Spoken:
    """A peer that says nothing but what it spoke."""

    def __init__(self, hello: bytes = b'{"protocolVersion":1}') -> None:
        self.client = self
        self.hello = hello
        self.closed = False

    async def aclose(self) -> None:
        self.closed = True


def way(*launch: str) -> client_connect.StreamSource:
    async def open(dialect: str) -> Stream:
        ours, theirs = memory_pair()
        await theirs.aclose()
        return ours

    return client_connect.StreamSource("x", open, launch, program_of([sys.executable]))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(**replies: Any) -> Fake:
        refusals = {name: RemoteError(-32602, f"not {name}") for name in discovery.DIALECTS}
        fake = Fake({**refusals, **replies})
        for dialect in fake.replies:
            monkeypatch.setitem(OPENERS, dialect, fake.prepare)
        return fake

    return use


async def found(fake: Fake, *launch: str, cache: MemoryCache | None = None) -> Any:
    return await client_connect._open(way(*launch), WORKSPACE, ConnectOptions(cache=cache))


def test_every_dialect_that_can_be_named_can_be_opened() -> None:
    assert set(OPENERS) == set(discovery.DIALECTS)


@aio
async def test_the_launch_tells_which_dialect_is_tried_first(table: Any) -> None:
    fake = table(acp=Spoken(), codex=Spoken())
    await found(fake, "gemini", "--acp")
    await found(fake, "codex", "app-server")
    assert fake.tried == ["acp", "codex"]


@aio
async def test_a_mismatch_that_names_a_dialect_leads_there_once(table: Any) -> None:
    fake = table(acp=ProtocolMismatch("x", dialect="codex"), codex=Spoken())
    cache = MemoryCache()
    await found(fake, "x", cache=cache)
    assert fake.tried == ["acp", "codex"]
    await found(fake, "x", cache=cache)
    assert fake.tried == ["acp", "codex", "codex"]
    # Another launch of the same program may speak something else.
    await found(fake, "x", "--other", cache=cache)
    assert fake.tried[3:] == ["acp", "codex"]


@aio
async def test_two_dialects_that_name_each_other_do_not_go_round(table: Any) -> None:
    fake = table(
        acp=ProtocolMismatch("x", dialect="codex"), codex=ProtocolMismatch("y", dialect="acp")
    )
    with pytest.raises(ProtocolMismatch, match="x"):
        await found(fake, "x")
    assert fake.tried == ["acp", "codex", *discovery.GREETINGS]


@aio
async def test_a_mismatch_that_names_another_version_is_raised(table: Any) -> None:
    fake = table(acp=ProtocolMismatch("x", version="2"))
    with pytest.raises(ProtocolMismatch):
        await found(fake, "x")
    assert fake.tried == ["acp"]


@pytest.mark.parametrize("dialect", [None, "latin"])
@aio
async def test_a_program_that_refuses_every_greeting_is_reported_by_the_first(
    table: Any, dialect: str | None
) -> None:
    fake = table(acp=ProtocolMismatch("x", dialect=dialect))
    with pytest.raises(ProtocolMismatch, match="x"):
        await found(fake, "x")
    assert fake.tried == ["acp", *discovery.GREETINGS]
    fake = table(acp=RemoteError(-32602, "no"))
    with pytest.raises(HandshakeFailed) as caught:
        await found(fake, "x")
    assert "also refused the handshakes of oneshot, tagged, keyed" in str(caught.value)
    silence = CallTimeout("initialize", 10)
    table(acp=RemoteError(-32602, "no"), **dict.fromkeys(discovery.GREETINGS[1:], silence))
    with pytest.raises(HandshakeFailed) as caught:
        await found(fake, "x")
    assert "also refused the handshakes of oneshot. It did not answer" in str(caught.value)


@pytest.mark.parametrize(("budget", "further"), [(8.0, 4.0), (30.0, 10.0)])
@aio
async def test_a_further_greeting_leaves_time_to_report_the_first_refusal(
    table: Any, budget: float, further: float
) -> None:
    silence = CallTimeout("initialize", further)
    fake = table(acp=RemoteError(-32603, "disk on fire"), tagged=silence)
    options = ConnectOptions(budgets=Budgets(initialize=budget))
    with pytest.raises(HandshakeFailed, match="disk on fire"):
        await client_connect._open(way("x"), WORKSPACE, options)
    assert fake.tried == ["acp", "oneshot", "tagged"]
    assert fake.timeouts == [budget, further, further]


@aio
async def test_a_program_without_a_handshake_is_asked_for_what_shows_its_dialect(
    table: Any,
) -> None:
    fake = table(acp=RemoteError(-32601, "no"), chained=Spoken())
    await found(fake, "x")
    assert fake.tried == ["acp", "threads", "chained"]


@aio
async def test_a_program_that_speaks_something_else_by_now_is_found_out_again(table: Any) -> None:
    cache = MemoryCache()
    fake = table(acp=RemoteError(-32602, "no"), oneshot=Spoken())
    await found(fake, "x", cache=cache)
    fake = table(acp=Spoken())
    await found(fake, "x", cache=cache)
    assert fake.tried == ["oneshot", "acp"]
    await found(fake, "x", cache=cache)
    assert fake.tried == ["oneshot", "acp", "acp"]
    fake = table(acp=ConnectionEnded())
    with pytest.raises(HandshakeFailed):
        await found(fake, "x", cache=cache)
    assert fake.tried == ["acp", "acp"]


@aio
async def test_a_known_dialect_that_is_not_answered_is_not_followed_by_a_search(
    table: Any,
) -> None:
    cache = MemoryCache()
    await found(table(acp=RemoteError(-32602, "no"), oneshot=Spoken()), "x", cache=cache)
    fake = table(oneshot=CallTimeout("initialize", 30))
    with pytest.raises(HandshakeFailed):
        await found(fake, "x", cache=cache)
    assert fake.tried == ["oneshot"]


@aio
async def test_what_the_command_line_says_by_itself_is_not_remembered(table: Any) -> None:
    cache = MemoryCache()
    await found(table(acp=Spoken()), "x", cache=cache)
    program = program_of([sys.executable])
    assert program is not None
    assert cache.get(program, client_connect.dialect_key(way("x"))) is None


@aio
async def test_a_program_that_does_not_answer_the_first_greeting_is_not_greeted_again(
    table: Any,
) -> None:
    fake = table(acp=CallTimeout("initialize", 30))
    with pytest.raises(HandshakeFailed):
        await found(fake, "x")
    assert fake.tried == ["acp"]


@aio
async def test_an_answer_that_acp_could_make_do_with_leads_to_the_dialect_it_shows(
    table: Any,
) -> None:
    keyed = Spoken(b'{"protocolVersion":1,"agentCapabilities":{"plan":true}}')
    fake = table(acp=keyed, keyed=Spoken())
    await found(fake, "x")
    assert fake.tried == ["acp", "keyed"]
    assert keyed.closed


@aio
async def test_an_agent_that_misses_the_protocol_version_speaks_acp(table: Any) -> None:
    refusal = RemoteError(-32602, "Invalid params", {"detail": "missing `protocolVersion`"})
    fake = table(codex=refusal, acp=Spoken())
    await found(fake, "x", "app-server")
    assert fake.tried == ["codex", "acp"]


@pytest.mark.parametrize("target", ["", "gemini", "ftp://x", "unix:", [], [1, 2]])
@aio
async def test_what_is_neither_an_address_nor_a_command_line_is_refused(target: Any) -> None:
    with pytest.raises(UsageError):
        async with connect(target):
            pytest.fail("there is nothing to connect to")


@pytest.mark.parametrize("dialect", sorted(OPENERS))
def test_a_detail_that_a_dialect_lacks_is_refused_before_anything_is_opened(dialect: str) -> None:
    plan = PlannedHandshake(
        dialect=dialect,
        workspace=WORKSPACE,
        options=ConnectOptions(details={"levitation": True}),
    )
    with pytest.raises(Unsupported, match="levitation"):
        OPENERS[dialect](plan)


def test_a_secret_in_the_arguments_does_not_reach_the_cache() -> None:
    key = client_connect.dialect_key(way("x", "--key=secret"))
    assert "secret" not in key
    assert key != client_connect.dialect_key(way("x", "--key=other"))


@aio
async def test_the_error_of_a_websocket_shows_no_secret_of_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    async def reach(url: str, *, max_message_size: int) -> Stream:
        sizes.append(max_message_size)
        ours, theirs = memory_pair()
        await theirs.aclose()
        return ours

    monkeypatch.setattr(transports, "connect_websocket", reach)
    with pytest.raises(HandshakeFailed, match="^ws://example.com/agent ended") as failed:
        async with connect(
            "ws://me:secret@example.com/agent?token=secret",
            ConnectOptions(dialect="acp", max_line_size=100_000_000),
        ):
            pass
    assert "secret" not in str(failed.value)
    # Messages of this size also have to pass the WebSocket.
    assert sizes == [100_000_000]


@aio
async def test_an_address_that_is_not_a_url_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(UsageError, match="the address is not valid") as failed:
        async with connect("ws://me:secret@[example/"):
            pass
    assert "secret" not in str(failed.value)
