"""The conversation API over a Codex app-server.

Owns threads as conversations and their turns: starting, steering, interrupting, and reading back
the settings that keep a thread safe. What messages mean is in `dragoman.dialects.codex.meaning`.

A prompt's answer only says that the turn has begun; the turn ends when `turn/completed` says so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Raw

from dragoman.client.codex.client import CodexClient
from dragoman.client.conversation import (
    Conversation,
    ConversationTurn,
    Opening,
    Peer,
    SessionSummary,
    absolute,
    blocks_of,
)
from dragoman.client.permissions import Answer, Denial, Question
from dragoman.dialects.codex import meaning, shapes
from dragoman.errors import DragomanError, ProtocolMismatch, Unsupported, UsageError
from dragoman.events import model
from dragoman.events.parts import (
    Audio,
    Block,
    Capabilities,
    Failure,
    Image,
    Link,
    Option,
    OtherBlock,
    PeerInfo,
    Resource,
    Text,
)
from dragoman.events.words import Outcome
from dragoman.rpc import Call
from dragoman.wire.messages import Id

INTERRUPT_TIMEOUT: Final = 10.0
"""A turn that has just ended never answers an interrupt, so nobody waits for one without end."""

MODES: Final = ("read-only", "workspace-write", "danger-full-access")
"""The sandboxes, offered as modes. Each is checked against what the server says it took."""

_POLICIES: Final = {
    "read-only": "readOnly",
    "workspace-write": "workspaceWrite",
    "danger-full-access": "dangerFullAccess",
}

_CAPABILITIES: Final = Capabilities(
    load=True,
    resume=True,
    list=True,
    fork=True,
    close=True,
    delete=True,
    image=True,
    audio=True,
    embedded=True,
    logout=False,
    steer=True,
    set_mode=True,
    set_model=True,
    cancel=True,
    permissions=True,
    prompt_acknowledged=True,
)


class CodexPeer(Peer):
    """A Codex app-server."""

    dialect = meaning.DIALECT
    capabilities = _CAPABILITIES
    auth_methods = ()

    def __init__(self, client: CodexClient, workspace: Path) -> None:
        self.client = client
        self.workspace = workspace
        self.info = PeerInfo("codex", "Codex", _version(client.server.user_agent))

    @property
    def on_event(self) -> Callable[[model.Event], None] | None:
        return self.client.on_event

    @on_event.setter
    def on_event(self, watch: Callable[[model.Event], None] | None) -> None:
        self.client.on_event = watch

    async def open(self, opening: Opening) -> CodexConversation:
        if opening.mcp_servers:
            raise Unsupported("Codex takes its MCP servers from its own configuration")
        if opening.additional_directories:
            raise Unsupported("Codex has no additional directories for a thread")
        if opening.mode is not None:
            require_mode(opening.mode)
        client = self.client
        asked = {
            "approvalPolicy": client.options.approval_policy,
            "sandbox": opening.mode or client.options.sandbox,
        }
        params: dict[str, Any] = {"cwd": str(opening.cwd), **asked}
        if opening.model is not None:
            await self._require_model(opening.model)
            params["model"] = opening.model
        method = "thread/start"
        if opening.how != "new":
            method = "thread/fork" if opening.how == "fork" else "thread/resume"
            params["threadId"] = opening.session_id
            if opening.how == "resume":
                params["excludeTurns"] = True
        else:
            params["serviceName"] = client.options.name
        answer = await client.ask(
            method, params, shapes.ThreadResponse, timeout=client.budgets.session
        )
        await self._require_safe(answer, asked)
        conversation = CodexConversation(client, answer, asked["sandbox"])
        client.adopt(conversation)
        conversation.announce(opening.how, answer)
        return conversation

    async def _require_model(self, wanted: str) -> None:
        models = await self.client.models()
        known = [entry.model for entry in models]
        # A server with a provider of its own lists no models of it; then the name is its business.
        if known and wanted not in known and wanted not in [entry.id for entry in models]:
            raise Unsupported(f"Codex has no model {wanted!r}; it has {', '.join(known)}")

    async def _require_safe(self, answer: shapes.ThreadResponse, asked: dict[str, str]) -> None:
        """Fail closed if the server did not take a setting that keeps the thread safe."""
        sandbox = answer.sandbox.get("type") if isinstance(answer.sandbox, dict) else None
        if (
            answer.approval_policy == asked["approvalPolicy"]
            and sandbox == _POLICIES[asked["sandbox"]]
        ):
            return
        await self.client.ask("thread/unsubscribe", {"threadId": answer.thread.id}, dict)
        raise ProtocolMismatch(
            f"Codex was asked for {asked} and took approvalPolicy {answer.approval_policy!r} "
            f"and sandbox {sandbox!r}: the thread is not used"
        )

    async def list_sessions(self, cwd: str | Path | None = None) -> AsyncIterator[SessionSummary]:
        params: dict[str, Any] = {} if cwd is None else {"cwd": str(absolute(cwd))}
        while True:
            page = await self.client.ask("thread/list", params, shapes.ThreadListResponse)
            for thread in page.data:
                yield SessionSummary(
                    thread.id, thread.cwd, thread.name or thread.preview, _instant(thread)
                )
            if page.next_cursor is None or page.next_cursor == params.get("cursor"):
                return
            params["cursor"] = page.next_cursor

    async def delete_session(self, session_id: str) -> None:
        await self.client.ask("thread/delete", {"threadId": session_id}, dict)

    async def aclose(self) -> None:
        await self.client.aclose()


class CodexConversation(Conversation):
    """A thread."""

    def __init__(self, client: CodexClient, answer: shapes.ThreadResponse, sandbox: str) -> None:
        self.client = client
        self.id = answer.thread.id
        self.cwd = answer.cwd
        self.model = answer.model
        self.mode = sandbox
        self.replayed: list[model.Event] = []
        self.turn: CodexTurn | None = None
        self.unusable = False
        self._overrides: dict[str, Any] = {}
        self._questions: dict[asyncio.Task[Any], Id] = {}

    # -- opening

    def announce(self, how: str, answer: shapes.ThreadResponse) -> None:
        """Say that the thread is there, its settings, and its history as a replay."""
        place = self.client.place(self.id)
        thread = answer.thread
        self.client.emit(
            model.SessionOpened(
                *place.base(f"thread/{how}", None),
                how,
                self.cwd,
                thread.name,
                self.model,
                thread.forked_from_id,
            ),
            0,
        )
        modes = tuple(Option(mode, mode, mode) for mode in MODES)
        self.client.emit(
            model.SettingsChanged(
                *place.base(f"thread/{how}", None), mode=self.mode, modes=modes, model=self.model
            ),
            0,
        )
        if how != "load":
            return
        place.replay = True
        for turn in thread.turns:
            place.turn = turn.id
            for item in turn.items:
                self.replayed += meaning.of_item(item, place, None, "thread/resume", final=True)

    # -- prompting

    def prompt(self, prompt: str | Block | Sequence[Block]) -> CodexTurn:
        blocks = blocks_of(prompt)
        return CodexTurn(self, blocks, [_input(block) for block in blocks])

    async def steer(self, prompt: str | Block | Sequence[Block]) -> None:
        """Add to the turn that is running."""
        turn = self.turn
        if turn is None or turn.id is None:
            raise UsageError("there is no running turn to steer")
        await self.client.ask(
            "turn/steer",
            {
                "threadId": self.id,
                "expectedTurnId": turn.id,
                "input": [_input(block) for block in blocks_of(prompt)],
            },
            shapes.TurnSteerResponse,
        )

    # -- settings

    async def set_mode(self, mode_id: str) -> None:
        """Choose the sandbox for the turns to come."""
        require_mode(mode_id)
        self._overrides["sandboxPolicy"] = {"type": _POLICIES[mode_id]}
        self.mode = mode_id

    async def set_model(self, model_id: str) -> None:
        known = [entry.model for entry in await self.client.models()]
        if known and model_id not in known:
            raise Unsupported(f"Codex has no model {model_id!r}; it has {', '.join(known)}")
        self._overrides["model"] = model_id
        self.model = model_id

    async def set_option(self, option_id: str, value: str | bool) -> None:
        raise Unsupported("Codex has no options of a session besides its mode and its model")

    @property
    def overrides(self) -> dict[str, Any]:
        """What the next turn is to change; the server keeps it for the turns after."""
        return self._overrides

    # -- the end

    async def close(self) -> None:
        client = self.client
        if self.turn is not None:
            self.turn.cancel()
        client.conversations.pop(self.id, None)
        if client.connection.failure is None:
            await client.ask("thread/unsubscribe", {"threadId": self.id}, dict)

    # -- for the client

    def deliver(self, event: model.Event, size: int) -> None:
        turn = self.turn
        if isinstance(event, model.InputAnswered) and event.native == "serverRequest/resolved":
            self._withdraw(event.request_id)
        if turn is not None:
            turn.happened(event, size)

    async def wait_replayed(self) -> None:
        """History is in the answer that opens a thread, so there is nothing to wait for."""

    # -- questions

    async def asking(self, work: Coroutine[Any, Any, Any], id: Id, otherwise: Any) -> Any:
        """Wait for somebody to answer; if the question is withdrawn, the answer is `otherwise`."""
        turn = self.turn
        if turn is not None and turn.cancelling:
            work.close()
            return otherwise
        task = self.client.connection.tasks.start(work, "ask")
        self._questions[task] = id
        if turn is not None:
            turn.question_opened()
        try:
            await asyncio.wait([task])
        finally:
            self._questions.pop(task, None)
            if turn is not None:
                turn.question_closed()
            if not task.done():
                task.cancel()
        return otherwise if task.cancelled() else task.result()

    def answered(self, question: Question, answer: Answer) -> None:
        if self.turn is not None and not answer.allows and answer is not Answer.CANCEL:
            self.turn.denied(Denial(question.tool_call_id, question.title, question.kind))

    def cancel_questions(self) -> None:
        for task in list(self._questions):
            task.cancel()

    def _withdraw(self, request_id: str) -> None:
        for task, id in list(self._questions.items()):
            if str(id) == request_id:
                task.cancel()


class CodexTurn(ConversationTurn):
    """A turn of a thread."""

    __slots__ = ("_blocks", "_client", "_input", "_interrupt", "_thread", "id")

    def __init__(
        self,
        thread: CodexConversation,
        blocks: Sequence[Block],
        wire: Sequence[dict[str, Any]],
    ) -> None:
        self._thread = thread
        self._client = thread.client
        self._blocks = blocks
        self._input = wire
        self._interrupt = False
        self.id: str | None = None
        super().__init__(thread, self._client.connection.flow, self._client.budgets)

    def _send(self) -> Call:
        params = {"threadId": self._thread.id, "input": self._input, **self._thread.overrides}
        call = self._client.connection.begin("turn/start", params, settle=self._begun)
        started = model.TurnStarted(
            *self._client.place(self._thread.id).base("turn/start", None), tuple(self._blocks)
        )
        self.put(started, 0)
        return call

    def _begun(self, raw: Raw | None, error: DragomanError | None) -> None:
        """The server took the prompt, or refused it."""
        if raw is not None:
            try:
                self.id = self._client.decode("turn/start", raw, shapes.TurnStartResponse).turn.id
            except DragomanError as invalid:
                error = invalid
        if error is not None:
            self.failed(error)
        elif self._interrupt:
            self._send_interrupt()

    def happened(self, event: model.Event, size: int) -> None:
        """An event of the thread; the end of this turn ends it."""
        if isinstance(event, model.TurnEnded):
            if self.id is None or event.turn == self.id:
                self.conclude(event)
            return
        if isinstance(event, model.TurnStarted):
            # Our own event has the prompt; this one tells the id when the answer is late.
            self.id = self.id or event.turn
        self.event(event, size)

    def _send_cancel(self) -> None:
        # Before the turn has an id there is nothing to interrupt yet.
        if self.id is None:
            self._interrupt = True
        else:
            self._send_interrupt()

    def _send_interrupt(self) -> None:
        self._client.connection.begin(
            "turn/interrupt",
            {"threadId": self._thread.id, "turnId": self.id},
            settle=lambda result, error: None,
            timeout=INTERRUPT_TIMEOUT,
        )

    def _ended(self, outcome: Outcome, stop: str, failure: Failure | None) -> model.TurnEnded:
        base = self._client.place(self._thread.id, self.id).base("turn/start", None)
        return model.TurnEnded(*base, outcome, stop, failure)


def require_mode(mode: str) -> None:
    if mode not in MODES:
        raise Unsupported(f"Codex has no mode {mode!r}; it has {', '.join(MODES)}")


def _version(user_agent: str) -> str | None:
    """The server only tells its version in its user agent: ``name/0.166.0 (…)``."""
    found = re.search(r"/(\d+\.\d+\.\d+\S*)", user_agent)
    return found[1] if found else None


def _instant(thread: shapes.Thread) -> str | None:
    return None if thread.updated_at is None else str(thread.updated_at)


def _input(block: Block) -> dict[str, Any]:
    """A block of a prompt as the server takes it."""
    match block:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(data=data, mime_type=mime_type):
            return {"type": "image", "url": f"data:{mime_type};base64,{data}"}
        case Audio(data=data, mime_type=mime_type):
            return {"type": "audio", "url": f"data:{mime_type};base64,{data}"}
        case Link(uri=uri, name=name):
            if uri.startswith("file://"):
                return {"type": "mention", "name": name, "path": uri.removeprefix("file://")}
            return {"type": "text", "text": f"[{name}]({uri})"}
        case Resource(uri=uri, text=text):
            if text is None:
                raise Unsupported("Codex takes no embedded bytes besides images and sound")
            return {"type": "text", "text": f"<context uri={uri!r}>\n{text}\n</context>"}
        case OtherBlock(value=value) if isinstance(value, dict):
            return value
        case _:
            raise Unsupported(f"Codex cannot take this in a prompt: {type(block).__name__}")
