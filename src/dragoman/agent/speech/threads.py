"""The agent's side of the threads dialect.

Keeps the history of one client's threads, because the response to a request to resume a thread
contains it. A failed turn is answered with a result of the status ``error``, not with a JSON-RPC
error. `dialects.legacy.threads` has the message schemas.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.agent.speech.base import DocumentSpeech, outcome_of, usage_of
from dragoman.dialects.acp import v1 as acp
from dragoman.dialects.legacy import threads
from dragoman.errors import RemoteError
from dragoman.errors.usage import shown
from dragoman.events.parts import Text
from dragoman.events.words import Outcome, Role
from dragoman.events.words import outcome_of as outcome_of_stop
from dragoman.wire import codes

if TYPE_CHECKING:
    from dragoman.agent.server import Server


class ThreadsSpeech(DocumentSpeech):
    """Serves one client in the `threads` dialect."""

    dialect = threads.DIALECT

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._turns = itertools.count(1)
        self._history: dict[str, list[threads.Result]] = {}

    def new_id(self) -> str:
        return f"thread-{super().new_id()}"

    async def _initialize(self, params: threads.Service) -> threads.Thread:
        self.greeted = True
        return await self._start(params)

    async def _start(self, params: threads.Service) -> threads.Thread:
        self.greet(name=params.service_name)
        thread_id = (await self.new_session()).session_id
        self._history[thread_id] = []
        return threads.Thread(thread_id)

    async def _resume(self, params: threads.Thread) -> threads.State:
        thread_id = params.thread_id
        history = self._history.get(thread_id)
        if history is None:
            self.greet()
            history = self._history[thread_id] = await self._load(thread_id)
        last = history[-1] if history else None
        return threads.State(thread_id, history, last_result=last)

    async def _load(self, thread_id: str) -> list[threads.Result]:
        missing = f"there is no thread {shown(thread_id)}"
        messages = await self.reopen(
            thread_id, RemoteError(codes.NOT_FOUND, missing, {"threadId": thread_id})
        )
        # A thread that the agent can only resume has no history.
        return _turns(thread_id, messages) if self.server.can(acp.SESSION_LOAD) else []

    def _turn(self, params: threads.Turn) -> Coroutine[Any, Any, threads.Result]:
        work = self.prompt(params.thread_id, [Text(params.text)])
        writer = threads.AgentEnd(params.thread_id, f"turn-{next(self._turns)}")
        self.writers[params.thread_id] = writer
        return self._result(work, writer, params.text)

    async def _result(
        self, work: Coroutine[Any, Any, acp.PromptResponse], writer: threads.AgentEnd, asked: str
    ) -> threads.Result:
        ended = await outcome_of(work)
        result = threads.Result(writer.thread_id, writer.turn_id)
        if isinstance(ended, RemoteError):
            error = threads.Error(threads.error_code(ended.code), ended.message)
            result = replace(result, status="error", error=error)
        elif outcome_of_stop(ended.stop_reason) is not Outcome.OK:
            # A turn in this dialect ends in one of two ways: complete, or an error with a code.
            error = threads.Error(ended.stop_reason, f"the turn ended: {ended.stop_reason}")
            result = replace(result, status="error", error=error, content=writer.text or None)
        else:
            usage = usage_of(ended)
            result = replace(result, status="complete", content=writer.text, usage=usage)
        self._history.setdefault(writer.thread_id, []).append(replace(result, text=asked))
        return result

    requests = {
        threads.INITIALIZE: (threads.Service, _initialize),
        threads.START: (threads.Service, _start),
        threads.RESUME: (threads.Thread, _resume),
        threads.TURN: (threads.Turn, _turn),
    }


def _turns(thread_id: str, messages: list[tuple[Role, str]]) -> list[threads.Result]:
    """Return a replayed history, split into turns: each begins with a prompt."""
    turns: list[threads.Result] = []
    for role, text in messages:
        if role is Role.USER or not turns:
            turn_id = f"turn-0-{len(turns) + 1}"
            turns.append(threads.Result(thread_id, turn_id, "complete"))
        said = {"text": text} if role is Role.USER else {"content": text}
        turns[-1] = replace(turns[-1], **said)
    return turns
