"""Synchronous conversation API (`connect_sync`) for programs without an event loop.

Runs an event loop in a thread for as long as the connection is open; each method makes one call of
`conversation` there. Ctrl-C interrupts every wait: leaving the blocks then cancels the turn, closes
the session, ends the agent and joins the thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    suppress,
)
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import structs

from dragoman.client.conversation import (
    Conversation,
    ConversationTurn,
    Peer,
    Result,
    SessionSummary,
)
from dragoman.client.not_entered import EnteringSync
from dragoman.client.options import ConnectOptions
from dragoman.client.permissions import approve_all, approve_reads, deny_all
from dragoman.errors import ConnectionClosed, UsageError
from dragoman.events import model
from dragoman.events.parts import AuthMethod, Block, Capabilities, PeerInfo
from dragoman.rpc.tasks import settle

Q = TypeVar("Q")
T = TypeVar("T")


@contextmanager
def connect_sync(
    open: Callable[[ConnectOptions], AbstractAsyncContextManager[Peer]], options: ConnectOptions
) -> Iterator[BlockingPeer]:
    """Connect to a peer with `open`, for programs without an event loop.

    A plain `permit` or `inquire` runs in its own thread and may block, for example to ask a person.
    """
    inquire = options.inquire
    options = structs.replace(
        options,
        permit=_in_thread(options.permit),
        inquire=None if inquire is None else _in_thread(inquire),
    )
    with _Loop() as loop, loop.entered(open(options)) as peer:
        yield BlockingPeer(peer, loop)


_USE_SESSION: Final = "session(…) is not open yet: write `with peer.session(…) as session:`"
_USE_PROMPT: Final = "prompt(…) has not begun: write `with session.prompt(…) as turn:`"


class BlockingPeer:
    """A connected agent."""

    def __init__(self, peer: Peer, loop: _Loop) -> None:
        self._peer = peer
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._peer)[1:]}"

    @property
    def dialect(self) -> str:
        return self._peer.dialect

    @property
    def info(self) -> PeerInfo:
        return self._peer.info

    @property
    def capabilities(self) -> Capabilities:
        return self._peer.capabilities

    @property
    def auth_methods(self) -> tuple[AuthMethod, ...]:
        return self._peer.auth_methods

    def session(self, **options: Any) -> EnteringSync[BlockingConversation]:
        """Return a context manager that opens a session; see `Peer.session` for the options."""
        return EnteringSync(self._session(**options), _USE_SESSION)

    @contextmanager
    def _session(self, **options: Any) -> Iterator[BlockingConversation]:
        with self._loop.entered(self._peer.session(**options)) as conversation:
            yield BlockingConversation(conversation, self._loop)

    def list_sessions(self, cwd: str | Path | None = None) -> list[SessionSummary]:
        """Return the sessions that the agent remembers; with `cwd`, those of one directory."""

        async def collect() -> list[SessionSummary]:
            return [summary async for summary in self._peer.list_sessions(cwd)]

        return self._loop.run(collect)

    def delete_session(self, session_id: str) -> None:
        self._loop.run(lambda: self._peer.delete_session(session_id))

    def authenticate(
        self, method_id: str, *, password: str | None = None, token: str | None = None
    ) -> None:
        self._loop.run(lambda: self._peer.authenticate(method_id, password=password, token=token))

    def logout(self) -> None:
        self._loop.run(self._peer.logout)


class BlockingConversation:
    """One session with an agent."""

    def __init__(self, conversation: Conversation, loop: _Loop) -> None:
        self._conversation = conversation
        self._loop = loop

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._conversation)[1:]}"

    @property
    def id(self) -> str:
        return self._conversation.id

    def replayed(self) -> Sequence[model.Event]:
        """Return the history replayed when the session was opened."""
        self._loop.run(self._conversation.wait_replayed)
        return self._conversation.replayed

    def prompt(self, prompt: str | Block | Sequence[Block]) -> EnteringSync[BlockingTurn]:
        """Return a turn with this prompt, which begins when its ``with`` block is entered. Iterate
        over it for its events."""
        return EnteringSync(self._prompt(prompt), _USE_PROMPT)

    @contextmanager
    def _prompt(self, prompt: str | Block | Sequence[Block]) -> Iterator[BlockingTurn]:
        async def make() -> ConversationTurn:
            return self._conversation.prompt(prompt)

        with self._loop.entered(self._loop.run(make)) as turn:
            yield BlockingTurn(turn, self._loop)

    def ask(self, prompt: str | Block | Sequence[Block]) -> Result:
        """Send a prompt and wait until the turn ends."""
        with self.prompt(prompt) as turn:
            return turn.wait()

    def steer(self, prompt: str | Block | Sequence[Block]) -> None:
        """Add input to the running turn."""
        self._loop.run(lambda: self._conversation.steer(prompt))

    def set_mode(self, mode_id: str) -> None:
        self._loop.run(lambda: self._conversation.set_mode(mode_id))

    def set_model(self, model_id: str) -> None:
        self._loop.run(lambda: self._conversation.set_model(model_id))

    def set_option(self, option_id: str, value: str | bool) -> None:
        self._loop.run(lambda: self._conversation.set_option(option_id, value))


class BlockingTurn:
    """A running prompt."""

    def __init__(self, turn: ConversationTurn, loop: _Loop) -> None:
        self._turn = turn
        self._loop = loop
        self._unread: deque[model.Event] = deque()
        """Events that were taken from the turn and not yet iterated over."""

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._turn)[1:]}"

    def __iter__(self) -> Iterator[model.Event]:
        unread = self._unread
        while True:
            # Kept for the next iteration if this one is left early.
            while unread:
                yield unread.popleft()
            self._loop.run(self._next)
            if not unread:
                return

    async def _next(self) -> None:
        """Take the next events, at least one unless the turn has ended.

        All available events are taken at once: switching threads costs more than an event. They are
        stored here, so that an interrupt of the waiting thread loses none.
        """
        async for event in self._turn:
            self._unread.append(event)
            if not self._turn.ready:
                break

    def wait(self) -> Result:
        """Wait for the end, dropping the events that were not iterated over."""
        self._unread.clear()
        return self._loop.run(self._turn.wait)

    @property
    def result(self) -> Result:
        return self._turn.result

    def cancel(self) -> None:
        """Ask the agent to stop. Keep iterating for its remaining output and the end."""

        async def cancel() -> None:
            self._turn.cancel()

        self._loop.run(cancel)


class _Loop:
    """Context manager: an event loop in a thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        """Why the loop could not start."""
        # The thread ends with the `with` block. It is a daemon thread so that a program that never
        # leaves the block can still exit.
        self._thread = threading.Thread(target=self._work, name="dragoman", daemon=True)

    def __enter__(self) -> _Loop:
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _work(self) -> None:
        try:
            # Not `asyncio.run`, which gets its coroutine before it makes the loop: if there is no
            # descriptor left for a loop, the coroutine would never be awaited.
            with asyncio.Runner() as runner:
                runner.run(self._main())
        except BaseException as error:
            if self._started.is_set():
                raise
            self._failure = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._started.set()
        await self._stop.wait()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop and wait for it. If interrupted, it is cancelled there and
        awaited, so that nothing else uses the same object in the meantime.

        The coroutine is also created in the loop: if it were created here, an interrupt before it
        is handed over would leave it unawaited.
        """
        loop = self._loop
        if threading.current_thread() is self._thread:
            raise UsageError(
                "this call would deadlock: it was made in a callback of the same connection"
            )
        if loop is None or not self._thread.is_alive():
            raise ConnectionClosed()
        outcome: Future[T] = Future()
        ended = threading.Event()
        begun: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = loop.create_task(work())
            task.add_done_callback(hand_over)
            begun.append(task)

        def hand_over(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                outcome.cancel()
            elif (error := task.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())
            ended.set()

        def cancel() -> None:
            if begun:
                begun[0].cancel()
            else:
                ended.set()

        try:
            loop.call_soon_threadsafe(begin)
            return outcome.result()
        except BaseException:
            if not ended.is_set():
                # If `begin` is still pending, it runs first: the loop keeps the order.
                loop.call_soon_threadsafe(cancel)
                ended.wait()
            raise

    def entered(self, block: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Wrap an async context manager for a program without an event loop."""
        return _entered(block, self)


