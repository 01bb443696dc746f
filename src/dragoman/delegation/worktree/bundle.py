"""Pack the current files of a git repository as a bundle for another machine.

Contains the history of HEAD, the index, changed and untracked files, and the ignored files that the
caller names. Files of nested repositories and submodules become files of the outer one. The user's
repository is only read: objects, references and index are created in a temporary repository.
`sent_tree` unpacks the bundle on the other machine, `received_patch` applies the result here.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from dragoman.client.folders import make_private
from dragoman.config.safe_files import read_file, write_whole
from dragoman.delegation.worktree.isolation import IDENTITY, MAX_DEPTH, TOO_NESTED
from dragoman.delegation.worktree.patch import MAX_TREES, Captured, capture
from dragoman.delegation.worktree.scratch import scratch_folder
from dragoman.errors import ConfigInvalid, IsolationFailed, UsageError
from dragoman.rpc.tasks import in_thread
from dragoman.runs import git
from dragoman.runs.git import CHECKOUT_TIMEOUT, Repository

INCLUDE_FILE: Final = ".worktreeinclude"
"""The file that lists ignored files that a copy needs, in ``.gitignore`` syntax."""

MAX_INCLUDED: Final = 1000
"""Maximum number of ignored files to send. Larger sets are usually installed packages or caches,
which the other machine has to create itself."""

MAX_BUNDLE_SIZE: Final = 1024 * 1024 * 1024
"""Maximum size of a bundle, in bytes. A larger repository is better cloned on the other machine."""

MAX_KNOWN: Final = 32
"""Maximum number of the other side's commits to look up here."""

MAX_PATTERNS_SIZE: Final = 64 * 1024
"""Maximum size of the patterns of ignored files that are sent, in characters. They are part of a
request, whose size is limited."""

REFS: Final = "refs/dragoman/"
COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
UNSAFE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Bundle(Struct, frozen=True, kw_only=True):
    """The description of a bundle, which is sent with it as JSON."""

    project: str
    """Identifies the repository among those of the user. Bundles of one project share a store on
    the other side."""
    name: str
    """The name of the repository's directory."""
    subfolder: str
    """The workspace relative to the top of the repository; empty for the top itself."""
    object_format: str
    """``sha1`` or ``sha256``."""
    head: str
    """The commit that is checked out here; empty if there is none yet."""
    sent_head: str
    """The commit to check out on the other side: `head`, a commit on top of it with the files of
    nested repositories, or one without parents if the history is not sent.
    """
    sent: str
    """A commit on top of `sent_head` with the current state of all files."""
    staged: str
    """A commit with the index; empty if the index has conflicts."""
    included: str = ""
    """A commit with the ignored files; empty if there are none."""
    base: tuple[str, ...] = ()
    """Commits that the other side must have."""
    nested: tuple[str, ...] = ()
    """Nested repositories, whose files are sent as files of this one."""
    ignored: str = ""
    """The patterns by which git ignores files here, other than those in ``.gitignore`` files: the
    other side must not take such files for changes."""
    size: int = 0
    """Size of the bundle in bytes."""
    digest: str = ""
    """SHA-256 of the bundle."""


async def ignored_files(workspace: Path) -> tuple[str, ...]:
    """Return the ignored files that ``.worktreeinclude`` names, relative to the top of the
    repository. Raises `UsageError` if they are too many, or the workspace is in no repository."""
    repository = await _find(workspace)
    if not (repository.top / INCLUDE_FILE).is_file():
        return ()
    listed = await git.demand(
        ("ls-files", "--others", "--ignored", f"--exclude-from={INCLUDE_FILE}", "-z"),
        cwd=repository.top,
    )
    named = [os.fsdecode(name) for name in listed.output.split(b"\0") if name]
    if len(named) > MAX_INCLUDED:
        raise UsageError(
            f"{INCLUDE_FILE} matches {len(named)} files, but at most {MAX_INCLUDED} can be sent; "
            "use more specific patterns"
        )
    # Files that git does not ignore are sent anyway.
    plain = await git.demand(
        ("ls-files", "--others", "--exclude-standard", "-z"), cwd=repository.top
    )
    sent = {os.fsdecode(name) for name in plain.output.split(b"\0")}
    return tuple(name for name in named if name not in sent)


async def project_of(workspace: Path) -> str:
    """Return the `Bundle.project` of a workspace's repository."""
    return _project((await _find(workspace)).top)


async def pack(
    workspace: Path,
    bundle: Path,
    *,
    known: Sequence[str] = (),
    included: Sequence[str] = (),
    max_size: int = MAX_BUNDLE_SIZE,
) -> Bundle:
    """Write the repository of a directory as a bundle to the new file `bundle`, an absolute path,
    and return its description.

    `known` are commits that the other side has: their history is omitted. `included` are ignored
    files to send, from `ignored_files`. Raises `UsageError` if the directory is in no repository or
    ignored by it, or if the bundle is larger than `max_size`.
    """
    folder = git.real_folder(workspace)
    repository = await _find(folder)
    if await git.is_ignored(repository, folder):
        raise UsageError(f"{folder} is ignored by its repository, so nothing would be sent")
    async with scratch_folder("pack") as scratch:
        return await _Packer(repository, folder, scratch).pack(bundle, known, included, max_size)


