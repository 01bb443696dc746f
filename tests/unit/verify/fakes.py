"""A climb without processes, for tests of single rungs: the peer does what the test says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from dragoman.catalogue.card import RungVerdict
from dragoman.catalogue.launch import LaunchSpec
from dragoman.client.conversation import Conversation, Peer
from dragoman.client.permissions import Question
from dragoman.client.results import Result
from dragoman.events import model
from dragoman.events.parts import Capabilities
from dragoman.events.words import Outcome, Role
from dragoman.verify.canary_prompts import Canaries
from dragoman.verify.environment import PeerEnvironment
from dragoman.verify.rung import RungFinding
from dragoman.verify.time_limits import LadderLimits
from dragoman.verify.verification import ConnectedPeer, TurnObservation, Verification

SOURCE = model.Source("acp", "c")

OK = Result(Outcome.OK, "hello", "end_turn")
QUESTION = Question("s-1", "c-1", "write", "edit", (), None)


def told(
    result: Result = OK, *events: model.Event, after: tuple[model.Event, ...] = ()
) -> TurnObservation:
    return TurnObservation(result, list(events), list(after))


def piece(text: str = "x", line: bytes = b"{}") -> model.MessageDelta:
    native = "session/update"
    return model.MessageDelta(SOURCE, 1, "s-1", "t1", native, line, False, Role.AGENT, text)


class FakeClimb(Verification):
    """Turns are played by `act`, which is handed the prompt and the climb."""

    act: Callable[[str, FakeClimb], TurnObservation]
    client: Any
    replayed: tuple[Any, ...]
    reopening: Exception | None
    implicit: bool = False
    ability: Capabilities

    async def peer(self) -> Peer:
        made = SimpleNamespace(
            dialect="acp", client=self.client, capabilities=self.ability, auth_methods=()
        )
        return cast(Peer, made)

    async def successor(self) -> ConnectedPeer:
        return ConnectedPeer(await self.peer(), cast(Any, None), 0.0)

    async def conversation(self) -> Conversation:
        return cast(Conversation, SimpleNamespace(id="s-1", session=None))

    async def open(self, peer: Peer, **options: Any) -> Conversation:
        if self.reopening is not None:
            raise self.reopening

        async def nothing() -> None: ...

        made = SimpleNamespace(
            id="s-2",
            implicit=self.implicit,
            replayed=self.replayed,
            wait_replayed=nothing,
            close=nothing,
        )
        return cast(Conversation, made)

    async def take_turn(self, conversation: Conversation, prompt: str) -> TurnObservation:
        return self.act(prompt, self)

    def ask(self, question: Question = QUESTION) -> bool:
        """The peer asks for permission; whether it got it."""
        return bool(self._decide(question).allows)


def climbing(workspace: Path, *, way: LaunchSpec | None = None, **fields: Any) -> FakeClimb:
    marks = workspace / "marks"
    marks.mkdir(exist_ok=True)
    where = PeerEnvironment(workspace=workspace, marks=marks, env={}, inherit=())
    given = {"turns": True, "careful": False, "platform": "linux", "canaries": Canaries(), **fields}
    made = FakeClimb(
        way=way or LaunchSpec(command=("x",)),
        surroundings=where,
        limits=LadderLimits(answer=1, tail=0.01, mcp_start=0.01),
        **given,
    )
    made.act = lambda prompt, climb: told()
    settings = SimpleNamespace(half_duplex=False)
    made.client = SimpleNamespace(connection=SimpleNamespace(settings=settings))
    made.replayed = ()
    made.reopening = None
    made.ability = Capabilities(load=True, resume=True, list=True)
    made.session_id = "s-1"
    made.verdicts["echo"] = RungVerdict.PASS
    return made


def verdict(finding: RungFinding) -> tuple[RungVerdict, dict[str, Any]]:
    """The two things of a finding that a program acts on."""
    return finding.verdict, dict(finding.facts)


__all__ = ["OK", "FakeClimb", "climbing", "piece", "told", "verdict"]
