"""The life of a broker as a table."""

from __future__ import annotations

from dragoman.broker.server.state_machine import TABLE, BrokerEvent, BrokerState, Lifecycle


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    assert set(TABLE) == set(BrokerState)
    reached = {BrokerState.STARTING} | {to for row in TABLE.values() for to in row.values()}
    assert reached == set(BrokerState)


def test_every_state_but_the_last_can_be_stopped() -> None:
    for state, row in TABLE.items():
        if state is not BrokerState.STOPPED:
            assert row[BrokerEvent.STOP] is BrokerState.STOPPED
    assert TABLE[BrokerState.STOPPED] == {}


def test_a_life_from_the_start_to_the_end() -> None:
    seen: list[BrokerState] = []
    life = Lifecycle(seen.append)
    for happening in (
        BrokerEvent.READY,
        BrokerEvent.WORK,
        BrokerEvent.WORK,
        BrokerEvent.LOST,
        BrokerEvent.READY,
        BrokerEvent.WORK,
        BrokerEvent.DRAIN,
        BrokerEvent.LOST,
        BrokerEvent.READY,
        BrokerEvent.DONE,
        BrokerEvent.DRAIN,
    ):
        life.happens(happening)
    assert seen == [
        BrokerState.IDLE,
        BrokerState.SERVING,
        BrokerState.RESTARTING,
        BrokerState.IDLE,
        BrokerState.SERVING,
        BrokerState.DRAINING,
        BrokerState.STOPPED,
    ]


def test_only_a_broker_that_ends_takes_no_work() -> None:
    life = Lifecycle()
    assert life.takes_work
    life.happens(BrokerEvent.UNSTARTABLE)
    assert life.state is BrokerState.FAILED
    assert life.takes_work, "the next caller makes it try again"
    life.happens(BrokerEvent.DRAIN)
    assert not life.takes_work
