"""Typer application of the command line: the table of commands, loaded lazily.

Each command is a module `dragoman.cli.NAME`, imported when it is called; `command_module` describes
what it must contain. `cli.entry` turns errors into messages and exit codes.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import typer

from dragoman.cli.command_module import HELP_NAMES, LazyGroup, fold_help
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.typer_without_pydantic import quicken
from dragoman.errors import UsageError

GROUPS: Final = {
    "Work with agents": {
        "run": "Send an agent one prompt and watch it work.",
        "chat": "Chat with an agent, turn by turn.",
        "delegate": "Delegate a task to a peer that claims the role.",
        "sessions": "List, continue and export conversations.",
        "jobs": "List, watch and cancel the jobs of agents.",
        "fleet": "Share machines: submit jobs and have your team's workers run them.",
        "console": "Show all agents, and every open question, in a browser.",
    },
    "Set up agents": {
        "init": "Find the installed agents, verify them and run a first task.",
        "peers": "List, verify, add and enable agents.",
        "login": "Log in to a peer, with a method that it offers.",
        "agents": "Set which peer each of your agent files delegates to.",
        "broker": "Manage the brokers that keep agents running between commands.",
        "hosts": "Add, check and set up other machines that agents work on.",
    },
    "Follow delegated work": {
        "explain": "Show which peers would be used, in which order, and why others are not.",
        "stats": "Show the success rate and cost of peers by kind of work.",
        "verdict": "Rate delegated work as good or bad.",
        "ledger": "List, export or delete the record of delegations.",
    },
    "Connect other programs": {
        "serve": "Serve your peers to editors, MCP hosts and other agents.",
        "mcp": "Add dragoman's MCP server to other agents and editors.",
        "acp": "Add dragoman to editors as an agent.",
        "skill": "Print or install instructions that teach a model to use dragoman.",
    },
    "Settings and health": {
        "config": "Show, set and trust configuration.",
        "policy": "Show and test the permission policy.",
        "doctor": "Find problems with this installation, and how to fix them.",
        "uninstall": "Show what dragoman has installed, and remove it.",
    },
}
"""Every command with its line in `dragoman --help`, grouped by heading. The module of a command is
`cli.NAME`."""

COMMANDS: Final = {name: line for group in GROUPS.values() for name, line in group.items()}
"""Every command with its line, without the headings."""

OTHER_WORDS: Final = {
    **dict.fromkeys(("exec", "ask", "prompt", "send", "x"), "run"),
    **dict.fromkeys(("ps", "top"), "jobs"),
    **dict.fromkeys(("list", "ls", "models", "add", "verify", "enable"), "peers"),
    **dict.fromkeys(("history", "log", "logs", "resume", "show"), "sessions"),
    **dict.fromkeys(("check", "status"), "doctor"),
    **dict.fromkeys(("auth", "signin"), "login"),
    **dict.fromkeys(("repl", "talk"), "chat"),
    **dict.fromkeys(("install", "setup"), "init"),
    **dict.fromkeys(("cost", "costs", "usage"), "stats"),
    **dict.fromkeys(("settings", "set"), "config"),
    **dict.fromkeys(("daemon", "stop"), "broker"),
    **dict.fromkeys(("web", "ui", "inbox", "dashboard"), "console"),
    **dict.fromkeys(("remove", "purge"), "uninstall"),
}
"""Command names of similar programs, and our command for each."""

OTHER_OPTIONS: Final = {
    **dict.fromkeys(("--json", "--jsonl", "--stream-json"), "--format json"),
    **dict.fromkeys(("--output", "--output-format", "-o"), "--format"),
    **dict.fromkeys(("--quiet", "-q", "--print", "-p"), "--format quiet"),
    **dict.fromkeys(
        ("--yolo", "--full-auto", "--auto-approve", "--dangerously-skip-permissions"),
        "--approve-all",
    ),
    **dict.fromkeys(("--background", "--detach", "-d"), "--no-wait"),
    **dict.fromkeys(("--continue", "-c", "--resume", "-r"), "--session NAME"),
    **dict.fromkeys(("--cd", "-C", "--workspace"), "--cwd"),
    **dict.fromkeys(("--allowed-tools", "--allowedTools"), "--allow-tool"),
}
"""Options of similar programs, and the equivalent option here."""

HELP: Final = """
Drive any coding agent: Codex, Gemini, Qwen, Copilot, Cursor, or your own.

Name an agent that dragoman knows, or give the command line of any other after --.

