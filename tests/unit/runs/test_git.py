"""git is run within bounds, finds its repository, and leaves the user's index alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import IsolationFailed, ProgramNotFound, UsageError
from dragoman.runs import git
from dragoman.transports.process.query import ProgramOutput
from tests.aio import aio
from tests.unit.delegation.worktree import repositories
from tests.unit.delegation.worktree.repositories import make


@aio
async def test_an_answer_has_the_output_and_a_refusal_the_reason(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    answer = await git.ask(("rev-parse", "--abbrev-ref", "HEAD"), cwd=folder)
    assert (answer.ok, answer.text) == (True, "main")
    with pytest.raises(IsolationFailed, match="`git cat-file` in .* failed: Not a valid object"):
        await git.demand(("cat-file", "-p", "nothing"), cwd=folder)


@aio
async def test_an_answer_that_is_too_long_or_too_late_is_cut(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    long = await git.ask(("cat-file", "-p", "HEAD:a.txt"), cwd=folder, limit_size=3)
    assert long.cut and not long.ok
    late = await git.ask(("-c", "alias.wait=!sleep 600", "wait"), cwd=folder, timeout=0.2)
    assert late.cut
    assert git.describe(late, 0.2) == "it did not end within 0.2 s or printed too much"


@aio
async def test_without_git_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramNotFound, match="git"):
        await git.ask(("version",), cwd=tmp_path)


@aio
async def test_a_repository_is_found_from_below_and_in_a_worktree(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    found, _ = await git.find_repository(folder / "src")
    assert found == git.Repository(folder, folder / ".git", folder / ".git")
    repositories.git(folder, "worktree", "add", "-q", str(tmp_path / "other"))
    found, _ = await git.find_repository(tmp_path / "other")
    assert found is not None
    assert found.common_folder == folder / ".git"
    assert found.git_folder == folder / ".git" / "worktrees" / "other"
    assert await git.find_repository(tmp_path) == (
        None,
        "not a git repository (or any of the parent directories): .git",
    )


@aio
async def test_staging_reads_the_users_index_and_writes_another(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("x")
    (folder / "outside").write_text("untracked")
    (folder / "src" / "inside").write_text("untracked")
    before = (folder / ".git" / "index").read_bytes()
    repository, _ = await git.find_repository(folder)
    assert repository is not None
    env, answer = await git.stage_everything(
        repository, folder / "src", tmp_path / "index", objects=tmp_path / "objects"
    )
    assert answer.ok
    listed = await git.ask(("ls-files",), cwd=folder, env=env)
    # What is untracked elsewhere in the repository is none of our business.
    assert listed.text.split() == [".gitignore", "a.txt", "src/b.py", "src/inside"]
    assert (folder / ".git" / "index").read_bytes() == before


@aio
async def test_a_change_within_the_same_tick_as_the_index_is_seen(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    repository, _ = await git.find_repository(folder)
    assert repository is not None
    git.copy_index(repository, tmp_path / "index")
    original = (folder / ".git" / "index").stat().st_mtime_ns
    assert (tmp_path / "index").stat().st_mtime_ns == original


@aio
async def test_a_path_with_a_colon_in_it_works(tmp_path: Path) -> None:
    folder = make(tmp_path / 'a:b "c"')
    repository, _ = await git.find_repository(folder)
    assert repository is not None
    env, answer = await git.stage_everything(
        repository, folder, tmp_path / "index", objects=tmp_path / "objects"
    )
    assert answer.ok
    # The objects of the repository are found beside the new ones.
    assert (await git.ask(("cat-file", "-e", "HEAD"), cwd=folder, env=env)).ok


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="no directory"):
        git.real_folder(tmp_path / "file")
    with pytest.raises(UsageError, match="there is no directory"):
        git.real_folder(tmp_path / ("x" * 5000))
    assert not git.is_folder(tmp_path / ("x" * 5000))


@aio
async def test_a_repository_that_claims_the_files_of_another_folder_is_none(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("swordfish")
    folder = make(tmp_path / "repo")
    repositories.git(folder, "config", "core.worktree", str(tmp_path))
    repositories.git(folder, "add", "../secret")
    for asked in (folder, folder / "src"):
        found, why = await git.find_repository(asked)
        assert found is None and "core.worktree" in why
    bare = tmp_path / "bare"
    repositories.git(tmp_path, "init", "-q", "--bare", str(bare))
    repositories.git(bare, "config", "core.bare", "false")
    repositories.git(bare, "config", "core.worktree", str(tmp_path))
    assert (await git.find_repository(bare))[0] is None


def at_home(home: Path, monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    """A user with this configuration of git."""
    home.mkdir()
    (home / ".gitconfig").write_text(config)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))


def settings(env: dict[str, str]) -> dict[str, str]:
    count = int(env["GIT_CONFIG_COUNT"])
    return {env[f"GIT_CONFIG_KEY_{at}"]: env[f"GIT_CONFIG_VALUE_{at}"] for at in range(count)}


@aio
async def test_filters_of_the_repository_are_switched_off_and_those_of_the_user_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(tmp_path / "home", monkeypatch, '[filter "lfs"]\n\tclean = mine\n\trequired\n')
    folder = make(tmp_path / "repo")
    found, _ = await git.find_repository(folder)
    assert found is not None
    assert settings(await git.own_filters(found)) == {}
    (tmp_path / "included").write_text('[filter "in.cluded"]\n\tprocess = evil\n')
    repositories.git(folder, "config", "include.path", str(tmp_path / "included"))
    repositories.git(folder, "config", "filter.lfs.clean", "evil")
    repositories.git(folder, "config", "filter.lfs.smudge", "evil")
    repositories.git(folder, "config", "extensions.worktreeConfig", "true")
    repositories.git(folder, "config", "--worktree", "filter.tree.smudge", "evil")
    refused = settings(await git.own_filters(found, refuse=True))
    off = {"clean": "", "smudge": "", "process": "", "required": "true"}
    assert refused == {
        **{f"filter.in.cluded.{switch}": value for switch, value in off.items()},
        **{f"filter.tree.{switch}": value for switch, value in off.items()},
        **{"filter.lfs.clean": "mine", "filter.lfs.smudge": ""},
    }
    assert settings(await git.own_filters(found))["filter.tree.required"] == "no"
    # A process would go before what the user has, and cannot be taken out again.
    repositories.git(folder, "config", "filter.lfs.process", "evil")
    refused = settings(await git.own_filters(found, refuse=True))
    assert {switch: refused[f"filter.lfs.{switch}"] for switch in off} == off


@aio
async def test_no_command_runs_a_filter_of_the_repository(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    repositories.git(folder, "config", "filter.evil.clean", f"touch {tmp_path / 'ran'}; cat")
    repositories.git(folder, "config", "filter.evil.smudge", f"touch {tmp_path / 'ran'}; cat")
    (folder / ".gitattributes").write_text("* filter=evil\n")
    (folder / "a.txt").write_text("other\n")
    for args in (("add", "--all"), ("checkout", "--", "a.txt"), ("read-tree", "--reset", "HEAD")):
        assert (await git.ask(args, cwd=folder)).ok
    assert not (tmp_path / "ran").exists()


@aio
@pytest.mark.parametrize("name", ["", "a=b", "a.b", "a b", "Ä", "filter"])
async def test_no_name_of_a_filter_hides_it(tmp_path: Path, name: str) -> None:
    folder = make(tmp_path / "repo")
    with (folder / ".git/config").open("a") as file:
        file.write(f'[filter "{name}"]\n\tclean = touch {tmp_path / "ran"}; cat\n')
    (folder / ".git/info").mkdir(exist_ok=True)
    # An attribute has no spaces in its value.
    (folder / ".git/info/attributes").write_text(f"* filter={name}\n")
    (folder / "a.txt").write_text("other\n")
    found, _ = await git.find_repository(folder)
    assert found is not None
    refused = settings(await git.own_filters(found, refuse=True))
    assert refused[f"filter.{name}.clean"] == "" and refused[f"filter.{name}.required"] == "true"
    env = {"GIT_INDEX_FILE": str(tmp_path / "index"), **await git.own_filters(found, refuse=True)}
    answer = await git.ask(("add", "--all"), cwd=folder, env=env)
    if " " not in name:
        error = git.filter_failure(answer, "adding", env)
        assert error is not None and f"the filter {name!r} is defined only by" in str(error)
    assert (await git.ask(("add", "--all"), cwd=folder)).ok
    assert not (tmp_path / "ran").exists()


@aio
async def test_a_filter_of_which_the_user_only_says_that_it_is_required_is_the_repositorys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(tmp_path / "home", monkeypatch, '[filter "x"]\n\trequired\n')
    folder = make(tmp_path / "repo")
    repositories.git(folder, "config", "filter.x.clean", "evil")
    found, _ = await git.find_repository(folder)
    assert found is not None
    refused = await git.own_filters(found, refuse=True)
    complaint = "fatal: a.txt: clean filter 'x' failed\n"
    error = git.filter_failure(ProgramOutput(128, b"", complaint), "adding", refused)
    assert error is not None and "is defined only by the repository" in str(error)


@aio
async def test_hooks_of_the_configuration_are_switched_off_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    at_home(tmp_path / "home", monkeypatch, f'[hook "mine"]\n\tcommand = touch {ran}\n')
    folder = make(tmp_path / "repo")
    found, _ = await git.find_repository(folder)
    assert found is not None
    with (folder / ".git/config").open("a") as file:
        for name in ("", "evil", "e.vil"):
            file.write(f'[hook "{name}"]\n\tcommand = touch {ran}\n')
            for event in ("post-index-change", "post-checkout", "reference-transaction"):
                file.write(f"\tevent = {event}\n")
    off = settings(await git.own_filters(found))
    names = ("mine", "", "evil", "e.vil")
    assert off == {
        f"hook.{name}.{key}": value
        for name in names
        for key, value in (("enabled", "false"), ("event", ""))
    }
    # git before 2.54 does not know such hooks; it runs none of them either.
    (folder / "b.txt").write_text("b\n")
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    for args in (
        ("add", "--all"),
        ("write-tree",),
        (*identity, "commit", "--quiet", "-m", "second"),
        ("update-ref", "refs/heads/other", "HEAD"),
        ("worktree", "add", "--quiet", "--detach", str(tmp_path / "tree")),
        ("read-tree", "HEAD"),
    ):
        answer = await git.ask(args, cwd=folder)
        assert answer.ok, answer
    assert not ran.exists()


@aio
async def test_an_old_git_cannot_switch_filters_off_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(tmp_path / "repo")
    found, _ = await git.find_repository(folder)
    assert found is not None
    monkeypatch.setattr(git, "OLDEST_GIT", (99, 0))
    assert settings(await git.own_filters(found)) == {}
    repositories.git(folder, "config", "filter.x.clean", "cat")
    with pytest.raises(IsolationFailed, match=r"git 99\.0 or newer is needed"):
        await git.own_filters(found)


@pytest.mark.parametrize(
    "last", ["clean filter 'lfs' failed", "the remote end hung up unexpectedly"]
)
def test_a_filter_program_that_is_missing_is_named_however_git_found_out(last: str) -> None:
    complaint = f"git-lfs filter-process: 1: git-lfs: not found\nfatal: {last}\n"
    error = git.filter_failure(ProgramOutput(128, b"", complaint), "reading the files", {})
    assert error is not None and "of your git configuration does not work (" in str(error)
    assert "Install the program that it runs" in str(error)
    if "hung up" in last:
        assert "git-lfs: not found" in str(error)
