"""The life of a broker as a table."""

from __future__ import annotations

from dragoman.hub.broker.life import TABLE, Happening, Life, State, diagram


def test_every_state_is_in_the_table_and_can_be_reached() -> None:
    assert set(TABLE) == set(State)
    reached = {State.STARTING} | {to for row in TABLE.values() for to in row.values()}
    assert reached == set(State)


def test_every_state_but_the_last_can_be_stopped() -> None:
    for state, row in TABLE.items():
        if state is not State.STOPPED:
            assert row[Happening.STOP] is State.STOPPED
    assert TABLE[State.STOPPED] == {}


def test_a_life_from_the_start_to_the_end() -> None:
    seen: list[State] = []
    life = Life(seen.append)
    for happening in (
        Happening.READY,
        Happening.WORK,
        Happening.WORK,
        Happening.LOST,
        Happening.READY,
        Happening.WORK,
        Happening.DRAIN,
        Happening.LOST,
        Happening.READY,
        Happening.DONE,
        Happening.DRAIN,
    ):
        life.happens(happening)
    assert seen == [
        State.IDLE,
        State.SERVING,
        State.RESTARTING,
        State.IDLE,
        State.SERVING,
        State.DRAINING,
        State.STOPPED,
    ]


def test_only_a_broker_that_ends_takes_no_work() -> None:
    life = Life()
    assert life.takes_work
    life.happens(Happening.UNSTARTABLE)
    assert life.state is State.FAILED
    assert life.takes_work, "the next caller makes it try again"
    life.happens(Happening.DRAIN)
    assert not life.takes_work


def test_the_diagram_has_every_row_of_the_table() -> None:
    text = diagram()
    assert text.startswith("stateDiagram-v2\n    [*] --> starting\n")
    assert text.count("-->") == sum(map(len, TABLE.values())) + 2
    assert "    serving --> restarting: the peer died\n" in text
