"""Schema of a peer descriptor: every key of a peer's TOML file, its type and default.

All of it is claimed, not measured, and `source` says where it comes from; measured facts are in
`catalogue.card`. `catalogue.load` finds descriptors and `catalogue.validate` checks them.

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
    """The platforms on which this works; empty means all."""
    deprecated: bool = False
    """Whether the vendor has deprecated it; it is used only if nothing else works."""


class WrongForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command line that people try and that does not work."""

    command: tuple[str, ...]
    """Words that it contains, in this order; other words may come between them."""
    effect: str
    """What happens, as a user would see it."""
    remedy: str
    """What to write instead, phrased to follow the word "use"."""
    dangerous: bool = False
    """Whether it may send its input to a model as a prompt; it is never started, not even to
    inspect it."""


class VersionSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to find the version without starting a server by mistake."""

    how: Literal["package", "flag", "handshake", "ours"] = "handshake"
    """Where the version comes from: `package` (the npm package), `flag` (the output of `flag`),
    `handshake`, or `ours` (dragoman's own version)."""
    package: str | None = None
    """The npm package whose package.json has the version, found from the program's real path."""
    flag: str | None = None
    """The argument that prints the version, such as ``--version``, if it is known to be safe."""


class Models(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How models are listed and chosen."""

    listing: Literal["session", "command", "none"] = "session"
    """Where the models come from: `session` (the options of an open session), `command`, or
    `none`."""
    command: tuple[str, ...] = ()
    """The command that lists them."""
    flag: str | None = None
    """The command-line argument that chooses a model, for peers that cannot switch in a session."""


class Credentials(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of the variables that contain credentials, never values."""

    env: tuple[str, ...] = ()
    """Variables that the peer reads, passed to it if they are set."""
    endpoints: tuple[str, ...] = ()
    """Variables that contain the address of the model; they are passed too, except when an unknown
    program is probed for the first time."""
    login: str = ""
    """How a user logs in."""


class Install(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to install the peer, and what it needs."""

    hint: str = ""
    """The command that installs it."""
    node: int | None = None
    """The lowest major version of Node.js that it supports."""


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deviations of the peer that dragoman works around."""

    missing_file_is_empty: bool = False
    """Whether reading a missing file must return empty content, because the write that follows
    fails otherwise."""
    error_texts: tuple[str, ...] = ()
    """Prefixes of messages that report an error: such a turn has failed."""
    notice_texts: tuple[str, ...] = ()
    """Prefixes of messages that come from the program and are not part of an answer."""
    late_replay: bool = False
    """Whether a loaded session's history arrives after the response to the load."""
    loads_next_minute: bool = False
    """Whether a session is lost if it is loaded within the clock minute in which it was created."""
    reject_ends_turn: bool = False
    """Whether a refused permission ends the turn."""
    mode_after_open: str | None = None
    """The mode to set after new, load and resume, because it never asks in its initial mode."""
    login_shown_in: Literal["session", "prompt", "account"] = "session"
    """Where a missing login is reported: `session` (when a session is opened), `prompt` (when a
    prompt is sent) or `account` (only when the account is read)."""
    silent_retries: bool = False
    """Whether it retries silently for more than 25 s if its model fails."""
    stays_after_eof: bool = False
    """Whether it keeps running when its input ends."""
    leaves_daemon: bool = False
    """Whether it leaves a process behind that has its own session."""
    terminals: bool = False
    """Whether it runs commands in the client's terminals if the client offers them."""
    command_titles: bool = False
    """Whether permission requests contain the command only in their title, and that title is
    written by the peer's program, not by its model."""


class Enforcement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to make the peer ask for permission. Applied unless the policy allows everything."""

    env: dict[str, str] = field(default_factory=dict)
    """Variables that make it ask. No secrets."""
    arguments: tuple[str, ...] = ()
    """Arguments added to its command line."""
    modes: tuple[str, ...] = ()
    """Modes in which it asks. The first is set when a session is opened."""
    options: dict[str, str | bool] = field(default_factory=dict)
    """Values of session options, by id, with which it asks. They are set when a session is
    opened."""
    files: bool = False
    """Whether it writes files through the client, which checks each write, instead of asking
    first."""
    possible: bool = True
    """Whether it can be made to ask; if not, it is not started under a restrictive policy."""


class McpServers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the peer does with a session's MCP servers."""

    ignored: tuple[McpKind, ...] = ()
    """The kinds of servers that it silently ignores."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables that it needs to start any of them. Set only if there are some."""
    trusts: tuple[str, ...] = ()
    """Files and directories in the workspace that take effect if ``env`` is set. If one exists,
    ``env`` is not set, because the directory would decide what runs."""


class SettingWay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a session setting is passed to the peer: as an option, or on its command line."""

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
    """Prompts for verifying a peer that has no model to understand the default ones.

    A prompt that is not set is the default one. An empty text means that the peer has no such
    feature, so it is not prompted.
    """

    echo: str | None = None
    """A prompt that gets a text answer. ``{token}`` stands for a word that may come back."""
    slow: str | None = None
    """A prompt that takes long enough to be cancelled."""
    write: str | None = None
    """A prompt that makes it write the file ``{path}``; ``{text}`` stands for the content."""
    shell: str | None = None
    """A prompt that makes it run ``{command}``."""
    tool: str | None = None
    """A prompt that makes it call ``{tool}`` of the MCP server ``{server}``."""


class Descriptor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One peer, as its descriptor describes it."""

    name: str
    """Its unique name: lower-case letters, digits and hyphens."""
    title: str
    """Its display name."""
    protocol: str = "auto"
    """A dialect's name (see `dragoman.dialects.discovery`), or ``auto``."""
    launch: tuple[Launch, ...]
    """The ways to start or reach it, in order of preference; at least one."""
    roles: tuple[str, ...] = ()
    """The roles that it claims."""
    role_prefixes: dict[str, str] = field(default_factory=dict)
    """Prefixes for the prompt by role, usually a slash command of the peer."""
    tiers: dict[Tier, str] = field(default_factory=dict)
    """The model for each tier, without a ``-preview`` suffix."""
    wrong_forms: tuple[WrongForm, ...] = ()
    """Command lines that do not work; they are refused, and nothing is started."""
    version: VersionSource = VersionSource()
    """How to find its version."""
    models: Models = Models()
    """How its models are listed and chosen."""
    credentials: Credentials = Credentials()
    """The environment variables that it may see, and how to log in."""
    install: Install = Install()
    """What to do if it is not installed."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables that it needs to work correctly. No secrets."""
    details: dict[str, str | int | bool] = field(default_factory=dict)
    """Options of its dialect (`connect(details=…)`)."""
    quirks: Quirks = Quirks()
    """What it does differently."""
    enforcement: Enforcement = Enforcement()
    """How to make it ask for permission."""
    mcp: McpServers = McpServers()
    """What it does with a session's MCP servers."""
    session: SessionSupport = SessionSupport()
    """Which session settings it supports."""
    free: bool = False
    """Whether its turns cost nothing, because it calls no model."""
    canaries: CanaryPrompts = CanaryPrompts()
    """Prompts for its verification, if it does not understand the default ones."""
    max_line_size: int | None = None
    """The maximum size of a message from it, in bytes; at least 4096."""
    handshake_timeout: float | None = None
    """Seconds to wait for its first response, if the default of 30 is not enough."""
    adapter: str | None = None
    """A Python adapter that implements the peer if this data is not enough: ``module:attribute`` of
    an installed module, or a file next to the descriptor, ``file.py`` or ``file.py:attribute``."""
    source: str = ""
    """Where these facts come from, with a date."""
    verified: bool = False
    """Whether these facts were confirmed by running the peer."""
    notes: str = ""
    """Anything else that a user should know."""


MINUTE: Final = 60.0

LOAD_MARGIN: Final = 0.5
"""Seconds to wait after the end of the minute, because the peer reads the clock later than dragoman
does."""


def load_delay(began_at: float, now: float) -> float:
    """Return the seconds until a session can be loaded at a peer with the quirk
    `loads_next_minute`: until the clock minute in which it began is over, plus a margin."""
    over_at = (began_at + LOAD_MARGIN) // MINUTE * MINUTE + MINUTE + LOAD_MARGIN
    # A clock that was set back gives no information.
    return max(0.0, over_at - now) if began_at <= now else 0.0
