"""Where paths lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.policy import path_patterns
from dragoman.policy.path_patterns import absolute, is_inside, perhaps, places_of, surely


def test_a_path_is_where_it_leads_by_every_reading(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "far" / "below").mkdir(parents=True)
    (root / "link").symlink_to("far/below")
    found = places_of("link/../x", (str(root),))
    assert found is not None
    assert found.real == {str(root / "x"), str(root / "far" / "x")}
    assert found.spelled == {str(root / "x")}


@pytest.mark.parametrize(
    "text",
    ["", " ", "a\0b", "x" * 5000, "file://host/a", "file://[x/a", "/proc/self/cwd/a", "/dev/fd/3"],
)
def test_a_path_that_cannot_be_followed_is_nowhere(text: str) -> None:
    assert places_of(text, ("/",)) is None
    assert not surely(("/**",), places_of(text, ("/",)), "/")
    assert perhaps(("x",), places_of(text, ("/",)), "/", with_parents=False)


def test_the_home_folder_and_a_folder_of_that_name_both_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, root = tmp_path.resolve() / "home", tmp_path.resolve() / "work"
    monkeypatch.setenv("HOME", str(home))
    found = places_of("~/x", (str(root),))
    assert found is not None and found.real == {str(home / "x"), str(root / "~/x")}
    assert absolute("~/x", "/w") == str(home / "x")


def test_an_address_of_a_file_is_its_path() -> None:
    found = places_of("file:///a%20b/c", ("/",))
    assert found is not None and found.real == {"/a b/c"}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("src/", "/w/src/**"), ("./src/a", "/w/src/a"), ("/etc/**", "/etc/**"), (".", "/w/**")],
)
def test_a_glob_begins_at_the_workspace(pattern: str, expected: str) -> None:
    assert absolute(pattern, "/w") == expected


def test_the_workspace_itself_is_only_what_everything_is(tmp_path: Path) -> None:
    root = str(tmp_path.resolve())
    here = places_of(".", (root,))
    assert surely(("**",), here, root) and not surely(("*",), here, root)


def test_a_glob_inside_does_not_fit_outside(tmp_path: Path) -> None:
    root = str(tmp_path.resolve() / "w")
    outside = places_of("../v/a", (root,))
    assert not surely(("**",), outside, root)
    assert surely((f"{tmp_path.resolve()}/**",), outside, root)
    assert is_inside("/w/a", "/w") and not is_inside("/wa", "/w") and is_inside("/a", "/")


def test_a_folder_counts_for_what_it_holds_where_it_is_changed_whole() -> None:
    folder = places_of("/nowhere/src", ("/",))
    for pattern in ("/nowhere/src/a/b", "/nowhere/**/b", "/*/src/b"):
        assert perhaps((pattern,), folder, "/", with_parents=True)
        assert not perhaps(("/nowhere/docs/b",), folder, "/", with_parents=True)
    assert not perhaps(("/nowhere/src/a/b",), folder, "/", with_parents=False)


def test_a_glob_over_a_link_fits_what_is_behind_it(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    for path in ("real/a", "link/a", "REAL/a"):
        found = places_of(path, (str(root),))
        assert perhaps(("link/*",), found, str(root), with_parents=False), path


def test_the_root_of_a_workspace_is_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(".")
    assert path_patterns.root_of(str(tmp_path / "link")) == str(tmp_path.resolve())
