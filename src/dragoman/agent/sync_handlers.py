"""Call an agent's handlers: coroutines directly, and plain functions each in its own thread.

A plain function gets a `BlockingTurn`, the blocking version of `turn.Turn`. When the client
cancels, the pending call and all later calls on it raise `asyncio.CancelledError`. A thread that
makes no call cannot be stopped, but its prompt still gets a response after a grace period.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from inspect import CO_COROUTINE
from types import FunctionType, TracebackType
from typing import Any, Self, TypeVar, cast

from dragoman.agent.client_side import Terminal
from dragoman.agent.commands import Command
from dragoman.agent.session import Session
from dragoman.agent.tools import ToolCall
from dragoman.agent.turn import Turn
from dragoman.dialects.acp import v1 as acp
from dragoman.errors import UsageError
from dragoman.rpc.tasks import settle

T = TypeVar("T")


def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether a handler is an `async` function, or an object with an `async` `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(type(handler), "__call__", None)  # noqa: B004 - not whether it can be called
    )


async def run_in_thread(work: Callable[..., T], *args: Any, patient: bool = False) -> T:
    """Run a function in a new thread and wait for it.

    Each call gets its own thread instead of one from a pool: a handler may take hours, and a full
    pool would stall every other session. Cancelling the wait does not affect the thread. With
    `patient`, for a function that learns of the cancellation in another way, a cancelled wait
    continues until the function ends, or until a second cancellation.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def body() -> None:
        try:
            result, error = context.run(work, *args), None
        except BaseException as raised:  # noqa: BLE001 - handed over to the waiting side
            # A future cannot hold a StopIteration.
            wrapped = RuntimeError(repr(raised)) if isinstance(raised, StopIteration) else raised
            result, error = None, wrapped
        try:
            loop.call_soon_threadsafe(settle, future, result, error)
        except RuntimeError:
            # The loop is closed: there is no one to receive the result.
            return

    threading.Thread(target=body, name=getattr(work, "__name__", "handler"), daemon=True).start()
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError:
        if patient:
            await asyncio.wait([future])
        raise
    finally:
        if not future.done():
            future.cancel()
        elif not future.cancelled():
            # Retrieved, so that asyncio does not warn about an exception that was never retrieved.
            future.exception()
    return future.result()


