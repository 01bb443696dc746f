"""Records are encoded as JSON, and decoding anything else raises a FleetError."""

from __future__ import annotations

import pytest

from dragoman.errors import FleetError
from dragoman.fleet.records import (
    Beat,
    FleetAttempt,
    FleetJob,
    JobSpec,
    ObjectRef,
    RunningJob,
    decode,
    encode,
    new_job_id,
)

BUNDLE = ObjectRef(owner="s1", id="x", chunks=1, size=1, key="d")


def test_records_survive_encoding_and_decoding() -> None:
    job = FleetJob(
        id="f1",
        submitter="s1",
        spec=JobSpec(role="execute", prompt="do it", bundle=BUNDLE, needs=("gpu",)),
        state="running",
        attempts=(FleetAttempt(number=1, worker="w1", assigned_at=1.5),),
        created_at=1.0,
    )
    assert decode(encode(job), FleetJob) == job
    assert job.current == job.attempts[0]
    beat = Beat(boot="b", slots=2, running=(RunningJob("f1", 1),))
    assert decode(encode(beat), Beat) == beat


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"nonsense", b'{"boot": 1}'])
def test_decoding_invalid_data_raises_an_error_that_names_the_type(data: bytes) -> None:
    with pytest.raises(FleetError, match=r"invalid fleet data \(Beat\)"):
        decode(data, Beat)


def test_job_ids_are_unique_and_valid_subject_tokens() -> None:
    ids = {new_job_id() for _ in range(100)}
    assert len(ids) == 100 and all(one.isalnum() for one in ids)
