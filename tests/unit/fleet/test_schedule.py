"""The coordinator's decisions, without a server: leases, attempts, results, assignment, lists."""

from __future__ import annotations

import pytest

from dragoman.fleet.records import (
    LOST,
    AttemptEnded,
    Beat,
    FleetJob,
    FleetLimits,
    FleetResult,
    JobSpec,
    ListQuestion,
    ObjectRef,
    PeerDetails,
    RunningJob,
    encode,
)
from dragoman.fleet.schedule import (
    MARGIN,
    MAX_ATTEMPTS,
    AttemptFacts,
    Schedule,
    Worker,
    jobs_reply,
    workers_reply,
)

BUNDLE = ObjectRef(owner="s1", id="x", chunks=1, size=1, key="")
LEASE = 10.0
NOTHING = AttemptFacts(started=False)
OK = AttemptEnded(result=FleetResult(ok=True, outcome="ok", text="done"))


def schedule() -> Schedule:
    return Schedule(epoch=7, lease=LEASE)


def spec(**more: object) -> JobSpec:
    return JobSpec(role="execute", prompt="do it", bundle=BUNDLE, **more)  # type: ignore[arg-type]


def beat(*running: RunningJob, boot: str = "b1", slots: int = 1, **more: object) -> Beat:
    return Beat(boot=boot, slots=slots, running=running, **more)  # type: ignore[arg-type]


def submitted(plan: Schedule, job_id: str = "f1", at: float = 0.0, **more: object) -> FleetJob:
    job = plan.submitted(job_id, "s1", spec(**more), at=at)
    assert job is not None
    plan.applied(job, at)
    return job


def assigned(plan: Schedule, now: float = 0.0) -> list[FleetJob]:
    given = plan.assignments(now, at=now)
    for job in given:
        plan.applied(job, now)
        assert job.current is not None
        plan.sent(job.current.worker)
    return given


def started(worker: str = "w1", **more: object) -> Schedule:
    """A schedule with one job that is running on a worker."""
    plan = schedule()
    plan.beat(worker, beat(), 0.0)
    submitted(plan, "f1", 0.0, **more)
    assert len(assigned(plan)) == 1
    return plan


def test_a_job_assigned_to_a_free_worker_gets_an_attempt_and_a_lease() -> None:
    plan = started()
    job = plan.jobs["f1"]
    assert job.state == "running"
    assert [(one.number, one.worker, one.end) for one in job.attempts] == [(1, "w1", "")]
    assert plan.leases["f1"].until == LEASE * (1 + MARGIN)


def test_an_action_reported_by_a_worker_is_recorded_only_for_its_own_attempt() -> None:
    plan = started()
    assert plan.acted("w2", "f1", 1, "x") is None and plan.acted("w1", "f1", 2, "x") is None
    job = plan.acted("w1", "f1", 1, "it ran a command")
    assert job is not None and job.current is not None
    assert job.current.acted == "it ran a command"
    held = plan.leases["f1"]
    plan.applied(job, 5.0)
    # It is the same attempt, so its lease does not start again, and the first action is enough.
    assert plan.leases["f1"] is held and held.until == LEASE * (1 + MARGIN)
    assert plan.acted("w1", "f1", 1, "it ran another command") is None


def test_a_repeated_submission_is_one_job() -> None:
    plan = started()
    assert plan.submitted("f1", "s1", spec(), at=1.0) is None


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"needs": ("x",) * 33}, "the maximum is 32"),
        ({"needs": ("x" * 201,)}, "longer than 200 characters"),
        ({"peer": "x" * 201}, "longer than 200 characters"),
    ],
)
def test_a_job_that_is_too_expensive_for_the_coordinator_is_refused(
    more: dict[str, object], why: str
) -> None:
    job = schedule().submitted("f1", "s1", spec(**more), at=1.0)
    assert job is not None and job.result is not None
    assert (job.state, job.result.outcome) == ("done", "refused")
    assert why in job.result.why
    # Its record is small, however large the job was.
    assert len(encode(job)) < 1000


