"""What commands are made with: plain help, and the words of another program after --."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from dragoman.cli.command_module import CONTEXT, WithCommandLine, new_app, words_after_dashes


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
