"""Building blocks for command modules: `new_app`, `CONTEXT`, `with_options`, ``--``.

Rules for a command module, so that only the command that runs is imported:

- it defines `app`, made by `new_app`, with one function (the command) or several (subcommands);
- at the top it imports only this module, other option modules, typer, `output.terminal`, `errors`
  and the standard library; everything else is imported inside the functions;
- its functions raise `DragomanError` for failures (`entry` makes the message and the exit code) and
  `typer.Exit(code)` with a code of `exit_codes` for results that are not a success;
- it prints only through `cli.output` (`terminal.put_out`, `put_err`, `put_data`) and asks only
  through `output.questions.confirm`;
- its help text ends with examples, in a paragraph that starts with ``\\b`` to keep the lines.

A new command gets a line in the table of `app`.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from dragoman.cli.prompt_options import CommandOption

HELP_NAMES: Final = ("-h", "--help")

AFTER_DASHES: Final = "dragoman.words_after_dashes"
"""Where a context keeps what stood after ``--``."""


def new_app(
    *, help: str | None = None, invoke_without_command: bool = False, no_args_is_help: bool = False
) -> typer.Typer:
    """An application for one module. Its help is plain text: Rich would cost more than the rest."""
    return typer.Typer(
        help=help,
        invoke_without_command=invoke_without_command,
        no_args_is_help=no_args_is_help,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": list(HELP_NAMES)},
    )


CONTEXT: Final[dict[str, Any]] = {"help_option_names": list(HELP_NAMES)}
"""For ``@app.command(context_settings=CONTEXT)``: ``-h`` works as well as ``--help``."""


def with_options(*options: CommandOption) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the arguments and options of a table, after those that it declares itself.

    ``@app.command()`` stands above it. The function is called with every value by its name.
    """
    names = {option.name for option in options}

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def call(**values: Any) -> None:
            for name in names:
                # A choice is a member of an enumeration to typer, and a word to the function.
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
    """The option as a parameter that typer understands."""
    info = (
        typer.Argument(metavar=option.metavar, help=option.help, show_default=False)
        if option.argument
        else typer.Option(*option.words, metavar=option.metavar, help=option.help)
    )
    info.autocompletion = option.complete
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
    """A command that takes the words of another program after ``--``, whatever they look like.

    ``@app.command(cls=WithCommandLine)``; the function has a `typer.Context` and asks
    `words_after_dashes` for them.
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
    """The words after ``--``; None if there was no ``--``."""
    words: tuple[str, ...] | None = context.meta.get(AFTER_DASHES)
    return words
