"""One attempt: the prompt as the peer wants it, and who is at work."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from dragoman.catalogue.descriptor import Descriptor, Launch
from dragoman.catalogue.launch import LaunchSpec
from dragoman.delegation.attempt import prefixed, runtime_role
from dragoman.delegation.worktree.snapshot import Snapshot
from dragoman.errors import UsageError
from tests.aio import aio
from tests.integration.delegated_peers import bench_in


@pytest.mark.parametrize(
    ("prefix", "prompt"),
    [("/review", "/review look"), ("/review ", "/review look"), ("", "look")],
)
def test_a_prefix_of_the_role_stands_before_the_prompt(prefix: str, prompt: str) -> None:
    known = Descriptor(
        name="a",
        title="A",
        launch=(Launch(),),
        roles=("review",),
        role_prefixes={"review": prefix} if prefix else {},
    )
    way = LaunchSpec(command=("a",), descriptor=known)
    assert prefixed("look", "review", way) == prompt
    assert prefixed("look", "plan", way) == "look"
    assert prefixed("look", "review", LaunchSpec(command=("a",))) == "look"


def test_what_comes_with_dragoman_is_the_host() -> None:
    assert [runtime_role(name) for name in ("codex", "scout", "local-model")] == [
        "peer",
        "host",
        "host",
    ]


@aio
async def test_a_copy_that_cannot_be_made_is_an_attempt_that_never_ran(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "ok")
    bench.settings("alpha")
    done = await bench.delegate(isolate=True, fallback="none")
    assert done.outcome.value == "failed" and not done.final.may_have_run
    assert "takes a git repository" in str(done.final.failure)
    assert bench.told("alpha", "starts") == []


@aio
async def test_a_check_is_run_only_for_work_that_ended_well(tmp_path: Path) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "error")
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta", more='check = "touch ../checked"\n')
    done = await bench.delegate()
    assert [report.check is not None for report in done.attempts] == [False, True]
    assert (tmp_path / "checked").exists()
    bare = await bench.delegate(check="")
    assert bare.final.check is None


@aio
async def test_what_nobody_could_look_at_is_told_and_nobody_else_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_in(tmp_path)
    bench.peer("alpha", "error")
    bench.peer("beta", "ok")
    bench.settings("alpha", "beta")
    take, looks = Snapshot.take, count()

    async def first_only(workspace: Path) -> Snapshot:
        if next(looks):
            raise UsageError("the folder is gone")
        return await take(workspace)

    monkeypatch.setattr(Snapshot, "take", first_only)
    done = await bench.delegate()
    assert len(done.attempts) == 1 and done.final.changed is None
    assert done.stopped == "alpha: nobody looked what it changed"
    assert bench.heard.notices == ["what alpha changed is not known: the folder is gone"]
    assert bench.told("beta", "starts") == []
