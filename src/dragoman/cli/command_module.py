"""Building blocks for command modules: `new_app`, `CONTEXT`, `with_options`, ``--``, help pages.

Rules for a command module:

- it defines `app`, made by `new_app`, with one function (the command) or several (subcommands);
- at the top it imports only this module, other option modules, typer, `output.terminal`, `errors`
  and the standard library; everything else is imported inside the functions, so that a command
  loads only what it needs;
- its functions raise `DragomanError` for failures (`entry` turns them into messages and exit codes)
  and `typer.Exit(code)` with a code of `exit_codes` for results that are not a success;
- it prints only through `cli.output` (`terminal.put_out`, `put_err`, `put_data`) and asks for
  confirmation only through `output.questions.confirm`;
- its help text ends with examples, in a paragraph that starts with ``\\b`` to keep the lines.

A new command gets a line in `GROUPS` of `cli.app`.
"""

from __future__ import annotations

import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, ClassVar, Final

import typer
from typer.core import TyperCommand, TyperGroup

from dragoman.cli import completions
from dragoman.cli.prompt_options import AFTER_DASHES, CommandOption
from dragoman.cli.typer_without_pydantic import quicken

HELP_NAMES: Final = ("-h", "--help")

MARGIN: Final = 2
"""Columns that typer leaves empty beside a help page."""


OTHER_SUBCOMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "get": ("show", "result", "list"),
    "ls": ("list", "show"),
    "list": ("show", "jobs"),
    "show": ("result", "status", "list"),
    "status": ("show", "list", "workers"),
    "info": ("show", "status"),
    "rm": ("remove", "delete", "unset"),
    "remove": ("delete", "unset"),
    "delete": ("remove", "unset", "prune"),
    "kill": ("stop", "cancel"),
    "stop": ("cancel", "close"),
    "continue": ("resume",),
    "open": ("resume", "new"),
    "create": ("new", "add"),
    "log": ("logs", "watch"),
    "logs": ("watch",),
    "follow": ("watch",),
    "output": ("result",),
    "test": ("verify", "check"),
}
"""Subcommand names of similar programs, and our names for each: the first one that the command has
is suggested."""


class CommandGroup(TyperGroup):
    """A command with subcommands."""

    default: str = ""
    """The subcommand that runs if none is named, with the given options. Empty: show the help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (not args[0].startswith("-") or args[0] in HELP_NAMES)
        if self.default and not named and not ctx.resilient_parsing:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0] if args else ""
        if word in OTHER_SUBCOMMANDS and word not in self.commands:
            ours = (each for each in OTHER_SUBCOMMANDS[word] if each in self.commands)
            if (meant := next(ours, None)) is not None:
                ctx.fail(f"No such command {word!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the subcommands with the first sentence of their help, uncut."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, self._summary(name, each))
                    for name, each in self.commands.items()
                    if not each.hidden
                ]
            )

    def _summary(self, name: str, command: Any) -> str:
        default = " The default." if name == self.default else ""
        return _first_sentence(command.help) + default


class LazyGroup(TyperGroup):
    """A command whose subcommands are modules, each loaded when it is called."""

    lines: ClassVar[Mapping[str, str]] = {}
    """Every command with its one-line help, which is shown without loading the command."""
    prefix: ClassVar[str] = "dragoman.cli."
    """The prefix of the module names of commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.lines)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.lines:
            return None
        if cmd_name not in self.commands:
            module = import_module(self.prefix + cmd_name)
            command = self.commands[cmd_name] = typer.main.get_command(module.app)
            quicken(command)
            fold_help(command)
            command.short_help = self.lines[cmd_name]
        return self.commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.lines.items()))


def new_app(*, help: str | None = None, default: str = "") -> typer.Typer:
    """Create the application of one module. Its help is plain text: importing Rich would take
    longer than everything else.

    `default` is the subcommand that runs if the command line names none. If `default` is empty and
    there is a `help`, a command line without arguments shows the help.
    """
    return typer.Typer(
        help=help,
        cls=type("CommandGroup", (CommandGroup,), {"default": default}),
        no_args_is_help=bool(help) and not default,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": list(HELP_NAMES)},
    )


CONTEXT: Final[dict[str, Any]] = {"help_option_names": list(HELP_NAMES)}
"""For ``@app.command(context_settings=CONTEXT)``: ``-h`` works as well as ``--help``."""


def with_options(*options: CommandOption) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: append arguments and options, usually those of `prompt_options.COMMANDS`, to a
    command's own.

    Put it below ``@app.command()``. The function receives every value as a keyword argument, and
    one of several choices as a string.
    """
    names = {option.name for option in options}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def call(**values: Any) -> None:
            for name in names:
                # Typer passes an enumeration member; the function expects a word.
                if isinstance(values[name], enum.Enum):
                    values[name] = values[name].value
            function(**values)

        own = [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.name not in names and parameter.kind is not parameter.VAR_KEYWORD
        ]
        # Typer reads the parameters of a command from its signature.
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*own, *map(_parameter, options)]
        )
        call.__annotations__ = {}
        return call

    return decorate


def _parameter(option: CommandOption) -> inspect.Parameter:
    """Return the option as a typer parameter."""
    info = (
        typer.Argument(metavar=option.metavar, help=option.help, show_default=False)
        if option.argument
        else typer.Option(*option.words, metavar=option.metavar, help=option.help)
    )
    if option.complete:
        info.autocompletion = getattr(completions, f"complete_{option.complete}")
    kind: Any = option.kind
    if option.choices:
        make: Any = enum.StrEnum
        kind = make(option.name, [(word.upper(), word) for word in option.choices])
    elif option.repeat:
        kind = list[kind]
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=option.initial,
        annotation=Annotated[kind | None, info],
    )


class WithCommandLine(TyperCommand):
    """A command that takes the command line of another program after ``--``, unparsed.

    Declare it with ``@app.command(cls=WithCommandLine)``. The function takes a `typer.Context`, for
    which `words_after_dashes` returns that command line.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[AFTER_DASHES] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- CMD...]"]


def words_after_dashes(context: typer.Context) -> tuple[str, ...] | None:
    """Return the words after ``--``, or None without ``--``."""
    words: tuple[str, ...] | None = context.meta.get(AFTER_DASHES)
    return words


def _first_sentence(text: str | None) -> str:
    paragraph = (text or "").strip().partition("\n\n")[0]
    return re.split(r"(?<=[.?!])\s", " ".join(paragraph.split()), maxsplit=1)[0]


def fold_help(command: Any) -> None:
    """Make a command and its subcommands fold their help to the width of the terminal."""
    whole = command.get_help
    command.get_help = lambda ctx: folded_help(whole(ctx), ctx.make_formatter().width + MARGIN)
    for below in getattr(command, "commands", {}).values():
        fold_help(below)


def folded_help(text: str, width: int) -> str:
    """Fold the example lines of a help page to a width; typer folds the rest.

    The description of an example moves to the next line if both do not fit on one.
    """
    return "\n".join(
        part
        for line in text.split("\n")
        for part in ([line] if len(line) <= width else _folded(line, width))
    )


def _folded(line: str, width: int) -> Iterator[str]:
    body = line.lstrip()
    indent = " " * (len(line) - len(body))
    example, _, remark = re.sub(r"\s{2,}", "\0", body, count=1).partition("\0")
    for part, extra in ((example, ""), (remark, "    ")):
        yield from textwrap.wrap(
            " ".join(part.split()),
            width,
            initial_indent=indent + extra,
            subsequent_indent=f"{indent}    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
