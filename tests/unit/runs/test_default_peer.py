"""Who is asked where no peer is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.catalogue import load_catalogue
from dragoman.config import find_paths, load_config
from dragoman.errors import UsageError
from dragoman.runs.default_peer import default_peer
from dragoman.store.open import open_store
from dragoman.store.records import JobRecord

FOLDERS = ("CONFIG_HOME", "DATA_HOME", "CACHE_HOME", "STATE_HOME", "RUNTIME_DIR")


def choose(
    tmp_path: Path, settings: str = "", last: str = "", word: str | None = None
) -> tuple[str, str]:
    paths = find_paths({f"DRAGOMAN_{name}": str(tmp_path / name) for name in FOLDERS})
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(settings)
    if last:
        with open_store(paths=paths) as store:
            store.create_job(
                JobRecord(id="j-1", session_key="", peer=last, root="/x", created_at=1.0)
            )
    config = load_config(tmp_path, paths)
    return default_peer(config, load_catalogue(config), paths, word=word)


def test_the_setting_comes_first(tmp_path: Path) -> None:
    settings = 'default_peer = "qwen"\nenabled_peers = ["codex"]'
    assert choose(tmp_path, settings, last="gemini") == ("qwen", "default_peer")


def test_then_the_only_enabled_peer(tmp_path: Path) -> None:
    settings = 'enabled_peers = ["codex"]'
    assert choose(tmp_path, settings, last="gemini") == ("codex", "the only enabled peer")


def test_then_the_peer_that_was_used_last(tmp_path: Path) -> None:
    settings = 'enabled_peers = ["codex", "qwen"]'
    assert choose(tmp_path, settings, last="gemini") == ("gemini", "the last one used")


@pytest.mark.parametrize("last", ["", "a-peer-that-was-removed"])
def test_otherwise_a_peer_has_to_be_named(tmp_path: Path, last: str) -> None:
    with pytest.raises(UsageError, match=r"^name a peer, .*config set default_peer"):
        choose(tmp_path, last=last)


@pytest.mark.parametrize(
    ("word", "said"), [("codxx", "'codxx' is not a peer: name"), ("fix the tests", "name a peer")]
)
def test_a_word_in_the_place_of_a_peer_is_named(tmp_path: Path, word: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"^{said}"):
        choose(tmp_path, word=word)
