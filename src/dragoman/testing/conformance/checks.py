"""Define checks, and the `Lab` in which agent checks run.

The `Lab` owns the agent processes. Harmless checks share one process and one session, because real
agents take seconds to start. A check that may break an agent gets its own process. The checks are
in `handshake`, `messages`, `sessions` and `turns`; `agents` runs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dragoman.rpc.tasks import all_ended
from dragoman.testing.conformance.conversation import Conversation, Message, Violation, refuse
from dragoman.testing.conformance.manifest import DEMANDED, Side, strictest
from dragoman.testing.conformance.report import Finding, Verdict
from dragoman.transports.base import Stream
from dragoman.wire import codes

PROTOCOL_VERSION: Final = 1

DEFAULT_PROMPT: Final = "Say OK"
DEFAULT_LONG_PROMPT: Final = (
    "Count from 1 to 500 in words, one number per line. Use no tools and do not shorten it."
)
"""A prompt to cancel: it must keep a model busy for some seconds."""

OpenStream: TypeAlias = Callable[[], Awaitable[Stream]]
"""Starts a new agent and returns the stream to it."""


class Skip(Exception):
    """Raised by a check that does not apply or cannot be done."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check, and the requirements it covers."""

    name: str
    side: Side
    ids: tuple[str, ...]
    says: str
    advisory: bool = False
    """Whether a violation is only a warning although one of its requirements is mandatory, because
    the protocol does not define the exact behaviour in this case."""

    @property
    def level(self) -> str:
        """The strictest level of its requirements, but at most SHOULD if the check is advisory."""
        level = strictest(self.ids)
        return "SHOULD" if self.advisory and level in DEMANDED else level

    def finding(
        self, verdict: Verdict, *, reason: str = "", evidence: str = "", seconds: float = 0.0
    ) -> Finding:
        """Return a finding of this check. A failure becomes a warning if the check's level is not
        mandatory."""
        if verdict is Verdict.FAILED and self.level not in DEMANDED:
            verdict = Verdict.WARNED
        return Finding(
            check=self.name,
            ids=self.ids,
            level=self.level,
            verdict=verdict,
            says=self.says,
            reason=reason,
            evidence=evidence,
            seconds=round(seconds, 4),
        )


