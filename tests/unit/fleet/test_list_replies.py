"""Lists that are larger than a message of the server."""

from __future__ import annotations

from dragoman.fleet.list_replies import jobs_reply, workers_reply
from dragoman.fleet.records import Beat, ListQuestion, encode
from dragoman.fleet.schedule import Schedule
from tests.unit.fleet.test_schedule import schedule, submitted

MESSAGE_SIZE = 1024 * 1024


def with_workers(count: int) -> Schedule:
    plan = schedule()
    labels = tuple(f"label-{number}" for number in range(200))
    for number in range(count):
        plan.beat(f"w{number:04}", Beat(boot="b", slots=1, labels=labels), 0.0)
    return plan


def test_a_long_list_of_workers_comes_in_several_replies() -> None:
    plan = with_workers(1000)
    names: list[str] = []
    data, replies = b"", 0
    while True:
        reply = workers_reply(plan, data, 0.0)
        assert len(encode(reply)) < MESSAGE_SIZE
        names += [one.name for one in reply.workers]
        replies += 1
        if not reply.more:
            break
        data = encode(ListQuestion(after=names[-1]))
    assert names == [f"w{number:04}" for number in range(1000)] and replies > 1


def test_a_request_that_cannot_be_read_is_answered_with_an_error() -> None:
    assert workers_reply(schedule(), b"nonsense", 0.0).failure is not None


def test_the_newest_jobs_are_listed_as_far_as_they_fit() -> None:
    plan = schedule()
    for number in range(500):
        # Each of these characters takes six bytes.
        submitted(plan, f"f{number}", float(number), needs=("\x01" * 199,))
        plan.beat(f"w{number}", Beat(boot="b", slots=1), 0.0)
    reply = jobs_reply(plan, 0.0)
    assert 100 < len(reply.jobs) < 500 and len(encode(reply)) < MESSAGE_SIZE
    assert reply.jobs[0].id == "f499"
