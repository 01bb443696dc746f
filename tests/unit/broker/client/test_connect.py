"""Callers of brokers get what callers of a direct child get, and a direct child if need be."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.broker.client import connect
from dragoman.broker.client.connect import WarmClient, complete, open_warm, spec_of
from dragoman.broker.client.find_or_start import FoundBroker
from dragoman.broker.client.hello import BrokerHello, started
from dragoman.broker.endpoint import Endpoint
from dragoman.broker.error_codec import BUSY, busy, describe
from dragoman.broker.spec import BrokerSpec, endpoint_name, real_workspace
from dragoman.catalogue import Credentials, Descriptor, Install, Launch, Quirks
from dragoman.catalogue.card import CARDS, Card, CardStore, MeasuredFacts
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.budgets import Budgets
from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import approve_all
from dragoman.errors import (
    BrokerBusy,
    BrokerUnavailable,
    HandshakeFailed,
    NotInstalled,
    ProcessExited,
    RemoteError,
    Unsupported,
)
from dragoman.events.words import Outcome
from dragoman.paths import Paths
from dragoman.rpc import Connection, ConnectionSettings, End, Router
from dragoman.rpc.tasks import TaskOwner
from dragoman.testing.scripted import Expect, Reply, command
from dragoman.transports.base import Stream
from dragoman.transports.memory import memory_pair
from tests.aio import aio

HELLO = {"protocolVersion": 1, "agentInfo": {"name": "behind", "version": "1"}}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(
        config=tmp_path / "config",
        data=tmp_path / "data",
        cache=tmp_path / "cache",
        state=tmp_path / "state",
        runtime=tmp_path / "run",
    )


def way(**fields: Any) -> LaunchSpec:
    return LaunchSpec(**{"command": ("/bin/tool", "--acp"), "protocol": "acp", **fields})


def described(**fields: Any) -> Descriptor:
    chosen: dict[str, Any] = {
        "name": "tool",
        "title": "Tool",
        "launch": (Launch(command=("tool",)),),
        "protocol": "acp",
    }
    return Descriptor(**{**chosen, **fields})


# -- the spec


@aio
async def test_a_spec_holds_all_that_is_known_of_the_peer(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOL_SECRET", "a secret value")
    monkeypatch.setenv("MORE", "more")
    monkeypatch.setenv("COLOUR", "a hidden value")
    monkeypatch.setenv("UNNAMED", "unnamed")
    tool = way(
        descriptor=described(
            credentials=Credentials(env=("TOOL_SECRET",), login="run `tool login`"),
            max_line_size=5000,
            handshake_timeout=77.0,
        ),
        quirks=Quirks(mode_after_open="default", missing_file_is_empty=True, command_titles=True),
        inherit=("TOOL_SECRET",),
        env={"SET": "set"},
    )
    spec = spec_of(
        tool,
        ConnectOptions(inherit=(name for name in ("MORE", "COLOUR")), env={"EXTRA": "e"}),
        workspace=tmp_path,
        paths=paths,
        ttl=7.0,
    )
    assert (spec.peer, spec.title, spec.workspace) == ("tool", "Tool", real_workspace(tmp_path))
    assert (spec.mode_after_open, spec.missing_file_is_empty) == ("default", True)
    assert spec.command_titles
    assert (spec.max_line_size, spec.budgets.initialize, spec.ttl) == (5000, 77.0, 7.0)
    assert spec.login_hint == "run `tool login`"
    seen = {name: spec.env.get(name) for name in ("TOOL_SECRET", "MORE", "SET", "EXTRA", "UNNAMED")}
    assert seen == {
        "TOOL_SECRET": "a secret value",
        "MORE": "more",
        "SET": "set",
        "EXTRA": "e",
        "UNNAMED": None,
    }
    assert spec.env["PATH"] == os.environ["PATH"]
    assert spec.env["COLOUR"] == "a hidden value"
    # Only a broker that starts has to know them.
    assert spec.secret_values == ()
    whole = await complete(tool, spec, inherit=("MORE", "COLOUR"))
    assert whole.secret_values == ("a hidden value", "a secret value")
    assert spec.paths.runtime == str(paths.runtime)


def test_the_same_call_asks_for_the_same_broker(paths: Paths, tmp_path: Path) -> None:
    first = spec_of(way(), workspace=tmp_path, paths=paths)
    assert endpoint_name(first) == endpoint_name(spec_of(way(), workspace=tmp_path, paths=paths))
    others = [
        spec_of(way(), ConnectOptions(env={"KEY": "another"}), workspace=tmp_path, paths=paths),
        spec_of(way(), ConnectOptions(terminals=True), workspace=tmp_path, paths=paths),
        spec_of(way(), workspace=tmp_path / "..", paths=paths),
    ]
    assert len({endpoint_name(spec) for spec in (first, *others)}) == 4


def test_a_callers_short_timeout_does_not_affect_others(paths: Paths, tmp_path: Path) -> None:
    hasty = Budgets(initialize=0.5, session=0.5, first_event=None, silence=None, total=0.5)
    patient = Budgets(initialize=300.0, silence=900.0, total=None)
    for budgets, initialize, silence in ((hasty, 30.0, None), (patient, 300.0, 900.0)):
        spec = spec_of(way(), ConnectOptions(budgets=budgets), workspace=tmp_path, paths=paths)
        found = spec.budgets
        assert (found.initialize, found.silence, found.total) == (initialize, silence, None)
        assert found.session == 60.0


def test_callers_who_write_and_who_do_not_share_the_broker_of_an_agent(
    paths: Paths, tmp_path: Path
) -> None:
    for protocol, shared in (("acp", True), ("codex", False)):
        names = {
            endpoint_name(
                spec_of(
                    way(protocol=protocol),
                    ConnectOptions(write_files=writes),
                    workspace=tmp_path,
                    paths=paths,
                )
            )
            for writes in (True, False)
        }
        assert (len(names) == 1) is shared


def test_what_a_permission_means_for_the_sandbox_is_fixed_at_the_start(
    paths: Paths, tmp_path: Path
) -> None:
    codex = way(protocol="codex")
    spec = spec_of(codex, ConnectOptions(permit=approve_all), workspace=tmp_path, paths=paths)
    assert spec.details == {"sandbox": "workspace-write"}
    careful = spec_of(codex, workspace=tmp_path, paths=paths)
    assert endpoint_name(careful) != endpoint_name(spec)


def test_options_that_cannot_be_sent_to_another_process_stay_here(
    paths: Paths, tmp_path: Path
) -> None:
    options = ConnectOptions(details={"title": "us", "on_url_done": print})
    spec = spec_of(way(), options, workspace=tmp_path, paths=paths)
    assert spec.details == {"title": "us"}
    with pytest.raises(BrokerUnavailable, match="cannot be sent to a broker"):
        options = ConnectOptions(details={"x": print})
        spec_of(way(protocol="codex"), options, workspace=tmp_path, paths=paths)


@aio
async def test_a_start_needs_the_card_and_a_runtime(paths: Paths, tmp_path: Path) -> None:
    spec = spec_of(way(descriptor=described()), workspace=tmp_path, paths=paths)
    assert (await complete(way(), spec, inherit=())).parallel is None
    card = Card(
        peer="tool",
        version="1",
        platform="linux",
        measured_at="2026-01-01",
        dragoman="1",
        turns=True,
        reached="x",
        usable=True,
        rungs=(),
        facts=MeasuredFacts(parallel_sessions=True),
    )
    CardStore(paths.data / CARDS).save(card)
    assert (await complete(way(), spec, inherit=())).parallel is True
    script = tmp_path / "tool.js"
    script.write_text("#!/usr/bin/env node\n")
    script.chmod(0o755)
    wanting = way(command=(str(script),), descriptor=described(install=Install(node=20)))
    without_node = ConnectOptions(env={"PATH": "/none"})
    nowhere = spec_of(wanting, without_node, workspace=tmp_path, paths=paths)
    with pytest.raises(NotInstalled, match="node is not on the PATH"):
        await complete(wanting, nowhere, inherit=())


# -- the call


class Brokers:
    """In the place of `ensure`: each call gets a stream that is served as the test says."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *serve: Callable[[Router], None]
    ) -> None:
        self.specs: list[BrokerSpec] = []
        self.connections: list[Connection] = []
        self.tasks = TaskOwner("test")
        self._serve = list(serve)
        self._endpoint = Endpoint(name="tool-1", runtime=tmp_path, logs=tmp_path)
        monkeypatch.setattr(connect, "ensure", self._ensure)

    async def _ensure(
        self, spec: BrokerSpec, *, settings: ConnectionSettings, **_: Any
    ) -> FoundBroker:
        self.specs.append(spec)
        near, far = memory_pair()
        self.tasks.start(self._serve_one(far, self._serve.pop(0)), "broker")
        return FoundBroker(
            connection=started(near, settings=settings),
            greeting=BrokerHello(version="1", protocol=1, pid=4711),
            endpoint=self._endpoint,
            started=True,
        )

    async def _serve_one(self, stream: Stream, serve: Callable[[Router], None]) -> None:
        router = Router()
        serve(router)
        async with Connection(stream, End.AGENT, router) as connection:
            self.connections.append(connection)
            await connection.wait_ended()


