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
    """One way to start or reach the peer; the first whose program is installed is used."""

    command: tuple[str, ...] = ()
    """The command line as a list, the program first. Empty if there is an address."""
    address: str | None = None
    """``unix:/path``, ``ws://…`` or ``wss://…`` of a peer that is already running."""
    platforms: tuple[Platform, ...] = ()
    """Where this way works; empty means everywhere."""
    deprecated: bool = False
    """Works, but deprecated by its vendor: never chosen while another way works."""


class WrongForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command line that people try and that does not work."""

    command: tuple[str, ...]
    """The words that occur in it, in this order; others may come between them."""
    effect: str
    """What happens, as a user would see it."""
    remedy: str
    """What to write instead, phrased to follow the word "use"."""
    dangerous: bool = False
    """It may send our input to a model as a prompt: never start it, not even to inspect it."""


class VersionSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to find the version without starting a server by mistake."""

    how: Literal["package", "flag", "handshake", "ours"] = "handshake"
    """From its package, from a flag, only from the handshake, or dragoman's own."""
    package: str | None = None
    """The npm package whose package.json has it, found from the program's real path."""
    flag: str | None = None
    """The argument that prints it, such as ``--version``, if it is known to be safe."""


class Models(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How models are listed and chosen."""

    listing: Literal["session", "command", "none"] = "session"
    """From an open session (its options), from a command, or not at all."""
    command: tuple[str, ...] = ()
    """The command that lists them."""
    flag: str | None = None
    """The launch argument that chooses one, for peers that cannot switch in a session."""


class Credentials(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of the variables with credentials. Never values."""

    env: tuple[str, ...] = ()
    """Variables that the peer reads, passed to it if they are set."""
    endpoints: tuple[str, ...] = ()
    """Variables that say where the model is. Passed too; removed by a careful probe."""
    login: str = ""
    """What a user does to log in."""


class Install(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the peer is installed, and what it needs."""

    hint: str = ""
    """The command that installs it."""
    node: int | None = None
    """The lowest major version of Node.js that it runs with."""


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deviations of the peer that the code handles. All false: none."""

    missing_file_is_empty: bool = False
    """A read of a missing file must be answered with empty content, or the write after it fails."""
    error_texts: tuple[str, ...] = ()
    """Prefixes of message texts that are errors of the peer: such a turn is not a success."""
    notice_texts: tuple[str, ...] = ()
    """Message texts that are remarks of the program and not part of an answer."""
    late_replay: bool = False
    """A loaded session's history arrives after the response to the load."""
    loads_next_minute: bool = False
    """A session that is loaded within the clock minute in which it was created is lost for good."""
    reject_ends_turn: bool = False
    """A refused permission ends the turn."""
    mode_after_open: str | None = None
    """The mode to set after new, load and resume, because the one it starts in never asks."""
    login_shown_in: Literal["session", "prompt", "account"] = "session"
    """Where a missing login shows."""
    silent_retries: bool = False
    """While its model fails it retries silently for more than 25 s."""
    stays_after_eof: bool = False
    """Does not exit when its input ends."""
    leaves_daemon: bool = False
    """Leaves a process behind, in a session of its own."""
    terminals: bool = False
    """Runs commands through our terminals if we offer them."""
    command_titles: bool = False
    """Its program, not its model, writes the command to approve, as the title only."""


class Enforcement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the peer is made to ask for permission. Applied unless the policy allows everything."""

    env: dict[str, str] = field(default_factory=dict)
    """Variables that make it ask. No secrets."""
    arguments: tuple[str, ...] = ()
    """Arguments added to its command line."""
    modes: tuple[str, ...] = ()
    """The modes in which it asks. The first is set when a session is opened."""
    options: dict[str, str | bool] = field(default_factory=dict)
    """Session options in which it asks, by id. They are set when a session is opened."""
    files: bool = False
    """It writes files through us, where each write is checked, and does not ask first."""
    possible: bool = True
    """False if it cannot be made to ask: it is not started under a restrictive policy."""


class McpServers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the peer does with the MCP servers of a session."""

    ignored: tuple[McpKind, ...] = ()
    """The kinds of servers that it silently ignores."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables without which it starts none of them. Set only if there are some."""
    trusts: tuple[str, ...] = ()
    """Entries of the workspace that would take effect because of ``env``. If one exists,
    ``env`` is not set, because the directory would decide what runs."""


class SettingWay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a session setting is passed to the peer: by an option, or by its command line."""

    detail: str = ""
    """The option of its dialect's client (`details`); dots separate nested tables."""
    arguments: tuple[str, ...] = ()
    """Arguments added to its command line, with ``{value}`` for the value; once for each value."""


class SessionSupport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which session settings the peer supports. A setting that is not listed is not supported."""

    system_prompt: SettingWay | None = None
    """Instructions for the whole session, added to its own."""
    allow_tool: SettingWay | None = None
    """Names of tools that it uses without asking."""
    max_turns: SettingWay | None = None
    """How many times it may call its model for a prompt."""


class CanaryPrompts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the ladder prompts a peer that has no model to understand its sentences.

    A prompt that is not set is the usual one; an empty text says that the peer has nothing of the
    kind, so it is not prompted.
    """

    echo: str | None = None
    """A prompt that is answered in words. ``{token}`` stands for a word that may come back."""
    slow: str | None = None
    """A prompt that takes long enough to be cancelled."""
    write: str | None = None
    """A prompt that makes it write the file ``{path}``; ``{text}`` stands for the content."""
    shell: str | None = None
    """A prompt that makes it run ``{command}``."""
    tool: str | None = None
    """A prompt that makes it call ``{tool}`` of the MCP server ``{server}``."""


class Descriptor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One peer, as claimed."""

    name: str
    """Its id: lower case letters, digits and hyphens, unique."""
    title: str
    """Its display name."""
    protocol: str = "auto"
    """A dialect's name (see `dragoman.dialects.discovery`), or ``auto``."""
    launch: tuple[Launch, ...]
    """The ways to start or reach it, the best first; at least one."""
    roles: tuple[str, ...] = ()
    """The roles that it claims."""
    role_prefixes: dict[str, str] = field(default_factory=dict)
    """By role, a prefix for the prompt: usually a slash command of the peer."""
    tiers: dict[Tier, str] = field(default_factory=dict)
    """The model for each tier by its parent name, without a ``-preview`` suffix."""
    wrong_forms: tuple[WrongForm, ...] = ()
    """Command lines that people try in vain: refused before anything is started."""
    version: VersionSource = VersionSource()
    """How its version is found."""
    models: Models = Models()
    """How its models are listed and chosen."""
    credentials: Credentials = Credentials()
    """What it may see of our environment, and how to log in."""
    install: Install = Install()
    """What to do if it is not installed."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment that makes it behave. No secrets."""
    details: dict[str, str | int | bool] = field(default_factory=dict)
    """Options of its dialect (`connect(details=…)`)."""
    quirks: Quirks = Quirks()
    """What it does differently."""
    enforcement: Enforcement = Enforcement()
    """How it is made to ask for permission."""
    mcp: McpServers = McpServers()
    """What it does with the MCP servers of a session."""
    session: SessionSupport = SessionSupport()
    """Which settings of a session it takes."""
    canaries: CanaryPrompts = CanaryPrompts()
    """The ladder's prompts for it, if the usual sentences mean nothing to it."""
    max_line_size: int | None = None
    """The longest message in bytes that it may send."""
    handshake_timeout: float | None = None
    """Seconds until its first response, if the usual 30 are not enough."""
    adapter: str | None = None
    """A Python adapter that implements the peer if this data is not enough:
    ``module:attribute`` of an installed module, or a file beside the descriptor, ``file.py`` or
    ``file.py:attribute``."""
    source: str = ""
    """Where these facts come from, with a date."""
    verified: bool = False
    """Whether these facts were confirmed by running the peer."""
    notes: str = ""
    """What else a user should know."""
