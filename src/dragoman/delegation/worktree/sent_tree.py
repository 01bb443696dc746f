"""Unpack a bundle from another machine into a worktree, and create the patch of the changes made
there.

The store has one bare repository per project of the sender, so that a later bundle only needs what
is new. git runs without this machine's configuration: no hooks, filters, Git LFS, credential
helpers, file system monitor or external diff. `bundle` packs on the other side.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
import time
from pathlib import Path, PurePosixPath
from typing import Final, Literal

import msgspec
from msgspec import Struct

from dragoman.client.folders import make_private
from dragoman.config.safe_files import write_whole
from dragoman.decoders import decode_typed
from dragoman.delegation.worktree import records
from dragoman.delegation.worktree.bundle import (
    COMMIT,
    MAX_BUNDLE_SIZE,
    MAX_KNOWN,
    MAX_PATTERNS_SIZE,
    REFS,
    Bundle,
)
from dragoman.delegation.worktree.isolation import add_worktree
from dragoman.delegation.worktree.patch import keep_patch, patch_of
from dragoman.delegation.worktree.records import Tree, WorktreeRecord
from dragoman.errors import DragomanError, IsolationFailed, UsageError
from dragoman.rpc.tasks import in_thread
from dragoman.runs import git
from dragoman.runs.git import CHECKOUT_TIMEOUT
from dragoman.transports.process.identity import own_identity
from dragoman.wire.messages import UNDECODABLE

NEUTRAL: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    # Before git 2.32 these say where the user's configuration is.
    "HOME": os.devnull,
    "XDG_CONFIG_HOME": os.devnull,
}
"""Environment in which git ignores this machine's configuration. The sender's filters were already
applied to the files, and a second filter here would change what is sent back."""

RECORD: Final = "sent.json"
MAX_AGE: Final = 30 * 86400.0
"""Seconds after which a worktree is removed. Its changes are saved as a patch first."""

SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
TREE_ID: Final = re.compile(r"[0-9a-f]{16}")

log = logging.getLogger(__name__)


class SentTree(Struct, frozen=True, kw_only=True):
    """A worktree created from a bundle."""

    id: str
    bundle: Bundle
    tree: Tree
    workspace: str
    """The directory to work in."""
    made_at: float


async def known_heads(folder: Path, project: str) -> tuple[str, ...]:
    """Return the commits of a project that this machine has from earlier bundles, newest first and
    at most `MAX_KNOWN`; empty if there are none."""
    store = _store(folder, project)
    if not store.is_dir():
        return ()
    listed = ("for-each-ref", "--sort=-creatordate", f"--count={MAX_KNOWN}")
    answer = await git.ask(
        (*listed, "--format=%(objectname)", f"{REFS}head/"), cwd=store, env=_env(store)
    )
    return tuple(dict.fromkeys(answer.text.split())) if answer.ok else ()


async def unpack(file: Path, bundle: Bundle, *, folder: Path) -> SentTree:
    """Create a worktree from a bundle. `file` is its absolute path, `bundle` its description, and
    `folder` the directory of the stores and worktrees. Raises `UsageError` if the description is
    invalid, and `IsolationFailed` if the bundle is damaged or cannot be unpacked."""
    await in_thread(str(file), lambda _: _check(file, bundle))
    store = _store(folder, bundle.project)
    id_ = secrets.token_hex(8)
    home = folder / "trees" / id_
    path = home / bundle.name
    try:
        make_private(store.parent)
        make_private(home)
    except OSError as error:
        raise IsolationFailed(f"creating {home}", error.strerror or str(error)) from error
    tree = Tree(top=str(path), common_folder=str(store), path=str(path))
    try:
        if not store.is_dir():
            await _make_store(store, bundle, home)
        write_whole(store / "info" / "exclude", bundle.ignored.encode())
        await _unbundle(store, file, bundle, id_)
        tree = await _check_out(store, path, bundle, tree)
        workspace = _workspace(path, bundle.subfolder)
        sent = SentTree(
            id=id_, bundle=bundle, tree=tree, workspace=str(workspace), made_at=time.time()
        )
        write_whole(home / RECORD, msgspec.json.encode(sent))
    except OSError as error:
        await _remove(home, tree)
        raise IsolationFailed(f"unpacking into {path}", error.strerror or str(error)) from error
    except BaseException:
        await _remove(home, tree)
        raise
    return sent


def _workspace(top: Path, subfolder: str) -> Path:
    """Return the directory to work in, and create it if it is missing, because git does not check
    out empty directories. A symbolic link among the files must not lead out of the worktree."""
    workspace = top
    for part in PurePosixPath(subfolder).parts:
        workspace /= part
        if workspace.is_symlink():
            raise IsolationFailed(
                "unpacking the bundle",
                f"the working directory {subfolder!r} is reached through the symbolic link "
                f"{workspace.relative_to(top).as_posix()!r}",
            )
    make_private(workspace)
    return workspace


def read_sent(folder: Path, id_: str) -> SentTree:
    """Return the worktree with this id. Raises `UsageError` if there is none."""
    record = _read(folder / "trees" / id_ / RECORD) if TREE_ID.fullmatch(id_) else None
    if record is None:
        raise UsageError(f"there is no sent worktree {id_[:40]!r} on the host")
    return record


async def result_patch(sent: SentTree, *, against: Literal["sent", "head"] = "sent") -> bytes:
    """Return the changes in a worktree, as a binary patch for the top of the sender's repository.

    It is relative to the files as they were sent, or to the sender's HEAD. Includes commits made in
    the worktree, but no ignored files.
    """
    tree = sent.tree
    if against == "head" and not sent.bundle.head:
        # Without a commit everything is new.
        tree = msgspec.structs.replace(tree, base="")
    elif against == "head":
        base = await git.demand(
            ("rev-parse", "--verify", f"{sent.bundle.sent_head}^{{tree}}"),
            cwd=Path(tree.common_folder),
            env=_env(Path(tree.common_folder)),
        )
        tree = msgspec.structs.replace(tree, base=base.text)
    return await patch_of((tree,), env=NEUTRAL)


async def remove_sent(folder: Path, sent: SentTree) -> None:
    """Remove a worktree and its references, without saving its changes. The store and the reference
    to the sender's HEAD are kept for the next bundle."""
    store = Path(sent.tree.common_folder)
    for name in ("sent", "staged", "included"):
        told = ("update-ref", "-d", f"{REFS}{name}/{sent.id}")
        await git.ask(told, cwd=store, env=_env(store))
    await _remove(folder / "trees" / sent.id, sent.tree)


