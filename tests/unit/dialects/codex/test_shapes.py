"""The shapes of the app-server's messages."""

from __future__ import annotations

import msgspec
import pytest

from dragoman.dialects.codex import shapes


def test_names_are_those_of_the_wire_and_new_fields_are_ignored() -> None:
    turn = msgspec.json.decode(
        b'{"threadId": "t", "turnId": "u", "itemId": "i", "delta": "d", "new": 1}',
        type=shapes.ItemDelta,
    )
    assert (turn.thread_id, turn.turn_id, turn.item_id, turn.delta) == ("t", "u", "i", "d")


def test_the_end_of_a_turn_is_read_whatever_its_items_and_its_error_are() -> None:
    ended = msgspec.json.decode(
        b'{"threadId": "t", "turn": {"id": "u", "status": "failed", "items": [3], "error": 4}}',
        type=shapes.TurnNotification,
    )
    assert (ended.turn.id, ended.turn.status, ended.turn.error) == ("u", "failed", 4)


def test_a_history_is_read_although_an_item_of_it_is_not() -> None:
    thread = msgspec.json.decode(
        b'{"id": "t", "turns": [{"id": "u", "status": "completed", "items": [{"type": 1}]}]}',
        type=shapes.Thread,
    )
    assert [bytes(item) for item in thread.turns[0].items] == [b'{"type": 1}']


def test_what_a_message_cannot_do_without_is_required() -> None:
    with pytest.raises(msgspec.ValidationError, match="itemId"):
        msgspec.json.decode(
            b'{"threadId": "t", "turnId": "u", "delta": "d"}', type=shapes.ItemDelta
        )
