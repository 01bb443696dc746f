"""The API of the review screen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dragoman.config.safe_files import locked
from dragoman.console import review_comments, review_routes
from dragoman.console.actions import StartedJob
from dragoman.console.json_routes import INTERNAL_PROBLEM
from dragoman.console.review_comments import DraftComment, ReviewComments
from dragoman.errors import BrokerError, FileFailed, RemoteError
from dragoman.paths import VARIABLES, Paths
from dragoman.rpc.tasks import TaskOwner, in_thread
from dragoman.store.open import open_store
from dragoman.store.records import SessionRecord
from tests.aio import aio
from tests.unit.console.place import TIMEOUT, console, short_paths, told
from tests.unit.delegation.review.test_session_review import Reviewed
from tests.unit.delegation.worktree.repositories import make
from tests.unit.store.stores import session


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Reviewed]:
    with short_paths() as paths:
        for name, variable in VARIABLES.items():
            monkeypatch.setenv(variable, str(getattr(paths, name)))
        yield Reviewed(make(tmp_path / "repo"), "s-1", paths)


@aio
async def test_a_patch_is_shown_and_applied_by_its_digest(here: Reviewed) -> None:
    await here.isolated()
    async with console(here.paths) as place, place.browser() as client:
        shown = (await client.get("/api/v1/sessions/s-1/review")).json()
        assert shown["source"] == "patch" and shown["files"][0]["path"] == "a.txt"
        assert shown["files"][0]["changes"][0]["diff"].startswith("@@ ")
        wrong = await client.post("/api/v1/sessions/s-1/apply", json={"digest": "0"})
        assert (wrong.status_code, wrong.json()["error"]) == (409, "patch_changed")
        body = {"digest": shown["patch"]["digest"]}
        done = await client.post("/api/v1/sessions/s-1/apply", json=body)
        assert done.json() == {
            "applied": True,
            "files": [{"path": "a.txt", "op": "modify"}],
            "conflicts": [],
        }
        assert (await client.post("/api/v1/sessions/s-1/apply", json=body)).status_code == 409


@aio
async def test_a_read_only_browser_sees_the_review_and_changes_nothing(
    here: Reviewed,
) -> None:
    await here.isolated()
    async with console(here.paths) as place, place.browser("read") as client:
        shown = (await client.get("/api/v1/sessions/s-1/review")).json()
        for path, body in (
            ("apply", {"digest": shown["patch"]["digest"]}),
            ("check", {}),
            ("review/comments", {"text": "x"}),
            ("review/send", {"comments": ["1"]}),
        ):
            answer = await client.post(f"/api/v1/sessions/s-1/{path}", json=body)
            assert answer.status_code == 403, path
    assert "two" in (here.folder / "a.txt").read_text()


@aio
async def test_comments_are_the_same_in_all_browsers(here: Reviewed) -> None:
    here.store()
    at = "/api/v1/sessions/s-1/review"
    async with console(here.paths) as place, place.browser() as one, place.browser() as two:
        async with place.socket(two) as socket:
            await told(socket, "snapshot")
            comment = {"text": "Name it.", "path": "a.txt", "line": 2, "quote": "two"}
            added = (await one.post(f"{at}/comments", json=comment)).json()
            assert (await told(socket, "review"))["session"] is None
        (kept,) = (await two.get(at)).json()["comments"]
        assert kept == {"id": added["id"], "side": "new", **comment}
        gone = await two.post(f"{at}/comments/{added['id']}/delete", json={})
        assert gone.status_code == 200
        assert (await one.get(at)).json()["comments"] == []
        late = await one.post(f"{at}/send", json={"comments": [added["id"]]})
        assert late.status_code == 409


@aio
async def test_a_locked_file_of_comments_does_not_stop_the_console(
    here: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.store()
    waiting = threading.Event()

    def waits(path: Path) -> AbstractContextManager[None]:
        waiting.set()
        return locked(path)

    monkeypatch.setattr(review_comments, "locked", waits)
    tasks = TaskOwner("a browser")
    async with console(here.paths) as place, place.browser() as one, place.browser() as two:
        with locked(here.paths.state / ReviewComments.FILE_NAME):
            comment = one.post("/api/v1/sessions/s-1/review/comments", json={"text": "x"})
            adding = tasks.start(comment, "comment")
            while not waiting.is_set():
                assert (await two.get("/api/v1/inbox")).status_code == 200
        assert (await adding).status_code == 200


@aio
async def test_comments_that_cannot_be_sent_are_kept(here: Reviewed) -> None:
    with open_store(paths=here.paths) as store:
        store.create_session(session(key="s-1", peer="scout", cwd=str(here.folder / "gone")))
    at = "/api/v1/sessions/s-1/review"
    async with console(here.paths) as place, place.browser() as client:
        id = (await client.post(f"{at}/comments", json={"text": "x"})).json()["id"]
        for body in ({"comments": [id]}, {"comments": [id], "to": "new", "peer": "scout"}):
            answer = await client.post(f"{at}/send", json=body)
            assert answer.status_code == 400 and "not a directory" in answer.json()["message"]
        assert (await client.post(f"{at}/send", json={"comments": []})).status_code == 400
        assert [each["id"] for each in (await client.get(at)).json()["comments"]] == [id]
        assert (await client.get("/api/v1/sessions/s-9/review")).status_code == 404
        assert (await client.get(f"{at}?source=nonsense")).status_code == 400


@aio
async def test_comments_that_may_have_been_sent_are_not_offered_again(
    here: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unconfirmed(record: SessionRecord, prompt: str) -> StartedJob:
        error = BrokerError("the broker did not confirm the job j-1")
        error.may_have_run = True
        raise error

    async def refused(record: SessionRecord, prompt: str) -> StartedJob:
        raise RemoteError(-32000, "the session cannot be opened")

    here.store()
    at = "/api/v1/sessions/s-1/review"
    async with console(here.paths) as place, place.browser() as client:
        id = (await client.post(f"{at}/comments", json={"text": "x"})).json()["id"]
        monkeypatch.setattr(review_routes, "continue_session", refused)
        assert (await client.post(f"{at}/send", json={"comments": [id]})).status_code == 400
        assert [each["id"] for each in (await client.get(at)).json()["comments"]] == [id]
        monkeypatch.setattr(review_routes, "continue_session", unconfirmed)
        answer = await client.post(f"{at}/send", json={"comments": [id]})
        assert answer.status_code == 502 and "j-1" in answer.json()["message"]
        assert answer.json()["mayHaveRun"] is True
        assert (await client.get(at)).json()["comments"] == []


@aio
async def test_comments_that_a_slow_disk_gives_too_late_are_restored(
    here: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, restored = threading.Event(), threading.Event()
    take, put_back = ReviewComments.take, ReviewComments.put_back

    def slow(self: ReviewComments, session: str, ids: Sequence[str]) -> list[DraftComment]:
        go_on.wait(TIMEOUT)
        return take(self, session, ids)

    def noted(self: ReviewComments, session: str, comments: Sequence[DraftComment]) -> None:
        put_back(self, session, comments)
        restored.set()

    async def impatient(path: str, work: Any, *, changes_disk: bool = False) -> Any:
        return await in_thread(path, work, changes_disk=changes_disk, timeout=0.01)

    here.store()
    at = "/api/v1/sessions/s-1/review"
    async with console(here.paths) as place, place.browser() as client:
        id = (await client.post(f"{at}/comments", json={"text": "x"})).json()["id"]
        with monkeypatch.context() as patch:
            patch.setattr(ReviewComments, "take", slow)
            patch.setattr(ReviewComments, "put_back", noted)
            patch.setattr(review_routes, "in_thread", impatient)
            answer = await client.post(f"{at}/send", json={"comments": [id]})
            assert answer.status_code == 502 and "did not answer" in answer.json()["message"]
            go_on.set()
            assert await in_thread("", lambda _: restored.wait(TIMEOUT))
        assert [each["id"] for each in (await client.get(at)).json()["comments"]] == [id]


@aio
async def test_a_check_runs_in_the_background_and_its_result_is_announced(here: Reviewed) -> None:
    here.store()
    here.paths.config.mkdir(parents=True)
    fifo = here.folder / "GO"
    here.paths.config_file.write_text(f'check = "mkfifo {fifo} && cat {fifo}"\n')
    at = "/api/v1/sessions/s-1"
    async with console(here.paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            await told(socket, "snapshot")
            assert (await client.post(f"{at}/check", json={})).json() == {"started": True}
            assert (await told(socket, "review"))["session"] == "s-1"
            assert (await client.get(f"{at}/review")).json()["checking"]
            assert (await client.post(f"{at}/check", json={})).status_code == 409
            while not fifo.exists():
                await client.get("/api/v1/me")
            await asyncio.to_thread(fifo.write_text, "all good\n")
            await told(socket, "review")
        review = (await client.get(f"{at}/review")).json()
        assert not review["checking"] and review["check"]["tail"] == "all good\n"
        here.paths.config_file.write_text("")
        async with place.socket(client) as socket:
            await client.post(f"{at}/check", json={})
            await told(socket, "review")
            await told(socket, "review")
        assert "no check command" in (await client.get(f"{at}/review")).json()["checkProblem"]


@aio
async def test_a_check_that_fails_inside_dragoman_is_not_shown_as_done(
    here: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(key: str, *, paths: Paths) -> None:
        raise OSError("a path of this machine")

    monkeypatch.setattr(review_routes, "run_session_check", broken)
    here.store()
    at = "/api/v1/sessions/s-1"
    async with console(here.paths) as place, place.browser() as client:
        async with place.socket(client) as socket:
            await client.post(f"{at}/check", json={})
            await told(socket, "review")
            await told(socket, "review")
        review = (await client.get(f"{at}/review")).json()
    assert not review["checking"] and review["checkProblem"] == INTERNAL_PROBLEM


@aio
async def test_comments_that_can_be_neither_sent_nor_stored_are_shown_with_both_reasons(
    here: Reviewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, data: bytes, *, mode: int) -> None:
        raise FileFailed(str(path), "disk full")

    async def refused(record: SessionRecord, prompt: str) -> StartedJob:
        monkeypatch.setattr(review_comments, "write_file", fail)
        raise RemoteError(-32000, "the session cannot be opened")

    monkeypatch.setattr(review_routes, "continue_session", refused)
    here.store()
    at = "/api/v1/sessions/s-1/review"
    async with console(here.paths) as place, place.browser() as client:
        id = (await client.post(f"{at}/comments", json={"text": "keep me"})).json()["id"]
        answer = await client.post(f"{at}/send", json={"comments": [id]})
        assert answer.status_code == 502
        for word in ("cannot be opened", "disk full", "lost if the console is stopped"):
            assert word in answer.json()["message"]
        (kept,) = (await client.get(at)).json()["comments"]
        assert (kept["id"], kept["text"]) == (id, "keep me")
