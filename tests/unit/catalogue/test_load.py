"""The catalogue: what comes with dragoman, what users and packages add, and what is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue import load as catalogue_load
from dragoman.catalogue import load_catalogue
from dragoman.catalogue.load import Catalogue, built_in
from dragoman.config import project, trust_project
from dragoman.errors import ConfigInvalid, UnknownPeer
from tests.unit.config.folders import load, paths_in, repository, write

MINE = 'name = "mine"\ntitle = "Mine"\nroles = ["plan"]\n[[launch]]\ncommand = ["mine"]\n'

KNOWN = {
    "codex", "gemini", "qwen", "copilot", "cursor", "claude", "opencode", "goose", "kimi", "cline",
    "auggie", "codex-acp", "mistral-vibe", "kiro", "kilo", "scout",
}  # fmt: skip

DOCUMENTS = {
    "codex": {"execute"},
    "gemini": {"research", "exploration"},
    "cursor": {"debug", "plan"},
    "copilot": {"review", "research"},
    "qwen": {"write"},
}


@pytest.fixture(scope="module")
def ours() -> Catalogue:
    return Catalogue(built_in())


def test_the_peers_that_come_with_dragoman_are_all_there(ours: Catalogue) -> None:
    assert set(ours.names) == KNOWN
    assert ours.problems == []


def test_the_peers_of_the_documents_claim_the_roles_of_the_documents(ours: Catalogue) -> None:
    assert {name: set(ours.get(name).roles) for name in DOCUMENTS} == DOCUMENTS
    assert set(DOCUMENTS["gemini"]) <= set(ours.roles)


def test_every_fact_has_a_source_with_a_date_or_is_ours(ours: Catalogue) -> None:
    for peer in ours:
        assert "2026-" in peer.source or peer.name == "scout", peer.name
        assert peer.roles, peer.name


def test_every_wrong_form_of_ours_differs_from_every_right_one(ours: Catalogue) -> None:
    right = {launch.command for peer in ours for launch in peer.launch}
    for peer in ours:
        for form in peer.wrong_forms:
            assert form.command not in right
            assert form.remedy.startswith("`")


def test_what_was_never_run_is_not_called_verified(ours: Catalogue) -> None:
    unverified = {peer.name for peer in ours if not peer.verified}
    assert unverified == {"auggie", "cursor", "goose", "kiro"}


def test_a_name_that_is_none_names_the_nearest(ours: Catalogue) -> None:
    with pytest.raises(UnknownPeer) as caught:
        ours.get("gemeni")
    assert caught.value.nearest == ("gemini",)
    with pytest.raises(UnknownPeer, match="peers add"):
        ours.get("zzzzzz")


def test_claimants_of_a_role_are_found(ours: Catalogue) -> None:
    assert "copilot" in ours.claimants("review")
    assert ours.claimants("translate") == ()


def test_roles_can_be_replaced_in_a_copy(ours: Catalogue) -> None:
    other = ours.with_roles({"copilot": ("translate",)})
    assert other.names == ours.names
    assert other.claimants("translate") == ("copilot",)
    assert "translate" in other.roles and "translate" not in ours.roles
    assert other.get("gemini").roles == ours.get("gemini").roles


def test_a_users_peer_is_one_of_the_catalogue_with_its_file_as_origin(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    file = write(paths.peers_folder / "mine.toml", MINE)
    catalogue = load_catalogue(load(tmp_path, paths), strict=True, entry_points=list)
    assert catalogue.origin("mine") == str(file)
    assert catalogue.origin("codex") == "dragoman"
    assert "mine" in catalogue and len(catalogue) == len(KNOWN) + 1
    assert catalogue.claimants("plan") == ("claude", "cline", "cursor", "kiro", "mine")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("codex", MINE.replace('"mine"', '"codex"', 1), "there is already a peer 'codex'"),
        ("other", MINE, "the file of the peer 'mine' is mine.toml"),
        ("mine", MINE.replace("title", "titel"), "did you mean `title`?"),
        ("mine", "= 3", "not TOML"),
    ],
)
def test_a_broken_file_is_left_out_and_told_and_the_rest_is_there(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    paths = paths_in(tmp_path)
    file = write(paths.peers_folder / f"{name}.toml", text)
    write(paths.peers_folder / "zebra.toml", MINE.replace('"mine"', '"zebra"', 1))
    config = load(tmp_path, paths)
    catalogue = load_catalogue(config, entry_points=list)
    (problem,) = catalogue.problems
    assert words in str(problem) and str(file) in str(problem)
    assert "zebra" in catalogue and "codex" in catalogue
    if name not in catalogue:
        with pytest.raises(UnknownPeer, match="it is described, but: ") as asked:
            catalogue.get(name)
        assert words in str(asked.value)
    with pytest.raises(ConfigInvalid) as caught:
        load_catalogue(config, strict=True, entry_points=list)
    assert str(caught.value) == str(problem)


def test_a_collision_names_both_places(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    file = write(paths.peers_folder / "mine.toml", MINE)
    root = repository(
        tmp_path / "repo", '[peers.mine]\ntitle = "x"\n[[peers.mine.launch]]\ncommand = ["x"]\n'
    )
    trust_project(root, paths)
    (problem,) = load_catalogue(load(root, paths), entry_points=list).problems
    assert str(file) in str(problem) and str(root / "dragoman.toml") in str(problem)


def test_a_trusted_projects_peer_counts_and_says_its_name_once(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    table = '[peers.ours]\ntitle = "x"\n[[peers.ours.launch]]\ncommand = ["./run"]\n'
    root = repository(tmp_path / "repo", table)
    assert "ours" not in load_catalogue(load(root, paths), entry_points=list)
    trust_project(root, paths)
    catalogue = load_catalogue(load(root, paths), strict=True, entry_points=list)
    assert catalogue.get("ours").launch[0].command == (str(root / "run"),)
    write(root / "dragoman.toml", table.replace("title", 'name = "theirs"\ntitle'))
    trust_project(root, paths)
    (problem,) = load_catalogue(load(root, paths), entry_points=list).problems
    assert "the table says 'ours'" in str(problem)


def test_asking_for_one_peer_reads_the_file_of_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def parse(data: bytes, *, origin: str) -> dict[str, Any]:
        read.append(origin)
        return project.parse(data, origin=origin)

    monkeypatch.setattr(catalogue_load, "parse", parse)
    catalogue = load_catalogue(load(tmp_path, paths_in(tmp_path)), entry_points=list)
    assert catalogue.get("qwen") is catalogue.get("qwen")
    assert read == ["dragoman: qwen.toml"]
    assert len(catalogue) == len(KNOWN) and "kimi" in catalogue
    assert len(list(catalogue)) == len(read) == len(KNOWN)
