"""What a peer may reach: a table of hostile paths, and a table of honest ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.client.services import workspace as module
from dragoman.client.services.workspace import Workspace
from dragoman.errors import (
    ArgumentInvalid,
    FileFailed,
    FileMissing,
    PathRefused,
    ServiceError,
    UsageError,
)
from tests.unit.client.services.hostile_tree import HostileTree, build, quick_folder


@pytest.fixture
def tree() -> Iterator[HostileTree]:
    with quick_folder() as folder:
        yield build(folder)


@pytest.fixture
def workspace(tree: HostileTree) -> Workspace:
    return Workspace([tree.root, tree.second])


HOSTILE: list[tuple[str, type[ServiceError], type[ServiceError] | None]] = [
    # path, what reading raises, what writing raises (None: it may be written)
    ("", ArgumentInvalid, ArgumentInvalid),
    ("file.txt", ArgumentInvalid, ArgumentInvalid),
    ("./file.txt", ArgumentInvalid, ArgumentInvalid),
    ("../outside/secret.txt", ArgumentInvalid, ArgumentInvalid),
    ("~/file.txt", ArgumentInvalid, ArgumentInvalid),
    ("file://{root}/file.txt", ArgumentInvalid, ArgumentInvalid),
    ("C:\\Windows\\win.ini", ArgumentInvalid, ArgumentInvalid),
    ("\\\\server\\share", ArgumentInvalid, ArgumentInvalid),
    ("{root}/fi\0le.txt", ArgumentInvalid, ArgumentInvalid),
    ("{root}/file.txt\0", ArgumentInvalid, ArgumentInvalid),
    ("\0", ArgumentInvalid, ArgumentInvalid),
    ("{root}/\ud800", ArgumentInvalid, ArgumentInvalid),
    ("/", PathRefused, PathRefused),
    ("/etc/passwd", PathRefused, PathRefused),
    ("//etc/passwd", PathRefused, PathRefused),
    ("/proc/self/environ", PathRefused, PathRefused),
    ("/dev/null", PathRefused, PathRefused),
    ("/no/such/place", PathRefused, PathRefused),
    ("{base}", PathRefused, PathRefused),
    ("{base}/s.txt", PathRefused, PathRefused),
    ("{outside}/secret.txt", PathRefused, PathRefused),
    ("{outside}/no-such", PathRefused, PathRefused),
    ("{root}-evil/secret.txt", PathRefused, PathRefused),
    ("{root}.", PathRefused, PathRefused),
    ("{root}\\..\\outside\\secret.txt", PathRefused, PathRefused),
    ("{root}/../outside/secret.txt", PathRefused, PathRefused),
    ("{root}/../outside/new.txt", PathRefused, PathRefused),
    ("{root}/../../../../../../../../etc/passwd", PathRefused, PathRefused),
    ("{root}/dir/../../outside/secret.txt", PathRefused, PathRefused),
    ("{root}//..//outside//secret.txt", PathRefused, PathRefused),
    ("{root}/./.././outside/./secret.txt", PathRefused, PathRefused),
    ("{outside}/../root/file.txt", PathRefused, PathRefused),
    ("{root}/out_file", PathRefused, PathRefused),
    ("{root}/out_relative", PathRefused, PathRefused),
    ("{root}/out_dir/secret.txt", PathRefused, PathRefused),
    ("{root}/out_dir/new.txt", PathRefused, PathRefused),
    ("{root}/out_dir/new/deep.txt", PathRefused, PathRefused),
    ("{root}/out_dir_relative/dir/secret.txt", PathRefused, PathRefused),
    ("{root}/out_dir/../s.txt", PathRefused, PathRefused),
    ("{root}/out_new", PathRefused, PathRefused),
    ("{root}/out_new_relative", PathRefused, PathRefused),
    ("{root}/out_sibling", PathRefused, PathRefused),
    ("{root}/out_chain", PathRefused, PathRefused),
    ("{root}/in_dir/out_deep", PathRefused, PathRefused),
    ("{root}/dir/up/out_file", PathRefused, PathRefused),
    ("{root}/dir/up_up/s.txt", PathRefused, PathRefused),
    ("{root}/up/s.txt", PathRefused, PathRefused),
    ("{root}/here/here/here/../outside/secret.txt", PathRefused, PathRefused),
    ("{root}/slash/etc/passwd", PathRefused, PathRefused),
    ("{root}/proc_root/etc/passwd", PathRefused, PathRefused),
    ("{root}/proc_cwd/pyproject.toml", PathRefused, PathRefused),
    ("{root}/proc_environ", PathRefused, PathRefused),
    ("{root}/proc_fd", PathRefused, PathRefused),
    ("{root}/sys/kernel/mm", PathRefused, PathRefused),
    ("{root}/dev_null", PathRefused, PathRefused),
    ("{root}/dev_zero", PathRefused, PathRefused),
    ("{root}/dev_fd", PathRefused, PathRefused),
    ("{root}/dev_stdin", PathRefused, PathRefused),
    ("{root}/passwd", PathRefused, PathRefused),
    ("{root}/loop_a", PathRefused, PathRefused),
    ("{root}/loop_a/x", PathRefused, PathRefused),
    ("{root}/self", PathRefused, PathRefused),
    ("{root}/loop_dir/y", PathRefused, PathRefused),
    ("{root}/many0", PathRefused, PathRefused),
    ("{root}", PathRefused, PathRefused),
    ("{root}/", PathRefused, PathRefused),
    ("{root}/dir", PathRefused, PathRefused),
    ("{root}/dir/", PathRefused, PathRefused),
    ("{root}/dir/.", PathRefused, PathRefused),
    ("{root}/dir/deep/..", PathRefused, PathRefused),
    ("{root}/in_dir", PathRefused, PathRefused),
    ("{root}/file.txt/", PathRefused, PathRefused),
    ("{root}/file.txt/.", PathRefused, PathRefused),
    ("{root}/file.txt/..", PathRefused, PathRefused),
    ("{root}/file.txt/../file.txt", PathRefused, PathRefused),
    ("{root}/file.txt/x", PathRefused, PathRefused),
    ("{root}/in_file_slash", PathRefused, PathRefused),
    ("{root}/fifo", PathRefused, PathRefused),
    ("{root}/fifo/x", PathRefused, PathRefused),
    ("{root}/socket", PathRefused, PathRefused),
    ("{root}/" + "n" * 256, PathRefused, PathRefused),
    ("{root}/" + "é" * 200, PathRefused, PathRefused),
    ("{root}/" + "n" * 256 + "/x", PathRefused, PathRefused),
    ("{root}/" + "a/" * 3000 + "x", PathRefused, PathRefused),
    ("{root}/" + "./" * 3000 + "file.txt", PathRefused, PathRefused),
    ("{root}/" + "dir/../" * 500 + "../s.txt", PathRefused, PathRefused),
    ("{root}/missing.txt", FileMissing, None),
    ("{root}/FILE.TXT.", FileMissing, None),
    ("{root}/no/such/folder.txt", FileMissing, None),
    ("{root}/no/such/", FileMissing, PathRefused),
    ("{root}/no/such/../x.txt", FileMissing, FileMissing),
    ("{root}/no/../../outside/secret.txt", FileMissing, FileMissing),
    ("{root}/dangling", FileMissing, None),
    ("{root}/dangling_deep", FileMissing, None),
    ("{root}/home", FileMissing, None),
]


def short(value: object) -> str | None:
    return (
        value[:60].encode("ascii", "backslashreplace").decode() if isinstance(value, str) else None
    )


@pytest.mark.parametrize(("template", "error", "_"), HOSTILE, ids=short)
def test_a_hostile_path_is_refused_for_reading(
    tree: HostileTree, workspace: Workspace, template: str, error: type[ServiceError], _: object
) -> None:
    path = tree.path(template)
    with pytest.raises(error) as caught:
        workspace.resolve_for_read(path)
    assert type(caught.value) is error
    with pytest.raises(error), workspace.open_for_read(path):
        pass
    tree.assert_nothing_escaped()


@pytest.mark.parametrize(("template", "_", "error"), HOSTILE, ids=short)
def test_a_hostile_path_is_refused_for_writing(
    tree: HostileTree,
    workspace: Workspace,
    template: str,
    _: object,
    error: type[ServiceError] | None,
) -> None:
    path = tree.path(template)
    if error is None:
        real = workspace.resolve_for_write(path)
        assert real.is_relative_to(tree.root)
        assert not real.exists()
        with workspace.find(path, missing="make") as place:
            assert place.real_path == real
            assert place.info is None
            assert real.parent.is_dir()
    else:
        with pytest.raises(error) as caught:
            workspace.resolve_for_write(path)
        assert type(caught.value) is error
        with pytest.raises(ServiceError), workspace.find(path, missing="make") as place:
            assert place.info is not None
            raise PathRefused(path, "there is something, and it is no file")
    tree.assert_nothing_escaped()


HONEST: list[tuple[str, str]] = [
    ("{root}/file.txt", "{root}/file.txt"),
    ("/{root}/file.txt", "{root}/file.txt"),
    ("///{root}//dir///inner.txt", "{root}/dir/inner.txt"),
    ("{root}/./file.txt", "{root}/file.txt"),
    ("{root}/dir/../file.txt", "{root}/file.txt"),
    ("{root}/../root/file.txt", "{root}/file.txt"),
    ("{root}/dir/../../root/dir/inner.txt", "{root}/dir/inner.txt"),
    ("{root}/../second/two.txt", "{second}/two.txt"),
    ("{second}/two.txt", "{second}/two.txt"),
    ("{root}/in_file", "{root}/file.txt"),
    ("{root}/in_absolute", "{root}/file.txt"),
    ("{root}/in_dir/inner.txt", "{root}/dir/inner.txt"),
    ("{root}/in_dir_slash/deep/low.txt", "{root}/dir/deep/low.txt"),
    ("{root}/in_dir/deep/../inner.txt", "{root}/dir/inner.txt"),
    ("{root}/in_up_and_down", "{root}/file.txt"),
    ("{root}/in_out_and_in", "{root}/file.txt"),
    ("{root}/dir/up/file.txt", "{root}/file.txt"),
    ("{root}/dir/up_up/second/two.txt", "{second}/two.txt"),
    ("{root}/up/root/file.txt", "{root}/file.txt"),
    ("{root}/slash{root}/file.txt", "{root}/file.txt"),
    ("{root}/to_second", "{second}/two.txt"),
    ("{root}/to_second_relative", "{second}/two.txt"),
    ("{root}/here/here/./here/file.txt", "{root}/file.txt"),
    ("{root}/many25", "{root}/file.txt"),
    ("{root}/ spaced .txt.", "{root}/ spaced .txt."),
    ("{root}/back\\slash", "{root}/back\\slash"),
    ("{root}/" + "dir/../" * 400 + "file.txt", "{root}/file.txt"),
]


@pytest.mark.parametrize(("template", "expected"), HONEST, ids=short)
def test_an_honest_path_leads_where_the_system_would_lead(
    tree: HostileTree, workspace: Workspace, template: str, expected: str
) -> None:
    path, real = tree.path(template), tree.path(expected)
    assert os.path.samefile(path, real)
    assert str(workspace.resolve_for_read(path)) == real
    assert str(workspace.resolve_for_write(path)) == real
    with workspace.open_for_read(path) as (fd, info):
        assert os.read(fd, 100) == Path(real).read_bytes()
        assert info.st_ino == os.stat(real).st_ino


def test_a_folder_is_found_inside_and_refused_outside(
    tree: HostileTree, workspace: Workspace
) -> None:
    assert workspace.resolve_folder(tree.root) == tree.root
    assert workspace.resolve_folder(f"{tree.root}/") == tree.root
    assert workspace.resolve_folder(tree.root / "in_dir") == tree.root / "dir"
    assert workspace.resolve_folder(f"{tree.root}/dir/deep/..") == tree.root / "dir"
    assert workspace.resolve_folder(tree.second) == tree.second
    with pytest.raises(PathRefused, match="outside"):
        workspace.resolve_folder(tree.root / "out_dir")
    with pytest.raises(PathRefused, match="not a directory"):
        workspace.resolve_folder(tree.root / "file.txt")
    with pytest.raises(FileMissing):
        workspace.resolve_folder(tree.root / "nowhere")


def test_asking_where_a_write_would_go_makes_nothing(
    tree: HostileTree, workspace: Workspace
) -> None:
    path = tree.root / "new" / "folder" / "file.txt"
    assert workspace.resolve_for_write(path) == path
    assert not (tree.root / "new").exists()


def test_a_refusal_is_the_same_whether_or_not_something_exists_outside(
    tree: HostileTree, workspace: Workspace
) -> None:
    reasons = set()
    for name in ("secret.txt", "no-such", "dir", "dir/secret.txt", "secret.txt/x"):
        for folder in (str(tree.outside), f"{tree.root}/out_dir", f"{tree.root}/../outside"):
            with pytest.raises(PathRefused) as caught:
                workspace.resolve_for_read(f"{folder}/{name}")
            reasons.add(caught.value.reason)
    assert reasons == {"it is outside the workspace"}


def test_a_root_spelled_over_a_link_admits_both_spellings(tree: HostileTree) -> None:
    spelled = tree.base / "spelled"
    spelled.symlink_to("root")
    workspace = Workspace([spelled])
    assert workspace.roots == (tree.root,)
    assert workspace.resolve_for_read(spelled / "file.txt") == tree.root / "file.txt"
    assert workspace.resolve_for_read(tree.root / "file.txt") == tree.root / "file.txt"
    with pytest.raises(PathRefused):
        workspace.resolve_for_read(f"{spelled}/../s.txt")


def test_a_root_that_is_replaced_by_a_link_is_not_a_root_any_more(
    tree: HostileTree, workspace: Workspace
) -> None:
    tree.second.rename(tree.base / "kept")
    tree.second.symlink_to(tree.outside)
    with pytest.raises(PathRefused, match="gone or was moved"):
        workspace.resolve_for_read(tree.second / "secret.txt")
    with pytest.raises(PathRefused, match="gone or was moved"):
        workspace.resolve_for_write(tree.second / "new.txt")


def test_a_root_that_is_removed_and_made_again_works_again(
    tree: HostileTree, workspace: Workspace
) -> None:
    (tree.second / "two.txt").unlink()
    tree.second.rmdir()
    with pytest.raises(PathRefused):
        workspace.resolve_for_read(tree.second / "two.txt")
    tree.second.mkdir()
    (tree.second / "two.txt").write_text("again")
    assert workspace.resolve_for_read(tree.second / "two.txt") == tree.second / "two.txt"


def test_one_root_may_lie_inside_another(tree: HostileTree) -> None:
    workspace = Workspace([tree.root, tree.root / "dir"])
    assert workspace.resolve_for_read(tree.root / "dir" / "inner.txt").name == "inner.txt"
    assert workspace.resolve_for_read(f"{tree.root}/dir/../file.txt") == tree.root / "file.txt"


def test_even_the_whole_machine_as_a_root_does_not_include_the_kernel(tree: HostileTree) -> None:
    workspace = Workspace(["/"])
    assert workspace.resolve_for_read(tree.root / "out_file") == tree.outside / "secret.txt"
    assert workspace.resolve_for_read(f"/../..{tree.root}/file.txt") == tree.root / "file.txt"
    for path in ("/proc/self/environ", "/proc", f"{tree.root}/proc_environ", "/sys/kernel/x"):
        for resolve in (workspace.resolve_for_read, workspace.resolve_for_write):
            with pytest.raises(PathRefused, match="operating system"):
                resolve(path)
        with pytest.raises(PathRefused, match="operating system"):
            workspace.find(f"{path}/new", missing="make")
    with pytest.raises(PathRefused, match="device"):
        workspace.resolve_for_read("/dev/null")


def test_a_kernel_tree_mounted_inside_the_workspace_is_refused(
    tree: HostileTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_devices_of", lambda trees: frozenset({os.stat(tree.root).st_dev}))
    workspace = Workspace([tree.root])
    before = os.listdir("/proc/self/fd")
    with pytest.raises(PathRefused, match="operating system"):
        workspace.resolve_for_read(tree.root / "file.txt")
    with pytest.raises(PathRefused, match="operating system"):
        workspace.resolve_for_write(tree.root / "file.txt")
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such trees")
def test_the_devices_of_the_kernels_trees_are_known() -> None:
    assert module._devices_of(["proc"]) == {os.stat("/proc").st_dev}
    assert module._devices_of(["no-such-tree", "."]) == frozenset()


@pytest.mark.parametrize(
    "roots",
    [
        [],
        ["relative"],
        ["."],
        ["{root}/file.txt"],
        ["{root}/missing"],
        ["{root}/self"],
        ["/proc"],
        ["/proc/self"],
        ["{root}/\0"],
        ["{root}", ""],
    ],
    ids=str,
)
def test_a_root_that_cannot_be_one_is_the_callers_mistake(
    tree: HostileTree, roots: list[str]
) -> None:
    with pytest.raises(UsageError):
        Workspace([tree.path(root) for root in roots])


def test_a_folder_that_may_not_be_entered_is_the_worlds_fault(
    tree: HostileTree, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = os.open

    def refusing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "deep":
            raise PermissionError(13, "Permission denied")
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(FileFailed, match="Permission denied") as caught:
        workspace.resolve_for_read(tree.root / "dir" / "deep" / "low.txt")
    assert caught.value.blame == "world"


def test_no_descriptor_is_left_open(tree: HostileTree, workspace: Workspace) -> None:
    before = os.listdir("/proc/self/fd")
    for template, _, _ in HOSTILE:
        for resolve in (workspace.resolve_for_read, workspace.resolve_for_write):
            try:
                resolve(tree.path(template))
            except ServiceError:
                pass
    for template, _ in HONEST:
        workspace.resolve_for_read(tree.path(template))
        with workspace.open_for_read(tree.path(template)):
            pass
    assert os.listdir("/proc/self/fd") == before
