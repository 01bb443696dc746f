"""Whether a person looks, and what that allows."""

from __future__ import annotations

import ast
import io
import os
import pty
import sys
from pathlib import Path

import pytest

import dragoman.cli
from dragoman.cli.output.hold_output import held
from dragoman.cli.output.terminal import (
    Paint,
    is_interactive,
    is_terminal,
    put,
    put_data,
    put_question,
    silence,
    wants_colour,
    width_of,
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_no_colour_and_a_terminal_does() -> None:
    assert not wants_colour(io.StringIO(), {})
    assert wants_colour(Screen(), {"TERM": "xterm"})
    assert not wants_colour(Screen(), {"TERM": "dumb"})


def test_no_color_wins_over_everything_and_force_color_over_a_pipe() -> None:
    assert not wants_colour(Screen(), {"NO_COLOR": "1", "FORCE_COLOR": "1"})
    assert wants_colour(io.StringIO(), {"FORCE_COLOR": "1"})
    assert wants_colour(Screen(), {"NO_COLOR": ""}), "an empty NO_COLOR is none"


def test_paint_puts_styles_around_text_or_nothing() -> None:
    assert Paint(True)("x", "bold", "red") == "\x1b[1;31mx\x1b[0m"
    assert Paint(True)("x") == "x"
    assert Paint(True)("", "red") == ""
    assert Paint(False)("x", "red") == "x"


def test_only_a_terminal_has_a_width() -> None:
    assert width_of(io.StringIO()) == 0
    assert width_of(Screen()) > 0


def test_a_closed_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    stream.close()
    assert not is_terminal(stream)


def test_a_person_can_be_asked_only_if_both_ends_are_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", Screen())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not is_interactive()
    monkeypatch.setattr(sys, "stderr", Screen())
    assert is_interactive()


def test_a_silenced_stream_takes_everything_and_breaks_no_more() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        stream.write("nobody reads this")
        silence(stream)
        stream.flush()
    silence(io.StringIO())


def test_a_real_terminal_is_one() -> None:
    main, worker = pty.openpty()
    with os.fdopen(worker, "w") as stream:
        assert is_terminal(stream)
    os.close(main)


class Fake(io.StringIO):
    def __init__(self, tty: bool) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize("tty", [False, True])
def test_text_is_neutral_everywhere_and_data_on_a_terminal(tty: bool) -> None:
    stream = Fake(tty)
    put(stream, "\x1b", Paint(True)("x\x9b", "red"))
    assert stream.getvalue() == "␛\x1b[31mx\ufffd\x1b[0m"
    data = Fake(tty)
    put_data(data, "a\x1b", "b")
    assert data.getvalue() == ("a␛b" if tty else "a\x1bb")


def test_a_question_is_neutral_and_shown_while_everything_else_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with held.hold():
        put(sys.stdout, "a\x1b")
        put_data(sys.stdout, "b")
        put_question("Shall I\x1b?")
        assert capsys.readouterr() == ("", "Shall I␛?")
    assert capsys.readouterr() == ("a␛b", "")


ELSEWHERE = {
    ("serve_acp.py", "opened"): "the token's file",
    ("install.py", "entries"): "another program's settings",
    ("skill.py", "entries"): "another program's settings",
    ("output/terminal.py", "held"): "the one place",
    ("output/terminal.py", "sys.stderr"): "a question, past what is held back",
    ("output/hold_output.py", "stream"): "what the one place writes",
    ("output/hold_output.py", "self._streams[number]"): "what the one place wrote before",
    ("output/hold_output.py", "self._streams[0]"): "how much of it was lost",
    ("output/hold_output.py", "spool"): "a temporary file",
}
"""What writes to something else than our stdout and stderr."""


def test_the_command_line_writes_to_its_streams_by_this_module_only() -> None:
    folder = Path(dragoman.cli.__file__).parent
    found = []
    for file in sorted(folder.rglob("*.py")):
        name = file.relative_to(folder).as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            if isinstance(called, ast.Name) and called.id == "print":
                found.append((name, node.lineno, "print"))
            elif isinstance(called, ast.Attribute):
                on = ast.unparse(called.value)
                own = on in ("self", "show", "super()") or on.endswith("._out")
                if called.attr in ("echo", "secho", "print"):
                    found.append((name, node.lineno, on))
                elif called.attr in ("write", "writelines", "buffer") and not own:
                    if (name, on) not in ELSEWHERE:
                        found.append((name, node.lineno, on))
    assert found == []
