"""An agent played by a test, in the place of a child process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from dragoman.catalogue.descriptor import Descriptor, Launch, Models
from dragoman.catalogue.enforcement import Enforced
from dragoman.catalogue.launch import LaunchSpec
from dragoman.cli.command_loop import CommandLoop
from dragoman.cli.output.renderer import Renderer, TurnReport
from dragoman.cli.permission_flags import ApprovalMode
from dragoman.cli.run_plan import RunPlan
from dragoman.client.budgets import Budgets
from dragoman.client.conversation import Opening
from dragoman.client.options import ConnectOptions
from dragoman.client.results import Result
from dragoman.errors import ConnectionClosed, DragomanError
from dragoman.events import model
from dragoman.events.model import Event
from dragoman.events.parts import Capabilities, Choice, PeerInfo, SessionOption
from dragoman.events.words import Outcome

SOURCE = model.Source("acp", "client-1")


def option(*values: str, value: str | None = None) -> SessionOption:
    """An option that chooses a model."""
    choices = tuple(Choice(each, each.title()) for each in values)
    return SessionOption("model", "Model", value or values[0], choices, "model")


class ActedTurn:
    """A turn that ends when the test, a cancel or a closed connection ends it."""

    def __init__(self, agent: ActedAgent, prompt: Any) -> None:
        self.agent = agent
        self.prompt = prompt
        self.cancels = 0
        self.unsent: DragomanError | None = None
        self.over: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> ActedTurn:
        self.agent.turn = self
        self.agent.begun.set()
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def wait(self) -> Result:
        if self.agent.answers is not None and not self.over.done():
            self.over.set_result(self.agent.answers(self))
        return await self.over

    @property
    def result(self) -> Result:
        return self.over.result()

    def cancel(self) -> None:
        self.cancels += 1
        if not self.agent.deaf and not self.over.done():
            self.over.set_result(Result(Outcome.CANCELLED, "half"))


class ActedAgent:
    """A peer and its one conversation."""

    id = "s1"

    def __init__(
        self, *options: SessionOption, model: str | None = None, dialect: str = "acp"
    ) -> None:
        self.options = options
        self.model_choices: tuple[Choice, ...] = ()
        self.model = model
        self.dialect = dialect
        self.info = PeerInfo("actor", "Actor", "1.0")
        self.capabilities = Capabilities(embedded=True, set_mode=True, set_model=True)
        self.on_event: Callable[[Event], None] | None = None
        self.answers: Callable[[ActedTurn], Result] | None = None
        self.deaf = False
        self.obeys = False
        self.begun = asyncio.Event()
        self.turn: ActedTurn | None = None
        self.ways: list[LaunchSpec] = []
        self.client = SimpleNamespace()
        self.opened_with: list[Opening] = []
        self.left = 0
        self.opened_peer_with = ConnectOptions()
        self.chosen: list[tuple[str, str | bool]] = []
        self.closed = 0
        self._numbers = itertools.count(1)

    # -- as `open_peer` and as a peer

    @asynccontextmanager
    async def open_peer(
        self, way: LaunchSpec, options: ConnectOptions, **terms: Any
    ) -> AsyncIterator[ActedAgent]:
        self.ways.append(way)
        self.opened_peer_with = options
        self.on_event = options.on_event
        try:
            yield self
        finally:
            self.closed += 1

    async def open(self, opening: Opening) -> ActedAgent:
        self.opened_with.append(opening)
        self.tell_settings()
        return self

    def require(self, able: bool | None, what: str) -> None:
        assert able is not False, what

    async def close(self) -> None:
        self.left += 1

    def tell_settings(self) -> None:
        base = (SOURCE, next(self._numbers), "s1", None, "session/new", None, False)
        if self.options or self.model:
            self.tell(model.SettingsChanged(*base, options=self.options, model=self.model))

    def tell(self, event: model.Event) -> None:
        if self.on_event is not None:
            self.on_event(event)

    async def aclose(self) -> None:
        if self.turn is not None and not self.turn.over.done():
            error: DragomanError = ConnectionClosed()
            self.turn.over.set_result(Result(Outcome.CANCELLED, "half", error=error))

    # -- as a conversation

    def prompt(self, prompt: Any) -> ActedTurn:
        return ActedTurn(self, prompt)

    async def set_option(self, option_id: str, value: str | bool) -> None:
        self.chosen.append((option_id, value))
        if self.obeys and isinstance(value, str):
            self.options = tuple(replace(each, value=value) for each in self.options)
        self.tell_settings()

    async def set_model(self, model_id: str) -> None:
        self.chosen.append(("set_model", model_id))
        if self.obeys:
            self.model = model_id
        self.tell_settings()


class Remembering(Renderer):
    """A show that only remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[model.Event] = []
        self.reports: list[TurnReport] = []
        self.errors: list[DragomanError] = []
        self.notices: list[str] = []

    def event(self, event: model.Event) -> None:
        self.events.append(event)

    def ended(self, report: TurnReport) -> None:
        self.reports.append(report)

    def failed(self, error: DragomanError) -> None:
        self.errors.append(error)

    def notice(self, text: str) -> None:
        self.notices.append(text)


class ActedStage(CommandLoop):
    """A stage on which the test presses Ctrl-C and types, in one thread."""

    def __init__(self, *lines: str | Exception | None) -> None:
        super().__init__()
        self.lines = list(lines)

    async def line(
        self, prompt: str = "", *, question: str = "", fresh: bool = False, hidden: bool = False
    ) -> str | None:
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return line

    def press(self) -> None:
        self.interrupts += 1
        assert self._on_interrupt is not None
        self._on_interrupt(self.interrupts)


def plan(*, model: str | None = None, flag: str | None = None, mode: str | None = None) -> RunPlan:
    descriptor = Descriptor(
        name="actor",
        title="Actor",
        launch=(Launch(command=("actor", "--acp")),),
        models=Models(flag=flag),
    )
    way = LaunchSpec(command=("actor", "--acp"), descriptor=descriptor)
    return RunPlan(
        way=way,
        enforced=Enforced(way=way),
        name="actor",
        workspace=Path("/"),
        policy=ApprovalMode.APPROVE_READS,
        budgets=Budgets(),
        format="text",
        model=model,
        mode=mode,
    )
