"""A handle cancels the turn that runs, one that begins later, and what is between turns."""

from __future__ import annotations

from dragoman.runs.cancel import CancelHandle


class Turn:
    cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


def test_a_handle_cancels_the_running_turn_and_one_that_begins_too_late() -> None:
    handle, first, second = CancelHandle(), Turn(), Turn()
    handle.pull()
    assert handle.pulled and not handle.in_turn
    handle.hold(first)  # type: ignore[arg-type]
    assert first.cancelled == 1 and handle.in_turn
    handle.hold(None)
    calm = CancelHandle()
    calm.hold(second)
    assert second.cancelled == 0
    calm.pull()
    assert second.cancelled == 1
    calm.hold(None)
    calm.pull()
    assert second.cancelled == 1


def test_a_handle_ends_what_is_between_two_turns_and_says_whether_there_is_anything() -> None:
    handle, turn, ended = CancelHandle(), Turn(), list[str]()
    handle.between_turns(lambda: ended.append("first"))
    handle.hold(turn)  # type: ignore[arg-type]
    assert handle.pull() and turn.cancelled == 1 and ended == []
    handle.hold(None)
    assert handle.pull() and ended == ["first"]
    handle.between_turns(None)
    assert not handle.pull() and ended == ["first"]
    handle.between_turns(lambda: ended.append("second"))
    assert ended == ["first", "second"]


def test_a_handle_for_single_turns_does_not_cancel_the_next_one() -> None:
    handle, first, second = CancelHandle(one_turn=True), Turn(), Turn()
    handle.pull()
    handle.hold(first)  # type: ignore[arg-type]
    assert first.cancelled == 1
    handle.hold(None)
    handle.hold(second)  # type: ignore[arg-type]
    assert second.cancelled == 0 and not handle.pulled
