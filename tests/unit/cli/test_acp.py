"""`dragoman acp` as a user calls it."""

from __future__ import annotations

import json

import pytest

from dragoman.cli.acp import EditorName
from dragoman.setup.install.clients import ACP_EDITORS, SCRIPTED_EDITORS
from tests.unit.cli.calling import Shell


def test_every_known_editor_can_be_named() -> None:
    assert [name.value for name in EditorName] == [*ACP_EDITORS, *SCRIPTED_EDITORS]


def test_the_entry_is_shown_and_then_written(shell: Shell) -> None:
    shown = shell("acp", "install", "--client", "jetbrains")
    path = shell.home / ".jetbrains" / "acp.json"
    assert shown.code == 0 and not path.exists()
    assert shell("acp", "install", "--client", "jetbrains", "--write").code == 0
    assert path.read_text() == shown.out
    assert json.loads(shown.out)["agent_servers"]["dragoman"]["args"][-2:] == ["serve", "acp"]


def test_tools_and_agent_live_in_one_file_side_by_side(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shell.home))
    assert shell("mcp", "install", "--client", "zed", "--write").code == 0
    assert shell("acp", "install", "--client", "zed", "--write").code == 0
    made = json.loads((shell.home / "zed" / "settings.json").read_text())
    assert [made[key]["dragoman"]["args"][-1] for key in ("context_servers", "agent_servers")] == [
        "mcp",
        "acp",
    ]


@pytest.mark.parametrize("editor", SCRIPTED_EDITORS)
def test_a_program_is_shown_what_to_paste_and_never_edited(shell: Shell, editor: str) -> None:
    said = shell("acp", "install", "--client", editor, "--name", "mine")
    assert said.code == 0
    assert '"serve"' in said.out and '"acp"' in said.out and '"mine"' in said.out
    assert "paste this into" in said.err
    for more in (["--write"], ["--file", "x"]):
        refused = shell("acp", "install", "--client", editor, *more)
        assert refused.code == 2 and "which dragoman does not edit" in refused.err
    assert shell("acp", "install", "--client", editor, "--name", '")').code == 2


def test_the_entry_is_taken_out_again(shell: Shell) -> None:
    assert shell("acp", "install", "--client", "jetbrains", "--write").code == 0
    assert shell("acp", "uninstall", "--client", "jetbrains", "--write").code == 0
    assert json.loads((shell.home / ".jetbrains" / "acp.json").read_text()) == {}
    refused = shell("acp", "uninstall", "--client", "emacs")
    assert refused.code == 2 and "remove the entry from your init.el yourself" in refused.err


def test_the_option_of_earlier_versions_is_understood_and_not_shown(shell: Shell) -> None:
    assert shell("acp", "install", "--editor", "zed").code == 0
    assert "--editor" not in shell("acp", "install", "--help").out
    missing = shell("acp", "install")
    assert missing.code == 2 and "--client: zed, jetbrains, neovim, emacs" in missing.err
