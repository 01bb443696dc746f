"""Table of MCP clients and editors: path of their settings file, and form of the entry.

The data is taken from each program's documentation. Reads and writes no file; `entries` does. For a
program whose settings are code, there is a text that the user pastes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

ServerKind = Literal["mcp", "acp"]
"""The server that the program starts: dragoman's MCP tools, or dragoman as an ACP agent."""

DELEGATION_TIMEOUT: Final = 3600
"""Seconds for which a program should wait for a tool call. A delegated job takes minutes, and Codex
times out after one minute. A user can lower the value in the entry; a later install keeps that."""


@dataclass(frozen=True, slots=True)
class HostEnvironment:
    """Home directory, environment variables and platform, which determine the paths of settings
    files."""

    home: Path
    env: Mapping[str, str]
    platform: str

    @classmethod
    def here(cls) -> HostEnvironment:
        return cls(Path.home(), os.environ, sys.platform)

    def folder(self, variable: str, default: str) -> Path:
        """Return the directory that a variable names, else `default` in the home directory."""
        named = self.env.get(variable, "")
        return Path(named) if named else self.home / default

    def settings(self, name: str) -> Path:
        """Return the directory `name` below the user's directory for the settings of desktop
        programs."""
        if self.platform == "win32":
            return self.folder("APPDATA", "AppData/Roaming") / name
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support" / name
        return self.folder("XDG_CONFIG_HOME", ".config") / name


@dataclass(frozen=True, slots=True)
class Client:
    """A program whose settings are data: its settings files, and the form of dragoman's entry."""

    name: str
    title: str
    server: ServerKind
    section: str
    """The key of the object or table that holds the entry."""
    user_file: Callable[[HostEnvironment], Path]
    project_file: str | None = None
    """Path of a project's settings file, relative to the project; None if the program reads
    none."""
    format: Literal["json", "toml"] = "json"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Members that the program requires besides the command."""
    initial: Mapping[str, Any] = field(default_factory=dict)
    """Members of a new entry; in an existing one they are not changed."""
    skills: Callable[[HostEnvironment], Path] | None = None
    """The user's skills directory, if the program reads one."""
    one_list: bool = False
    """Whether ``command`` is a list with the whole command line, without ``args``."""
    after: str = ""
    """The next step for the user after the entry was written."""

    def command(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the members of an entry that hold a command line."""
        if self.one_list:
            return {"command": list(words)}
        return {"command": words[0], "args": list(words[1:])}

    def words(self, entry: Mapping[str, Any]) -> list[Any] | None:
        """Return the command line of an entry, or None if it has none in this client's form."""
        command, args = entry.get("command"), entry.get("args")
        if self.one_list:
            return command if isinstance(command, list) else None
        if not isinstance(command, str) or not isinstance(args, list):
            return None
        return [command, *args]


@dataclass(frozen=True, slots=True)
class Script:
    """A program whose settings are code, and the text that the user pastes into them."""

    name: str
    title: str
    place: str
    text: Callable[[str, Sequence[str]], str]


def _zed(around: HostEnvironment) -> Path:
    if around.platform == "win32":
        return around.settings("Zed") / "settings.json"
    # macOS uses the same directory as other Unix systems.
    base = "" if around.platform == "darwin" else around.env.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base else around.home / ".config") / "zed" / "settings.json"


def _opencode(around: HostEnvironment) -> Path:
    base = around.env.get("XDG_CONFIG_HOME", "")
    folder = (Path(base) if base else around.home / ".config") / "opencode"
    # The program reads both, and itself writes the one with comments.
    commented = folder / "opencode.jsonc"
    return commented if os.path.exists(commented) else folder / "opencode.json"


def _claude(around: HostEnvironment) -> Path:
    return around.folder("CLAUDE_CONFIG_DIR", "") / ".claude.json"


