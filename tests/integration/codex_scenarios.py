"""Conversations with Codex that are recorded once and replayed in every test run.

Owns what is said in each, so that scripts/record_codex.py, which plays them with the real program,
and test_codex_replay.py, which plays them with a recording, say the same. What has to come out is
in the test.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dragoman.client.codex import CodexConversation, CodexOptions, CodexPeer
from dragoman.client.conversation import ConversationTurn
from dragoman.client.permissions import (
    Answer,
    Decision,
    Permit,
    Question,
    approve_all,
    deny_all,
)
from dragoman.client.results import Result
from dragoman.dialects.codex import shapes
from dragoman.events import model


@dataclass(slots=True)
class Stage:
    """What a scenario is played with."""

    peer: CodexPeer
    release: Callable[[], None] = lambda: None
    """Lets the model go on that holds its answer; a recording goes on by itself."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    results: list[Result] = field(default_factory=list)

    async def play(self, talk: CodexConversation, prompt: str) -> None:
        async with talk.prompt(prompt) as turn:
            await turn.wait()
        self.results.append(turn.result)


Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One conversation."""

    play: Play
    permit: Permit = approve_all
    config: str = ""
    """Added to Codex's configuration."""

    def options(
        self,
        stage: Callable[[], Stage],
        on_event: Callable[[model.Event], None] | None = None,
    ) -> CodexOptions:
        async def permit(question: Question) -> Decision:
            stage().asked.set()
            answer = self.permit(question)
            return await answer if inspect.isawaitable(answer) else answer

        return CodexOptions(
            permit=permit,
            on_event=on_event,
            answer_questions=_blue,
            approval_policy="untrusted",
            sandbox="workspace-write",
        )


async def _blue(asked: shapes.UserInputRequest) -> dict[str, Sequence[str]]:
    return {"colour": ["blue"]}


async def _never(question: Question) -> Answer:
    await asyncio.Event().wait()
    raise AssertionError


def saying(*prompts: str) -> Play:
    """A new thread with these prompts."""

    async def play(stage: Stage) -> None:
        async with stage.peer.session() as talk:
            for prompt in prompts:
                await stage.play(_thread(talk), prompt)

    return play


def _thread(talk: Any) -> CodexConversation:
    assert isinstance(talk, CodexConversation)
    return talk


async def _first_words(turn: ConversationTurn) -> None:
    async for event in turn:
        if isinstance(event, model.MessageDelta):
            return


async def _steer(stage: Stage) -> None:
    async with stage.peer.session() as talk:
        async with talk.prompt("HOLD it") as turn:
            await _first_words(turn)
            await _thread(talk).steer("and this")
            stage.release()
            stage.results.append(await turn.wait())


async def _interrupt(stage: Stage) -> None:
    async with stage.peer.session() as talk:
        async with talk.prompt("SLOW") as turn:
            await _first_words(turn)
            turn.cancel()
            stage.results.append(await turn.wait())
        await stage.play(_thread(talk), "again")


async def _interrupt_question(stage: Stage) -> None:
    async with stage.peer.session() as talk:
        async with talk.prompt("SHELL:touch made.txt") as turn:
            await stage.asked.wait()
            turn.cancel()
            stage.results.append(await turn.wait())


async def _load(stage: Stage) -> None:
    async with stage.peer.session() as talk:
        await stage.play(_thread(talk), "THINK first\nWRITE:made.txt:text")
    async with stage.peer.session(load=talk.id) as again:
        await stage.play(_thread(again), "second")
    async with stage.peer.session(fork=talk.id) as other:
        assert other.id != talk.id
    assert [session.id async for session in stage.peer.list_sessions()]


QUESTION = (
    'TOOL:request_user_input:{"questions":[{"id":"colour","header":"Colour","question":"Which?",'
    '"options":[{"label":"blue","description":"b"},{"label":"red","description":"r"}]}]}'
)

SCENARIOS = {
    "text": Scenario(saying("THINK please", "CHUNKS:3")),
    "command": Scenario(saying("SHELL:touch made.txt && echo done-it")),
    "declined": Scenario(saying("SHELL:touch made.txt", "WRITE:a.txt:text"), deny_all),
    "file": Scenario(saying("WRITE:made.txt:some content")),
    "plan": Scenario(saying("PLAN:look;change"), config="[tools.update_plan]\nenabled = true\n"),
    "question": Scenario(
        saying(QUESTION), config="[features]\ndefault_mode_request_user_input = true\n"
    ),
    "steer": Scenario(_steer),
    "interrupt": Scenario(_interrupt),
    "interrupt_question": Scenario(_interrupt_question, _never),
    "errors": Scenario(saying("HTTP:400", "HTTP:500", "HTTP:401", "again")),
    "load": Scenario(_load),
}
