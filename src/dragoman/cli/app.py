"""Typer application of the command line: the table of commands, loaded lazily.

Each command is a module `dragoman.cli.NAME`, imported when it is called; `command_module` describes
what it must contain. `cli.entry` turns errors into messages and exit codes.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from dragoman.cli.command_module import HELP_NAMES, fold_help
from dragoman.cli.output.terminal import put_err, put_out
from dragoman.cli.typer_without_pydantic import quicken

COMMANDS: Final = {
    "init": "Find out which agents are here, and end with one at work.",
    "run": "Ask an agent for one thing and watch it work.",
    "chat": "Talk with an agent, turn by turn.",
    "delegate": "Give work to a peer that claims its role.",
    "explain": "Show which peers would be asked, in which order, and why not the others.",
    "verdict": "Say whether delegated work was good.",
    "sessions": "Show, continue and keep conversations.",
    "jobs": "Show, watch and cancel what agents were asked to do.",
    "console": "Show all agents, and every open question, in a browser.",
    "broker": "Look after the agents that are kept for the next command.",
    "stats": "Show which peer does which work well, and what it has cost.",
    "ledger": "List, export or delete what is kept of delegations.",
    "peers": "Show the agents there are; verify, add, enable them.",
    "login": "Log in to a peer, by one of the methods that it offers.",
    "agents": "Say which peer each of your agent files delegates to.",
    "config": "Show, set and trust configuration.",
    "policy": "Show the permission policy, and try it out.",
    "serve": "Let editors, hosts and other agents use your peers.",
    "mcp": "Give other agents and editors the tools of dragoman.",
    "acp": "Put dragoman into editors as an agent.",
    "skill": "Print a text that teaches a model to use dragoman, or install it as a skill.",
    "doctor": "Find out what is wrong here, and how to cure it.",
    "uninstall": "Show what dragoman has put where, and remove it.",
}
"""Every command and what `dragoman --help` says of it. `dragoman.cli.NAME` is its module."""

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
"""What similar programs call a command, and ours."""

HELP: Final = """
Drive any coding agent: Codex, Gemini, Qwen, Copilot, Cursor, or your own.

An agent that dragoman knows is called by its name, any other by its command line after --.

\b
Examples:
  dragoman init                                 set up what is installed
  dragoman peers                                which agents are there
  dragoman run scout "where is main defined?"   ask the built-in one
  dragoman run codex "fix the failing test"     ask an installed one
  dragoman run "hello" -- my-agent --acp        ask any program that speaks ACP
  git diff | dragoman run gemini "why?"         what is piped belongs to the prompt
  dragoman chat qwen                            go on talking
  dragoman doctor                               why does it not work?
"""

EPILOG: Final = (
    "The exit code says how it ended: 0 done, 1 failed, 2 wrong usage, 3 timeout, "
    "5 permission denied, 6 login needed, 130 interrupted. "
    "`dragoman run --help` has them all."
)


class LazyGroup(TyperGroup):
    """Knows its commands by name and fetches one when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            # Here, and not for the list of commands: it loads `logging`.
            from dragoman.cli.output import terminal_log

            terminal_log.install()
            module = import_module(f"dragoman.cli.{cmd_name}")
            self.commands[cmd_name] = typer.main.get_command(module.app)
            quicken(self.commands[cmd_name])
            fold_help(self.commands[cmd_name])
        command = self.commands[cmd_name]
        # One text for both: the list shows this one without loading the command.
        command.short_help = COMMANDS[cmd_name]
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from dragoman.errors.usage import nearest

            near = [OTHER_WORDS.get(args[0], ""), *nearest(args[0], COMMANDS)]
            meant = next((f" Did you mean `dragoman {word}`?" for word in near if word), "")
            ctx.fail(f"There is no command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)


app: Final = typer.Typer(
    name="dragoman",
    cls=LazyGroup,
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
        help="Show the versions and exit.",
        is_eager=True,
        callback=_show_version,
    ),
) -> None: ...


def new_command() -> Any:
    """The command that `app` describes."""
    command = typer.main.get_command(app)
    quicken(command)
    fold_help(command)
    return command


def call(argv: Sequence[str] | None = None) -> NoReturn:
    """Call the command that the words name, and leave with its exit code."""
    command = new_command()
    words = None if argv is None else list(argv)
    try:
        code = command.main(args=words, prog_name="dragoman", standalone_mode=False)
    except _REFUSED as error:
        # It quotes the command line, which may hold anything.
        refused: Any = error
        told = io.StringIO()
        refused.show(file=told)
        from dragoman.cli.error_messages import short

        put_err("\n".join(map(short, told.getvalue().split("\n"))))
        sys.exit(refused.exit_code)
    except typer.Abort:
        put_err("Aborted!\n")
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


_REFUSED: Final[type[BaseException]] = next(
    kind
    for kind in typer.BadParameter.__mro__
    if kind.__name__ == "ClickException" and issubclass(kind, BaseException)
)
"""What typer raises for a command line that cannot be read; it has no name of its own for it."""