@contextmanager
def _entered(block: AbstractAsyncContextManager[T], loop: _Loop) -> Iterator[T]:
    value = loop.run(lambda: _coroutine(block.__aenter__))
    try:
        yield value
    finally:
        # The exception is not passed on: an interrupt concerns this thread, not the loop.
        loop.run(lambda: _coroutine(lambda: block.__aexit__(None, None, None)))


async def _coroutine(make: Callable[[], Any]) -> Any:
    return await make()


def _in_thread(asking: Callable[[Q], Any]) -> Callable[[Q], Any]:
    """Wrap a callback to run in a thread, where it may block without stopping the loop. If it
    raises, the wrapper raises, as it would without a thread."""
    # The presets never block, and other code recognises them by identity.
    if inspect.iscoroutinefunction(asking) or asking in (approve_all, approve_reads, deny_all):
        return asking

    @functools.wraps(asking, updated=())
    async def decide(question: Q) -> Any:
        loop = asyncio.get_running_loop()
        decided: asyncio.Future[Any] = loop.create_future()

        def ask() -> None:
            answer, failure = None, None
            try:
                answer = asking(question)
            except BaseException as error:  # noqa: BLE001 - raised in the loop
                # A future cannot hold a StopIteration, and a SystemExit would end the loop while
                # the program waits for it.
                fits = isinstance(error, Exception) and not isinstance(error, StopIteration)
                failure = error if fits else RuntimeError(repr(error))
            # The loop may have ended by now, and the question with it.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, decided, answer, failure)

        # Not in the loop's executor: the loop waits for its threads when it closes, and a person
        # may never answer.
        threading.Thread(target=ask, name="dragoman permit", daemon=True).start()
        answer = await decided
        return await answer if inspect.isawaitable(answer) else answer

    return decide
