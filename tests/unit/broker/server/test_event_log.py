"""The events of one session as numbered lines."""

from __future__ import annotations

from msgspec import Raw

from dragoman.broker.server.event_log import LINE_OVERHEAD, EventLog, LogLimits
from dragoman.wire.messages import Notification


def event(number: int, size: int = 10) -> Notification:
    text = b"%*d" % (size, number)
    return Notification("session/update", Raw(text), text)


def filled(count: int, **options: int) -> EventLog:
    log = EventLog(**options)  # type: ignore[arg-type]
    for number in range(count):
        log.append(event(number))
    return log


def numbers(events: list[Notification]) -> list[int]:
    return [int(each.line) for each in events]


def test_lines_are_numbered_from_where_the_session_stands() -> None:
    log = EventLog(7)
    log.append(event(7))
    assert (log.first, log.next) == (7, 8)
    assert numbers(log.lines(7, max_size=1)) == [7]


def test_lines_that_come_together_are_numbered_and_counted_like_single_ones() -> None:
    single, together = filled(5), EventLog()
    together.append(event(0))
    together.extend([event(number) for number in range(1, 5)], 40)
    assert (together.next, together.untaken_size) == (single.next, single.untaken_size)
    assert together.take() == single.take()


def test_any_part_can_be_read_from_either_end() -> None:
    log = filled(20)
    for start in range(21):
        for stop in (None, *range(start, 21)):
            expected = list(range(start, 20 if stop is None else stop))
            assert numbers(log.lines(start, stop, max_size=10_000)) == expected


def test_a_batch_is_bounded_but_never_empty() -> None:
    log = filled(20)
    assert numbers(log.lines(3, max_size=35)) == [3, 4, 5]
    assert numbers(log.lines(3, max_size=1)) == [3]


def test_what_is_taken_to_be_stored_is_taken_once() -> None:
    log = filled(5)
    first, events = log.take()
    assert (first, numbers(events)) == (0, [0, 1, 2, 3, 4])
    assert log.take() == (5, [])
    log.append(event(5))
    assert log.take()[0] == 5
    assert log.size == 6 * (10 + LINE_OVERHEAD)


def test_only_what_is_stored_leaves_the_memory() -> None:
    log = filled(10, limit=4 * (10 + LINE_OVERHEAD))
    log.take()
    log.trim()
    assert log.first == 0
    log.stored = 3
    log.trim()
    assert log.first == 3
    log.stored = 10
    log.trim()
    assert log.first == 6, "as many stay as the limit allows"
    assert numbers(log.lines(6, max_size=10_000)) == [6, 7, 8, 9]


def test_a_full_room_is_tidied_by_the_oldest_sessions() -> None:
    room = LogLimits(limit=5 * (10 + LINE_OVERHEAD))
    logs = [EventLog(room=room) for _ in range(2)]
    for log in logs:
        for number in range(5):
            log.append(event(number))
        log.take()
        log.stored = 5
    logs[1].tidy()
    assert (logs[0].first, logs[1].first) == (5, 0)
    assert room.size == 5 * (10 + LINE_OVERHEAD)
    logs[1].close()
    assert room.size == 0
    assert room.logs == [logs[0]]