Run: TypeAlias = Callable[["Lab"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AgentCheck:
    """A check with the code that runs it against an agent."""

    check: Check
    run: Run
    turns: bool
    """Whether the check makes the agent call its model."""


def agent_check(
    *ids: str, turns: bool = False, advisory: bool = False
) -> Callable[[Run], AgentCheck]:
    """Decorator that turns a function into a check of the requirements `ids`. The name of the check
    is that of the function, and its expectation is the function's docstring.

    The function returns if the check passes, and raises `Violation` or `Skip` otherwise. For
    `turns` and `advisory`, see `AgentCheck` and `Check`.
    """

    def declare(run: Run) -> AgentCheck:
        says = " ".join((run.__doc__ or "").split())
        name: str = getattr(run, "__name__", "")
        return AgentCheck(Check(name, "agent", ids, says, advisory), run, turns)

    return declare


def refuse_everything(request: Message) -> Message:
    """Respond like a client that offers nothing: cancel permission requests, refuse the rest."""
    if request["method"] == "session/request_permission":
        return {"result": {"outcome": {"outcome": "cancelled"}}}
    return refuse()


class Lab:
    """The agent under test: its processes, handshake and sessions."""

    def __init__(
        self,
        open_stream: OpenStream,
        *,
        cwd: str,
        timeout: float,
        prompt: str = DEFAULT_PROMPT,
        long_prompt: str = DEFAULT_LONG_PROMPT,
        turn_timeout: float | None = None,
    ) -> None:
        self._open_stream = open_stream
        self.cwd = cwd
        self.timeout = timeout
        self.prompt = prompt
        self.long_prompt = long_prompt
        self.turn_timeout = timeout if turn_timeout is None else turn_timeout
        self.conversations: list[Conversation] = []
        """Every conversation of the run, including finished ones."""
        self.hello: Message = {}
        """The agent's response to the first handshake."""
        self.opened: Message = {}
        """The agent's response to the first `session/new`."""
        self.turned: tuple[str, str] | None = None
        """The session and the prompt of a completed turn, for checks that load it."""
        self._own: list[Conversation] = []
        self._shared: Conversation | None = None
        self._session: str | None = None
        self._broken: str | None = None

    # -- processes

    async def fresh(self) -> Conversation:
        """Start a separate agent process for this check, and return the conversation with it,
        before the handshake."""
        conversation = await self._start()
        self._own.append(conversation)
        return conversation

    async def fresh_ready(self, capabilities: Message | None = None) -> Conversation:
        """Start a separate agent process for this check, and return the conversation with it, after
        the handshake."""
        conversation = await self.fresh()
        await self.greet(conversation, capabilities)
        return conversation

    async def ready(self) -> Conversation:
        """Return the conversation with the shared process, after the handshake. Starts the process
        if there is none or it has died. Raises `Violation` if its handshake fails, and `Skip` if an
        earlier one did."""
        if self._broken is not None:
            raise Skip(self._broken)
        if self._shared is None or self._shared.failure is not None:
            self._session = None
            conversation = await self._start()
            try:
                hello = await self.greet(conversation)
            except Violation as error:
                self._broken = f"the handshake failed: {error.reason}"
                await conversation.aclose()
                raise
            self.hello = self.hello or hello
            self._shared = conversation
        return self._shared

    async def greet(
        self, conversation: Conversation, capabilities: Message | None = None
    ) -> Message:
        """Do the handshake as a client with these capabilities, by default with none, and return
        the result. Raises `Violation` if it fails."""
        conversation.offers_services = bool(capabilities)
        answer = await conversation.ask("initialize", hello(capabilities=capabilities))
        return answer.fields()

    async def release(self) -> None:
        """End the separate processes of the last check."""
        own, self._own = self._own, []
        await all_ended(*(conversation.aclose() for conversation in own))

    async def aclose(self) -> None:
        """End all processes, including those in the middle of a handshake."""
        self._own = []
        await all_ended(*(conversation.aclose() for conversation in self.conversations))

    async def _start(self) -> Conversation:
        conversation = Conversation(
            await self._open_stream(), timeout=self.timeout, respond=refuse_everything
        )
        self.conversations.append(conversation)
        return conversation

    # -- capabilities of the agent

    async def capabilities(self) -> Message:
        """Return the capabilities that the agent advertised."""
        await self.ready()
        found = self.hello.get("agentCapabilities")
        return found if isinstance(found, dict) else {}

    async def can(self, path: str) -> bool:
        """Return whether a capability, given by its dotted name, was advertised: as true or an
        object."""
        value: Any = await self.capabilities()
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value is True or isinstance(value, dict)

    async def require(self, path: str) -> None:
        if not await self.can(path):
            raise Skip(f"it does not advertise {path}")

    # -- sessions

    async def new_session(self, conversation: Conversation) -> Message:
        """Open a session and return the result. Raises `Skip` if a login is required, and
        `Violation` if the request is refused or the result has no session id."""
        answer = await conversation.ask("session/new", {"cwd": self.cwd, "mcpServers": []})
        if answer.code == codes.AUTH_REQUIRED:
            raise Skip("it requires a login to open a session")
        fields = answer.fields()
        if not isinstance(fields.get("sessionId"), str):
            raise Violation("a new session has no id", answer.message)
        self.opened = self.opened or fields
        return fields

    async def session(self) -> tuple[Conversation, str]:
        """Return the conversation with the shared process, and the id of a session in it, which
        the first call opens. Raises as `ready` and `new_session` do."""
        conversation = await self.ready()
        if self._session is None:
            opened = await self.new_session(conversation)
            self._session = str(opened["sessionId"])
        return conversation, self._session


def hello(*, version: object = PROTOCOL_VERSION, capabilities: Message | None = None) -> Message:
    """Return the params of `initialize`."""
    return {
        "protocolVersion": version,
        "clientCapabilities": {} if capabilities is None else capabilities,
        "clientInfo": {"name": "dragoman-conformance", "version": "1"},
    }


def expect(condition: object, reason: str, evidence: object = "") -> None:
    """Raise `Violation` if the condition is false."""
    if not condition:
        raise Violation(reason, evidence)
