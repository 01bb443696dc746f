"""Building blocks for command modules: `new_app`, `CONTEXT`, arguments after ``--``.

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

from typing import Any, Final

import typer
from typer.core import TyperCommand

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