MCP_CLIENTS: Final[Mapping[str, Client]] = {
    client.name: client
    for client in (
        Client(
            name="claude",
            title="Claude Code",
            server="mcp",
            section="mcpServers",
            user_file=_claude,
            project_file=".mcp.json",
            fixed={"type": "stdio"},
            initial={"env": {}},
            skills=lambda around: around.folder("CLAUDE_CONFIG_DIR", ".claude") / "skills",
            after="start a new `claude` session; `/mcp` shows the server",
        ),
        Client(
            name="codex",
            title="Codex",
            server="mcp",
            section="mcp_servers",
            user_file=lambda around: around.folder("CODEX_HOME", ".codex") / "config.toml",
            project_file=".codex/config.toml",
            format="toml",
            initial={"tool_timeout_sec": DELEGATION_TIMEOUT},
            skills=lambda around: around.folder("CODEX_HOME", ".codex") / "skills",
            after="start a new `codex` session; `/mcp` shows the server",
        ),
        Client(
            name="cursor",
            title="Cursor",
            server="mcp",
            section="mcpServers",
            user_file=lambda around: around.home / ".cursor" / "mcp.json",
            project_file=".cursor/mcp.json",
            fixed={"type": "stdio"},
            after="restart Cursor; its settings list the server under MCP",
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            server="mcp",
            section="mcpServers",
            user_file=lambda around: (
                around.folder("GEMINI_CLI_HOME", "") / ".gemini" / "settings.json"
            ),
            project_file=".gemini/settings.json",
            initial={"timeout": DELEGATION_TIMEOUT * 1000},
            skills=lambda around: around.folder("GEMINI_CLI_HOME", "") / ".gemini" / "skills",
            after="start a new `gemini` session; `/mcp` shows the server",
        ),
        Client(
            name="qwen",
            title="Qwen Code",
            server="mcp",
            section="mcpServers",
            user_file=lambda around: around.folder("QWEN_HOME", ".qwen") / "settings.json",
            project_file=".qwen/settings.json",
            initial={"timeout": DELEGATION_TIMEOUT * 1000},
            skills=lambda around: around.folder("QWEN_HOME", ".qwen") / "skills",
            after="start a new `qwen` session; `qwen mcp list` shows the server",
        ),
        Client(
            name="copilot",
            title="GitHub Copilot CLI",
            server="mcp",
            section="mcpServers",
            user_file=lambda around: around.home / ".copilot" / "mcp-config.json",
            project_file=".github/mcp.json",
            fixed={"type": "local"},
            initial={"tools": ["*"]},
            after="start a new `copilot` session; `copilot mcp list` shows the server",
        ),
        Client(
            name="opencode",
            title="opencode",
            server="mcp",
            section="mcp",
            user_file=_opencode,
            project_file="opencode.json",
            fixed={"type": "local"},
            # The program times out after five seconds otherwise.
            initial={"enabled": True, "timeout": DELEGATION_TIMEOUT * 1000},
            one_list=True,
            after="start a new `opencode` session; `opencode mcp list` shows the server",
        ),
        Client(
            name="kimi",
            title="Kimi Code",
            server="mcp",
            section="mcpServers",
            user_file=lambda around: around.folder("KIMI_CODE_HOME", ".kimi-code") / "mcp.json",
            project_file=".kimi-code/mcp.json",
            initial={"toolTimeoutMs": DELEGATION_TIMEOUT * 1000},
            skills=lambda around: around.folder("KIMI_CODE_HOME", ".kimi-code") / "skills",
            after="start a new `kimi` session; `/mcp` shows the server",
        ),
        Client(
            name="zed",
            title="Zed",
            server="mcp",
            section="context_servers",
            user_file=_zed,
            project_file=".zed/settings.json",
            # Versions from 2025 do not read an entry without this key, and later ones ignore it.
            initial={"source": "custom", "env": {}},
            after="the server appears in the settings of Zed's agent panel",
        ),
        Client(
            name="vscode",
            title="VS Code",
            server="mcp",
            section="servers",
            user_file=lambda around: around.settings("Code") / "User" / "mcp.json",
            project_file=".vscode/mcp.json",
            fixed={"type": "stdio"},
            after="run `MCP: List Servers` in the command palette and start the server",
        ),
    )
}
"""The MCP clients, by name."""

ACP_EDITORS: Final[Mapping[str, Client]] = {
    client.name: client
    for client in (
        Client(
            name="zed",
            title="Zed",
            server="acp",
            section="agent_servers",
            user_file=_zed,
            fixed={"type": "custom"},
            initial={"env": {}},
            after="open the agent panel and start a new thread with this agent",
        ),
        Client(
            name="jetbrains",
            title="JetBrains IDEs",
            server="acp",
            section="agent_servers",
            user_file=lambda around: around.home / ".jetbrains" / "acp.json",
            initial={"env": {}},
            after="choose the agent in the AI chat of your IDE",
        ),
    )
}
"""The editors that start ACP agents and whose settings are data files, by name."""


def _lua(name: str, command: Sequence[str]) -> str:
    args = ", ".join(json.dumps(word, ensure_ascii=False) for word in command[1:])
    return (
        'require("avante").setup({\n'
        f"  provider = {json.dumps(name)},\n"
        "  acp_providers = {\n"
        f"    [{json.dumps(name)}] = {{\n"
        f"      command = {json.dumps(command[0], ensure_ascii=False)},\n"
        f"      args = {{ {args} }},\n"
        "    },\n"
        "  },\n"
        "})\n"
    )


def _lisp(name: str, command: Sequence[str]) -> str:
    symbol = name.replace(" ", "-")
    words = " ".join(json.dumps(word, ensure_ascii=False) for word in command[1:])
    return (
        "(add-to-list 'agent-shell-agent-configs\n"
        "             (agent-shell-make-agent-config\n"
        f"              :identifier '{symbol}\n"
        f'              :mode-line-name "{name}"\n'
        f'              :buffer-name "{name}"\n'
        f'              :shell-prompt "{name}> "\n'
        f'              :shell-prompt-regexp "{name}> "\n'
        "              :client-maker\n"
        "              (lambda (buffer)\n"
        "                (acp-make-client\n"
        f"                 :command {json.dumps(command[0], ensure_ascii=False)}\n"
        f"                 :command-params '({words})\n"
        "                 :context-buffer buffer))))\n"
    )


SCRIPTED_EDITORS: Final[Mapping[str, Script]] = {
    script.name: script
    for script in (
        Script("neovim", "Neovim with avante.nvim", "your init.lua", _lua),
        Script("emacs", "Emacs with agent-shell", "your init.el", _lisp),
    )
}
"""The editors that start ACP agents and whose settings are code, by name."""
