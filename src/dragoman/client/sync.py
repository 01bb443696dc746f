"""Synchronous conversation API (`connect_sync`) for programs without an event loop.

Runs an event loop in a thread for as long as the connection is open; each method makes one call of
`conversation` there. Ctrl-C interrupts every wait: leaving the blocks then cancels the turn, closes
the session, ends the agent and joins the thread.
"""

from __future__ import annotations

import _thread
import asyncio
import functools
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

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
from dragoman.rpc.tasks import cancel_soon, settle

B = TypeVar("B")
Q = TypeVar("Q")
T = TypeVar("T")


@contextmanager
def connect_sync(
    open: Callable[[ConnectOptions], AbstractAsyncContextManager[Peer]], options: ConnectOptions
) -> Iterator[BlockingPeer]:
    """Connect to a peer with `open`, for programs without an event loop.

    If `permit`, `guard` or `inquire` is a plain function, each call of it runs in a thread of its
    own and may block, for example to ask a person.
    """
    inquire = options.inquire
    # Taken from the permit here: the function that runs it in a thread has no attributes.
    guard = options.guard or getattr(options.permit, "guard", None)
    options = structs.replace(
        options,
        permit=_in_thread(options.permit),
        guard=None if guard is None else _in_thread(guard),
        inquire=None if inquire is None else _in_thread(inquire),
    )
    loop = _Loop()
    try:
        loop.start()
        # `yield from`, because an interrupt at the right moment makes a `with` skip its exit.
        yield from loop.entered(open(options), lambda peer: BlockingPeer(peer, loop))
    finally:
        try:
            loop.stop()
        except BaseException:
            loop.stop()
            raise


INTERRUPT_INTERVAL: Final = 1.0
"""Interval in seconds at which a wait wakes, so that a Ctrl-C that did not end it is raised."""

_USE_SESSION: Final = "session(…) is not open yet: write `with peer.session(…) as session:`"
_USE_PROMPT: Final = "prompt(…) has not begun: write `with session.prompt(…) as turn:`"


class BlockingPeer:
    """A connected agent, for programs without an event loop."""

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
        yield from self._loop.entered(
            self._peer.session(**options),
            lambda conversation: BlockingConversation(conversation, self._loop),
        )

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
    """One session with an agent, for programs without an event loop."""

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
        """Return a context manager for a turn with this prompt. The turn begins when the ``with``
        block is entered."""
        return EnteringSync(self._prompt(prompt), _USE_PROMPT)

    @contextmanager
    def _prompt(self, prompt: str | Block | Sequence[Block]) -> Iterator[BlockingTurn]:
        async def make() -> ConversationTurn:
            return self._conversation.prompt(prompt)

        turn = self._loop.run(make)
        yield from self._loop.entered(turn, lambda turn: BlockingTurn(turn, self._loop))

    def ask(self, prompt: str | Block | Sequence[Block]) -> Result:
        """Send a prompt, wait until the turn ends, and return its result."""
        return self._loop.run(lambda: self._conversation.ask(prompt))

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
    """A running prompt, for programs without an event loop. Iterate over it for its events."""

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
        """Wait for the end and return the result, dropping the events that were not iterated
        over."""
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


