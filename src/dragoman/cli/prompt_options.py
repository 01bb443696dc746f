"""Typer options shared by the commands that prompt agents, with their help texts.

What an option does is in `run_plan`, `cli.prompt` and `cli.permission_flags`. Options of the
other commands are in `cli.shared_options`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from dragoman.cli.shared_options import ListFormat


def complete_peer(incomplete: str) -> list[str]:
    """The names of peers that begin like this, for the shell."""
    from dragoman.catalogue import load_catalogue
    from dragoman.config import find_paths, load_config
    from dragoman.errors import DragomanError

    try:
        config = load_config(Path.cwd(), find_paths(), strict=False)
        names = load_catalogue(config).names
    except (DragomanError, OSError):
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_variable(incomplete: str) -> list[str]:
    """The names of variables that begin like this."""
    return sorted(name for name in os.environ if name.startswith(incomplete))


Peer: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="PEER",
        help="The name of an agent, or its address: unix:/path, ws://, wss://.",
        show_default=False,
        autocompletion=complete_peer,
    ),
]
Cwd: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--cwd", metavar="FOLDER", help="The agent's workspace; this folder if not given."
    ),
]
ApproveAll: TypeAlias = Annotated[
    bool, typer.Option("--approve-all", help="Allow whatever the agent asks for.")
]
ApproveReads: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--approve-reads",
        help="Allow what only reads, deny the rest. The default where nobody can be asked.",
    ),
]
DenyAll: TypeAlias = Annotated[bool, typer.Option("--deny-all", help="Deny every permission.")]
AllowUnenforced: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-unenforced",
        help="Run an agent that does not ask for permission although the policy restricts it.",
    ),
]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", metavar="NAME", help="The model to use; an unknown one is an error."
    ),
]
Mode: TypeAlias = Annotated[
    str | None, typer.Option("--mode", metavar="NAME", help="The agent's mode to work in.")
]
WorkRole: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--role",
        metavar="ROLE",
        help="The kind of work: one of the peer's roles. The first one of its adapter's if it has"
        " an adapter, none if not.",
    ),
]
Timeout: TypeAlias = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", help="How long a turn may take at most."),
]
McpConfig: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--mcp-config",
        metavar="FILE",
        help='MCP servers for the agent, as JSON: {"mcpServers": {NAME: {"command": ...}}}.',
    ),
]
Dialect: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--dialect", metavar="NAME", help="What the agent speaks, where that is not found out."
    ),
]
Env: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help="A variable that the agent may see, besides the usual ones. May be repeated.",
        autocompletion=complete_variable,
    ),
]
Trace: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--trace", metavar="FILE", help="Write every message to a file, with secrets masked."
    ),
]
OutputFormat: TypeAlias = Annotated[
    ListFormat | None,
    typer.Option("--format", help="text for people, json for programs, quiet for the answer only."),
]
JsonStrict: TypeAlias = Annotated[
    bool,
    typer.Option("--json-strict", help="Lines of JSON on stdout, and nothing at all on stderr."),
]
Verbose: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show everything, the agent's stderr included, and what dragoman itself does.",
    ),
]
AgentStderr: TypeAlias = Annotated[
    bool, typer.Option("--agent-stderr", help="Show what the agent writes to its stderr.")
]
Session: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--session",
        "-s",
        metavar="NAME",
        help="Go on with the session of this name in this project, or begin it.",
    ),
]
Fresh: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="With -s: begin a new session where the agent has forgotten the old one.",
    ),
]
Brief: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--brief",
        help="As --fresh, and the new session is told in short what was said in the old one.",
    ),
]
Cold: TypeAlias = Annotated[
    bool,
    typer.Option("--cold", help="Start an agent for this command alone, without a broker."),
]
Ttl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ttl",
        metavar="AGE",
        help="How long the agent is kept for the next command: 90s, 30m, 2h; 30m if not given.",
    ),
]
NoStdin: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-stdin", help="Do not read stdin. What is piped there belongs to the prompt otherwise."
    ),
]
Role: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="ROLE", help="The kind of work.", show_default=False)
]
AgentFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--agent", metavar="FILE", help="An agent file that says who does its work."),
]
Tier: TypeAlias = Annotated[
    str | None, typer.Option("--tier", metavar="TIER", help="fast, standard or strong.")
]
