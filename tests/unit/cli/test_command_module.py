"""What commands are made with: plain help, and the words of another program after --."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer

from dragoman.cli.command_module import (
    CONTEXT,
    WithCommandLine,
    new_app,
    with_options,
    words_after_dashes,
)
from dragoman.cli.prompt_options import FORMATS, CommandOption


def heard(*argv: str) -> tuple[str | None, bool, tuple[str, ...] | None]:
    """What a command hears of its own words, and of those after --."""
    app = new_app()
    got: list[Any] = []

    @app.command(cls=WithCommandLine, context_settings=CONTEXT)
    def listen(context: typer.Context, name: str | None = None, *, loud: bool = False) -> None:
        got.append((name, loud, words_after_dashes(context)))

    typer.main.get_command(app).main(list(argv), standalone_mode=False)
    (only,) = got
    return only  # type: ignore[no-any-return]


def test_words_after_dashes_are_taken_as_they_stand() -> None:
    assert heard("--loud", "--", "agent", "--loud", "--", "-x") == (
        None,
        True,
        ("agent", "--loud", "--", "-x"),
    )


def test_nothing_after_dashes_differs_from_no_dashes() -> None:
    assert heard("--name", "a") == ("a", False, None)
    assert heard("--") == (None, False, ())


def test_usage_shows_that_a_command_line_may_follow(capsys: pytest.CaptureFixture[str]) -> None:
    app = new_app()

    @app.command(cls=WithCommandLine, context_settings=CONTEXT)
    def listen(name: str) -> None: ...

    typer.main.get_command(app).main(["-h"], prog_name="x", standalone_mode=False)
    usage, *_ = capsys.readouterr().out.splitlines()
    assert usage.startswith("Usage: x [OPTIONS] ") and usage.endswith(" [-- CMD...]")


def test_options_of_a_table_are_added_to_those_of_the_function() -> None:
    app = new_app()
    got: list[dict[str, Any]] = []

    @app.command(context_settings=CONTEXT)
    @with_options(
        CommandOption("name", "Who.", kind=str, argument=True),
        CommandOption("loud", "Shout.", short="-l"),
        CommandOption("as_format", "How.", kind=str, choices=FORMATS, default="text"),
        CommandOption("number", "How many.", kind=float, repeat=True),
    )
    def listen(*, own: Annotated[str, typer.Option("--own")] = "mine", **given: Any) -> None:
        got.append({"own": own, **given})

    command = typer.main.get_command(app)
    command.main([], standalone_mode=False)
    words = ["-l", "--own", "a", "--number=1", "--number", "2", "--as-format", "json", "b"]
    command.main(words, standalone_mode=False)
    assert [param.name for param in command.params][0] == "own"
    assert got == [
        {"own": "mine", "name": None, "loud": False, "as_format": "text", "number": []},
        {"own": "a", "name": "b", "loud": True, "as_format": "json", "number": [1.0, 2.0]},
    ]
    assert type(got[1]["as_format"]) is str
