"""`dragoman mcp` as a user calls it."""

from __future__ import annotations

import json
import tomllib

import pytest

from dragoman.cli.mcp import ClientName
from dragoman.setup.install.clients import MCP_CLIENTS
from tests.unit.cli.calling import Shell


@pytest.fixture(autouse=True)
def _own_home(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_every_known_client_can_be_named() -> None:
    assert [name.value for name in ClientName] == list(MCP_CLIENTS)


def test_the_entry_is_shown_and_nothing_is_written(shell: Shell) -> None:
    said = shell("mcp", "install", "--client", "claude")
    assert said.code == 0
    entry = json.loads(said.out)["mcpServers"]["dragoman"]
    assert entry["args"][-2:] == ["serve", "mcp"]
    assert f"Claude Code reads this from {shell.home}/.claude.json" in said.err
    assert list(shell.home.iterdir()) == []


def test_the_entry_is_written_once_with_a_backup(shell: Shell) -> None:
    path = shell.home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text("model = 'x' # mine\n")
    said = shell("mcp", "install", "--client", "codex", "--write")
    assert said.code == 0
    assert f"{path} now has the entry dragoman." in said.out
    assert f"Backup: {path}.before-dragoman" in said.out
    assert "Next: start a new `codex` session" in said.out
    assert tomllib.loads(path.read_text())["mcp_servers"]["dragoman"]["args"][-1] == "mcp"
    again = shell("mcp", "install", "--client", "codex", "--write")
    assert again.code == 0 and "Nothing was changed." in again.out


def test_a_project_can_have_the_entry_under_another_name(shell: Shell) -> None:
    argv = ("mcp", "install", "--client", "vscode", "--write", "--project", "--name", "others")
    assert shell(*argv).code == 0
    made = json.loads((shell.cwd / ".vscode" / "mcp.json").read_text())
    assert list(made["servers"]) == ["others"]


def test_another_file_can_be_named(shell: Shell) -> None:
    file = shell.cwd / "zed.json"
    assert shell("mcp", "install", "--client", "zed", "--write", "--file", str(file)).code == 0
    assert "context_servers" in file.read_text()


def test_a_file_that_is_not_understood_is_an_error_that_says_what_to_do(shell: Shell) -> None:
    file = shell.cwd / "mcp.json"
    file.write_text('{"a": 1, "a": 2}')
    said = shell("mcp", "install", "--client", "cursor", "--write", "--file", str(file))
    assert said.code == 2
    assert 'the key "a" occurs twice' in said.err and "nothing was changed" in said.err
    assert "without --write" in said.err
    assert file.read_text() == '{"a": 1, "a": 2}'


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--client", "emacs"], "'emacs' is not one of"),
        (["--client", "zed", "--project", "--file", "x"], "both choose the file"),
        (["--client", "zed", "--name", "a\tb"], "a name may contain only letters"),
        (["--client", "zed", "--name", ""], "a name may contain only letters"),
        ([], "--client"),
    ],
)
def test_what_cannot_be_done_is_wrong_usage(shell: Shell, argv: list[str], problem: str) -> None:
    said = shell("mcp", "install", *argv)
    assert said.code == 2 and problem in said.err


def test_the_entry_is_taken_out_again_and_the_file_is_as_it_was(shell: Shell) -> None:
    path = shell.home / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text("model = 'x' # mine\n")
    assert shell("mcp", "install", "--client", "codex", "--write").code == 0
    written = path.read_text()
    shown = shell("mcp", "uninstall", "--client", "codex")
    assert shown.code == 0 and "-[mcp_servers.dragoman]" in shown.out
    assert "--write does this" in shown.err and path.read_text() == written
    done = shell("mcp", "uninstall", "--client", "codex", "--write")
    assert done.code == 0 and f"The entry dragoman was removed from {path}." in done.out
    assert f"{path}.before-dragoman-2" in done.out
    assert path.read_text() == "model = 'x' # mine\n"
    again = shell("mcp", "uninstall", "--client", "codex", "--write")
    assert again.code == 0 and "Nothing was changed." in again.out


def test_an_entry_of_another_program_is_not_taken_out(shell: Shell) -> None:
    path = shell.home / ".claude.json"
    path.write_text('{"mcpServers": {"dragoman": {"command": "x", "args": []}}}')
    said = shell("mcp", "uninstall", "--client", "claude", "--write")
    assert said.code == 2 and "does not start `dragoman serve mcp`" in said.err


def test_a_missing_sdk_is_reported_with_the_entry(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ("mcp", "install", "--client", "claude")
    assert "MCP SDK" not in shell(*argv).err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for more in ((), ("--write",)):
        said = shell(*argv, *more)
        assert said.code == 0
        assert "the MCP SDK is missing; install it with pip install 'dragoman[mcp]'" in said.err
