"""Questions of an agent that wait for an answer from a person or a policy.

If the turn is cancelled or the agent withdraws them, they are answered as cancelled at once.
`RequestNames` gives them ids that do not repeat. This module does not use the content of questions
and answers.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Hashable
from typing import Any, Final, TypeVar

from dragoman.client.turns import BaseTurn
from dragoman.rpc.tasks import await_callback

T = TypeVar("T")

MAX_NAMES: Final = 4096
"""Maximum number of request ids to remember on a connection. An agent that reuses ids has few of
them."""


class RequestNames:
    """Names the requests of one connection in events: an agent may reuse the id of a request that
    was answered."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        """How often each id was used, in the order in which the ids were last used."""

    def __len__(self) -> int:
        return len(self._times)

    def new(self, id: str) -> str:
        """Return the name of a new request with this id."""
        self._times[id] = self._times.pop(id, 0) + 1
        if len(self._times) > MAX_NAMES:
            del self._times[next(iter(self._times))]
        return self.newest(id)

    def newest(self, id: str) -> str:
        """Return the name of the newest request with this id."""
        times = self._times.get(id, 1)
        return id if times < 2 else f"{id}#{times}"


class OpenQuestion:
    """One open question of the agent, in the task that answers it."""

    __slots__ = ("_called_off", "_task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._called_off = False

    def call_off(self) -> None:
        """Cancel the task that waits for the answer, once."""
        if not self._called_off:
            self._called_off = True
            self._task.cancel()

    def close(self) -> bool:
        """Undo the cancellation by `call_off`. Returns whether the task is cancelled for
        another reason."""
        if self._called_off:
            self._task.uncancel()
        return self._task.cancelling() > 0


class OpenQuestions:
    """The open questions of one session."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[Hashable, OpenQuestion | None] = {}
        """Open questions by name; one without a name is its own key. The value is None until the
        task runs."""

    def __len__(self) -> int:
        return len(self._open)

    async def ask(
        self,
        turn: BaseTurn[Any, Any] | None,
        asking: Awaitable[T],
        cancelled: T,
        *,
        name: Hashable = None,
    ) -> T:
        """Wait for the answer from `asking`, or return `cancelled` at once if the question is
        withdrawn or called off, or if `turn` is being cancelled.

        While the question is open, the agent's silence does not count in `turn`. A named question
        must have been announced; otherwise it counts as withdrawn. Raises `RuntimeError` if
        `asking` raises `CancelledError` although nothing cancelled this task.
        """
        if (turn is not None and turn.cancelling) or (name is not None and name not in self._open):
            # The turn is being cancelled, or the question was withdrawn before this started.
            self._open.pop(name, None)
            if inspect.iscoroutine(asking):
                asking.close()
            return cancelled
        question = OpenQuestion()
        key = question if name is None else name
        self._open[key] = question
        if turn is not None:
            turn.question_opened()
        try:
            answer = await await_callback(asking)
        except asyncio.CancelledError:
            answer = cancelled
            if question.close():
                raise
        else:
            question.close()
        finally:
            self._open.pop(key, None)
            if turn is not None:
                turn.question_closed()
        return answer

    def announce(self, name: Hashable) -> None:
        """Register a question on arrival.

        The task that answers it starts after everything that arrived in the same read was handled,
        which may include the withdrawal of the question.
        """
        self._open[name] = None

    def withdraw(self, name: Hashable) -> None:
        """Called when the agent withdraws the question."""
        question = self._open.pop(name, None)
        if question is not None:
            question.call_off()

    def call_off(self) -> None:
        """Answer as cancelled every open question whose task has started. `ask` does so for the
        others, if their turn is being cancelled when it starts."""
        for question in tuple(self._open.values()):
            if question is not None:
                question.call_off()
