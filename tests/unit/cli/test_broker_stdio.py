"""What another machine may request: options, directories and peers of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dragoman.broker.host_protocol import HostPrompt
from dragoman.cli import broker_stdio, read_input
from dragoman.errors import BrokerBusy, BrokerError, BrokerUnavailable, DragomanError, UsageError
from dragoman.paths import find_paths
from dragoman.runs.host_submission import FOLDER
from tests.aio import aio


def test_options_that_would_start_another_program_are_rejected(tmp_path: Path) -> None:
    prompt = HostPrompt(job="j-1", peer="scout", cwd=str(tmp_path), options={"env": ["SECRET"]})
    with pytest.raises(UsageError, match="--env cannot be used with --host"):
        broker_stdio._plan(prompt)


def test_the_directory_must_be_named_and_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name the directory to work in"):
        broker_stdio._plan(HostPrompt(job="j-1", peer="scout"))
    with pytest.raises(UsageError, match="not a directory on the host"):
        broker_stdio._plan(HostPrompt(job="j-1", peer="scout", cwd=str(tmp_path / "no")))


def test_a_prompt_is_rejected_if_brokers_are_disabled(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="brokers are disabled"):
        broker_stdio._plan(HostPrompt(job="j-1", peer="scout", cwd=str(tmp_path)))


def test_permission_requests_go_to_the_user_on_the_other_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_WARM", "1")
    asked = HostPrompt(job="j-1", peer="scout", cwd=str(tmp_path), is_asked=True)
    assert broker_stdio._plan(asked).policy.value == "ask"
    alone = HostPrompt(job="j-1", peer="scout", cwd=str(tmp_path))
    assert broker_stdio._plan(alone).policy.value == "approve-reads"


@aio
@pytest.mark.parametrize(
    ("refusal", "noted"),
    [
        (UsageError("no such session"), False),
        (BrokerBusy("the queue is full"), False),
        (BrokerError("it did not confirm the job"), True),
    ],
    ids=["usage", "busy", "unconfirmed"],
)
async def test_a_prompt_that_the_broker_refused_may_be_submitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: DragomanError, noted: bool
) -> None:
    class Refused:
        peer = SimpleNamespace(capabilities=None)

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *_: Any) -> None:
            pass

        async def submit(self, *_: Any, **__: Any) -> str:
            raise refusal

    monkeypatch.setenv("DRAGOMAN_WARM", "1")
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(broker_stdio, "Run", Refused)
    monkeypatch.setattr(read_input, "blocks", lambda *_, **__: [])
    paths = find_paths()
    asked = HostPrompt(job="j-12345678", peer="scout", cwd=str(tmp_path), words=["hello"])
    with pytest.raises(type(refusal), match=str(refusal)):
        await broker_stdio.submit_prompt(asked, paths)
    assert (paths.state / FOLDER / asked.job).exists() == noted


@pytest.fixture
def logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A login whose runtime folder the system removes at its end."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("DRAGOMAN_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv(broker_stdio.RUNTIME, raising=False)
    monkeypatch.setenv("LOGNAME", "without-linger")
    return runtime


def test_sockets_survive_the_logout_and_every_login_finds_them(
    logged_in: Path, tmp_path: Path
) -> None:
    assert find_paths().runtime == logged_in / "dragoman"
    broker_stdio.use_lasting_runtime()
    assert find_paths().runtime == tmp_path / "state" / "run"
    # Not by a variable of this process: a shell on that machine has to look there too.
    assert broker_stdio.RUNTIME not in os.environ


def test_a_login_without_a_runtime_folder_shares_its_sockets_with_others(
    logged_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    broker_stdio.use_lasting_runtime()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(logged_in))
    assert find_paths().runtime == tmp_path / "state" / "run"


def test_sockets_survive_the_logout_also_if_nothing_can_be_written(
    logged_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv(broker_stdio.RUNTIME, "removed at the end of the test")
    monkeypatch.delenv(broker_stdio.RUNTIME)
    broker_stdio.use_lasting_runtime()
    assert os.environ.pop(broker_stdio.RUNTIME) == str(tmp_path / "state" / "run")
