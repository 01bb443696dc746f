"""Which answers are owed, from the messages that pass by."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage

from dragoman.mcp_server.pending_answers import PendingAnswers


def message(**members: Any) -> SessionMessage:
    return SessionMessage(
        types.jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **members})
    )


def test_an_answer_is_owed_from_the_request_until_its_answer_or_its_error() -> None:
    owed = PendingAnswers()
    owed.received(message(id=1, method="ping"))
    owed.received(message(id="2", method="ping"))
    assert len(owed) == 2
    owed.sent(message(id=1, result={}))
    assert len(owed) == 1
    owed.sent(message(method="notifications/message", params={}))
    owed.sent(message(id="2", error={"code": -1, "message": "no"}))
    assert not owed


def test_an_id_that_is_used_twice_is_owed_two_answers() -> None:
    owed = PendingAnswers()
    owed.received(message(id=1, method="ping"))
    owed.received(message(id=1, method="ping"))
    owed.sent(message(id=1, result={}))
    assert len(owed) == 1


def test_an_answer_that_nobody_asked_for_pays_no_other() -> None:
    owed = PendingAnswers()
    owed.sent(message(id=1, result={}))
    owed.received(message(id=1, method="ping"))
    assert len(owed) == 1


def test_nobody_is_owed_what_was_cancelled() -> None:
    owed = PendingAnswers()
    owed.received(message(id=1, method="ping"))
    owed.received(message(id=2, method="ping"))
    owed.changed.clear()
    owed.received(message(method="notifications/cancelled", params={"requestId": "1"}))
    assert len(owed) == 1 and owed.changed.is_set()


def test_what_we_asked_is_answered_for_a_client_that_cannot() -> None:
    owed = PendingAnswers()
    owed.sent(message(id=7, method="roots/list"))
    owed.sent(message(id=8, method="roots/list"))
    owed.received(message(id=8, result={}))
    (answer,) = owed.unanswerable()
    assert isinstance(answer.message, types.JSONRPCError)
    assert (answer.message.id, answer.message.error.code) == (7, types.CONNECTION_CLOSED)
    assert list(owed.unanswerable()) == []
