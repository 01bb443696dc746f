"""Values of options are made without a library, and wrong ones are named."""

from __future__ import annotations

import enum
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import pytest
import typer

from dragoman.cli.command_module import CONTEXT, new_app
from dragoman.cli.typer_without_pydantic import converter_for, quicken


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (str, "x", "x"),
        (str | None, None, None),
        (Optional[Path], "a/b", Path("a/b")),  # noqa: UP045 - the old spelling is one, too
        (float, "1.5", 1.5),
        (int, "-3", -3),
        (Colour | None, "red", Colour.RED),
        (list[str] | None, ("a", "b"), ["a", "b"]),
        (list[Path], None, []),
        (bool, True, True),
    ],
)
def test_words_become_values(annotation: Any, given: Any, value: Any) -> None:
    converter = converter_for(annotation)
    assert converter is not None
    assert converter.coerce(given, None, None) == value


@pytest.mark.parametrize(
    ("annotation", "given", "why"),
    [
        (float, "soon", "'soon' is not a number"),
        (int, "1.5", "'1.5' is not a whole number"),
        (Colour, "green", "'green' is not one of red, blue"),
        (bool, "no", "'no' is not a flag"),
        (list[int], ("1", "x"), "'x' is not a whole number"),
    ],
)
def test_a_wrong_word_is_named(annotation: Any, given: Any, why: str) -> None:
    converter = converter_for(annotation)
    assert converter is not None
    with pytest.raises(typer.BadParameter, match=why):
        converter.coerce(given, None, None)


@pytest.mark.parametrize("annotation", [int | str, tuple[int, str], bytes, Any, list[int | str]])
def test_other_types_are_left_to_typer(annotation: Any) -> None:
    assert converter_for(annotation) is None


def test_a_command_gives_the_same_values_as_without_it_and_ranges_still_count() -> None:
    heard: list[Any] = []
    app = new_app()

    @app.command(context_settings=CONTEXT)
    def listen(
        folder: Path,
        seconds: float | None = None,
        colour: Colour | None = None,
        names: list[str] | None = None,
        level: int = typer.Option(1, min=0, max=3),
    ) -> None:
        heard.append((folder, seconds, colour, names, level))

    words = ["f", "--seconds", "1e3", "--colour", "blue", "--names", "a", "--level", "2"]
    for quick in (False, True):
        command = typer.main.get_command(app)
        if quick:
            quicken(command)
        command.main(list(words), standalone_mode=False)
        command.main(["f"], standalone_mode=False)
        with pytest.raises(typer.BadParameter):
            command.main(["f", "--level", "4"], standalone_mode=False)
    first, plain, again, plain_again = heard
    assert first == again == (Path("f"), 1000.0, Colour.BLUE, ["a"], 2)
    # Typer gives None where nothing was said; both are nothing.
    assert [each or None for each in plain] == [each or None for each in plain_again]


def test_a_wrong_value_on_the_command_line_is_wrong_usage() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dragoman", "run", "scout", "hi", "--timeout", "soon"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "Invalid value for '--timeout'" in done.stderr and "'soon' is not a time" in done.stderr


def test_calling_a_command_loads_no_pydantic() -> None:
    code = (
        "import sys\n"
        "from dragoman.cli.entry import run\n"
        "try: run(['run', '-sname', 'no-such-peer', 'hi'])\n"
        "except SystemExit: print('pydantic' in sys.modules, 'websockets' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "False False\n"
