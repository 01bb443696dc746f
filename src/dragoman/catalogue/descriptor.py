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
    """A way to start or reach the peer: a command or an address. The first one that is installed is
    used; deprecated ones come last."""

    command: tuple[str, ...] = ()
    """The command line as a list, with the program first. Required without an address, and not
    allowed with one."""
    address: str | None = None
    """The address of a peer that is already running: ``unix:/path``, ``ws://…`` or ``wss://…``."""
    platforms: tuple[Platform, ...] = ()
    """The platforms on which this way works. Empty means all."""
    deprecated: bool = False
    """Whether the vendor has deprecated this way. It is used only if no other is installed."""


class WrongForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command line that people try and that does not work. dragoman refuses it, and starts
    nothing."""

    command: tuple[str, ...]
    """The program, then words of its command line in their order. Other words may come between
    them. A command line that is also a launch of the peer is not wrong."""
    effect: str
    """What would happen, as a user would see it."""
    remedy: str
    """What to write instead, phrased to follow the word "use"."""
    dangerous: bool = False
    """Whether this command line may send its input to a model as a prompt. dragoman then also
    refuses every other command line of the program that is not a launch of the peer."""


class VersionSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to find the version of the peer without starting a server by mistake."""

    how: Literal["package", "flag", "handshake", "ours"] = "handshake"
    """Where the version comes from: `package` (the npm package), `flag` (the output of `flag`),
    `handshake`, or `ours` (dragoman's own version)."""
    package: str | None = None
    """The npm package whose ``package.json`` has the version, found from the program's real path.
    Required for ``how = "package"``, and allowed only there."""
    flag: str | None = None
    """The argument that prints the version, such as ``--version``. Required for ``how = "flag"``,
    and allowed only there. Name one only if it is known not to start the agent."""