def agent(router: Router) -> None:
    def busy_at_prompts(params: dict[str, Any]) -> Any:
        raise RemoteError(BUSY, "busy", describe(busy(100)))

    router.on_request("initialize", lambda params: HELLO)
    router.on_request("session/new", lambda params: {"sessionId": "s"})
    router.on_request("session/prompt", busy_at_prompts, dict)


def refusing(error: RemoteError) -> Callable[[Router], None]:
    def refuse(params: Any) -> Any:
        raise error

    return lambda router: router.on_request("initialize", refuse)


def dying(brokers: list[Brokers]) -> Callable[[Router], None]:
    async def die(params: Any) -> Any:
        brokers[0].tasks.start(brokers[0].connections[-1].aclose(), "death")
        await asyncio.Event().wait()

    return lambda router: router.on_request("initialize", die)


@aio
async def test_a_peer_behind_a_broker_is_a_peer(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = Brokers(monkeypatch, tmp_path, agent)
    options = ConnectOptions(budgets=Budgets(initialize=3.0, request=7.0))
    tool = way(quirks=Quirks(missing_file_is_empty=True))
    async with open_warm(tool, options, workspace=tmp_path, paths=paths) as peer:
        client = peer.client
        assert isinstance(client, WarmClient)
        assert (client.endpoint, client.greeting.pid, client.started) == ("tool-1", 4711, True)
        assert peer.info.name == "behind"
        assert client.options.missing_file_is_empty
        # The broker, which knows why, is given the time to say it.
        assert (client.budgets.request, client.budgets.initialize) == (7.0, 3.0)
        # It serves others, too, who may have more time.
        usual = Budgets()
        assert brokers.specs[0].budgets.request == usual.request
        async with peer.session() as session:
            result = await session.ask("hello")
            assert result.outcome is Outcome.FAILED
            assert isinstance(result.error, BrokerBusy)
    await brokers.tasks.aclose()


@pytest.mark.parametrize("writes", [True, False])
@aio
async def test_a_broker_learns_where_nothing_may_be_written(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    told: list[Any] = []

    def listening(router: Router) -> None:
        agent(router)
        router.on_notification("_dragoman/terms", told.append, dict)

    brokers = Brokers(monkeypatch, tmp_path, listening)
    options = ConnectOptions(write_files=writes)
    async with open_warm(way(), options, workspace=tmp_path, paths=paths) as peer:
        async with peer.session():
            limits = {} if writes else {"writeFiles": False}
            assert told == [{"answered": True, **limits}]
    await brokers.tasks.aclose()


@pytest.mark.parametrize(
    "error",
    [
        NotInstalled("tool", "no tool", remedy="get one"),
        HandshakeFailed("it only said hello", exit_code=2),
        ProcessExited(exit_code=3, stderr_tail="no key"),
        BrokerBusy("later"),
    ],
    ids=lambda error: error.error_class,
)
@aio
async def test_an_error_of_the_peers_start_is_raised_as_a_direct_start_raises_it(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    brokers = Brokers(monkeypatch, tmp_path, refusing(RemoteError(-1, "no", describe(error))))
    with pytest.raises(type(error)) as raised:
        async with open_warm(way(), workspace=tmp_path, paths=paths):
            pass
    assert str(raised.value) == str(error)
    assert len(brokers.specs) == 1
    await brokers.tasks.aclose()


@aio
async def test_an_answer_of_the_peer_itself_stays_the_peers(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = Brokers(monkeypatch, tmp_path, refusing(RemoteError(-32603, "no", {"x": 1})))
    with pytest.raises(RemoteError, match="no"):
        async with open_warm(way(), workspace=tmp_path, paths=paths):
            pass
    await brokers.tasks.aclose()


@aio
async def test_a_broker_that_goes_during_the_handshake_is_followed_by_the_next(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[Brokers] = []
    later.append(Brokers(monkeypatch, tmp_path, dying(later), agent))
    async with open_warm(way(), workspace=tmp_path, paths=paths) as peer:
        assert peer.info.name == "behind"
    assert len(later[0].specs) == 2
    await later[0].tasks.aclose()


@aio
async def test_an_unknown_option_is_refused(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    Brokers(monkeypatch, tmp_path)
    options = ConnectOptions(details={"colour": 1})
    with pytest.raises(Unsupported, match="no option colour"):
        async with open_warm(way(), options, workspace=tmp_path, paths=paths):
            pass


# -- without a broker


def scripted() -> LaunchSpec:
    return way(command=tuple(command(Expect("initialize"), Reply(HELLO))))


@aio
async def test_without_a_folder_for_sockets_the_peer_is_started_directly(
    tmp_path: Path, paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    paths.runtime.touch()
    told: list[BrokerUnavailable] = []
    async with open_warm(
        scripted(), workspace=tmp_path, paths=paths, on_fallback=told.append
    ) as peer:
        assert not isinstance(peer.client, WarmClient)
        assert peer.info.name == "behind"
    assert "Not a directory" in str(told[0])
    with caplog.at_level(logging.WARNING):
        async with open_warm(scripted(), workspace=tmp_path, paths=paths):
            pass
    assert "without a broker: " in caplog.text


@aio
async def test_brokers_that_die_again_and_again_are_given_up(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[Brokers] = []
    deaths = [dying(later)] * connect.MAX_ATTEMPTS
    later.append(Brokers(monkeypatch, tmp_path, *deaths))
    told: list[BrokerUnavailable] = []
    async with open_warm(
        scripted(), workspace=tmp_path, paths=paths, on_fallback=told.append
    ) as peer:
        assert not isinstance(peer.client, WarmClient)
    assert "keeps ending during the handshake" in str(told[0])
    await later[0].tasks.aclose()


@aio
async def test_after_the_handshake_nothing_is_started_a_second_time(
    tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = Brokers(monkeypatch, tmp_path, agent)
    told: list[BrokerUnavailable] = []
    with pytest.raises(BrokerUnavailable, match="my own"):
        async with open_warm(scripted(), workspace=tmp_path, paths=paths, on_fallback=told.append):
            raise BrokerUnavailable("my own")
    assert told == []
    await brokers.tasks.aclose()