def test_a_job_that_is_not_valid_is_recorded_once() -> None:
    plan = schedule()
    job = plan.refused("f1", "s1", "not a job", at=1.0)
    assert job is not None
    plan.applied(job, 1.0)
    assert plan.refused("f1", "s1", "not a job", at=1.0) is None
    assert plan.submitted("f1", "s1", spec(), at=2.0) is None


def test_many_jobs_that_no_worker_can_take_are_compared_with_each_worker_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = schedule()
    plan.beat("w1", beat(slots=2), 0.0)
    for number in range(100):
        submitted(plan, f"f{number}", float(number), needs=("gpu",))
    submitted(plan, "f100", 100.0)
    looked: list[str] = []
    obstacle = plan._obstacle

    def look(job: FleetJob, worker: Worker) -> str:
        looked.append(job.id)
        return obstacle(job, worker)

    monkeypatch.setattr(plan, "_obstacle", look)
    assert [job.id for job in assigned(plan)] == ["f100"]
    assert looked == ["f0", "f100"]


def test_a_job_that_was_refused_somewhere_does_not_keep_others_like_it_waiting() -> None:
    plan = started()
    ended = plan.ended("w1", "f1", 1, AttemptEnded(refused="no"), at=1.0)
    assert ended is not None
    plan.applied(ended, 1.0)
    submitted(plan, "f2", 2.0)
    plan.beat("w1", beat(), 2.0)
    assert [job.id for job in assigned(plan, 2.0)] == ["f2"]


def test_a_heartbeat_that_lists_the_job_extends_its_lease() -> None:
    plan = started()
    reply = plan.beat("w1", beat(RunningJob("f1", 1)), 8.0)
    assert reply.held == (RunningJob("f1", 1),) and reply.epoch == 7
    assert plan.expired(20.0) == []
    assert [one.id for one in plan.expired(8.0 + LEASE * (1 + MARGIN))] == ["f1"]


def test_an_expired_lease_is_not_renewed() -> None:
    plan = started()
    reply = plan.beat("w1", beat(RunningJob("f1", 1)), LEASE * (1 + MARGIN))
    assert reply.held == ()


def test_heartbeats_for_another_worker_or_attempt_renew_nothing() -> None:
    plan = started()
    assert plan.beat("w2", beat(RunningJob("f1", 1)), 1.0).held == ()
    assert plan.beat("w1", beat(RunningJob("f1", 2)), 1.0).held == ()
    assert plan.leases["f1"].until == LEASE * (1 + MARGIN)


def test_a_result_is_accepted_once() -> None:
    plan = started()
    job = plan.ended("w1", "f1", 1, OK, at=5.0)
    assert job is not None and job.state == "done" and job.result is not None
    assert (job.result.worker, job.result.attempt, job.ended_at) == ("w1", 1, 5.0)
    plan.applied(job, 5.0)
    assert plan.ended("w1", "f1", 1, OK, at=6.0) is None
    assert plan.leases == {}


def test_results_of_another_worker_or_attempt_are_rejected() -> None:
    plan = started()
    assert plan.ended("w2", "f1", 1, OK, at=1.0) is None
    assert plan.ended("w1", "f1", 2, OK, at=1.0) is None
    assert plan.ended("w1", "f9", 1, OK, at=1.0) is None


def test_a_job_lost_before_it_prompted_a_peer_gets_a_second_attempt() -> None:
    plan = started()
    job = plan.lost("f1", NOTHING, at=13.0)
    assert job is not None and job.state == "queued"
    assert job.attempts[0].end == "lost" and "before it prompted" in job.attempts[0].why
    plan.applied(job, 13.0)
    plan.beat("w2", beat(boot="b2"), 13.0)
    (again,) = assigned(plan, 13.0)
    assert again.attempts[1].worker == "w2"
    # The first worker comes back: its reports and heartbeats are ignored.
    assert plan.ended("w1", "f1", 1, OK, at=14.0) is None
    assert plan.beat("w1", beat(RunningJob("f1", 1)), 14.0).held == ()


def test_a_lost_attempt_that_stayed_in_its_worktree_is_repeated() -> None:
    plan = started()
    job = plan.lost("f1", AttemptFacts(started=True), at=13.0)
    assert job is not None and job.state == "queued"