class Models(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the peer lists its models, and how one is chosen."""

    listing: Literal["session", "command", "none"] = "session"
    """Where the list of models comes from: `session` (the options of an open session), `command`
    (the output of `command`), or `none` (there is no list)."""
    command: tuple[str, ...] = ()
    """The command that prints the models. Required for ``listing = "command"``, and allowed only
    there."""
    flag: str | None = None
    """The command-line argument that chooses a model, for a peer that cannot switch in a
    session."""


class Credentials(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The environment variables that contain the peer's credentials, by name and never with a
    value, and how to log in."""

    env: tuple[str, ...] = ()
    """Environment variables that the peer reads. They are passed to it if they are set."""
    endpoints: tuple[str, ...] = ()
    """Environment variables that contain the address of the model. They are passed too, except when
    an unknown program is probed for the first time."""
    login: str = ""
    """How a user logs in, such as "run `my-agent login`"."""


class Install(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to install the peer, and what it needs."""

    hint: str = ""
    """The command that installs the peer."""
    node: int | None = None
    """The lowest major version of Node.js that the peer supports."""


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deviations of the peer that dragoman works around."""

    missing_file_is_empty: bool = False
    """Whether reading a missing file must return empty content, because the write that follows
    fails otherwise. Needs ``protocol = "acp"``."""
    error_texts: tuple[str, ...] = ()
    """Prefixes of texts that report an error. A turn whose text starts with one of them has
    failed."""
    notice_texts: tuple[str, ...] = ()
    """Texts that the program itself puts before an answer. They are ignored when a turn is
    judged."""
    late_replay: bool = False
    """Whether a loaded session's history arrives after the response to the load."""
    loads_next_minute: bool = False
    """Whether a session is lost if it is loaded within the clock minute in which it was created."""
    reject_ends_turn: bool = False
    """Whether a refused permission ends the turn."""
    mode_after_open: str | None = None
    """The mode to set in each opened session, because the peer never asks in its initial mode.
    Needs ``protocol = "acp"``."""
    login_shown_in: Literal["session", "prompt", "account"] = "session"
    """Where a missing login is reported: `session` (when a session is opened), `prompt` (when a
    prompt is sent) or `account` (only when the account is read)."""
    silent_retries: bool = False
    """Whether the peer retries silently for more than 25 s if its model fails."""
    stays_after_eof: bool = False
    """Whether the peer keeps running when its input ends."""
    leaves_daemon: bool = False
    """Whether the peer leaves a process behind when it ends, in an operating-system session of its
    own."""
    terminals: bool = False
    """Whether the peer runs commands in the client's terminals if the client offers them."""
    command_titles: bool = False
    """Whether permission requests contain the command only in their title, and that title is
    written by the peer's program, not by its model."""


class Enforcement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to make the peer ask for permission. Applied unless the policy allows everything."""

    env: dict[str, str] = field(default_factory=dict)
    """Environment variables that make the peer ask, with their values. No secrets."""
    arguments: tuple[str, ...] = ()
    """Arguments added to the command line, which make the peer ask."""
    modes: tuple[str, ...] = ()
    """Modes in which the peer asks. With ``protocol = "acp"``, the first one is set when a session
    is opened, unless `quirks.mode_after_open` is one of them. Needs ``protocol = "acp"`` or
    ``"codex"``."""
    options: dict[str, str | bool] = field(default_factory=dict)
    """Values of session options, by id, with which the peer asks. They are set when a session is
    opened. Needs ``protocol = "acp"``."""
    files: bool = False
    """Whether the peer writes files through the client, which checks each write, instead of asking
    first. Needs ``protocol = "acp"``."""
    possible: bool = True
    """Whether the peer can be made to ask. If not, it is started under a restrictive policy only if
    that is allowed (`--allow-unenforced`)."""


class McpServers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the peer does with a session's MCP servers."""

    ignored: tuple[McpKind, ...] = ()
    """The kinds of servers that the peer silently ignores."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables that the peer needs to start MCP servers, with their values. They are
    set only if the session has servers."""
    trusts: tuple[str, ...] = ()
    """Files and directories of the workspace that would take effect if ``env`` were set. If one
    exists, ``env`` is not set, because the workspace would decide what runs, and the peer gets no
    MCP servers."""


class SettingWay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one session setting is passed to the peer: as an option of its dialect's client, or on
    its command line."""

    detail: str = ""
    """The option, as in ``details``. Dots separate nested tables."""
    arguments: tuple[str, ...] = ()
    """Arguments added to the command line, in which ``{value}`` stands for the value. They are
    added once for each value of a list."""


class SessionSupport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which session settings the peer supports, each as a table that says how the setting is passed
    to it. A setting that is not listed is not supported."""

    system_prompt: SettingWay | None = None
    """Instructions for the whole session, added to the peer's own (`--system-prompt`)."""
    allow_tool: SettingWay | None = None
    """Names of tools that the peer uses without asking (`--allow-tool`)."""
    max_turns: SettingWay | None = None
    """How many times the peer may call its model for a prompt (`--max-turns`)."""


class CanaryPrompts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prompts for verifying a peer that has no model to understand the default ones.

    A prompt that is not set is the default one. An empty text means that the peer has no such
    feature, so the check is skipped; only `echo` must not be empty.
    """

    echo: str | None = None
    """A prompt that gets a text answer. ``{token}`` stands for a word that the answer may
    repeat."""
    slow: str | None = None
    """A prompt that takes long enough to be cancelled."""
    write: str | None = None
    """A prompt that makes the peer write the file ``{path}`` with the content ``{text}``."""
    shell: str | None = None
    """A prompt that makes the peer run ``{command}``."""
    tool: str | None = None
    """A prompt that makes the peer call ``{tool}`` of the MCP server ``{server}``."""


class Descriptor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A peer: how to start it, the roles that it claims, its credentials and its quirks."""

    name: str
    """The unique name of the peer: at most 64 lower-case letters, digits and single hyphens,
    starting with a letter."""
    title: str
    """The display name of the peer."""
    protocol: str = "auto"
    """The name of the peer's dialect, or ``auto`` to detect it."""
    launch: tuple[Launch, ...]
    """The ways to start or reach the peer, in order of preference; at least one."""
    roles: tuple[str, ...] = ()
    """The roles that the peer claims: the usual ones, or words of your own."""
    role_prefixes: dict[str, str] = field(default_factory=dict)
    """By role, a text to put before the prompt, usually a slash command of the peer. Only for
    claimed roles."""
    tiers: dict[Tier, str] = field(default_factory=dict)
    """By tier (``fast``, ``standard``, ``strong``), the model to use, without a ``-preview``
    suffix."""
    wrong_forms: tuple[WrongForm, ...] = ()
    """Command lines that do not work."""
    version: VersionSource = VersionSource()
    """How to find the version of the peer."""
    models: Models = Models()
    """How models are listed and chosen."""
    credentials: Credentials = Credentials()
    """The environment variables that the peer may see, and how to log in."""
    install: Install = Install()
    """What to do if the peer is not installed."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables that the peer needs to work correctly, with their values. No
    secrets."""
    details: dict[str, str | int | bool] = field(default_factory=dict)
    """Options of the dialect's client, as in `connect(details=…)`. They need a named protocol."""
    quirks: Quirks = Quirks()
    """What the peer does differently."""
    enforcement: Enforcement = Enforcement()
    """How to make the peer ask for permission."""
    mcp: McpServers = McpServers()
    """What the peer does with a session's MCP servers."""
    session: SessionSupport = SessionSupport()
    """Which session settings the peer supports."""
    free: bool = False
    """Whether turns cost nothing, because the peer calls no model."""
    canaries: CanaryPrompts = CanaryPrompts()
    """Prompts for verification, if the peer does not understand the default ones."""
    max_line_size: int | None = None
    """Maximum size of a message from the peer, in bytes; at least 4096."""
    handshake_timeout: float | None = None
    """Seconds to wait for the response to the handshake."""
    adapter: str | None = None
    """A Python adapter that runs the peer if this data is not enough: ``module:attribute`` of an
    installed module, or a file next to the descriptor, ``file.py`` or ``file.py:attribute``."""
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
    """Return the seconds until a session that was created at `began_at` can be loaded at a peer
    with the quirk `loads_next_minute`: until the clock minute of its creation is over, plus a
    margin."""
    over_at = (began_at + LOAD_MARGIN) // MINUTE * MINUTE + MINUTE + LOAD_MARGIN
    # A clock that was set back gives no information.
    return max(0.0, over_at - now) if began_at <= now else 0.0
