"""Named timeouts for everything a client waits for.

Has the numbers with their reasons, and the watchdog that enforces them during a turn. The code that
runs a turn reports signs of life to the watchdog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from dragoman.errors import UsageError
from dragoman.events.words import ToolStatus


class Budgets(Struct, frozen=True, kw_only=True):
    """Time limits in seconds; None means no limit.

    Only `first_event`, `silence`, `tool_silence` and `total` may be None.
    """

    initialize: float = 30.0
    """The response to the handshake. Real agents need up to 12 s when the machine is busy."""
    session: float = 60.0
    """Opening a session, during which agents connect to their MCP servers."""
    request: float = 60.0
    """Any other single request, such as setting a mode."""
    first_event: float | None = 180.0
    """From the prompt to the first event. Agents send nothing while they retry a model call."""
    silence: float | None = 120.0
    """Between two events in a turn. The clock stops while the agent waits for our answer."""
    tool_silence: float | None = 1800.0
    """Between two events while a tool call runs, if longer than `silence`. Agents send nothing
    while a test suite or a build runs, and most stop their own commands within ten minutes."""
    total: float | None = None
    """The whole turn. Good work may take hours, so there is no default."""
    cancel_grace: float = 10.0
    """From a cancellation to the end of the turn, before the turn is ended without the agent."""
    expired_grace: float = 1.0
    """Like `cancel_grace`, after `total` ran out. Together with the time to end the program it is
    below two seconds, so that the requested time limit is exceeded only slightly."""
    silent_grace: float = 3.0
    """Like `cancel_grace`, after another budget ran out: an agent that retries silently, such as
    qwen, takes a second or two to respond to a cancellation."""
    replay_quiet: float = 0.3
    """Quiet time after which a replay that continues after the response counts as over."""
    replay_total: float = 10.0
    """Maximum wait for the end of a replay, from the response on."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            may_be_none = name in ("first_event", "silence", "tool_silence", "total")
            if value is None and may_be_none:
                continue
            if not isinstance(value, int | float) or isinstance(value, bool) or value != value:
                raise UsageError(f"{name} takes a number of seconds, not {value!r}")
            if value < 0:
                raise UsageError(f"{name} must not be negative: {value!r}")
            if value == 0 and may_be_none:
                raise UsageError(f"{name} cannot be 0; to wait forever, pass None")

    def grace_after(self, budget: str) -> float:
        """Return how long to wait for the end of a turn that was cancelled because a budget ran
        out."""
        grace = self.expired_grace if budget == "total" else self.silent_grace
        return min(self.cancel_grace, grace)


CHECKS_PER_BUDGET: Final = 8
"""The watchdog checks this often within its smallest budget, so it is at most an eighth late,
and a sign of life costs one addition instead of a clock read."""


class Watchdog:
    """Enforces the budgets of one turn. When one runs out, calls `expired` once with its name and
    size.

    While `held` returns true, the agent is silent only because of us, for example because we do not
    read from it, and its silence does not count. `held` is called at every check, and may add signs
    of life.
    """

    __slots__ = (
        "_budgets",
        "_expired",
        "_held",
        "_interval",
        "_life",
        "_loop",
        "_quiet_since",
        "_seen",
        "_started_at",
        "_timer",
        "_tool_calls",
        "open_questions",
        "signs",
    )

    def __init__(
        self,
        budgets: Budgets,
        expired: Callable[[str, float], None],
        held: Callable[[], bool] = lambda: False,
    ) -> None:
        self._budgets = budgets
        self._expired = expired
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._started_at = self._quiet_since = self._loop.time()
        self._seen = 0
        self._life = False
        self.signs = 0
        """Signs of life so far; callers add to it."""
        self.open_questions = 0
        """Number of the agent's open questions. While there are any, the agent waits for us."""
        self._tool_calls: dict[str, bool] = {}
        """The tool calls of the turn, and whether each is still running."""
        limits = [
            limit
            for limit in (budgets.first_event, budgets.silence, budgets.total)
            if limit is not None
        ]
        self._interval = min(limits, default=0.0) / CHECKS_PER_BUDGET

    def tool_changed(self, tool_id: str, status: ToolStatus | None) -> None:
        """Record a report about a tool call; `status` is None if the report did not include it. A
        call runs from its first report until its status says that it is over."""
        if status is not None:
            self._tool_calls[tool_id] = not status.over
        else:
            self._tool_calls.setdefault(tool_id, True)

    def start(self) -> None:
        self._started_at = self._quiet_since = self._loop.time()
        self._look_later(self._started_at)

    def _look_later(self, now: float) -> None:
        """Check again after an interval, or at the turn's deadline if that is sooner."""
        if self._interval <= 0:
            return
        delay = self._interval
        if self._budgets.total is not None:
            delay = min(delay, max(self._started_at + self._budgets.total - now, 0.0))
        self._timer = self._loop.call_later(delay, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now = self._loop.time()
        held = self._held()
        if self.signs != self._seen or self.open_questions or held:
            self._life = self._life or self.signs != self._seen
            self._seen = self.signs
            self._quiet_since = now
        budgets = self._budgets
        name, limit = self._quiet_limit()
        if budgets.total is not None and now - self._started_at >= budgets.total:
            self._give_up("total", budgets.total)
        elif limit is not None and now - self._quiet_since >= limit:
            self._give_up(name, limit)
        else:
            self._look_later(now)

    def _quiet_limit(self) -> tuple[str, float | None]:
        """Return the budget that limits the agent's silence now, and its size."""
        budgets = self._budgets
        if not self._life:
            return "first_event", budgets.first_event
        silence, longer = budgets.silence, budgets.tool_silence
        if silence is not None and any(self._tool_calls.values()):
            if longer is None or longer > silence:
                return "tool_silence", longer
        return "silence", silence

    def _give_up(self, name: str, limit: float) -> None:
        self._timer = None
        self._expired(name, limit)
