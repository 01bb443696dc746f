"""A thread as a conversation.

Keeps the state of one thread: its settings, its history, the open questions, and the running turn,
and converts a prompt to the input of a turn. `turn` runs a turn; `peer` opens a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from dragoman.client.base import EventConversation
from dragoman.client.codex.client import CodexClient
from dragoman.client.codex.turn import CodexTurn
from dragoman.client.conversation import blocks_of
from dragoman.dialects.codex import shapes, translate
from dragoman.errors import (
    DragomanError,
    ProtocolMismatch,
    Unsupported,
    UsageError,
)
from dragoman.errors.usage import no_such
from dragoman.events import model
from dragoman.events.parts import (
    Audio,
    Block,
    Choice,
    FileChange,
    Image,
    Link,
    OtherBlock,
    Resource,
    SessionOption,
    Text,
    Usage,
)
from dragoman.events.words import ChangeStage
from dragoman.rpc.calls import not_sent

log: Final = logging.getLogger("dragoman.client")

CLOSE_TIMEOUT: Final = 5.0
"""Timeout for unsubscribing from a thread, which is only a courtesy to the server."""

MODEL_OPTION: Final = "model"
"""The id of the option that chooses the model."""

OPENAI: Final = "openai"
"""The provider whose models the server lists. It does not know the models of other providers."""


class CodexConversation(EventConversation):
    """A session with Codex: one thread of the app-server."""

    client: CodexClient
    turn: CodexTurn | None

    def __init__(
        self,
        client: CodexClient,
        answer: shapes.ThreadResponse,
        settings: dict[str, str],
        models: Sequence[shapes.Model] = (),
    ) -> None:
        super().__init__(client, answer.thread.id)
        self._listed = models
        self.cwd = answer.cwd
        self.model = answer.model
        self.provider = answer.model_provider
        self.mode = settings["sandbox"]
        self.policy = settings["approvalPolicy"]
        self.used: Usage | None = None
        """Total usage of the thread so far, over all turns."""
        self._wanted: dict[str, Any] = {}
        self._in_force = (self.mode, self.policy)
        self._unproved = False
        self._titles: dict[str, str] = {}
        self._changes: dict[str, tuple[FileChange, ...]] = {}

    # -- opening

    def announce(self, how: str, answer: shapes.ThreadResponse) -> None:
        """Report that the thread is open, and its settings; after a load, replay its history."""
        place = self.client.place(self.id)
        thread = answer.thread
        native = f"thread/{how}"
        opened = model.SessionOpened(
            *place.base(native, None),
            how,
            self.cwd,
            thread.name,
            self.model,
            thread.forked_from_id,
        )
        self.client.deliver(opened, 0)
        self._tell_settings(native)
        if how != "load":
            return
        place.replay = True
        for turn in thread.turns:
            for event in translate.of_turn(turn, place, native):
                self.replayed.append(event)
                self.client.emit(event)

    def _model_option(self) -> SessionOption:
        """Return the option that chooses the model. A provider other than OpenAI has models that
        the server does not list, so any name is accepted there."""
        known = [Choice(each.model, each.display_name) for each in self._listed]
        if all(choice.value != self.model for choice in known):
            known.insert(0, Choice(self.model, self.model))
        return SessionOption(
            MODEL_OPTION,
            "Model",
            self.model,
            tuple(known),
            "model",
            open_ended=self.provider != OPENAI or not self._listed,
        )

    def _tell_settings(self, native: str) -> None:
        told = model.SettingsChanged(
            *self.client.place(self.id).base(native, None),
            options=(translate.policy_option(self.policy), self._model_option()),
            mode=self.mode,
            modes=tuple(SessionOption(mode, mode, mode) for mode in translate.MODES),
            model=self.model,
        )
        self.client.deliver(told, 0)

    # -- prompting

    def prompt(self, prompt: str | Block | Sequence[Block]) -> CodexTurn:
        blocks = blocks_of(prompt)
        return CodexTurn(self, blocks, input_of(blocks))

    async def steer(self, prompt: str | Block | Sequence[Block]) -> None:
        """Add input to the running turn, once the server has started it. Raises `UsageError` if no
        turn is running."""
        wire = input_of(blocks_of(prompt))
        turn = self.turn
        if turn is not None:
            try:
                async with asyncio.timeout(self.client.budgets.request):
                    await turn.wait_active()
            except TimeoutError:
                raise not_sent(
                    "turn/steer", self.client.budgets.request, "the turn has not started"
                ) from None
        if turn is None or turn is not self.turn or turn.cancelling:
            raise UsageError("there is no running turn to steer")
        params = {"threadId": self.id, "expectedTurnId": turn.id, "input": wire}
        await self.client.ask("turn/steer", params, shapes.TurnSteerResponse)

    # -- settings

    async def set_mode(self, mode_id: str) -> None:
        """Set the sandbox for later turns."""
        require_mode(mode_id)
        self._wanted["sandboxPolicy"] = {"type": translate.MODES[mode_id]}
        self.mode = mode_id
        self._tell_settings("turn/start")

    async def set_model(self, model_id: str) -> None:
        """Set the model for later turns."""
        if self.provider == OPENAI:
            await require_model(self.client, model_id)
        self._wanted["model"] = model_id
        self.model = model_id
        self._tell_settings("turn/start")

    async def set_option(self, option_id: str, value: str | bool) -> None:
        """Set the approval policy or the model for later turns."""
        if option_id == MODEL_OPTION and isinstance(value, str):
            await self.set_model(value)
            return
        if option_id != translate.POLICY_OPTION:
            raise Unsupported(f"Codex has no option {option_id!r}")
        self.policy = require_policy(value)
        self._wanted["approvalPolicy"] = self.policy
        self._tell_settings("turn/start")

    async def rename(self, title: str) -> None:
        """Rename the thread."""
        await self.client.ask("thread/name/set", {"threadId": self.id, "name": title}, dict)

    def overrides(self) -> dict[str, Any]:
        """Return the settings to send with the next turn; the server keeps them for later turns."""
        return dict(self._wanted)

    def took(self, sent: dict[str, Any]) -> None:
        """Record that a turn has started with these settings, which came from `overrides`."""
        words = {word: mode for mode, word in translate.MODES.items()}
        mode, policy = self._in_force
        if "sandboxPolicy" in sent:
            mode = words[sent["sandboxPolicy"]["type"]]
        self._in_force = (mode, sent.get("approvalPolicy", policy))
        for name, value in sent.items():
            if self._wanted.get(name) == value:
                del self._wanted[name]
        if "sandboxPolicy" in sent or "approvalPolicy" in sent:
            self._unproved = True

    async def wait_replayed(self) -> None:
        """Read back the safety settings before a turn, if an earlier turn changed them. Raises
        `ProtocolMismatch` if the server does not apply them; the thread is then unusable.

        Resuming an open thread changes nothing and returns its settings, but only while no turn
        runs. There is no history to wait for: it is in the response that opens a thread.
        """
        if not self._unproved or self.turn is not None or self.unusable:
            return
        params = {"threadId": self.id, "excludeTurns": True}
        answer = await self.client.ask("thread/resume", params, shapes.ThreadResponse)
        try:
            require_safe(answer, *self._in_force)
        except ProtocolMismatch:
            self.unusable = True
            raise
        self._unproved = False

    def _check(self, told: model.SettingsChanged) -> None:
        """Abandon the thread if the server reports a mode or policy that was not requested. It
        reports them only with the option `experimental`."""
        options = told.options if isinstance(told.options, tuple) else ()
        policy = next((option.value for option in options), None)
        if (told.mode, policy) in (self._in_force, (self.mode, self.policy)):
            return
        self.unusable = True
        if self.turn is not None:
            what = f"the sandbox {told.mode!r} and the approval policy {policy!r}"
            self.turn.give_up(ProtocolMismatch(f"Codex uses {what}, but others were requested"))

    # -- the end

    async def close(self) -> None:
        # A prompt from now on would run without its events.
        self.unusable = True
        try:
            if self.turn is not None:
                turn = self.turn
                turn.cancel()
                await turn.wait_over()
        finally:
            self.client.forget(self)
            self.cancel_questions()
            if self.client.connection.failure is None:
                await self._unsubscribe()

    async def _unsubscribe(self) -> None:
        try:
            params = {"threadId": self.id}
            await self.client.ask("thread/unsubscribe", params, dict, timeout=CLOSE_TIMEOUT)
        except DragomanError as error:
            log.debug("unsubscribing from thread %s failed: %s", self.id, error)

    # -- for the client

    def seen(self, event: model.Event) -> model.Event:
        """Update the thread's state from an event. Returns the event, with missing fields filled
        in."""
        match event:
            case model.SettingsChanged(native="thread/settings/updated"):
                self._check(event)
            case model.UsageReported(scope="session", usage=usage):
                self.used = usage
            case model.ToolChanged(tool_id=tool_id, title=str(title)):
                self._titles[tool_id] = title
            case model.FilesChanged(tool_id=str(tool_id), changes=changes, stage=stage):
                # A finished call gets no more questions, and may be large.
                self._changes.pop(tool_id, None)
                if stage is ChangeStage.PROPOSED:
                    self._changes[tool_id] = changes
            case model.PermissionAsked(request_id=name) | model.InputAsked(request_id=name):
                self.questions.announce(name)
            case model.TurnStarted() | model.TurnEnded():
                self._titles.clear()
                self._changes.clear()
            case _:
                pass
        return event if self.turn is None else self.turn.seen(event)

    def deliver(self, event: model.Event, size: int) -> None:
        if isinstance(event, model.InputAnswered) and event.native == "serverRequest/resolved":
            self.questions.withdraw(event.request_id)
        if self.turn is not None:
            self.turn.happened(event, size)

    def title_of(self, item_id: str) -> str | None:
        """Return the title with which a running tool call was announced, or None. File approvals do
        not name their call."""
        return self._titles.get(item_id)

    def changes_of(self, item_id: str) -> tuple[FileChange, ...]:
        """Return the file changes that a running tool call announced; empty if there are none."""
        return self._changes.get(item_id, ())


def require_mode(mode: str) -> str:
    if mode not in translate.MODES:
        raise no_such("mode", mode, translate.MODES, peer="Codex")
    return mode


def require_policy(policy: str | bool) -> str:
    if not isinstance(policy, str) or policy not in translate.POLICIES:
        known = ", ".join(translate.POLICIES)
        raise Unsupported(f"Codex has no approval policy {policy!r}; it has {known}")
    return policy


async def require_model(client: CodexClient, wanted: str) -> None:
    models = await client.models()
    if not any(wanted in (entry.model, entry.id) for entry in models):
        raise no_such("model", wanted, (entry.model for entry in models), peer="Codex")


def require_safe(answer: shapes.ThreadResponse, mode: str, policy: str) -> None:
    """Raise `ProtocolMismatch` if the server did not apply the requested sandbox and approval
    policy, which keep a thread safe."""
    found = translate.mode_of(answer.sandbox)
    if found != mode or answer.approval_policy != policy:
        raise ProtocolMismatch(
            f"Codex was asked for the sandbox {mode!r} and the approval policy {policy!r}, but "
            f"uses {answer.sandbox!r} and {answer.approval_policy!r}; dragoman will not use "
            "this thread"
        )


# -- the prompt of a turn


def input_of(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Return the blocks of a prompt in the server's format.

    Raises `Unsupported` for content that the server does not accept.
    """
    return [_input(block) for block in blocks]


def _input(block: Block) -> dict[str, Any]:
    match block:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(data=data, mime_type=mime_type):
            return {"type": "image", "url": f"data:{mime_type};base64,{data}"}
        case Audio(data=data, mime_type=mime_type):
            return {"type": "audio", "url": f"data:{mime_type};base64,{data}"}
        case Link(uri=uri, name=name):
            # An invalid host raises an error; then the link is text.
            with suppress(ValueError):
                if uri.startswith("file://"):
                    return {"type": "mention", "name": name, "path": unquote(urlsplit(uri).path)}
            return {"type": "text", "text": f"[{name}]({uri})"}
        case Resource(uri=uri, text=text):
            if text is None:
                raise Unsupported("Codex accepts no embedded bytes except images and audio")
            return {"type": "text", "text": f"<context uri={uri!r}>\n{text}\n</context>"}
        case OtherBlock(value=value) if isinstance(value, dict):
            return value
        case _:
            raise Unsupported(f"Codex does not accept this in a prompt: {type(block).__name__}")