async def _find(workspace: Path) -> Repository:
    folder = git.real_folder(workspace)
    repository, why = await git.find_repository(folder)
    if repository is None:
        raise UsageError(
            f"{folder} is not in a git repository, which is needed to send and fetch files: {why}"
        )
    return repository


class _Packer:
    """State of one `pack` call: the temporary repository, and the objects that it borrows from
    others."""

    def __init__(self, repository: Repository, folder: Path, scratch: Path) -> None:
        self._repository = repository
        self._folder = folder
        self._scratch = scratch
        self._store = scratch / "pack.git"
        self._nested: list[str] = []

    async def pack(
        self, bundle: Path, known: Sequence[str], included: Sequence[str], max_size: int
    ) -> Bundle:
        top = self._repository.top
        format_ = (await git.demand(("rev-parse", "--show-object-format"), cwd=top)).text
        told = ("init", "--quiet", "--bare", "--template=", f"--object-format={format_}")
        await git.demand((*told, str(self._store)), cwd=self._scratch)
        self._borrow(self._repository)
        found = await git.ask(("rev-parse", "--quiet", "--verify", "HEAD^{commit}"), cwd=top)
        head = found.text if found.ok else ""
        captured, inner = await self._stage(self._repository, self._folder, "", depth=0)
        everything = await self._flatten(captured.everything, inner)
        staged = await self._flatten(captured.staged, inner) if captured.staged else ""
        sent_head, whole = await self._sent_head(head, everything, inner)
        commits = {
            "sent": await self._commit(everything, sent_head),
            "staged": await self._commit(staged, sent_head) if staged else "",
            "included": await self._include(included) if included else "",
        }
        base = await self._base(known) if whole else ()
        refs = []
        for name, commit in commits.items():
            if commit:
                await self._git("update-ref", REFS + name, commit)
                refs.append(REFS + name)
        without = [f"^{commit}" for commit in base]
        await self._git("bundle", "create", "--quiet", str(bundle), *refs, *without)
        size = os.stat(bundle).st_size
        if size > max_size:
            os.unlink(bundle)
            raise UsageError(
                f"the bundle of {top} is {size >> 20} MiB, but at most {max_size >> 20} MiB can "
                "be sent; clone it on the other machine, and use the clone as the workspace"
            )
        return Bundle(
            project=_project(top),
            name=UNSAFE_NAME.sub("-", top.name).strip(".-") or "root",
            subfolder=str(self._folder.relative_to(top)) if self._folder != top else "",
            object_format=format_,
            head=head,
            sent_head=sent_head,
            base=base,
            nested=tuple(self._nested),
            ignored=await _patterns(self._repository),
            size=size,
            digest=await in_thread(str(bundle), lambda _: _digest(bundle)),
            **commits,
        )

    async def _git(self, *args: str, env: Mapping[str, str] | None = None) -> str:
        """Run git in the temporary repository."""
        env = {**(env or {}), "GIT_DIR": str(self._store)}
        return (await git.demand(args, cwd=self._store, env=env, timeout=CHECKOUT_TIMEOUT)).text

    def _borrow(self, repository: Repository) -> None:
        """Let the temporary repository read the objects of another one."""
        file = self._store / "objects" / "info" / "alternates"
        make_private(file.parent)
        path = os.fsencode(repository.common_folder / "objects")
        if b"\n" in path or path.startswith(b'"'):
            raise IsolationFailed(
                f"packing {repository.top}", "its path contains a line break or starts with a quote"
            )
        with file.open("ab") as lines:
            lines.write(path + b"\n")

    async def _stage(
        self, repository: Repository, folder: Path, prefix: str, *, depth: int
    ) -> tuple[Captured, dict[str, str]]:
        """Store the files of a repository and of those nested in it. Returns the state of its own
        files, and the complete trees of the nested repositories by path."""
        scratch = self._scratch / f"index-{len(self._nested)}"
        make_private(scratch)
        # A file that needs a filter defined only by the repository cannot be sent faithfully.
        filters = await git.own_filters(repository, refuse=True)
        objects = self._store / "objects"
        captured = await capture(repository, folder, scratch, env=filters, objects=objects)
        inner: dict[str, str] = {}
        for name in captured.nested:
            path = repository.top / name
            if not git.has_repository(path):
                continue
            if depth >= MAX_DEPTH or len(self._nested) >= MAX_TREES:
                raise IsolationFailed(f"packing {path}", TOO_NESTED)
            found, why = await git.find_repository(path)
            if found is None or found.top != git.real(path):
                raise IsolationFailed(f"packing {path}", why or "its git directory does not exist")
            self._nested.append(prefix + name)
            self._borrow(found)
            its, below = await self._stage(found, found.top, f"{prefix}{name}/", depth=depth + 1)
            inner[name] = await self._flatten(its.everything, below)
        return captured, inner

    async def _flatten(self, tree: str, inner: Mapping[str, str]) -> str:
        """Return a tree with the files of nested repositories instead of their commits."""
        if not inner:
            return tree
        # These commands require a worktree, although they do not read it.
        index = str(self._scratch / "flat")
        env = {"GIT_INDEX_FILE": index, "GIT_WORK_TREE": str(self._store)}
        await self._git("read-tree", tree, env=env)
        for name, files in inner.items():
            await self._git("update-index", "--force-remove", "--", name, env=env)
            await self._git("read-tree", f"--prefix={name}/", files, env=env)
        return await self._git("write-tree", env=env)

    async def _sent_head(
        self, head: str, everything: str, inner: Mapping[str, str]
    ) -> tuple[str, bool]:
        """Return the commit to check out on the other side, and whether it includes the history of
        HEAD.

        It has no history if there is no HEAD, or if this repository is shallow or a partial clone.
        An additional commit has the files of nested repositories, because git would otherwise look
        for their commits.
        """
        if not head:
            return await self._commit(everything), False
        top = self._repository.top
        shallow = await git.ask(("rev-parse", "--is-shallow-repository"), cwd=top)
        told = ("config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$")
        partial = await git.ask(told, cwd=top)
        whole = shallow.text != "true" and not partial.output
        if whole and not inner:
            return head, True
        tree = await self._git("rev-parse", "--verify", f"{head}^{{tree}}")
        parents = (head,) if whole else ()
        return await self._commit(await self._flatten(tree, inner), *parents), whole

    async def _include(self, names: Sequence[str]) -> str:
        """Return a commit with the ignored files."""
        listed = self._scratch / "included"
        write_whole(listed, b"\0".join(os.fsencode(name) for name in names))
        env = {
            **await git.own_filters(self._repository),
            "GIT_INDEX_FILE": str(self._scratch / "included-index"),
            "GIT_OBJECT_DIRECTORY": str(self._store / "objects"),
            "GIT_LITERAL_PATHSPECS": "1",
        }
        add = ("add", "--force", f"--pathspec-from-file={listed}", "--pathspec-file-nul")
        await git.demand(add, cwd=self._repository.top, env=env)
        tree = (await git.demand(("write-tree",), cwd=self._repository.top, env=env)).text
        return await self._commit(tree)

    async def _commit(self, tree: str, *parents: str) -> str:
        words = [word for parent in parents for word in ("-p", parent)]
        return await self._git("commit-tree", tree, *words, "-m", "sent by dragoman", env=IDENTITY)

    async def _base(self, known: Sequence[str]) -> tuple[str, ...]:
        """Return the other side's commits that exist here too."""
        found = []
        for commit in list(dict.fromkeys(known))[:MAX_KNOWN]:
            if COMMIT.fullmatch(commit):
                told = ("cat-file", "-e", f"{commit}^{{commit}}")
                if (await git.ask(told, cwd=self._repository.top)).ok:
                    found.append(commit)
        return tuple(found)


