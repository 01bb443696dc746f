"""The real agents that speak ACP, with the fake model behind them, as the tests here use them.

Owns what leads each of them to the fake model, and the stage: one process of an agent that many
tests talk with, because each start costs seconds. What every agent has to do is in `turns`; what
only one of them does is in its own test file. Where programs are is known by `programs`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec

from msgspec import structs

from dragoman.catalogue.descriptor import Descriptor
from dragoman.catalogue.launch import resolve
from dragoman.catalogue.load import built_in
from dragoman.catalogue.open import judge, open_peer
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Conversation, Peer
from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import Permit, deny_all
from dragoman.client.results import Result
from dragoman.events import model as happened
from dragoman.testing.fake_model import FakeModel
from dragoman.transports.process.environment import owner
from dragoman.transports.process.strays import find_owned, find_strays
from dragoman.transports.process.warden import MARK_NAME, read_environ
from tests.peers.programs import peer_environment

P = ParamSpec("P")

WAIT = 30.0
"""Seconds for anything that an agent does by itself, on a machine that is busy."""

OF_THE_STAGE = ("fake model: connection", "stand by")
"""Tasks that a test may begin and need not end: an agent keeps its connections to the model, and
ours has a task ready for the next thing that it will be asked."""

BUDGETS = Budgets(silence=WAIT, first_event=WAIT, cancel_grace=WAIT)


@dataclass(frozen=True, slots=True)
class Agent:
    """A real agent, and how it is made to use the fake model."""

    name: str
    provider: Callable[[str], dict[str, str]]
    """The variables that lead it to the model at an address."""
    configure: Callable[[Path], None] = lambda home: None
    """What else is set up in its home."""


def _quiet_qwen(home: Path) -> None:
    # It asks its model what to remember after every turn, and what its user may want next: a
    # second each time, of which these tests learn nothing.
    folder = home / ".qwen"
    folder.mkdir()
    settings = {
        "memory": {"enableManagedAutoMemory": False},
        "ui": {"enableFollowupSuggestions": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings))


GEMINI = Agent(
    "gemini",
    lambda url: {"GEMINI_API_KEY": "fake", "GOOGLE_GEMINI_BASE_URL": url},
)
QWEN = Agent(
    "qwen",
    lambda url: {
        "OPENAI_API_KEY": "fake",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_MODEL": "fake-model",
    },
    _quiet_qwen,
)
COPILOT = Agent(
    "copilot",
    lambda url: {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": "fake",
        "COPILOT_MODEL": "fake-model",
    },
)


def descriptor(name: str) -> Descriptor:
    """What dragoman knows about an agent."""
    return next(known.descriptor for known in built_in() if known.descriptor.name == name)


@contextmanager
def surrounded(environment: Mapping[str, str]) -> Iterator[None]:
    """Nothing but this in our own environment, as a user's shell would have it."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@asynccontextmanager
async def opened(
    agent: Agent,
    home: Path,
    workspace: Path,
    model: FakeModel,
    *,
    permit: Permit = deny_all,
    on_event: Callable[[happened.Event], None] | None = None,
) -> AsyncIterator[Peer]:
    """A running agent that uses the fake model, started as dragoman starts it for its users."""
    async with AsyncExitStack() as stack:
        with surrounded({**peer_environment(home), **agent.provider(model.url)}):
            peer = await stack.enter_async_context(
                open_peer(
                    resolve(descriptor(agent.name)),
                    ConnectOptions(permit=permit, budgets=BUDGETS, on_event=on_event),
                    workspace=workspace,
                )
            )
        yield peer


# -- the stage

_stages: set[str] = set()
"""The marks of the processes that are kept from one test to the next."""


def kept_processes() -> set[int]:
    """The processes that no test has to end."""
    return {pid for mark in _stages for pid in find_strays(mark)}


@dataclass(slots=True)
class Stage:
    """One process of an agent, and the model behind it, on an event loop that waits for tests."""

    agent: Agent
    home: Path
    runner: asyncio.Runner
    model: FakeModel
    peer: Peer
    seen: list[happened.Event] = field(default_factory=list)
    """Every event of the connection since it was opened."""

    @asynccontextmanager
    async def talk(
        self, workspace: Path, permit: Permit = deny_all, **how: Any
    ) -> AsyncIterator[Conversation]:
        """A session of this test, in a folder of its own."""
        self.peer.answer_with(permit)
        async with self.peer.session(cwd=workspace, **how) as conversation:
            yield conversation

    def judge(self, result: Result) -> Result:
        """A result as dragoman takes it."""
        return judge(result, descriptor(self.agent.name).quirks)

    @contextmanager
    def budgets(self, **changed: float) -> Iterator[None]:
        """Other budgets for the turns that begin in the block."""
        usual = self.peer.client.budgets
        self.peer.client.budgets = structs.replace(usual, **changed)
        try:
            yield
        finally:
            self.peer.client.budgets = usual

    @asynccontextmanager
    async def another_process(self, workspace: Path) -> AsyncIterator[Peer]:
        """The same program once more, with the same home and the same model."""
        async with opened(self.agent, self.home, workspace, self.model) as peer:
            yield peer


@contextmanager
def staged(agent: Agent, folder: Path) -> Iterator[Stage]:
    """A stage for a module of tests, who play on it with `on_stage`."""
    home, workspace = folder / "home", folder / "workspace"
    home.mkdir()
    workspace.mkdir()
    agent.configure(home)
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        others = _marks()
        seen: list[happened.Event] = []

        async def begin() -> Stage:
            model = await stack.enter_async_context(FakeModel())
            peer = await stack.enter_async_context(
                opened(agent, home, workspace, model, on_event=seen.append)
            )
            return Stage(agent, home, runner, model, peer, seen)

        try:
            stage = runner.run(begin())
            kept = _marks() - others
            _stages.update(kept)
            try:
                yield stage
            finally:
                _stages.difference_update(kept)
        finally:
            runner.run(stack.aclose())
        assert not [pid for mark in kept for pid in find_strays(mark)], "processes were left"


def on_stage(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorator for a test that is a coroutine and plays on the stage that its fixture names.

    Like `aio`, but with the event loop of the stage; what the test leaves running is its failure.
    """
    names = inspect.signature(test)

    @functools.wraps(test)
    def play(*args: P.args, **kwargs: P.kwargs) -> None:
        stage = names.bind(*args, **kwargs).arguments["stage"]
        assert isinstance(stage, Stage)

        async def main() -> None:
            before = asyncio.all_tasks()
            await test(*args, **kwargs)
            left = [
                task for task in asyncio.all_tasks() - before if task.get_name() not in OF_THE_STAGE
            ]
            assert not left, f"tasks left behind: {left}"

        try:
            stage.runner.run(main())
        finally:
            stage.peer.answer_with(deny_all)

    return play


def _marks() -> set[str]:
    """The marks of all living processes of ours."""
    return {mark for pid in find_owned(owner()) if (mark := _mark(pid))}


def _mark(pid: int) -> str:
    prefix = f"{MARK_NAME}=".encode()
    found = (part for part in read_environ(pid).split(b"\0") if part.startswith(prefix))
    return os.fsdecode(next(found, prefix)[len(prefix) :])


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(WAIT):
        await event.wait()
