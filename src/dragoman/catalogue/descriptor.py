"""Schema of a peer descriptor: every key of a peer's TOML file, its type and default.

All of it is claimed, with its origin in `source`; measured facts are in `catalogue.card`.
`catalogue.load` finds descriptors and `catalogue.validate` checks them.

The annotations are values, not text (no `from __future__ import annotations`), as in
`config.schema`.
"""

from typing import Final, Literal

from msgspec import Struct, field

Platform = Literal["linux", "macos", "windows"]
Tier = Literal["fast", "standard", "strong"]
McpKind = Literal["stdio", "http", "sse"]

PYTHON: Final = "{python}"
"""Stands for the interpreter that runs dragoman, as the program of a launch."""


class Launch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to start or reach the peer; the first whose program is there is taken."""

    command: tuple[str, ...] = ()
    """The words of the command line, the program first. Empty if there is an address."""
    address: str | None = None
    """``unix:/path``, ``ws://…`` or ``wss://…`` of a peer that runs already."""
    platforms: tuple[Platform, ...] = ()
    """Where this way works; empty is everywhere."""
    deprecated: bool = False
    """Works, but its maker will take it away: never chosen while another way works."""


class WrongForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command line that people try and that does not work."""

    command: tuple[str, ...]
    """The words that stand in it, in this order; others may stand between them."""
    effect: str
    """What happens, as one would see it."""
    remedy: str
    """What to write instead, as it follows the word "use"."""
    dangerous: bool = False
    """It may send what we write to a model as a prompt: never start it, not even to look."""


class VersionSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to learn a version without starting a server by mistake."""

    how: Literal["package", "flag", "handshake", "ours"] = "handshake"
    """From its package, from a flag, only from the handshake, or it is dragoman's own."""
    package: str | None = None
    """The npm package whose package.json tells it, found from the program's real path."""
    flag: str | None = None
    """The argument that prints it, such as ``--version``, where that is known to be safe."""