class _Call(Generic[T]):
    """A coroutine that the loop runs for another thread, which waits for its end."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self.ended = False
        self.error: BaseException | None = None
        self.result: T | None = None
        # A lock used as a semaphore: unlike the classes of `threading` and `concurrent.futures`,
        # which are written in Python, it stays intact if Ctrl-C interrupts its use.
        self.done = threading.Lock()
        self.done.acquire()

    # -- in the loop

    def begin(self) -> None:
        """Start the coroutine, unless it was started before.

        It is also created here: if the waiting thread created it, an interrupt before it is handed
        over would leave it unawaited.
        """
        if self._task is None and not self.ended:
            self._task = asyncio.get_running_loop().create_task(_coroutine(self._work))
            self._task.add_done_callback(self._finished)

    def cancel(self) -> None:
        if self._task is None:
            self.end(ConnectionClosed())
        else:
            cancel_soon(self._task)

    def _finished(self, task: asyncio.Task[T]) -> None:
        # The task must not die in the other thread: Ctrl-C in a callback of a weak reference to it
        # would be lost.
        self._task = None
        if task.cancelled():
            self.end(ConnectionClosed())
        elif (error := task.exception()) is not None:
            self.end(error)
        else:
            self.result = task.result()
            self.end(None)

    def end(self, error: BaseException | None) -> None:
        if not self.ended:
            self.error = error
            self.ended = True
            self.done.release()


class _Loop:
    """An event loop in a thread, from `start` to `stop`.

    Its methods are written for Ctrl-C, which raises `KeyboardInterrupt` between any two calls in
    the main thread: what was begun in the loop is still ended there.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopping = False
        self._over = False
        """Whether the thread has nothing left to do."""
        self._failure: BaseException | None = None
        """Why the loop could not start."""
        self._calls: set[_Call[Any]] = set()
        # Locks as in `_Call`; the loop's thread releases them.
        self._started = threading.Lock()
        self._started.acquire()
        self._ended = threading.Lock()
        self._ended.acquire()
        # A daemon thread, so that a program that never leaves its `with` block can still exit.
        self._thread = threading.Thread(target=self._work, name="dragoman", daemon=True)

    def start(self) -> None:
        # Not from this thread: an interrupt in `Thread.start` can leave its locks held.
        _thread.start_new_thread(self._start_thread, ())
        _acquire(self._started)
        if self._failure is not None:
            if self._over:
                self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """End the loop and wait for its thread. If that was interrupted, it can be repeated."""
        self._stopping = True
        if self._stop is None or self._loop is None:
            # It was never started, or has yet to check `_stopping`.
            return
        if not self._over:
            with suppress(ConnectionClosed):
                self._post(self._stop.set)
            _acquire(self._ended)
        self._thread.join()

    def _start_thread(self) -> None:
        try:
            self._thread.start()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for it
            self._failure = error
            self._started.release()

    def _work(self) -> None:
        try:
            # Not `asyncio.run`, which gets its coroutine before it makes the loop: if there is no
            # descriptor left for a loop, the coroutine would never be awaited.
            with asyncio.Runner() as runner:
                runner.run(self._main())
        except BaseException as error:
            if self._loop is not None:
                raise
            self._failure = error
        finally:
            # Another thread may have made a call that the loop did not begin.
            for call in tuple(self._calls):
                call.end(ConnectionClosed())
            self._over = True
            self._ended.release()
            if self._loop is None:
                self._started.release()

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._started.release()
        # Checked after `_loop` is set: if `stop` found no loop, it set this before.
        if not self._stopping:
            await self._stop.wait()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine in the loop and wait for it. If interrupted, it is cancelled there and
        awaited, so that nothing else uses the same object in the meantime."""
        return self._wait(_Call(work))

    def _wait(self, call: _Call[T], *, cancels: bool = True) -> T:
        if threading.current_thread() is self._thread:
            raise UsageError(
                "this call would deadlock: it was made in a callback of the same connection"
            )
        self._calls.add(call)
        try:
            if not call.ended:
                self._post(call.begin)
                _acquire(call.done)
        except BaseException:
            if cancels and not call.ended:
                # If `begin` is still pending, it runs first: the loop keeps the order.
                self._post(call.cancel)
                _acquire(call.done)
            raise
        finally:
            self._calls.discard(call)
        if call.error is not None:
            raise call.error
        return cast("T", call.result)

    def _post(self, callback: Callable[[], None]) -> None:
        if self._loop is None:
            raise ConnectionClosed()
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            # The loop has closed.
            raise ConnectionClosed() from None

    def entered(
        self, block: AbstractAsyncContextManager[T], wrap: Callable[[T], B]
    ) -> Generator[B, None, None]:
        """Enter an async context manager, yield its wrapped value and leave the block again.

        An interrupt while the block is left is raised after that; a second one, or one after an
        interrupt inside of the block, cancels what leaving waits for.
        """
        entering = _Call(block.__aenter__)
        # The exception is not passed on: an interrupt concerns this thread, not the loop.
        leaving = _Call(lambda: block.__aexit__(None, None, None))
        interrupted = True
        try:
            yield wrap(self._wait(entering))
            interrupted = False
        except Exception:
            interrupted = False
            raise
        finally:
            # Not what the wait returned: an interrupt may have come between.
            if entering.ended and entering.error is None:
                try:
                    self._wait(leaving, cancels=interrupted)
                except BaseException:
                    if not leaving.ended:
                        self._wait(leaving)
                    raise


def _acquire(lock: threading.Lock) -> None:
    """Acquire a lock that another thread will release."""
    # A Ctrl-C just before the system starts to wait does not end the wait: Python raises it after.
    while not lock.acquire(timeout=INTERRUPT_INTERVAL):
        pass


async def _coroutine(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


def _in_thread(asking: Callable[[Q], Any]) -> Callable[[Q], Any]:
    """Return a coroutine function that runs a callback in a thread, where it may block without
    stopping the loop, and then returns its result or raises its error. Coroutine functions and
    presets are returned unchanged."""
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