\b
Examples:
  dragoman init                                 set up the installed agents
  dragoman peers                                list the agents
  dragoman run scout "where is main defined?"   ask the built-in agent
  dragoman run codex "fix the failing test"     ask an installed agent
  dragoman run "hello" -- my-agent --acp        ask any program that speaks ACP
  git diff | dragoman run gemini "why?"         piped input is added to the prompt
  dragoman chat qwen                            start a chat
  dragoman doctor                               find out what is wrong
"""

EPILOG: Final = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 timeout, "
    "5 permission denied, 6 login needed, 130 interrupted. "
    "`dragoman run --help` lists all of them."
)


class MainGroup(LazyGroup):
    """The main command. Its help lists the commands under headings."""

    lines = COMMANDS

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            # Imported late: it loads `logging`, which the list of commands does not need.
            from dragoman.cli.output import terminal_log

            terminal_log.install()
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                # Padded, so that the columns of all groups are aligned.
                formatter.write_dl([(f"{name:<{width}}", line) for name, line in commands.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from dragoman.cli.completions import complete_peer
            from dragoman.errors.usage import nearest

            near = [OTHER_WORDS.get(args[0], ""), *nearest(args[0], COMMANDS)]
            meant = next((f" Did you mean `dragoman {word}`?" for word in near if word), "")
            if args[0] == "completion":
                meant = " `dragoman --install-completion` sets up completion for your shell."
            elif args[0] in complete_peer(args[0]):
                meant = f" {args[0]} is a peer: `dragoman run {args[0]} PROMPT` asks it."
            ctx.fail(f"There is no command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)


app: Final = typer.Typer(
    name="dragoman",
    cls=MainGroup,
    help=HELP,
    epilog=EPILOG,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": list(HELP_NAMES)},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from dragoman.cli.versions import report

        put_out(report())
        raise typer.Exit


@app.callback()
def _dragoman(
    version: bool = typer.Option(
        False,
        "--version",
        help="Show version information and exit.",
        is_eager=True,
        callback=_show_version,
    ),
) -> None: ...


def new_command() -> Any:
    """Build the command-line parser that `app` describes."""
    command = typer.main.get_command(app)
    quicken(command)
    fold_help(command)
    return command


def call(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command line (default: that of this process) with typer, and exit with its exit code.
    An invalid command line is reported on stderr; with `--json-strict` it raises `UsageError`
    instead."""
    command = new_command()
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        code = command.main(args=words, prog_name="dragoman", standalone_mode=False)
    except _REFUSED as error:
        # The message quotes the command line, which may contain control characters.
        refused: Any = error
        _suggest_option(refused)
        _suggest_choice(refused)
        from dragoman.cli.error_messages import in_json, short

        if in_json(words):
            raise UsageError(refused.format_message()) from error
        told = io.StringIO()
        refused.show(file=told)
        put_err("\n".join(map(short, told.getvalue().split("\n"))))
        sys.exit(refused.exit_code)
    except typer.Abort:
        put_err("Aborted!\n")
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _suggest_option(refused: Any) -> None:
    """If the unknown option is one of a similar program and the command has our equivalent, suggest
    the equivalent instead of options that are spelled alike."""
    meant = OTHER_OPTIONS.get(getattr(refused, "option_name", ""))
    if meant is not None and refused.ctx is not None:
        known = {word for each in refused.ctx.command.params for word in each.opts}
        if meant.partition(" ")[0] in known:
            refused.possibilities = [meant]


_NOT_ONE: Final = re.compile(r"'(.+)' is not one of (.+)\.")
_EXTRA: Final = re.compile(r"Got unexpected extra argument(?:\(s\)|s)? \((\S+)\)")


def _suggest_choice(refused: Any) -> None:
    """For a misspelled value, suggest the closest allowed one; for an option's value that is given
    without the option, suggest the option."""
    from dragoman.errors.usage import nearest

    said = str(refused.message or "")
    if found := _NOT_ONE.fullmatch(said):
        if close := nearest(found[1], found[2].split(", ")):
            refused.message = f"{said} Did you mean {close[0]}?"
    elif (found := _EXTRA.fullmatch(said)) and refused.ctx is not None:
        for each in refused.ctx.command.params:
            # Typer has no public way to the choices of an option.
            kind = getattr(each, "type_descriptor", None)
            if found[1] in map(str, getattr(kind, "choices", None) or ()):
                refused.message = f"{said}. Did you mean {each.opts[0]} {found[1]}?"
                return


_REFUSED: Final[type[BaseException]] = next(
    kind
    for kind in typer.BadParameter.__mro__
    if kind.__name__ == "ClickException" and issubclass(kind, BaseException)
)
"""The exception that typer raises for an invalid command line; typer does not export it."""