class BlockingTurn:
    """A `Turn` for plain functions: its methods return when they are done, and `run_command` takes
    the place of `terminal`."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._turn)[1:]}"

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._turn.cancelled:
            work.close()
            raise asyncio.CancelledError("the turn was cancelled")
        return self._turn.wait_for(work)

    def _last_words(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call that is allowed even after the turn was cancelled, and return its result."""
        return self._turn.wait_for(work, last=True)

    @property
    def session(self) -> Session:
        return self._turn.session

    @property
    def prompt(self) -> Sequence[acp.ContentBlock]:
        return self._turn.prompt

    @property
    def text(self) -> str:
        return self._turn.text

    @property
    def meta(self) -> Mapping[str, Any]:
        return self._turn.meta

    @property
    def cancelled(self) -> bool:
        return self._turn.cancelled

    @property
    def command(self) -> Command | None:
        return self._turn.command

    def blocks(self, kind: type[T]) -> list[T]:
        return self._turn.blocks(kind)

    def update(self, update: acp.SessionUpdate | acp.ToolCallUpdate) -> None:
        self._wait(self._turn.update(update))

    def say(self, content: str | acp.ContentBlock, *, message_id: str | None = None) -> None:
        self._wait(self._turn.say(content, message_id=message_id))

    def think(self, content: str | acp.ContentBlock, *, message_id: str | None = None) -> None:
        self._wait(self._turn.think(content, message_id=message_id))

    def echo(self, content: str | acp.ContentBlock, *, message_id: str | None = None) -> None:
        self._wait(self._turn.echo(content, message_id=message_id))

    def plan(self, entries: Sequence[acp.PlanEntry | str]) -> None:
        self._wait(self._turn.plan(entries))

    def usage(self, used: int, size: int, cost: acp.Cost | None = None) -> None:
        self._wait(self._turn.usage(used, size, cost))

    def tokens(self, input: int, output: int) -> None:
        self._turn.tokens(input, output)

    def commands(self, commands: Sequence[acp.AvailableCommand]) -> None:
        self._wait(self._turn.commands(commands))

    def mode(self, mode_id: str) -> None:
        self._wait(self._turn.mode(mode_id))

    def option(self, option_id: str, value: str | bool) -> None:
        self._wait(self._turn.option(option_id, value))

    def title(self, title: str | None) -> None:
        self._wait(self._turn.title(title))

    def notice(self, title: str, *, severity: str = "info", description: str | None = None) -> None:
        self._wait(self._turn.notice(title, severity=severity, description=description))

    def tool(self, title: str, **details: Any) -> BlockingToolCall:
        """Return a tool call to use with ``with``. The arguments are those of `Turn.tool`."""
        return BlockingToolCall(self, self._turn.tool(title, **details))

    def ask_permission(
        self,
        tool: BlockingToolCall | acp.ToolCallUpdate | str,
        options: Sequence[acp.PermissionOption] | None = None,
    ) -> bool:
        inner = tool.inner if isinstance(tool, BlockingToolCall) else tool
        return self._wait(self._turn.ask_permission(inner, options))

    def read_file(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        return self._wait(self._turn.read_file(path, line=line, limit=limit))

    def write_file(self, path: str, content: str) -> None:
        self._wait(self._turn.write_file(path, content))

    def run_command(
        self, command: str, args: Sequence[str] = (), **options: Any
    ) -> acp.TerminalOutputResponse:
        """Run a command through the client to its end and return its output."""

        async def run() -> acp.TerminalOutputResponse:
            terminal: Terminal
            async with await self._turn.terminal(command, args, **options) as terminal:
                await terminal.wait()
                return await terminal.output()

        return self._wait(run())

    def ask_form(
        self, message: str, schema: acp.ElicitationSchema
    ) -> acp.CreateElicitationResponse:
        return self._wait(self._turn.client.ask_form(message, schema))

    def ask_url(
        self, message: str, url: str, *, elicitation_id: str | None = None
    ) -> acp.CreateElicitationResponse:
        ask = self._turn.client.ask_url
        return self._wait(ask(message, url, elicitation_id=elicitation_id))


class BlockingToolCall:
    """A `ToolCall` for plain functions."""

    def __init__(self, turn: BlockingTurn, inner: ToolCall) -> None:
        self._turn = turn
        self.inner = inner
        self.id = inner.id
        inner._async = False

    def __enter__(self) -> Self:
        self._turn._wait(self.inner.announce())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._turn._last_words(self.inner.__aexit__(kind, error, traceback))

    def update(self, **changes: Any) -> None:
        self._turn._wait(self.inner.update(**changes))

    def start(self) -> None:
        self._turn._wait(self.inner.start())

    def add(self, *content: acp.ToolCallContent | acp.ContentBlock | str) -> None:
        self._turn._wait(self.inner.add(*content))

    def diff(self, path: str, new_text: str, old_text: str | None = None) -> None:
        self._turn._wait(self.inner.diff(path, new_text, old_text))

    def fail(self, reason: str = "") -> None:
        self._turn._wait(self.inner.fail(reason))


def run_handler(handler: Callable[..., Any] | None, *args: Any) -> Coroutine[Any, Any, Any]:
    """Return a coroutine that runs an author's handler, in a thread if it is a plain function."""
    assert handler is not None
    # A fast check first: `is_async` takes as long as answering a request.
    if type(handler) is FunctionType and handler.__code__.co_flags & CO_COROUTINE:
        return handler(*args)  # type: ignore[no-any-return]
    if is_async(handler):
        return cast("Coroutine[Any, Any, Any]", handler(*args))
    return run_in_thread(handler, *args)


async def run_to_end(
    handler: Callable[..., Any] | None, turn: Turn, *before: Any, after: tuple[Any, ...] = ()
) -> Any:
    """Run a handler with the arguments `before`, the turn and `after`, and return its result. A
    plain function gets a `BlockingTurn` and runs in a thread.

    Raises `UsageError` if a call on the turn was not awaited or not used, unless the turn was
    cancelled. If the handler itself raised an error, that becomes a note on the error.
    """
    assert handler is not None
    # A plain function cannot forget an `await`, and may have made its updates in several threads.
    counted = is_async(handler)
    try:
        if counted:
            answer = await handler(*before, turn, *after)
        else:
            blocking = BlockingTurn(turn)
            answer = await run_in_thread(handler, *before, blocking, *after, patient=True)
    except SystemExit as error:
        # The exception would end the loop, and the client would see its request as cancelled.
        failure = RuntimeError(f"a handler called sys.exit({error.code!r})")
        raise failure.with_traceback(error.__traceback__) from None
    except Exception as error:
        if not turn.cancelled and (unsent := turn.unsent(counted=counted)) is not None:
            # The missing `await` may be the cause of the error.
            error.add_note(unsent)
        raise
    if not turn.cancelled and (unsent := turn.unsent(counted=counted)) is not None:
        raise UsageError(unsent)
    return answer