async def remove_old(folder: Path, *, patches: Path, max_age: float = MAX_AGE) -> list[str]:
    """Remove worktrees older than `max_age`, after saving their changes as patches, and those whose
    removal was interrupted. A worktree whose changes cannot be saved is kept. Returns the ids of
    the removed worktrees, except of those that were never completed."""
    removed = []
    try:
        entries = sorted((folder / "trees").iterdir())
    except OSError:
        return []
    for entry in entries:
        begun = records.read_record(entry)
        if begun is not None and begun.removing:
            if await records.remove_now(entry, begun):
                removed.append(entry.name)
            continue
        sent = _read(entry / RECORD)
        if sent is None and _is_incomplete(entry, max_age):
            await _remove(entry, None)
        if sent is None or time.time() - sent.made_at <= max_age:
            continue
        try:
            # Without the directory there is nothing to save.
            data = await result_patch(sent) if _exists(sent) else b""
            if data:
                kept = keep_patch(patches, sent.id, data)
                log.warning("the changes in the old sent worktree %s are saved in %s", entry, kept)
        except DragomanError as error:
            log.warning(
                "keeping the sent worktree %s, because its changes cannot be saved: %s",
                entry,
                error,
            )
            continue
        await remove_sent(folder, sent)
        removed.append(sent.id)
    return removed


def _is_incomplete(entry: Path, max_age: float) -> bool:
    """Return whether a worktree is older than `max_age` and was never completed, because its
    process was killed."""
    try:
        is_old = time.time() - entry.stat().st_mtime > max_age
    except OSError:
        return False
    return is_old and not (entry / RECORD).exists()


def _exists(sent: SentTree) -> bool:
    return Path(sent.tree.path).exists()


def _read(file: Path) -> SentTree | None:
    try:
        return decode_typed(file.read_bytes(), SentTree)
    except (OSError, *UNDECODABLE):
        return None


def _store(folder: Path, project: str) -> Path:
    if not SAFE_NAME.fullmatch(project):
        raise UsageError(f"not a project name: {project[:80]!r}")
    return folder / "repositories" / f"{project}.git"


def _env(store: Path) -> dict[str, str]:
    return {**NEUTRAL, "GIT_DIR": str(store)}


