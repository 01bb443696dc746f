from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dragoman.catalogue.descriptor import Credentials, Descriptor, Launch
from dragoman.catalogue.launch import LaunchSpec
from dragoman.errors import FileFailed
from dragoman.runs import git
from dragoman.transports.process.environment import build_environment
from dragoman.verify.environment import PROXIES, is_secret, make_repository, surroundings
from tests.aio import aio

DESCRIPTOR = Descriptor(
    name="x",
    title="X",
    launch=(Launch(command=("x",)),),
    credentials=Credentials(env=("X_PLAIN",), endpoints=("X_MODEL",)),
)
ENV = {"X_PLAIN": "1", "X_MODEL": "2", "X_API_KEY": "3", "X_BASE_URL": "4", "NO_RELAUNCH": "true"}
WAY = LaunchSpec(command=("x",), env=ENV, inherit=("X_PLAIN", "X_MODEL"), descriptor=DESCRIPTOR)


def test_a_known_peer_gets_its_own_environment_and_an_empty_folder() -> None:
    with surroundings(WAY, careful=False) as where:
        assert where.env == ENV
        assert where.inherit == ("X_PLAIN", "X_MODEL")
        assert list(where.workspace.iterdir()) == []
        assert where.marks.parent == where.workspace.parent


def test_the_folders_are_gone_afterwards_with_all_that_is_in_them() -> None:
    with surroundings(WAY, careful=True) as where:
        (where.workspace / "left").write_text("behind")
    assert not where.workspace.parent.exists()


def test_a_full_disk_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(FileFailed, match="no workspace for the verification: the disk is full"):
        with surroundings(WAY, careful=True):
            raise AssertionError


def test_an_unknown_program_gets_no_credentials_no_addresses_and_an_empty_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("X_PLAIN", "X_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/user/.config")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:password@proxy")
    with surroundings(WAY, careful=True) as where:
        found = build_environment(inherit=where.inherit, extra=where.env)
        assert {name for name in ENV if name in found} == {"NO_RELAUNCH"}
        assert "OPENAI_API_KEY" not in found
        home = Path(found["HOME"])
        assert home.is_dir() and list(home.iterdir()) == []
        assert home not in where.workspace.parents
        assert found["XDG_CONFIG_HOME"].startswith(str(home))
        assert {found[name] for name in ("SSH_AUTH_SOCK", *PROXIES)} == {""}
        values = " ".join(found.values())
        assert "secret" not in values and "password" not in values


@pytest.mark.parametrize(
    "name",
    ["GEMINI_API_KEY", "GITHUB_TOKEN", "OPENAI_BASE_URL", "X_PLAIN", "X_MODEL", "pg_password"],
)
def test_what_may_say_who_pays_or_where_a_model_is_counts_as_secret(name: str) -> None:
    assert is_secret(name, WAY)


@pytest.mark.parametrize("name", ["PATH", "NO_RELAUNCH", "LANG", "PYTHONPATH"])
def test_what_makes_a_program_behave_is_not_a_secret(name: str) -> None:
    assert not is_secret(name, WAY)
    assert not is_secret(name, LaunchSpec(command=("x",)))


@aio
async def test_the_workspace_is_a_repository_with_a_commit(tmp_path: Path) -> None:
    with surroundings(LaunchSpec(command=("x",)), careful=True) as where:
        await make_repository(where.workspace)
        answer = await git.ask(("log", "--format=%s"), cwd=where.workspace)
        assert (answer.ok, answer.text) == (True, "Begin")
        assert (await git.ask(("status", "--porcelain"), cwd=where.workspace)).text == ""


@aio
async def test_without_git_the_workspace_stays_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    await make_repository(tmp_path)
    assert os.listdir(tmp_path) == []
