"""How a turn is cancelled: send, grace, settle, quarantine."""

from __future__ import annotations

from dragoman.broker.server.cancellation import Cancelling, Move, Phase, Trigger


def moves(*triggers: Trigger) -> tuple[list[Move], Phase]:
    turn = Cancelling()
    return [turn.on(trigger) for trigger in triggers], turn.phase


def test_a_turn_that_is_left_alone_is_settled_by_its_answer() -> None:
    assert moves(Trigger.BEGIN, Trigger.ANSWER) == ([Move.NOTHING, Move.SETTLE], Phase.NONE)


def test_a_cancel_is_sent_once_and_the_answer_within_the_grace_settles() -> None:
    found, phase = moves(Trigger.BEGIN, Trigger.CANCEL, Trigger.CANCEL, Trigger.ANSWER)
    assert found == [Move.NOTHING, Move.SEND, Move.NOTHING, Move.SETTLE]
    assert phase is Phase.NONE


def test_after_the_grace_the_session_is_set_aside_until_the_peer_answers() -> None:
    found, phase = moves(Trigger.BEGIN, Trigger.CANCEL, Trigger.GRACE_OVER)
    assert (found[-1], phase) == (Move.GIVE_UP, Phase.QUARANTINED)
    found, phase = moves(Trigger.BEGIN, Trigger.CANCEL, Trigger.GRACE_OVER, Trigger.ANSWER)
    assert (found[-1], phase) == (Move.RELEASE, Phase.NONE)


def test_what_comes_too_late_does_nothing() -> None:
    found, phase = moves(
        Trigger.CANCEL, Trigger.BEGIN, Trigger.ANSWER, Trigger.CANCEL, Trigger.GRACE_OVER
    )
    assert found == [Move.NOTHING, Move.NOTHING, Move.SETTLE, Move.NOTHING, Move.NOTHING]
    assert phase is Phase.NONE
