"""The option table of `run`, `chat`, `delegate` and `explain`, and value checks.

Both parsers are built from `COMMANDS`: typer's by `command_module.with_options`, and `parse_run`
for plain `run` lines, because importing typer takes an eighth of a warm run. So this module must
import neither typer nor msgspec. What an option does is in `run_plan`, `read_input` and
`cli.permission_flags`; `cli.completions` completes values. Options of the other commands are in
`cli.shared_options`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple


class Duration(float):
    """Converts words such as ``90``, ``90s``, ``30m`` or ``2h`` to seconds, as a plain float.
    Raises `ValueError` for other words."""

    def __new__(cls, word: str) -> float:  # type: ignore[misc]
        try:
            return float(word)
        except ValueError:
            from dragoman.cli.output.times import parse_age

            return parse_age(word)


FORMATS: Final = ("text", "json", "quiet")

MAX_NUMBER: Final = 10**18
"""Upper bound (exclusive) for whole numbers, which the database stores in 64 bits."""


AFTER_DASHES: Final = "dragoman.words_after_dashes"
"""Key under which a context of typer stores the words after ``--``."""


class CommandOption(NamedTuple):
    """An option or argument of a command."""

    name: str
    """The parameter name; with dashes, the option name."""
    help: str
    kind: type[Any] = bool
    """Converts the word to the value. An option of kind bool is a flag without a value."""
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    """The allowed words; any if empty."""
    short: str = ""
    default: Any = None
    repeat: bool = False
    """Whether the option may be repeated. Otherwise the last occurrence wins."""
    argument: bool = False
    """Whether it is positional."""
    complete: str = ""
    """What shell completion offers as values: the name of a function `complete_NAME` in
    `cli.completions`."""

    @property
    def words(self) -> tuple[str, ...]:
        """The spellings of the option: the long one and, if there is one, the short one."""
        long = "--" + self.name.replace("_", "-")
        return (long, self.short) if self.short else (long,)

    @property
    def initial(self) -> Any:
        """The value if the option is not given."""
        if self.repeat:
            return []
        return False if self.kind is bool else self.default

    def value(self, word: str) -> Any:
        """Convert a word to a value. Raises `ValueError` if it is invalid."""
        if self.choices and word not in self.choices:
            raise ValueError(word)
        return checked(self.kind(word), word)


def checked(value: Any, word: object) -> Any:
    """Return a converted value unchanged. Raises `ValueError` if no command can use it.

    `word` is what was typed. Text must be valid UTF-8, because messages and the database use UTF-8.
    Paths may be any bytes but must not be empty.
    """
    if isinstance(value, Path):
        if word == "":
            raise ValueError("an empty path")
    elif isinstance(value, str):
        value.encode()
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("not a finite number")
    elif isinstance(value, int) and not -MAX_NUMBER < value < MAX_NUMBER:
        raise ValueError("too large a number")
    return value


PEER: Final = CommandOption(
    "peer",
    "The name of an agent, or its address: unix:/path, ws://, wss://. Default: your default peer.",
    kind=str,
    metavar="PEER",
    argument=True,
    complete="peer",
)
ROLE: Final = CommandOption(
    "role",
    "The kind of work.",
    kind=str,
    metavar="ROLE",
    argument=True,
    complete="role",
)
FILE: Final = CommandOption(
    "file",
    "Add the contents of a file to the prompt; - is stdin.",
    kind=Path,
    metavar="FILE",
    short="-f",
)
NO_STDIN: Final = CommandOption(
    "no_stdin", "Do not read stdin. By default piped input is added to the prompt."
)
CWD: Final = CommandOption(
    "cwd", "The agent's workspace. Default: the current directory.", kind=Path, metavar="DIR"
)
HOST: Final = CommandOption(
    "host",
    "Run it on another machine, over SSH; see `dragoman hosts`. `run` and `delegate` can then also "
    "take --send, which sends this git tree, and --fetch, which applies the changes here.",
    kind=str,
    metavar="NAME",
)
FORMAT: Final = CommandOption(
    "format",
    "text for people, json for programs, quiet for the answer only.",
    kind=str,
    choices=FORMATS,
)
JSON_STRICT: Final = CommandOption("json_strict", "JSON lines on stdout, and nothing on stderr.")
APPROVALS: Final = (
    CommandOption(
        "approve_all",
        "Allow everything that no rule decides, except changes to protected files.",
    ),
    CommandOption(
        "approve_reads",
        "Allow reads, deny everything else that no rule decides. The default if you cannot be "
        "asked.",
    ),
    CommandOption("deny_all", "Deny everything that no rule decides."),
)
ALLOW_UNENFORCED: Final = CommandOption(
    "allow_unenforced",
    "Run an agent even if it does not ask for permission and the policy restricts it.",
)
MODEL: Final = CommandOption(
    "model",
    "The model to use. An unknown model is an error.",
    kind=str,
    metavar="NAME",
    short="-m",
    complete="model",
)
MODE: Final = CommandOption(
    "mode", "The agent mode to work in.", kind=str, metavar="NAME", complete="mode"
)
SESSION_SETTINGS: Final = (
    CommandOption(
        "system_prompt",
        "Instructions for the whole session, added to the agent's own; @FILE reads a file."
        " Not every agent supports this.",
        kind=str,
        metavar="TEXT",
    ),
    CommandOption(
        "allow_tool",
        "A tool that the agent may use without asking, by the agent's name for it. May be"
        " repeated. Not every agent supports this.",
        kind=str,
        metavar="NAME",
        repeat=True,
    ),
    CommandOption(
        "max_turns",
        "Maximum model calls per prompt. Not every agent supports this.",
        kind=int,
        metavar="NUMBER",
    ),
)
TIMEOUT: Final = CommandOption(
    "timeout",
    "Time limit for the whole command, or for each turn of a chat: 90s, 30m, 2h; a plain number is "
    "seconds.",
    kind=Duration,
    metavar="TIME",
)
MCP_CONFIG: Final = CommandOption(
    "mcp_config",
    'MCP servers for the agent, as JSON: {"mcpServers": {NAME: {"command": ...}}}.',
    kind=Path,
    metavar="FILE",
)
DIALECT: Final = CommandOption(
    "dialect",
    "The dialect the agent speaks, if it cannot be detected.",
    kind=str,
    metavar="NAME",
    complete="dialect",
)
ANY_VERSION: Final = CommandOption(
    "any_version", "Continue even if the agent answers with another protocol version."
)
ENV: Final = CommandOption(
    "env",
    "An additional environment variable that the agent may see. May be repeated.",
    kind=str,
    metavar="NAME",
    repeat=True,
    complete="variable",
)
META: Final = CommandOption(
    "meta",
    "Context for a new session, such as branch=main or title=Parser. May be repeated.",
    kind=str,
    metavar="NAME=VALUE",
    repeat=True,
)
SESSION: Final = (
    CommandOption(
        "session",
        "Continue the session of this name in this project, or start it.",
        kind=str,
        metavar="NAME",
        short="-s",
        complete="session",
    ),
    CommandOption("fresh", "With -s: start a new session if the agent has lost the old one."),
    CommandOption("brief", "Like --fresh, and give the new session a summary of the old one."),
)
COLD: Final = CommandOption("cold", "Start an agent only for this command, without a broker.")
TTL: Final = CommandOption(
    "ttl",
    "How long to keep the agent for the next command: 90s, 30m, 2h. Default: 30m.",
    kind=str,
    metavar="TIME",
)
TRACE: Final = CommandOption(
    "trace",
    "Write every protocol message to a file, with secrets masked.",
    kind=Path,
    metavar="FILE",
)
AGENT_STDERR: Final = CommandOption("agent_stderr", "Show the agent's stderr.")
VERBOSE: Final = CommandOption(
    "verbose",
    "Show everything, including the agent's stderr and what dragoman itself does.",
    short="-v",
)
AGENT: Final = CommandOption(
    "agent", "An agent file that names the peer and role.", kind=Path, metavar="FILE"
)
FLEET: Final = CommandOption(
    "fleet", "Run it on a worker of the fleet that this machine has joined; see `dragoman fleet`."
)
NEEDS: Final = CommandOption(
    "needs",
    "With --fleet: labels and peers that the worker must have.",
    kind=str,
    metavar="LABEL,PEER,...",
)
FLEET_AS: Final = CommandOption(
    "fleet_as",
    "With --fleet: the submitter to act as, if this machine joined as several.",
    kind=str,
    metavar="NAME",
)
TIER: Final = CommandOption("tier", "fast, standard or strong.", kind=str, metavar="TIER")

COMMANDS: Final[Mapping[str, tuple[CommandOption, ...]]] = {
    "run": (
        PEER,
        CommandOption(
            "prompt",
            "The prompt. Several words are joined; - is stdin.",
            kind=str,
            metavar="PROMPT",
            argument=True,
            repeat=True,
        ),
        FILE,
        CommandOption(
            "image",
            "Attach an image. May be repeated.",
            kind=Path,
            metavar="FILE",
            repeat=True,
        ),
        NO_STDIN,
        CWD,
        HOST,
        FORMAT,
        JSON_STRICT,
        *APPROVALS,
        ALLOW_UNENFORCED,
        MODEL,
        MODE,
        CommandOption(
            "role",
            "The kind of work: one of the peer's roles. Default: the first role of its adapter, if"
            " it has one.",
            kind=str,
            metavar="ROLE",
            complete="role",
        ),
        *SESSION_SETTINGS,
        TIMEOUT,
        MCP_CONFIG,
        DIALECT,
        ANY_VERSION,
        ENV,
        META,
        *SESSION,
        CommandOption(
            "no_wait", "Print the job id and exit; the agent continues in the background."
        ),
        COLD,
        TTL,
        TRACE,
        AGENT_STDERR,
        VERBOSE,
    ),
    "chat": (
        PEER,
        CWD,
        HOST,
        FORMAT,
        JSON_STRICT,
        *APPROVALS,
        ALLOW_UNENFORCED,
        MODEL,
        MODE,
        *SESSION_SETTINGS,
        TIMEOUT,
        MCP_CONFIG,
        DIALECT,
        ANY_VERSION,
        ENV,
        META,
        *SESSION,
        COLD,
        TTL,
        TRACE,
        AGENT_STDERR,
        VERBOSE,
    ),
    "delegate": (
        ROLE,
        CommandOption(
            "prompt",
            "The task. Several words are joined; - is stdin.",
            kind=str,
            metavar="PROMPT",
            argument=True,
            repeat=True,
        ),
        FILE,
        NO_STDIN,
        AGENT,
        CommandOption(
            "peer",
            "Use only this peer, whatever roles it claims.",
            kind=str,
            metavar="NAME",
            complete="peer",
        ),
        TIER,
        MODEL,
        CommandOption(
            "check",
            "Run this command in the workspace; exit code 0 means the work is good.",
            kind=str,
            metavar="COMMAND",
        ),
        CommandOption("isolate", "Work in a separate git worktree and produce a patch."),
        CommandOption(
            "apply", "With --isolate or --fleet: apply the patch if it still applies cleanly."
        ),
        FLEET,
        NEEDS,
        CommandOption(
            "retry_lost",
            "With --fleet: run it again if its worker is lost, regardless of what it did.",
        ),
        FLEET_AS,
        CommandOption("no_fallback", "Try only the first peer."),
        CommandOption("strict", "Try other peers, but neither the local model nor scout."),
        COLD,
        CWD,
        *APPROVALS,
        ALLOW_UNENFORCED,
        *SESSION_SETTINGS,
        TIMEOUT,
        FORMAT,
        JSON_STRICT,
        VERBOSE,
    ),
    "explain": (
        ROLE,
        AGENT,
        CommandOption(
            "peer",
            "Explain as if this peer had been named.",
            kind=str,
            metavar="NAME",
            complete="peer",
        ),
        TIER,
        MODEL,
        CommandOption(
            "prompt", "The task; only its size matters.", kind=str, metavar="TEXT", default=""
        ),
        CommandOption(
            "fleet",
            "List the workers of the fleet that this machine has joined; see `dragoman fleet`.",
        ),
        NEEDS,
        FLEET_AS,
        CommandOption(
            "format",
            "text for people, json for programs: one object per line.",
            kind=str,
            choices=FORMATS,
            default="text",
        ),
        CWD,
    ),
}
"""The arguments and options of each command, in the order of its help."""


# -- plain `run` lines, without typer

COMPLETING: Final = "_DRAGOMAN_COMPLETE"
"""The variable that a shell sets to request completions."""

_RUN_ARGUMENTS: Final = tuple(option for option in COMMANDS["run"] if option.argument)

_RUN_OPTIONS: Final[Mapping[str, CommandOption]] = {
    word: option for option in COMMANDS["run"] if not option.argument for word in option.words
}


def parse_run(words: Sequence[str]) -> dict[str, Any] | None:
    """Parse a command line into the arguments of `run_prompt.run`.

    Returns None if typer has to parse it: for help, mistakes and unusual spellings.
    """
    # On Windows typer expands file names with *, because the shell does not.
    if not words or words[0] != "run" or os.name == "nt" or COMPLETING in os.environ:
        return None
    words = words[1:]
    given: dict[str, Any] = {option.name: option.initial for option in COMMANDS["run"]}
    given["command"] = None
    if "--" in words:
        at = words.index("--")
        given["command"] = tuple(words[at + 1 :])
        words = words[:at]
    arguments = iter(_RUN_ARGUMENTS)
    rest = iter(words)
    try:
        for word in rest:
            if _is_option(word):
                option, value = _with_value(word, rest)
            else:
                option, value = next(arguments, _RUN_ARGUMENTS[-1]), word
            _put(given, option, value)
    except (LookupError, StopIteration, ValueError):
        return None
    return given


def _with_value(word: str, rest: Iterator[str]) -> tuple[CommandOption, str]:
    """Return the option that `word` names and its value: the text after ``=`` or the next word of
    `rest`; empty for a flag.

    Raises `LookupError`, `StopIteration` or `ValueError` if the option is unknown or has no value.
    """
    if word not in _RUN_OPTIONS:
        word, equals, value = word.partition("=")
        if not equals or not word.startswith("--") or _RUN_OPTIONS[word].kind is bool:
            raise LookupError(word)
        return _RUN_OPTIONS[word], value
    option = _RUN_OPTIONS[word]
    value = "" if option.kind is bool else next(rest)
    if _is_option(value):
        raise ValueError(value)
    return option, value


def _put(given: dict[str, Any], option: CommandOption, word: str) -> None:
    """Store the value of an option. Raises `ValueError` if the word is invalid."""
    value = True if option.kind is bool else option.value(word)
    if option.repeat:
        given[option.name].append(value)
    else:
        given[option.name] = value


def _is_option(word: str) -> bool:
    """Return whether a word looks like an option; a single dash is stdin."""
    return word.startswith("-") and word != "-"