class Models(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the names of models are learned and asked for."""

    listing: Literal["session", "command", "none"] = "session"
    """From an open session (its options), from a command, or not at all."""
    command: tuple[str, ...] = ()
    """The command that lists them."""
    flag: str | None = None
    """The launch argument that chooses one, for peers that cannot switch in a session."""


class Credentials(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of what proves who pays. Never values."""

    env: tuple[str, ...] = ()
    """Variables that the peer reads, passed on to it if they are set."""
    endpoints: tuple[str, ...] = ()
    """Variables that say where the model is. Passed on too; removed by a careful probe."""
    login: str = ""
    """What a person does to log in."""


class Install(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the peer gets onto a machine, and what it needs there."""

    hint: str = ""
    """The command that installs it."""
    node: int | None = None
    """The lowest major version of node that it runs with."""


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the peer does differently and the code acts on. All false: it behaves."""

    missing_file_is_empty: bool = False
    """A read of a missing file must be answered with empty content, or the write after it fails."""
    error_texts: tuple[str, ...] = ()
    """Beginnings of message texts that are errors of the peer: such a turn is no success."""
    notice_texts: tuple[str, ...] = ()
    """Message texts that are remarks of the program and no part of an answer."""
    late_replay: bool = False
    """A loaded session's history arrives after the answer to the load."""
    loads_next_minute: bool = False
    """A session that is loaded in the very minute in which it was begun is lost, for good."""
    reject_ends_turn: bool = False
    """A refused permission ends the turn."""
    mode_after_open: str | None = None
    """The mode to set after new, load and resume, because the one it starts in never asks."""
    login_shown_in: Literal["session", "prompt", "account"] = "session"
    """Where a missing login shows."""
    silent_retries: bool = False
    """While its model fails it retries without a word for more than 25 s."""
    stays_after_eof: bool = False
    """Does not exit when its input ends."""
    leaves_daemon: bool = False
    """Leaves a process in a session of its own."""
    terminals: bool = False
    """Runs commands through our terminals if we offer them."""
    command_titles: bool = False
    """Its program, and not its model, writes the command it asks about as the title only."""


class Enforcement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the peer is made to ask for permission. Applied unless the policy allows everything."""

    env: dict[str, str] = field(default_factory=dict)
    """Variables that make it ask. No secrets."""
    arguments: tuple[str, ...] = ()
    """Words added to its command line."""
    modes: tuple[str, ...] = ()
    """The modes in which it asks. The first is set when a session is opened."""
    options: dict[str, str | bool] = field(default_factory=dict)
    """Session options in which it asks, by id. They are set when a session is opened."""
    files: bool = False
    """It writes files through us, where each write is judged, and does not ask before it does."""
    possible: bool = True
    """False if it cannot be made to ask: it is not started under a policy that restricts it."""


class McpServers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the peer does with MCP servers that it is handed with a session."""

    ignored: tuple[McpKind, ...] = ()
    """The kinds of servers that it leaves out without a word."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables without which it starts none of them. They are set only if there are some."""
    trusts: tuple[str, ...] = ()
    """Entries of the workspace that would count because of ``env``. If one is there, ``env`` is
    not set, because the folder would decide what runs."""


class SettingWay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a setting of a session reaches the peer: by an option, or by its command line."""

    detail: str = ""
    """The option of its dialect's client (`details`); dots lead into a table."""
    arguments: tuple[str, ...] = ()
    """Words added to its command line, with ``{value}`` for the value; once for each value."""


class SessionSupport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which settings of a session the peer takes. What is left out it does not take."""

    system_prompt: SettingWay | None = None
    """Instructions for the whole session, added to its own."""
    allow_tool: SettingWay | None = None
    """Names of tools that it uses without asking."""
    max_turns: SettingWay | None = None
    """How many times it may call its model for a prompt."""


class CanaryPrompts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the ladder asks a peer that has no model to understand its sentences.

    What is left out is asked as it is asked of everybody; an empty text says that the peer has
    nothing of the kind, so it is not asked.
    """

    echo: str | None = None
    """What gets an answer in words. ``{token}`` stands for a word that may come back."""
    slow: str | None = None
    """What takes long enough to be cancelled."""
    write: str | None = None
    """What makes it write the file ``{path}``; ``{text}`` stands for a content."""
    shell: str | None = None
    """What makes it run ``{command}``."""
    tool: str | None = None
    """What makes it call ``{tool}`` of the MCP server ``{server}``."""


class Descriptor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One peer, as it claims to be."""

    name: str
    """Its id: lower case letters, digits and hyphens, unique."""
    title: str
    """What people call it."""
    protocol: str = "auto"
    """A dialect's name (see `dragoman.dialects.discovery`), or ``auto``."""
    launch: tuple[Launch, ...]
    """The ways to start or reach it, the best first; at least one."""
    roles: tuple[str, ...] = ()
    """The roles it claims."""
    role_prefixes: dict[str, str] = field(default_factory=dict)
    """What is put before a prompt of that role: a slash command of the peer, mostly."""
    tiers: dict[Tier, str] = field(default_factory=dict)
    """The model for each tier by its parent name, without a ``-preview`` at its end."""
    wrong_forms: tuple[WrongForm, ...] = ()
    """Command lines that people try in vain: they are refused before anything is started."""
    version: VersionSource = VersionSource()
    """How its version is learned."""
    models: Models = Models()
    """How its models are listed and chosen."""
    credentials: Credentials = Credentials()
    """What it may see of our environment, and how a person logs in."""
    install: Install = Install()
    """What to do where it is missing."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment that makes it behave. No secrets."""
    details: dict[str, str | int | bool] = field(default_factory=dict)
    """Options of its dialect (`connect(details=…)`)."""
    quirks: Quirks = Quirks()
    """What it does differently."""
    enforcement: Enforcement = Enforcement()
    """How it is made to ask for permission."""
    mcp: McpServers = McpServers()
    """What it does with MCP servers that it is handed."""
    session: SessionSupport = SessionSupport()
    """Which settings of a session it takes."""
    canaries: CanaryPrompts = CanaryPrompts()
    """How the ladder's questions are put to it, where the usual sentences mean nothing to it."""
    max_line_size: int | None = None
    """The longest message in bytes that it may send."""
    handshake_timeout: float | None = None
    """Seconds until its first answer, where the usual 30 are not enough."""
    adapter: str | None = None
    """A Python adapter that does the work of the peer where this data is not enough:
    ``module:attribute`` of an installed module, or a file beside the descriptor, ``file.py`` or
    ``file.py:attribute``."""
    source: str = ""
    """Where these facts come from, with a date."""
    verified: bool = False
    """Whether somebody ran this peer and saw the facts to be true."""
    notes: str = ""
    """What else a user should know."""