async def _patterns(repository: Repository) -> str:
    """Return the ignore patterns that are not in ``.gitignore`` files of the tree: those of the
    user and those of this clone."""
    # Only the user's own configuration: that of a repository could name any file.
    told = ("config", "--global", "--includes", "--type=path", "--get", "core.excludesFile")
    named = await git.ask(told, cwd=repository.top)
    return _read_patterns(named.text if named.ok else "", repository)


def _read_patterns(named: str, repository: Repository) -> str:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    files = [Path(named) if named else Path(home, "git", "ignore")]
    own = repository.common_folder / "info" / "exclude"
    # An archive may contain a link to a file outside of it.
    if not own.is_symlink():
        files.append(own)
    found = []
    for path in files:
        try:
            data = read_file(path, max_size=MAX_PATTERNS_SIZE // 2 - 1)
        except ConfigInvalid:
            # Not a regular file, unreadable or too large. git itself ignores an unreadable file.
            continue
        found.append((data or b"").decode("utf-8", "replace").replace("\0", ""))
    return "\n".join(found)


def _project(top: Path) -> str:
    """Return a name that identifies the repository by machine, user and directory."""
    said = f"{os.uname().nodename}\0{os.getuid()}\0{top}".encode(errors="surrogateescape")
    name = UNSAFE_NAME.sub("-", top.name).strip(".-")[:40] or "root"
    return f"{name}-{hashlib.sha256(said).hexdigest()[:16]}"


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
