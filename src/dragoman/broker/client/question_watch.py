"""Follow the questions of one broker, or of a run without one, that a person has to answer, and
answer them.

`broker.server.question_watchers` and `runs.inbox` are the other side. Starts no broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from dragoman.broker.client.hello import ANSWER_TIMEOUT, ask_broker, open_stream, watch
from dragoman.broker.protocol import (
    ANSWER,
    QUESTION,
    SETTLED,
    WATCH,
    QuestionAnswer,
    Settled,
    ShownQuestion,
    decode_as,
)
from dragoman.errors import InvalidAnswer
from dragoman.rpc import Connection, ConnectionSettings, End
from dragoman.rpc.responder import Ignore
from dragoman.wire.messages import Notification

log: Final = logging.getLogger("dragoman.broker")

MAX_LINE_SIZE: Final = 64 * 1024 * 1024
"""Maximum size of one question, in bytes: a permission request may contain the whole text of a
file."""


class Watched(Struct):
    """The response to `WATCH`."""

    questions: list[ShownQuestion] = []
    peer: str = ""
    workspace: str = ""
    """The workspace of a run without a broker. For a broker, it is in the `BrokerRecord`."""


class _Notices(Ignore):
    """Passes on the notifications of a broker, after the response to `WATCH`."""

    def __init__(
        self, on_question: Callable[[ShownQuestion], None], on_settled: Callable[[Settled], None]
    ) -> None:
        self._on_question = on_question
        self._on_settled = on_settled
        self._early: list[Notification] | None = []
        """The notifications that were received before the response was handled. They may have
        arrived together with it, and must not be handled before it."""

    def pass_on(self) -> None:
        """Pass on what was held back, and everything that follows."""
        early, self._early = self._early or [], None
        for notification in early:
            self.notification(notification)

    def notification(self, notification: Notification) -> None:
        if self._early is not None:
            self._early.append(notification)
            return
        method, params = notification.method, notification.params
        try:
            if method == QUESTION:
                self._on_question(decode_as(params, ShownQuestion, method))
            elif method == SETTLED:
                self._on_settled(decode_as(params, Settled, method))
        except InvalidAnswer as error:
            log.warning("ignored a notification from a broker: %s", error)


async def watch_questions(
    address: str,
    name: str,
    *,
    answers: bool,
    job: str | None = None,
    on_question: Callable[[ShownQuestion], None],
    on_settled: Callable[[Settled], None],
    on_connected: Callable[[Watched], None],
) -> None:
    """Follow the questions of a broker, or only those of one job, until the broker ends or no
    longer answers.

    The callback `on_connected` gets the response; right after it, `on_question` is called with each
    open question, and then with each new one. `on_settled` is called when one no longer waits for
    an answer. With `answers`, questions wait for us. Raises `DragomanError` if the broker cannot be
    reached or its version does not support this.
    """
    notices = _Notices(on_question, on_settled)
    connection = Connection(
        await open_stream(address),
        End.CLIENT,
        notices,
        settings=ConnectionSettings(max_line_size=MAX_LINE_SIZE),
        trace=False,
    )
    connection.start()
    try:
        raw = await connection.call(WATCH, {"answers": answers, "job": job}, timeout=ANSWER_TIMEOUT)
        found = decode_as(raw, Watched, f"response to {WATCH}")
        on_connected(found)
        for question in found.questions:
            on_question(question)
        notices.pass_on()
        watch(connection, address, name, always=True)
        await connection.wait_ended()
    finally:
        await connection.aclose()


async def answer_question(address: str, id: str, digest: str, result: Any) -> bool:
    """Answer a question. Returns False if the question no longer waits for an answer.

    Raises `RemoteError` if the answer is invalid or `digest` is not that of the question that was
    shown, and otherwise what `ask_broker` raises.
    """
    told = await ask_broker(
        address, ANSWER, QuestionAnswer(id, digest, Raw(msgspec.json.encode(result)))
    )
    return isinstance(told, dict) and told.get("answered") is True
