"""A turn as the author of an agent sees it: the prompt, and the methods to answer it.

Sends to the client while a prompt runs, in order, from any thread. `server` starts and ends turns.
When the client cancels, the handler is cancelled at its next await, and however it ends, the stop
reason is ``cancelled``.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
from collections.abc import Coroutine, Mapping, Sequence
from threading import get_ident
from typing import Any, Final, TypeVar, cast

from msgspec import structs
from msgspec.structs import replace

from dragoman.agent import checks, commands
from dragoman.agent.client_side import ClientSide, Terminal
from dragoman.agent.commands import Command
from dragoman.agent.loop_access import LoopAccess
from dragoman.agent.pending import AwaitedCalls, awaited
from dragoman.agent.session import Session
from dragoman.agent.speech import Speech
from dragoman.agent.tools import ToolCall
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import UsageError
from dragoman.rpc import Connection

T = TypeVar("T")

UPDATES_PER_BREATH: Final = 128
"""Number of updates after which a turn lets the event loop run other tasks, so that a cancel is
read while an agent streams."""


class Turn:
    """One prompt that is being answered."""

    def __init__(
        self,
        connection: Connection,
        session: Session,
        prompt: Sequence[acp.ContentBlock],
        meta: Mapping[str, Any] | None = None,
        *,
        speech: Speech,
    ) -> None:
        self._speech = speech
        self._home = LoopAccess()
        self._thread = get_ident()
        self._ids = itertools.count(1)
        self._prefix = os.urandom(4).hex()
        self._made = 0
        """Number of updates created; awaiting an update sends it."""
        self._sent = 0
        self._elsewhere = False
        """Whether another thread sent updates: `_made` and `_sent` are then not compared."""
        self._calls = AwaitedCalls()
        """The calls of the handler on this turn that are not awaited yet."""
        self.session = session
        """The session of the turn."""
        self.prompt = prompt
        """The content blocks of the prompt."""
        self.meta: dict[str, Any] = dict(meta or {})
        """The `_meta` of the prompt."""
        self.client = ClientSide(
            connection,
            session.id,
            session.client.client_capabilities,
            speech=self._speech,
            calls=self._calls,
        )
        """The client, for requests to it."""
        self._tokens: tuple[int, int] | None = None
        self.cancelled = False
        """Whether the turn was cancelled, because the client cancelled it, closed or deleted its
        session, or disconnected."""
        self.over = False
        """Whether the turn has ended. Sending an update then raises `UsageError`."""
        self._work: asyncio.Task[Any] | None = None
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """A future that is done once the turn is cancelled."""
        self.ended = asyncio.Event()
        """An event that is set when the turn is over."""

    def __repr__(self) -> str:
        state = "over" if self.over else "cancelled" if self.cancelled else "running"
        return f"<Turn of session {self.session.id!r}, {state}, {self.text!r:.80}>"

    # -- the prompt

    @property
    def text(self) -> str:
        """The text of the prompt, its text blocks joined by newlines."""
        return "\n".join(b.text for b in self.prompt if isinstance(b, acp.TextContent))

    @property
    def command(self) -> Command | None:
        """The slash command at the beginning of the prompt, with its `name` and `input`; None if
        there is none. A sentence that begins with a path, such as ``/etc is broken``, looks like
        one."""
        return commands.parse(self.prompt)

    def blocks(self, kind: type[T]) -> list[T]:
        """Return the blocks of one type in the prompt, such as `ImageContent`."""
        return [block for block in self.prompt if isinstance(block, kind)]

    # -- output

    def update(self, update: acp.SessionUpdate | acp.ToolCallUpdate) -> Coroutine[Any, Any, None]:
        """Send any update of the protocol; the other output methods are shorthands for this one.
        Raises `TypeError` for an invalid update, before anything is sent."""
        if type(update) is acp.ToolCallUpdate:
            # The schema uses one type name for a change of a tool call, here and in a question.
            update = acp.ToolCallProgress(**structs.asdict(update))
        checks.update(update)
        self._made += 1
        return self._send(cast("acp.SessionUpdate", update))

    async def _send(self, update: acp.SessionUpdate) -> None:
        if get_ident() != self._thread:
            self._elsewhere = True
            # Not a lambda: one that is not even reached makes every update slower.
            await self._home.run(functools.partial(self._send, update))
            return
        self._sent += 1
        if self.over:
            raise UsageError("the turn is over: its prompt was answered")
        waiting = self._speech.update(self.session.id, update)
        if waiting is not None:
            await waiting
        if self._sent % UPDATES_PER_BREATH == 0:
            await asyncio.sleep(0)

    # These three are called for every few words. They return the coroutine itself rather than wrap
    # it in another; missing awaits are found by counting.

    def say(
        self, content: str | acp.ContentBlock, *, message_id: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Stream a chunk of the answer."""
        if type(content) is str:
            block: acp.ContentBlock = acp.TextContent(text=content)
        else:
            block = checks.block(content, "say")
        self._made += 1
        return self._send(acp.AgentMessageChunk(content=block, message_id=message_id))

    def think(
        self, content: str | acp.ContentBlock, *, message_id: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Stream a chunk of the reasoning."""
        block = _block(content, "think")
        self._made += 1
        return self._send(acp.AgentThoughtChunk(content=block, message_id=message_id))

    def echo(
        self, content: str | acp.ContentBlock, *, message_id: str | None = None
    ) -> Coroutine[Any, Any, None]:
        """Stream a chunk of a user message, to replay a history."""
        block = _block(content, "echo")
        self._made += 1
        return self._send(acp.UserMessageChunk(content=block, message_id=message_id))

    def plan(self, entries: Sequence[acp.PlanEntry | str]) -> Coroutine[Any, Any, None]:
        """Send the whole plan, which replaces the previous one. A text becomes a pending entry of
        medium priority."""
        return self.update(acp.Plan(entries=checks.plan(entries)))

    def usage(
        self, used: int, size: int, cost: acp.Cost | None = None
    ) -> Coroutine[Any, Any, None]:
        """Report that `used` of the `size` tokens of the context window are in use, and the cost of
        the session so far."""
        return self.update(acp.UsageUpdate(used=used, size=size, cost=cost))

    def tokens(self, input: int, output: int) -> None:
        """Set how many tokens the turn used, to be reported in the response to the prompt unless
        the handler returns a response with its own `usage`. The last call counts."""
        self._tokens = checks.tokens(input, output)

    def commands(self, commands: Sequence[acp.AvailableCommand]) -> Coroutine[Any, Any, None]:
        """Send the whole list of slash commands, which replaces the previous one."""
        checks.listed(commands, "the commands of turn.commands()")
        return self.update(acp.AvailableCommandsUpdate(available_commands=commands))

    @awaited("turn.mode(…)")
    async def mode(self, mode_id: str) -> None:
        """Change the session's mode, and send the new mode and the config options, which include
        it, to the client. Raises `UsageError` for an unknown mode."""
        self.session.switch_mode(mode_id)
        await self.update(acp.CurrentModeUpdate(current_mode_id=mode_id))
        await self.update(acp.ConfigOptionUpdate(config_options=self.session.config_options()))

    @awaited("turn.option(…)")
    async def option(self, option_id: str, value: str | bool) -> None:
        """Change one of the session's config options, and send them all to the client. Raises
        `UsageError` for an unknown option or value."""
        self.session.set_option(option_id, value)
        await self.update(acp.ConfigOptionUpdate(config_options=self.session.config_options()))

    def title(self, title: str | None) -> Coroutine[Any, Any, None]:
        """Set the session's title; None removes it."""
        return self.update(acp.SessionInfoUpdate(title=title))

    @awaited("turn.notice(…)")
    async def notice(
        self, title: str, *, severity: str = "info", description: str | None = None
    ) -> None:
        """Show a notice to the user if the client supports notices; otherwise send it as a chunk of
        the answer."""
        if self.client.can("session.notices"):
            await self.update(acp.Notice(severity=severity, title=title, description=description))
        else:
            await self.say(f"{title}: {description}\n" if description else f"{title}\n")

    # -- tools

    def _new_id(self) -> str:
        return f"call-{self._prefix}-{next(self._ids)}"

    def tool(
        self,
        title: str,
        *,
        kind: str = "other",
        name: str | None = None,
        status: str = "in_progress",
        content: Sequence[acp.ToolCallContent] | None = None,
        locations: Sequence[acp.ToolCallLocation | str] | None = None,
        raw_input: Any = None,
        tool_call_id: str | None = None,
    ) -> ToolCall:
        """Return a tool call to use with ``async with``: entering reports it to the client, and
        leaving reports that it is completed, or failed if the block raises. A location may be a
        path."""
        checks.tool(title=title, kind=kind, status=status)
        if content is not None:
            checks.listed(content, "the contents of turn.tool()")
        if locations is not None:
            checks.listed(locations, "the locations of turn.tool()")
        return ToolCall(
            self,
            acp.ToolCall(
                tool_call_id=tool_call_id or self._new_id(),
                title=title,
                name=name,
                kind=kind,
                status=status,
                content=content,
                locations=None
                if locations is None
                else [
                    acp.ToolCallLocation(path=item) if isinstance(item, str) else item
                    for item in locations
                ],
                raw_input=raw_input,
            ),
        )

    @awaited("turn.ask_permission(…)")
    async def ask_permission(
        self,
        tool: ToolCall | acp.ToolCallUpdate | str,
        options: Sequence[acp.PermissionOption] | None = None,
    ) -> bool:
        """Ask the client for permission. `tool` is a tool call, or the title of anything else that
        needs permission.

        Returns True only if the chosen option allows it; a cancelled question returns False.
        """
        if isinstance(tool, ToolCall):
            chosen = await tool.permission(options)
        else:
            call = (
                acp.ToolCallUpdate(tool_call_id=self._new_id(), title=tool, kind="other")
                if isinstance(tool, str)
                else tool
            )
            ask = self.client.permission
            chosen = await (ask(call) if options is None else ask(call, options))
        return bool(chosen)

    # -- shorthands for the client's services

    @awaited("turn.read_file(…)")
    async def read_file(
        self, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """Return the text of a file as the client sees it, including unsaved changes. The path is
        absolute. `line` is the first line to return, from 1, and `limit` the maximum number of
        lines; without them, the whole text is returned."""
        return await self.client.read_file(path, line=line, limit=limit)

    @awaited("turn.write_file(…)")
    async def write_file(self, path: str, content: str) -> None:
        """Write a text file through the client, which creates it or replaces its text. The path is
        absolute."""
        await self.client.write_file(path, content)

    @awaited("turn.terminal(…)")
    async def terminal(self, command: str, args: Sequence[str] = (), **options: Any) -> Terminal:
        """Run a command through the client; use the result with ``async with``. The options are
        those of `ClientSide.terminal`."""
        return await self.client.terminal(command, args, **options)

    # -- for the server

    def begin(self, work: asyncio.Task[Any]) -> None:
        """Set the task that runs the handler, and cancel it if the turn is already cancelled."""
        self._work = work
        if self.cancelled:
            work.cancel()

    def stop(self) -> None:
        """Cancel the turn and its handler, unless the turn is already cancelled or has ended."""
        if not self.cancelled and not self.over:
            self.cancelled = True
            self.stopped.set_result(None)
            self._home.call_off()
            if self._work is not None:
                self._work.cancel()

    def unsent(self, *, counted: bool = True) -> str | None:
        """Return the error message for a handler that has ended without awaiting its calls, or None
        if it awaited all. With `counted`, updates that were created but not sent also count, unless
        another thread sent updates."""
        lost = self._made - self._sent if counted and not self._elsewhere else 0
        told = self._calls.unawaited()
        if lost > 0:
            told.append(f"turn.say(…) or another update ({lost} times)")
        if not told:
            return None
        if not counted:
            return f"nothing was sent for {'; '.join(told)}"
        return f"`await` is missing, so nothing was sent: {'; '.join(told)}"

    def with_tokens(self, response: acp.PromptResponse) -> acp.PromptResponse:
        """Return the response with the tokens set by `tokens`; unchanged if none were set or it
        already has a `usage`."""
        if self._tokens is None or "usage" in (response.extra or {}):
            return response
        input, output = self._tokens
        usage = {"totalTokens": input + output, "inputTokens": input, "outputTokens": output}
        return replace(response, extra={**(response.extra or {}), "usage": usage})

    def finish(self) -> None:
        self.over = True
        self.ended.set()

    # -- for a thread without a loop

    def wait_for(self, work: Coroutine[Any, Any, T], *, last: bool = False) -> T:
        """Run work in the connection's loop and wait for the result; see `LoopAccess.wait`."""
        return self._home.wait(work, last=last)


def _block(content: str | acp.ContentBlock, method: str) -> acp.ContentBlock:
    if type(content) is str:
        return acp.TextContent(text=content)
    return checks.block(content, method)
