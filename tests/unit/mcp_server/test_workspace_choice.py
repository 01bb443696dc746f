"""Where work may be done."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import UsageError
from dragoman.mcp_server.workspace_choice import choose_workspace, folder_of, may_see


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("a/inner", "b", "a b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "out").symlink_to(tmp_path / "b")
    (tmp_path / "to-a").symlink_to(tmp_path / "a")
    return tmp_path


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file://[x/a", None),
        ("file:///home/me/a%20b", Path("/home/me/a b")),
        ("file://localhost/x", Path("/x")),
        ("file://elsewhere/x", None),
        ("https://example.org/x", None),
        ("file:relative", None),
        ("file:///a%00b", None),
        ("", None),
    ],
)
def test_a_root_is_a_folder_of_this_machine_or_nothing(uri: str, path: Path | None) -> None:
    assert folder_of(uri) == path


def test_without_a_wish_it_is_the_first_root_then_ours_then_the_servers(folders: Path) -> None:
    a, b = folders / "a", folders / "b"
    assert choose_workspace("", cwd=b, named=[a.as_uri()]) == a
    assert choose_workspace("", cwd=b, own=[a]) == a
    assert choose_workspace("", cwd=b) == b


def test_a_folder_inside_a_root_is_taken_and_one_outside_is_refused(folders: Path) -> None:
    named = [(folders / "a").as_uri()]
    inner = choose_workspace(str(folders / "a" / "inner"), cwd=folders, named=named)
    assert inner == folders / "a" / "inner"
    for outside in (folders / "b", folders, folders / "a b", folders / "a" / ".." / "b"):
        with pytest.raises(UsageError, match="outside the roots of this client"):
            choose_workspace(str(outside), cwd=folders, named=named)


def test_links_are_followed_before_it_is_decided(folders: Path) -> None:
    named = [(folders / "a").as_uri()]
    with pytest.raises(UsageError, match="outside"):
        choose_workspace(str(folders / "a" / "out"), cwd=folders, named=named)
    assert choose_workspace(str(folders / "to-a"), cwd=folders, named=named) == folders / "a"
    linked = [(folders / "to-a").as_uri()]
    assert choose_workspace(str(folders / "a"), cwd=folders, named=linked) == folders / "a"


def test_both_the_clients_roots_and_the_users_count(folders: Path) -> None:
    a, b = folders / "a", folders / "b"
    with pytest.raises(UsageError, match="outside --root"):
        choose_workspace(str(b), cwd=folders, own=[a])
    with pytest.raises(UsageError, match="outside --root"):
        choose_workspace(str(b), cwd=folders, own=[a], named=[b.as_uri()])
    assert choose_workspace("", cwd=folders, own=[folders], named=[b.as_uri()]) == b


def test_a_client_with_no_root_open_has_the_servers_folder(folders: Path) -> None:
    a = folders / "a"
    assert choose_workspace("", cwd=a, named=[]) == a
    for named in ([], ["https://example.org"]):
        with pytest.raises(UsageError, match="outside"):
            choose_workspace(str(folders / "b"), cwd=a, named=named)


@pytest.mark.parametrize("asked", ["relative", "/no/such/folder", "/a\0b", "~no-such-user/x"])
def test_what_is_not_a_folder_is_refused(asked: str, folders: Path) -> None:
    with pytest.raises(UsageError):
        choose_workspace(asked, cwd=folders)


def test_a_client_sees_the_jobs_of_its_own_projects(folders: Path) -> None:
    a, inner, b = folders / "a", folders / "a" / "inner", folders / "b"
    assert may_see(b, cwd=a)
    assert may_see(inner, cwd=b, named=[a.as_uri()])
    assert may_see(a, cwd=b, named=[inner.as_uri()]), "the root is a part of the project"
    assert not may_see(b, cwd=b, named=[a.as_uri()])
    assert not may_see(b, cwd=b, own=[a])
    assert not may_see(a, cwd=b, own=[a], named=[b.as_uri()])
    assert may_see(b, cwd=b, named=[])


def test_a_name_that_the_system_refuses_to_look_at_is_not_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a directory"):
        choose_workspace(f"/{'x' * 5000}", cwd=tmp_path)
