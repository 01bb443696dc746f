"""Random histories of a fleet: whatever is lost, late or repeated, a job has one result, one
attempt at a time, and no result of an attempt that was given up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.fleet.records import AttemptEnded, Beat, FleetResult, JobSpec, ObjectRef, RunningJob
from dragoman.fleet.schedule import MARGIN, AttemptFacts, Schedule
from tests.amounts import SOME

LEASE = 10.0
WORKERS = ("w1", "w2", "w3")
SPEC = JobSpec(
    role="execute",
    prompt="x",
    bundle=ObjectRef(owner="s1", id="x", chunks=1, size=1, key=""),
)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 4)),
        st.tuples(st.just("beat"), st.sampled_from(WORKERS), st.integers(1, 3)),
        st.tuples(st.just("assign")),
        st.tuples(st.just("report"), st.integers(0, 20), st.booleans()),
        st.tuples(st.just("time"), st.floats(0.1, 15)),
        st.tuples(st.just("expire"), st.booleans(), st.booleans()),
        st.tuples(st.just("cancel"), st.integers(0, 4)),
        st.tuples(st.just("restart")),
    ),
    max_size=60,
)


@given(steps)
@SOME
def test_no_history_gives_a_job_two_results_or_two_attempts_at_once(history: list[tuple]) -> None:  # type: ignore[type-arg]
    plan, now, epoch = Schedule(epoch=1, lease=LEASE), 0.0, 1
    given_out: list[tuple[str, str, int]] = []
    results: dict[str, object] = {}
    last_held: dict[tuple[str, str, int], float] = {}

    def write(job: object) -> None:
        if job is not None:
            plan.applied(job, now)  # type: ignore[arg-type]

    for step in history:
        match step:
            case ("submit", number):
                write(plan.submitted(f"f{number}", "s1", SPEC, at=now))
            case ("beat", worker, slots):
                running = tuple(
                    RunningJob(job, attempt) for who, job, attempt in given_out if who == worker
                )
                reply = plan.beat(worker, Beat(boot="b", slots=slots, running=running), now)
                for one in reply.held:
                    last_held[worker, one.job, one.attempt] = now
            case ("assign",):
                for job in plan.assignments(now, at=now):
                    current = job.current
                    assert current is not None
                    write(job)
                    plan.sent(current.worker)
                    given_out.append((current.worker, job.id, current.number))
            case ("report", index, ok) if given_out:
                worker, name, attempt = given_out[index % len(given_out)]
                before = plan.jobs[name].current
                ended = (
                    AttemptEnded(result=FleetResult(ok=True, outcome="ok"))
                    if ok
                    else AttemptEnded(refused="no")
                )
                after = plan.ended(worker, name, attempt, ended, at=now)
                if after is not None:
                    assert before is not None
                    assert (before.worker, before.number) == (worker, attempt)
                write(after)
            case ("time", seconds):
                now += seconds
            case ("expire", began, acted):
                facts = AttemptFacts(started=began, acted="something" if acted else "")
                for job in plan.expired(now):
                    current = job.current
                    assert current is not None
                    # A worker never believes longer than the coordinator that it has the lease.
                    held = last_held.get((current.worker, job.id, current.number))
                    assert held is None or held + LEASE * (1 + MARGIN) <= now + 1e-6
                    write(plan.lost(job.id, facts, at=now))
            case ("cancel", number):
                write(plan.cancel(f"f{number}", "s1", at=now))
            case ("restart",):
                epoch += 1
                kept = list(plan.jobs.values())
                plan = Schedule(epoch=epoch, lease=LEASE)
                plan.load(kept, now)
        for job in plan.jobs.values():
            open_ = [one for one in job.attempts if not one.end]
            assert len(open_) == (1 if job.state == "running" else 0)
            assert [one.number for one in job.attempts] == list(range(1, len(job.attempts) + 1))
            assert (job.result is not None) == (job.state == "done")
            assert (job.id in plan.leases) == (job.state == "running")
            if job.result is not None:
                assert results.setdefault(job.id, job.result) is job.result