def test_a_lost_attempt_that_may_have_acted_outside_is_not_repeated() -> None:
    plan = started()
    job = plan.lost("f1", AttemptFacts(started=True, acted="it ran a command (x)"), at=13.0)
    assert job is not None and job.state == "done" and job.result is not None
    assert job.result.outcome == LOST and "it ran a command" in job.result.why


def test_retry_lost_repeats_an_attempt_that_acted_outside() -> None:
    plan = started(retry_lost=True)
    job = plan.lost("f1", AttemptFacts(started=True, acted="it ran a command (x)"), at=13.0)
    assert job is not None and job.state == "queued"


def test_a_job_ends_after_the_maximum_number_of_attempts() -> None:
    plan = schedule()
    submitted(plan)
    for number in range(1, MAX_ATTEMPTS + 1):
        plan.beat("w1", beat(boot=f"b{number}"), float(number))
        assert len(assigned(plan, float(number))) == 1
        job = plan.lost("f1", NOTHING, at=float(number))
        assert job is not None
        plan.applied(job, float(number))
    done = plan.jobs["f1"]
    assert done.state == "done" and done.result is not None and done.result.outcome == LOST
    assert len(done.attempts) == MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("facts", "may_have_run"),
    [(NOTHING, False), (AttemptFacts(started=True, acted="it ran a command (x)"), True)],
)
def test_a_lost_attempt_says_whether_it_may_have_prompted_a_peer(
    facts: AttemptFacts, may_have_run: bool
) -> None:
    plan = started()
    job = plan.lost("f1", facts, at=13.0)
    assert job is not None and job.attempts[0].may_have_run is may_have_run
    if job.result is None:
        plan.applied(job, 13.0)
        job = plan.cancel("f1", "s1", at=14.0)
    assert job is not None and job.result is not None
    assert job.result.may_have_run is may_have_run


def test_a_job_that_was_cancelled_after_a_refusal_has_not_run() -> None:
    plan = started()
    job = plan.ended("w1", "f1", 1, AttemptEnded(refused="no peer"), at=1.0)
    assert job is not None and not job.attempts[0].may_have_run
    plan.applied(job, 1.0)
    done = plan.cancel("f1", "s1", at=2.0)
    assert done is not None and done.result is not None and not done.result.may_have_run


def test_a_job_is_not_assigned_again_to_a_worker_that_refused_it() -> None:
    plan = started()
    job = plan.ended("w1", "f1", 1, AttemptEnded(refused="no peer"), at=1.0)
    assert job is not None and job.state == "queued"
    plan.applied(job, 1.0)
    plan.beat("w1", beat(), 1.0)
    assert assigned(plan, 1.0) == []
    assert "w1 refused it" in plan.job_lines(1.0)[0].waiting
    plan.beat("w2", beat(), 1.0)
    assert len(assigned(plan, 1.0)) == 1


def test_a_job_waits_for_a_worker_that_has_what_it_needs() -> None:
    plan = schedule()
    submitted(plan, needs=("gpu", "codex"))
    plan.beat("w1", beat(labels=("gpu",)), 0.0)
    assert assigned(plan) == []
    assert plan.job_lines(0.0)[0].waiting == "w1 has no codex"
    plan.beat("w2", beat(labels=("gpu",), peers={"codex": "ready"}), 0.0)
    assert assigned(plan)[0].attempts[0].worker == "w2"


def test_a_job_waits_for_a_peer_that_is_not_ready() -> None:
    plan = schedule()
    submitted(plan, peer="codex")
    plan.beat("w1", beat(peers={"codex": "parked until noon"}), 0.0)
    assert assigned(plan) == []
    assert plan.job_lines(0.0)[0].waiting == "w1 cannot use codex now: parked until noon"
    plan.beat("w1", beat(peers={"codex": "ready"}), 0.0)
    assert assigned(plan)[0].attempts[0].worker == "w1"


def test_each_coordinator_requests_cards_and_health_once() -> None:
    plan = schedule()
    details = {"codex": PeerDetails(state="ready", version="1.0", card="it starts")}
    assert plan.beat("w1", beat(), 0.0).tell_details
    assert not plan.beat("w1", beat(details=details), 0.0).tell_details
    assert not plan.beat("w1", beat(), 1.0).tell_details
    assert plan.worker_lines(1.0)[0].details == details
    assert plan.beat("w1", beat(boot="b2"), 2.0).tell_details
    assert schedule().beat("w1", beat(), 0.0).tell_details


