"""Submissions: requested twice, made once; a prompt that may have been sent is not sent again."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import BrokerError, UsageError
from dragoman.paths import Paths, find_paths
from dragoman.rpc.tasks import THREAD_NAME
from dragoman.runs import host_submission
from dragoman.runs.host_submission import Submission, find_sent, submission
from dragoman.store.open import open_store
from dragoman.store.records import JobRecord
from tests.aio import aio


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(tmp_path / "state"))
    return find_paths()


def store_job(paths: Paths, id: str) -> None:
    job = JobRecord(id=id, session_key="", peer="p", root="/", state="ended", created_at=1.0)
    with open_store(paths=paths) as store:
        store.create_job(job)


@aio
async def test_a_new_job_gets_a_submission(paths: Paths) -> None:
    async with submission("j-new1", paths=paths) as found:
        assert isinstance(found, Submission)


@aio
async def test_a_stored_job_is_found_and_not_submitted_again(paths: Paths) -> None:
    store_job(paths, "j-known1")
    async with submission("j-known1", paths=paths) as found:
        assert isinstance(found, JobRecord)


@aio
async def test_a_submission_interrupted_before_sending_is_repeated(paths: Paths) -> None:
    with pytest.raises(KeyError):
        async with submission("j-cut1", paths=paths):
            raise KeyError
    async with submission("j-cut1", paths=paths) as found:
        assert isinstance(found, Submission)


@aio
async def test_a_prompt_that_may_have_been_sent_is_not_sent_again(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_submission, "APPEAR_TIMEOUT", 0.05)
    async with submission("j-sent1", paths=paths) as found:
        assert isinstance(found, Submission)
        found.sending()
    with pytest.raises(BrokerError, match="not sent again") as refused:
        async with submission("j-sent1", paths=paths):
            pass
    assert refused.value.may_have_run


@aio
async def test_a_rejected_prompt_may_be_sent_again(paths: Paths) -> None:
    async with submission("j-refused1", paths=paths) as found:
        assert isinstance(found, Submission)
        found.sending()
        found.not_sent()
    async with submission("j-refused1", paths=paths) as found:
        assert isinstance(found, Submission)


@aio
async def test_the_second_connection_waits_for_the_first(paths: Paths) -> None:
    order: list[str] = []

    async def second() -> None:
        async with submission("j-two1", paths=paths):
            order.append("second")

    async with submission("j-two1", paths=paths), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(second())
        await asyncio.sleep(0)
        order.append("first")
        assert not waiting.done()
        waiting.cancel()
    assert order == ["first"]


@aio
async def test_a_connection_that_submits_for_too_long_may_have_sent_the_prompt(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_submission, "LOCK_TIMEOUT", 0.0)
    async with submission("j-slow1", paths=paths):
        with pytest.raises(BrokerError, match="submitting the job j-slow1 for more") as refused:
            async with submission("j-slow1", paths=paths):
                pass
    assert refused.value.may_have_run


@aio
async def test_an_id_that_is_a_path_is_rejected(paths: Paths) -> None:
    with pytest.raises(UsageError, match="not a job id"):
        async with submission("../x", paths=paths):
            pass


@aio
async def test_a_job_whose_prompt_was_not_sent_is_not_waited_for(paths: Paths) -> None:
    async with submission("j-unsent1", paths=paths):
        assert await find_sent("j-unsent1", paths=paths) is None
    assert await find_sent("../x", paths=paths) is None


@aio
async def test_a_job_that_appears_after_its_prompt_was_sent_is_found(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with submission("j-late1", paths=paths) as found:
        assert isinstance(found, Submission)
        found.sending()
        monkeypatch.setattr(host_submission, "APPEAR_TIMEOUT", 0.0)
        assert await find_sent("j-late1", paths=paths) is None
        store_job(paths, "j-late1")
        job = await find_sent("j-late1", paths=paths)
    assert job is not None and job.id == "j-late1"


@aio
async def test_the_files_of_a_submission_are_made_off_the_event_loop(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def seen(function: Any) -> Any:
        def call(*args: Any) -> Any:
            threads.append(threading.current_thread().name)
            return function(*args)

        return call

    for name in ("make_folder", "_write"):
        monkeypatch.setattr(host_submission, name, seen(getattr(host_submission, name)))
    async with submission("j-thread1", paths=paths):
        pass
    assert threads == [THREAD_NAME] * 2