def _check(file: Path, bundle: Bundle) -> None:
    """Raise `UsageError` if the description of a bundle is invalid, and `IsolationFailed` if the
    file does not match it."""
    subfolder = PurePosixPath(bundle.subfolder)
    commits = (bundle.sent, bundle.sent_head, *bundle.base)
    optional = (bundle.head, bundle.staged, bundle.included)
    if (
        not SAFE_NAME.fullmatch(bundle.name)
        or bundle.name == ".git"
        or subfolder.is_absolute()
        or not {"..", ".git"}.isdisjoint(subfolder.parts)
        or "\0" in bundle.subfolder
        or len(bundle.ignored) > MAX_PATTERNS_SIZE
        or bundle.object_format not in ("sha1", "sha256")
        or not all(COMMIT.fullmatch(commit) for commit in commits)
        or not all(COMMIT.fullmatch(commit) for commit in optional if commit)
    ):
        raise UsageError("the description of the bundle is invalid")
    size = file.stat().st_size
    if size > MAX_BUNDLE_SIZE:
        raise IsolationFailed("receiving the bundle", f"it is larger than {MAX_BUNDLE_SIZE} bytes")
    if size != bundle.size:
        raise IsolationFailed(
            "receiving the bundle", f"{size} bytes arrived instead of {bundle.size}"
        )
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != bundle.digest:
        raise IsolationFailed("receiving the bundle", "its SHA-256 digest is wrong")


async def _make_store(store: Path, bundle: Bundle, home: Path) -> None:
    """Create the bare repository of a project atomically: another bundle of the project may arrive
    at the same time."""
    new = home / "store"
    init = ("init", "--quiet", "--bare", "--template=")
    kind = f"--object-format={bundle.object_format}"
    await git.demand((*init, kind, str(new)), cwd=home, env=NEUTRAL)
    make_private(new / "info")
    _move(new, store)


def _move(new: Path, store: Path) -> None:
    try:
        os.rename(new, store)
    except OSError:
        # The other bundle was faster.
        if not store.is_dir():
            raise
        shutil.rmtree(new, ignore_errors=True)


async def _unbundle(store: Path, file: Path, bundle: Bundle, id_: str) -> None:
    env = _env(store)
    told = ("-c", "transfer.fsckObjects=true", "bundle", "unbundle", str(file))
    await git.demand(told, cwd=store, env=env, timeout=CHECKOUT_TIMEOUT)
    parent = await git.demand(("rev-parse", "--verify", f"{bundle.sent}^1"), cwd=store, env=env)
    if parent.text != bundle.sent_head:
        raise IsolationFailed("unpacking the bundle", "its commits do not match its description")
    look = ("cat-file", "-e", f"{bundle.head}^{{commit}}")
    known = bool(bundle.head) and (await git.ask(look, cwd=store, env=env)).ok
    kept = {
        "head": bundle.head if known else bundle.sent_head,
        "sent": bundle.sent,
        "staged": bundle.staged,
        "included": bundle.included,
    }
    for name, commit in kept.items():
        if commit:
            await git.demand(("update-ref", f"{REFS}{name}/{id_}", commit), cwd=store, env=env)


async def _check_out(store: Path, path: Path, bundle: Bundle, tree: Tree) -> Tree:
    await add_worktree(path, bundle.sent_head, cwd=store, env=_env(store))
    made, why = await git.find_repository(path)
    if made is None:
        raise IsolationFailed(f"inspecting {path}", why)
    base = await git.demand(("rev-parse", f"{bundle.sent}^{{tree}}"), cwd=path, env=NEUTRAL)
    # git refuses paths such as `.git/config` here, and never writes through a symbolic link.
    protect = ("-c", "core.protectHFS=true", "-c", "core.protectNTFS=true")
    read = (*protect, "read-tree", "--reset", "-u", base.text)
    await git.demand(read, cwd=path, env=NEUTRAL, timeout=CHECKOUT_TIMEOUT)
    if bundle.included:
        index = {**NEUTRAL, "GIT_INDEX_FILE": str(path.parent / "included-index")}
        await git.demand(("read-tree", bundle.included), cwd=path, env=index)
        await git.demand(("checkout-index", "--all"), cwd=path, env=index)
        (path.parent / "included-index").unlink(missing_ok=True)
    # The files are as they were sent. The index must match the sender's too.
    await git.demand(("read-tree", bundle.staged or bundle.sent_head), cwd=path, env=NEUTRAL)
    await git.ask(("update-index", "-q", "--refresh"), cwd=path, env=NEUTRAL)
    return msgspec.structs.replace(tree, base=base.text, git_folder=str(made.git_folder))


async def _remove(home: Path, tree: Tree | None) -> None:
    trees = () if tree is None else (tree,)
    record = WorktreeRecord(id=home.name, workspace="", owner=own_identity(), trees=trees)
    await records.remove_now(home, record)