def test_the_oldest_jobs_go_first_to_the_worker_with_the_most_free_slots() -> None:
    plan = schedule()
    for number in range(4):
        submitted(plan, f"f{number}", at=float(number))
    plan.beat("w1", beat(slots=1), 4.0)
    plan.beat("w2", beat(slots=2), 4.0)
    given = assigned(plan, 4.0)
    assert [(one.id, one.attempts[0].worker) for one in given] == [
        ("f0", "w2"),
        ("f1", "w1"),
        ("f2", "w2"),
    ]
    assert assigned(plan, 4.0) == []


def test_a_slot_is_not_assigned_twice_before_a_heartbeat_lists_the_job() -> None:
    plan = started()
    submitted(plan, "f2")
    plan.beat("w1", beat(), 1.0)
    assert assigned(plan, 1.0) == []


def test_a_reported_job_frees_its_slot_at_once() -> None:
    plan = started()
    submitted(plan, "f2")
    plan.beat("w1", beat(RunningJob("f1", 1), reported=1), 1.0)
    assert len(assigned(plan, 1.0)) == 1


def test_workers_without_heartbeats_or_draining_get_no_jobs() -> None:
    plan = schedule()
    submitted(plan)
    plan.beat("w1", beat(), 0.0)
    plan.beat("w2", beat(draining=True), LEASE + 1)
    assert assigned(plan, LEASE + 1) == []
    plan.beat("w1", beat(), LEASE + 1)
    plan.drained.add("w1")
    assert assigned(plan, LEASE + 1) == []
    assert plan.beat("w1", beat(), LEASE + 1).drain


def test_a_queued_job_is_cancelled_at_once_and_a_running_one_by_its_worker() -> None:
    plan = schedule()
    submitted(plan)
    assert plan.cancel("f1", "s2", at=1.0) is None
    job = plan.cancel("f1", "s1", at=1.0)
    assert job is not None and job.result is not None and job.result.outcome == "cancelled"
    plan = started()
    job = plan.cancel("f1", "s1", at=1.0)
    assert job is not None and job.state == "running"
    plan.applied(job, 1.0)
    assert plan.beat("w1", beat(RunningJob("f1", 1)), 2.0).cancelled == ("f1",)
    lost = plan.lost("f1", NOTHING, at=9.0)
    assert lost is not None and lost.result is not None and lost.result.outcome == "cancelled"


def test_a_new_coordinator_gives_every_running_attempt_a_full_lease() -> None:
    plan = started()
    later = Schedule(epoch=8, lease=LEASE)
    later.load(plan.jobs.values(), 1000.0)
    assert later.expired(1000.0 + LEASE) == []
    assert later.beat("w1", beat(RunningJob("f1", 1)), 1001.0).held == (RunningJob("f1", 1),)


def test_workers_that_hold_a_lease_are_listed_even_without_heartbeats() -> None:
    plan = started()
    plan.beat("w2", beat(), 0.0)
    assert [one.name for one in plan.worker_lines(LEASE + 5)] == ["w1"]
    plan.forget("f1")
    assert "f1" in plan.jobs


def test_the_limit_of_waiting_jobs_applies_to_each_submitter() -> None:
    plan = Schedule(epoch=1, lease=LEASE, limits=FleetLimits(waiting=2))
    for job in ("f1", "f2"):
        assert submitted(plan, job).state == "queued"
    refused = submitted(plan, "f3")
    assert refused.state == "done" and refused.result is not None
    assert refused.result.outcome == "refused" and "2 waiting jobs" in refused.result.why
    other = plan.submitted("f4", "s2", spec(), at=0.0)
    assert other is not None and other.state == "queued"
    # An assigned job is no longer waiting.
    plan.beat("w1", beat(), 0.0)
    assert len(assigned(plan)) == 1
    assert submitted(plan, "f5").state == "queued"
    assert plan.beat("w1", beat(), 0.0).limits.waiting == 2


# -- replies

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
