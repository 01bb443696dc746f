"""Worktrees created from bundles: what is rejected, what does not run, and the resulting patch."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from pathlib import Path

import msgspec
import pytest

from dragoman.delegation.worktree.bundle import Bundle, pack
from dragoman.delegation.worktree.received_patch import apply_received, make_branch
from dragoman.delegation.worktree.sent_tree import (
    RECORD,
    SentTree,
    known_heads,
    read_sent,
    remove_old,
    remove_sent,
    result_patch,
    unpack,
)
from dragoman.errors import IsolationFailed, UsageError
from tests.aio import aio
from tests.unit.delegation.worktree.repositories import commit_all, git, make, tree


async def send(folder: Path, place: Path) -> SentTree:
    file = place.parent / f"{place.name}.bundle"
    return await unpack(file, await pack(folder, file), folder=place)


def trees_in(folder: Path) -> list[Path]:
    return list(folder.glob("trees/*"))


@aio
async def test_a_record_is_found_again_until_it_is_removed(tmp_path: Path) -> None:
    sent = await send(make(tmp_path / "repo"), tmp_path / "far")
    assert read_sent(tmp_path / "far", sent.id) == sent
    assert await known_heads(tmp_path / "far", sent.bundle.project) == (sent.bundle.head,)
    await remove_sent(tmp_path / "far", sent)
    assert trees_in(tmp_path / "far") == []
    with pytest.raises(UsageError, match="no sent worktree"):
        read_sent(tmp_path / "far", sent.id)
    # The next bundle can still omit the known history.
    assert await known_heads(tmp_path / "far", sent.bundle.project) == (sent.bundle.head,)


@aio
async def test_files_that_only_this_clone_or_its_user_ignores_are_not_changes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / ".config" / "git").mkdir(parents=True)
    (tmp_path / ".config" / "git" / "ignore").write_text("*.pyc")
    folder = make(tmp_path / "repo")
    (folder / ".git" / "info" / "exclude").write_text("secret\n")
    (folder / "secret").write_text("sent, because it is named\n")
    file = tmp_path / "it.bundle"
    bundle = await pack(folder, file, included=["secret"])
    assert bundle.ignored == "*.pyc\nsecret\n"
    sent = await unpack(file, bundle, folder=tmp_path / "far")
    there = Path(sent.workspace)
    assert (there / "secret").exists()
    (there / "made.pyc").write_bytes(b"\0")
    assert await result_patch(sent) == b""
    assert git(there, "status", "--porcelain") == ""
    (tmp_path / "mine").write_text("*.log\n")
    (tmp_path / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n")
    assert (await pack(folder, tmp_path / "two.bundle")).ignored == "*.log\n\nsecret\n"


@aio
async def test_a_link_or_setting_of_a_repository_sends_no_file_as_patterns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "key").write_text("SECRET")
    folder = make(tmp_path / "repo")
    exclude = folder / ".git" / "info" / "exclude"
    exclude.unlink()
    exclude.symlink_to(tmp_path / "key")
    git(folder, "config", "core.excludesFile", str(tmp_path / "key"))
    assert "SECRET" not in (await pack(folder, tmp_path / "it.bundle")).ignored


@aio
async def test_two_bundles_of_a_project_may_arrive_at_once(tmp_path: Path) -> None:
    folder, file = make(tmp_path / "repo"), tmp_path / "it.bundle"
    bundle = await pack(folder, file)
    unpacked = [unpack(file, bundle, folder=tmp_path / "far") for _ in range(4)]
    made = await asyncio.gather(*unpacked)
    assert len({sent.id for sent in made}) == 4
    for sent in made:
        assert tree(Path(sent.workspace)) == tree(folder)
        assert sorted(os.listdir(Path(sent.workspace).parent)) == ["repo", RECORD]


@aio
async def test_without_a_commit_the_whole_result_is_new_for_a_branch(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo", commit=False)
    sent = await send(folder, tmp_path / "far")
    (Path(sent.workspace) / "new").write_text("new\n")
    data = await result_patch(sent, against="head")
    await make_branch(data, folder, branch="from-box", head="", message="result")
    listed = git(folder, "ls-tree", "-r", "--name-only", "from-box").split()
    assert listed == [".gitignore", "a.txt", "new", "src/b.py"]


@pytest.mark.parametrize("data", [b"{", b'{"id": "\xff"}', b'{"tree": ' + b"[" * 100_000])
@aio
async def test_a_damaged_record_counts_as_missing(tmp_path: Path, data: bytes) -> None:
    sent = await send(make(tmp_path / "repo"), tmp_path / "far")
    (tmp_path / "far" / "trees" / sent.id / RECORD).write_bytes(data)
    with pytest.raises(UsageError, match="no sent worktree"):
        read_sent(tmp_path / "far", sent.id)
    assert await remove_old(tmp_path / "far", patches=tmp_path / "patches", max_age=0) == []


@pytest.mark.parametrize("id_", ["../../etc", "", "x" * 16])
def test_an_id_cannot_name_another_directory(tmp_path: Path, id_: str) -> None:
    with pytest.raises(UsageError):
        read_sent(tmp_path, id_)


@aio
async def test_commits_and_uncommitted_changes_become_one_patch(tmp_path: Path) -> None:
    folder = make(tmp_path / "repo")
    (folder / "a.txt").write_text("mine, not committed\n")
    sent = await send(folder, tmp_path / "far")
    assert await result_patch(sent) == b""
    there = Path(sent.workspace)
    (there / "src" / "b.py").write_text("b = 2\n")
    commit_all(there, "committed there")
    (there / "new.bin").write_bytes(b"\0\1\2")
    data = await result_patch(sent)
    assert b"a.txt" not in data and b"new.bin" in data and b"b = 2" in data
    assert b"mine, not committed" in await result_patch(sent, against="head")


@aio
async def test_no_filter_hook_or_monitor_of_the_machine_or_the_repository_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    command = f"sh -c 'echo ran >> {ran}; cat'"
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f'[filter "x"]\n\tclean = "{command}"\n\tsmudge = "{command}"\n\trequired = true\n'
        f'[core]\n\tfsmonitor = "{command}"\n\thooksPath = {tmp_path / "hooks"}\n'
        f'[diff]\n\texternal = "{command}"\n[credential]\n\thelper = "!{command}"\n'
    )
    folder = make(tmp_path / "repo")
    (folder / ".gitattributes").write_text("*.txt filter=x diff=x\n")
    file = tmp_path / "it.bundle"
    bundle = await pack(folder, file)
    (tmp_path / "hooks").mkdir()
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        (tmp_path / "hooks" / name).write_text(f"#!/bin/sh\necho ran >> {ran}\n")
        (tmp_path / "hooks" / name).chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    sent = await unpack(file, bundle, folder=tmp_path / "far")
    store = Path(sent.tree.common_folder)
    # An agent that works in the tree may change the configuration of the store.
    with (store / "config").open("a") as config:
        config.write((home / ".gitconfig").read_text())
    (Path(sent.workspace) / "a.txt").write_text("changed\n")
    assert b"changed" in await result_patch(sent)
    assert not ran.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"project": "../up"},
        {"project": ".hidden"},
        {"name": "../up"},
        {"name": ".git"},
        {"subfolder": "../up"},
        {"subfolder": "/etc"},
        {"subfolder": "src/.git"},
        {"object_format": "--upload-pack=x"},
        {"sent": "--all"},
        {"staged": "HEAD"},
        {"base": ("x",)},
        {"ignored": "x" * 100_000},
        {"digest": "0" * 64},
        {"size": 1},
    ],
)
@aio
async def test_a_bundle_that_does_not_match_its_description_is_rejected(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    file = tmp_path / "it.bundle"
    bundle = await pack(make(tmp_path / "repo"), file)
    with pytest.raises((UsageError, IsolationFailed)):
        await unpack(file, msgspec.structs.replace(bundle, **wrong), folder=tmp_path / "far")
    assert trees_in(tmp_path / "far") == []


@aio
@pytest.mark.parametrize("subfolder", ["link", "link/new", "plain/link"])
async def test_no_link_in_the_files_leads_the_work_out_of_the_worktree(
    tmp_path: Path, subfolder: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = make(tmp_path / "repo")
    (folder / "plain").mkdir()
    for link in (folder / "link", folder / "plain" / "link"):
        link.symlink_to(outside)
    commit_all(folder)
    file = tmp_path / "it.bundle"
    bundle = msgspec.structs.replace(await pack(folder, file), subfolder=subfolder)
    with pytest.raises(IsolationFailed, match="symbolic link"):
        await unpack(file, bundle, folder=tmp_path / "far")
    assert list(outside.iterdir()) == []
    assert trees_in(tmp_path / "far") == []


@aio
async def test_no_ignored_file_is_written_through_a_link_in_the_files(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = make(tmp_path / "repo")
    (folder / "link").mkdir()
    (folder / "link" / "authorized_keys").write_text("mine\n")
    (folder / ".gitignore").write_text("link/\n")
    included = await pack(folder, tmp_path / "first.bundle", included=["link/authorized_keys"])
    shutil.rmtree(folder / "link")
    (folder / "link").symlink_to(outside)
    (folder / ".gitignore").unlink()
    commit_all(folder)
    far = tmp_path / "far"
    await unpack(tmp_path / "first.bundle", included, folder=far)
    bundle = await pack(folder, tmp_path / "second.bundle")
    forged = msgspec.structs.replace(bundle, included=included.included)
    with pytest.raises(IsolationFailed):
        await unpack(tmp_path / "second.bundle", forged, folder=far)
    assert list(outside.iterdir()) == []


@aio
async def test_a_bundle_that_needs_an_unknown_commit_is_rejected_and_leaves_no_files(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path / "repo")
    file = tmp_path / "it.bundle"
    bundle = await pack(folder, file, known=[git(folder, "rev-parse", "HEAD").strip()])
    with pytest.raises(IsolationFailed, match="prerequisite"):
        await unpack(file, bundle, folder=tmp_path / "far")
    assert trees_in(tmp_path / "far") == []


@aio
async def test_an_old_worktree_is_removed_after_its_patch_was_saved(tmp_path: Path) -> None:
    sent = await send(make(tmp_path / "repo"), tmp_path / "far")
    (Path(sent.workspace) / "a.txt").write_text("work\n")
    assert await remove_old(tmp_path / "far", patches=tmp_path / "patches") == []
    removed = await remove_old(tmp_path / "far", patches=tmp_path / "patches", max_age=-1)
    assert removed == [sent.id]
    assert b"work" in (tmp_path / "patches" / f"{sent.id}.patch").read_bytes()


@aio
async def test_an_old_worktree_is_kept_while_its_patch_cannot_be_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    far, patches = tmp_path / "far", tmp_path / "patches"
    sent = await send(make(tmp_path / "repo"), far)
    (Path(sent.workspace) / "a.txt").write_text("work\n")
    store, away = sent.tree.common_folder, tmp_path / "away"
    os.rename(store, away)
    assert await remove_old(far, patches=patches, max_age=-1) == []
    assert "its changes cannot be saved" in caplog.text
    os.rename(away, store)
    assert await remove_old(far, patches=patches, max_age=-1) == [sent.id]
    assert b"work" in (patches / f"{sent.id}.patch").read_bytes()


@aio
async def test_the_record_of_a_missing_worktree_is_removed(tmp_path: Path) -> None:
    sent = await send(make(tmp_path / "repo"), tmp_path / "far")
    shutil.rmtree(sent.tree.path)
    removed = await remove_old(tmp_path / "far", patches=tmp_path / "patches", max_age=-1)
    assert removed == [sent.id] and trees_in(tmp_path / "far") == []


@aio
async def test_a_worktree_that_was_never_completed_is_removed_some_day(tmp_path: Path) -> None:
    sent = await send(make(tmp_path / "repo"), tmp_path / "far")
    (tmp_path / "far" / "trees" / sent.id / RECORD).unlink()
    assert await remove_old(tmp_path / "far", patches=tmp_path / "patches") == []
    assert len(trees_in(tmp_path / "far")) == 1
    await remove_old(tmp_path / "far", patches=tmp_path / "patches", max_age=-1)
    assert trees_in(tmp_path / "far") == []


def test_a_description_survives_json() -> None:
    bundle = Bundle(
        project="p", name="n", subfolder="", object_format="sha1", head="", sent_head="1" * 40,
        sent="2" * 40, staged="", base=("3" * 40,),
    )  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(bundle), type=Bundle) == bundle


NAMES = ["a", "b c", "dir/x", "dir/ü", "dir/deep/-y", "é\n", 'quo"te', "tab\t", "dir2/z.bin"]


def shuffle(folder: Path, chance: random.Random) -> None:
    """Change files at random: contents, modes, file types, removal."""
    for name in chance.sample(NAMES, chance.randint(1, 6)):
        path = folder / name
        if path.is_symlink() or path.is_file():
            path.unlink()
        if path.is_dir() or any(one.is_file() for one in path.parents if one != folder):
            continue
        kind = chance.randint(0, 4)
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == 0:
            continue
        if kind == 1:
            path.symlink_to(chance.choice(["a", "nowhere", "../x"]))
        elif kind == 2:
            path.write_bytes(chance.randbytes(chance.randint(0, 3000)))
        else:
            words = ["x\n", "y\r\n", "no end", "  \n"]
            path.write_text("".join(chance.choices(words, k=chance.randint(0, 30))))
            path.chmod(chance.choice([0o644, 0o755]))


def content(folder: Path) -> dict[str, tuple[str, bytes, bool]]:
    found = {}
    for parent, folders, files in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
        for name in files + [one for one in folders if Path(parent, one).is_symlink()]:
            path = Path(parent, name)
            if name == ".git":
                continue
            if path.is_symlink():
                found[str(path.relative_to(folder))] = (
                    "link",
                    os.fsencode(os.readlink(path)),
                    False,
                )
            else:
                data = path.read_bytes()
                found[str(path.relative_to(folder))] = ("file", data, os.access(path, os.X_OK))
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(12))
@aio
async def test_random_changes_are_returned_completely(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    folder = make(tmp_path / "repo")
    shuffle(folder, chance)
    commit_all(folder)
    shuffle(folder, chance)
    git(folder, "add", "-A")
    shuffle(folder, chance)
    sent = await send(folder, tmp_path / "far")
    there = Path(sent.workspace)
    assert content(there) == content(folder)
    shuffle(there, chance)
    if chance.random() < 0.5:
        commit_all(there)
        shuffle(there, chance)
    data = await result_patch(sent)
    applied = await apply_received(data, folder, patches=tmp_path / "patches", name="it")
    assert applied.ok, applied
    assert content(folder) == content(there)
