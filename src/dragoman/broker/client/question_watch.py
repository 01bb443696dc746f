"""Follow the questions of one broker that a person has to answer, and answer them.

`broker.server.question_watchers` is the other side. Starts no broker.
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
)
from dragoman.errors import InvalidAnswer
from dragoman.rpc import Connection, ConnectionSettings, End
from dragoman.rpc.responder import Ignore
from dragoman.wire.messages import UNDECODABLE, Notification

log: Final = logging.getLogger("dragoman.broker")

MAX_LINE_SIZE: Final = 64 * 1024 * 1024
"""Bytes of one question: a permission may carry the whole text of a file."""


class _Watched(Struct):
    questions: list[ShownQuestion] = []


class _Notices(Ignore):
    """Hands the notifications of a broker over."""

    def __init__(
        self, on_question: Callable[[ShownQuestion], None], on_settled: Callable[[Settled], None]
    ) -> None:
        self._on_question = on_question
        self._on_settled = on_settled

    def notification(self, notification: Notification) -> None:
        try:
            if notification.method == QUESTION:
                self._on_question(msgspec.json.decode(notification.params, type=ShownQuestion))
            elif notification.method == SETTLED:
                self._on_settled(msgspec.json.decode(notification.params, type=Settled))
        except UNDECODABLE as error:
            log.warning("%s of a broker cannot be read: %s", notification.method, error)


async def watch_questions(
    address: str,
    name: str,
    *,
    answers: bool,
    on_question: Callable[[ShownQuestion], None],
    on_settled: Callable[[Settled], None],
    on_connected: Callable[[], None],
) -> None:
    """Follow the questions of a broker until it ends or does not answer any more.

    The questions that are open come right behind `on_connected`. Raises `DragomanError` if the
    broker cannot be reached or is of a version without this.
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
        raw = await connection.call(WATCH, {"answers": answers}, timeout=ANSWER_TIMEOUT)
        try:
            found = msgspec.json.decode(raw, type=_Watched)
        except UNDECODABLE as error:
            raise InvalidAnswer(f"the answer to {WATCH} is malformed: {error}") from error
        on_connected()
        for question in found.questions:
            on_question(question)
        watch(connection, address, name, always=True)
        await connection.wait_ended()
    finally:
        await connection.aclose()


async def answer_question(address: str, id: str, digest: str, result: Any) -> bool:
    """Answer a question. False if it does not wait for an answer any more. Raises `RemoteError` if
    the answer does not fit it."""
    told = await ask_broker(
        address, ANSWER, QuestionAnswer(id, digest, Raw(msgspec.json.encode(result)))
    )
    return isinstance(told, dict) and told.get("answered") is True
