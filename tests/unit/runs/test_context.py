"""What holds in a folder, put together from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.catalogue import load_catalogue
from dragoman.config import find_paths, load_config
from dragoman.errors import ConfigInvalid, UsageError
from dragoman.runs.context import RunContext, default_peer, load_context
from dragoman.store.open import open_store
from dragoman.store.records import JobRecord


@pytest.fixture
def place(tmp_path: Path) -> RunContext:
    return look(tmp_path)


def look(folder: Path) -> RunContext:
    environ = {f"DRAGOMAN_{name}_HOME": str(folder / name) for name in ("CONFIG", "DATA", "CACHE")}
    environ |= {"DRAGOMAN_STATE_HOME": str(folder / "S"), "DRAGOMAN_RUNTIME_DIR": str(folder / "R")}
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return load_context(work, environ=environ)


def test_only_scout_is_enabled(place: RunContext) -> None:
    assert place.is_enabled("scout")
    assert not place.is_enabled("codex")
    assert "codex" in place.catalogue


def test_agent_files_are_found_from_the_projects_folder(tmp_path: Path) -> None:
    place = look(tmp_path)
    (place.cwd / ".git").mkdir()
    (place.cwd / "dragoman.toml").write_text('agent_files = ["staff/*.md"]\n')
    below = place.cwd / "below"
    (place.cwd / "staff").mkdir()
    below.mkdir()
    file = place.cwd / "staff" / "a.md"
    file.touch()
    inner = load_context(below, environ=place.environ)
    assert inner.agent_folder == place.cwd
    assert inner.agent_files() == [file]
    assert inner.find_agent_files(("a",)) == [file]


def test_everything_that_is_wrong_is_collected(tmp_path: Path) -> None:
    place = look(tmp_path)
    assert place.troubles() == []
    place.paths.peers_folder.mkdir(parents=True)
    (place.paths.peers_folder / "mine.toml").write_text("nonsense = 1\n")
    place.paths.config_file.write_text("enabeld_peers = []\n")
    (place.cwd / "agents").mkdir()
    (place.cwd / "agents" / "a.md").write_text("---\ndelegate_to: x-y\n---\n")
    told = [str(problem) for problem in place.again().troubles()]
    assert len(told) == 3
    assert "did you mean `enabled_peers`?" in told[0]
    assert "mine.toml: nonsense" in told[1]
    assert "a.md:2: cannot delegate to 'x-y'" in told[2]


def test_cards_are_looked_for_where_the_ladder_keeps_them(place: RunContext) -> None:
    from dragoman.catalogue.card import CARDS

    assert place.cards().folder == place.paths.data / CARDS


# -- adapters

ADAPTER = """
from pathlib import Path
name, protocol, ROLES_CLAIMED, ROLE_PREFIX = "tool", "acp", ["draw"], {}
with (Path(__file__).parent / "loads").open("a") as file:
    file.write("x")

def claims(role):
    return role in ROLES_CLAIMED

async def dispatch(launch, role, text, on_notification=None):
    return text
"""


def adapted(folder: Path, code: str | None, settings: str = "") -> RunContext:
    peers = folder / "CONFIG" / "peers"
    peers.mkdir(parents=True)
    (peers / "tool.toml").write_text(
        'name = "tool"\ntitle = "Tool"\nroles = ["plan"]\nadapter = "tool.py"\n'
        '[[launch]]\ncommand = ["tool"]\n'
    )
    if code is not None:
        (peers / "tool.py").write_text(code)
    (folder / "CONFIG" / "config.toml").write_text(settings)
    return look(folder)


ENABLED = 'enabled_peers = ["tool"]\n'


def test_an_adapter_is_loaded_once_and_its_roles_count(tmp_path: Path) -> None:
    place = adapted(tmp_path, ADAPTER, ENABLED)
    assert place.adapter("scout") is None
    found = place.adapter("tool")
    assert found is not None and found.roles == ("draw",)
    assert place.role_catalogue().get("tool").roles == ("draw",)
    assert place.role_catalogue().claimants("draw") == ("tool",)
    assert "plan" not in place.role_catalogue().get("tool").roles
    assert place.adapter_problem("tool") == ""
    assert (tmp_path / "CONFIG" / "peers" / "loads").read_text() == "x"
    assert place.catalogue.get("tool").roles == ("plan",)


def test_the_adapter_of_a_peer_that_is_not_enabled_is_not_loaded_for_its_roles(
    tmp_path: Path,
) -> None:
    place = adapted(tmp_path, ADAPTER)
    assert place.role_catalogue() is place.catalogue
    assert not (tmp_path / "CONFIG" / "peers" / "loads").exists()


def test_roles_of_the_settings_count_before_those_of_an_adapter(tmp_path: Path) -> None:
    place = adapted(tmp_path, ADAPTER, f'{ENABLED}[peer.tool]\nroles = ["review"]\n')
    assert place.role_catalogue().get("tool").roles == ("review",)


def test_an_adapter_that_does_not_load_changes_no_roles_and_says_why(tmp_path: Path) -> None:
    place = adapted(tmp_path, None, ENABLED)
    assert place.role_catalogue().get("tool").roles == ("plan",)
    assert "there is no" in place.adapter_problem("tool")
    with pytest.raises(ConfigInvalid, match="the adapter tool.py of tool"):
        place.adapter("tool")


# -- the default peer

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


def test_the_only_enabled_peer_is_the_default(tmp_path: Path) -> None:
    settings = 'enabled_peers = ["codex"]'
    assert choose(tmp_path, settings, last="gemini") == ("codex", "the only enabled peer")


def test_the_peer_used_last_is_the_default_among_several(tmp_path: Path) -> None:
    settings = 'enabled_peers = ["codex", "qwen"]'
    assert choose(tmp_path, settings, last="gemini") == ("gemini", "the last one used")


@pytest.mark.parametrize("last", ["", "a-peer-that-was-removed"])
def test_without_a_default_a_peer_has_to_be_named(tmp_path: Path, last: str) -> None:
    with pytest.raises(UsageError, match=r"^name a peer, or set a default$") as raised:
        choose(tmp_path, last=last)
    assert "`dragoman init`" in raised.value.remedy
    assert "`dragoman config set default_peer NAME`" in raised.value.remedy


@pytest.mark.parametrize(
    ("word", "said"), [("codxx", "'codxx' is not a peer: name"), ("fix the tests", "name a peer")]
)
def test_a_word_in_the_place_of_a_peer_is_named(tmp_path: Path, word: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"^{said}"):
        choose(tmp_path, word=word)
