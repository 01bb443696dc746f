"""Where programs keep their settings, on every system."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.setup.install.clients import (
    ACP_EDITORS,
    MCP_CLIENTS,
    SCRIPTED_EDITORS,
    HostEnvironment,
)

HOME = Path("/home/ada")


def place(name: str, platform: str = "linux", **env: str) -> str:
    found = MCP_CLIENTS[name].user_file(HostEnvironment(HOME, env, platform))
    return found.as_posix().removeprefix("/home/ada/")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude", ".claude.json"),
        ("codex", ".codex/config.toml"),
        ("cursor", ".cursor/mcp.json"),
        ("gemini", ".gemini/settings.json"),
        ("qwen", ".qwen/settings.json"),
        ("copilot", ".copilot/mcp-config.json"),
        ("opencode", ".config/opencode/opencode.json"),
        ("kimi", ".kimi-code/mcp.json"),
        ("zed", ".config/zed/settings.json"),
        ("vscode", ".config/Code/User/mcp.json"),
    ],
)
def test_every_program_has_its_usual_place(name: str, expected: str) -> None:
    assert place(name) == expected


def test_other_systems_have_other_places() -> None:
    assert place("zed", "darwin", XDG_CONFIG_HOME="/x") == ".config/zed/settings.json"
    assert place("zed", "win32", APPDATA="/roaming") == "/roaming/Zed/settings.json"
    mac = "Library/Application Support/Code/User/mcp.json"
    assert place("vscode", "darwin") == mac
    assert place("vscode", "win32") == "AppData/Roaming/Code/User/mcp.json"


def test_variables_move_the_settings_as_the_programs_themselves_say() -> None:
    assert place("claude", CLAUDE_CONFIG_DIR="/c") == "/c/.claude.json"
    assert place("codex", CODEX_HOME="/c") == "/c/config.toml"
    assert place("gemini", GEMINI_CLI_HOME="/g") == "/g/.gemini/settings.json"
    assert place("qwen", QWEN_HOME="/q") == "/q/settings.json"
    assert place("kimi", KIMI_CODE_HOME="/k") == "/k/mcp.json"
    assert place("opencode", XDG_CONFIG_HOME="/x") == "/x/opencode/opencode.json"
    assert place("zed", XDG_CONFIG_HOME="/x") == "/x/zed/settings.json"
    assert place("vscode", XDG_CONFIG_HOME="/x") == "/x/Code/User/mcp.json"
    assert place("codex", CODEX_HOME="") == ".codex/config.toml"


def test_editors_for_agents_have_theirs() -> None:
    around = HostEnvironment(HOME, {}, "linux")
    places = {name: editor.user_file(around) for name, editor in ACP_EDITORS.items()}
    assert places == {
        "zed": HOME / ".config/zed/settings.json",
        "jetbrains": HOME / ".jetbrains/acp.json",
    }


def test_where_we_are_is_taken_from_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert HostEnvironment.here().home == HOME


@pytest.mark.parametrize("name", SCRIPTED_EDITORS)
def test_a_text_to_paste_names_every_word_of_the_command(name: str) -> None:
    command = ("/opt/my tools/dragoman", "serve", 'a"b')
    text = SCRIPTED_EDITORS[name].text("my own", command)
    assert '"/opt/my tools/dragoman"' in text and '"serve"' in text and '"a\\"b"' in text
    assert '"my own"' in text
    assert text.count("(") == text.count(")") and text.count("{") == text.count("}")


def test_opencode_keeps_the_file_with_comments_where_there_is_one(tmp_path: Path) -> None:
    folder = tmp_path / "opencode"
    folder.mkdir()
    (folder / "opencode.jsonc").write_text("{}")
    around = HostEnvironment(HOME, {"XDG_CONFIG_HOME": str(tmp_path)}, "linux")
    assert MCP_CLIENTS["opencode"].user_file(around) == folder / "opencode.jsonc"
