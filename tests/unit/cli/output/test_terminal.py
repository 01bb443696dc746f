"""Whether a person looks, and what that allows."""

from __future__ import annotations

import ast
import io
import os
import pty
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import dragoman.cli
from dragoman.cli.output import terminal as module
from dragoman.cli.output.terminal import (
    Held,
    Paint,
    held,
    is_interactive,
    is_terminal,
    put,
    put_data,
    put_err,
    put_out,
    put_question,
    put_relayed,
    silence,
    wants_colour,
    width_of,
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_of_another_dragoman_a_terminal_obeys_the_colours_only() -> None:
    screen, pipe = Screen(), io.StringIO()
    for stream in (screen, pipe):
        put_relayed(stream, "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J")
    assert "\x1b[31mred\x1b[0m" in screen.getvalue()
    assert "\x1b]" not in screen.getvalue() and "\x1b[2J" not in screen.getvalue()
    assert pipe.getvalue() == "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J"


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


def test_a_closed_stream_is_not_a_terminal() -> None:
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
    ("read_input.py", "spool"): "a temporary file",
    ("output/terminal.py", "held"): "the one place",
    ("output/terminal.py", "sys.stderr"): "a question, past what is held back",
    ("output/terminal.py", "stream"): "what the one place writes",
    ("output/terminal.py", "self._streams[number]"): "what the one place wrote before",
    ("output/terminal.py", "self._streams[0]"): "how much of it was lost",
    ("output/terminal.py", "spool"): "a temporary file",
    ("output/terminal.py", "os"): "the erasure before a sudden end",
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


def test_what_is_written_meanwhile_comes_afterwards_in_its_order() -> None:
    held, out, err = Held(), io.StringIO(), io.StringIO()
    held.write(out, "a")
    with held.hold():
        for stream, text in ((out, "b\udcff"), (err, "c"), (out, "d")):
            held.write(stream, text)
        assert (out.getvalue(), err.getvalue()) == ("a", "")
    held.write(err, "e")
    assert (out.getvalue(), err.getvalue()) == ("ab\udcffd", "ce")


def test_an_interrupted_question_lets_it_out_too() -> None:
    held, out = Held(), io.StringIO()
    with pytest.raises(KeyboardInterrupt), held.hold():
        held.write(out, "a")
        raise KeyboardInterrupt
    assert out.getvalue() == "a"


def test_another_thread_is_not_held_up() -> None:
    held, out = Held(), io.StringIO()
    with held.hold():
        thread = threading.Thread(target=held.write, args=(out, "a"))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
    assert out.getvalue() == "a"


def test_more_than_fits_into_memory_goes_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MEMORY_SIZE", 100)
    monkeypatch.setattr(module, "PIECE_SIZE", 7)
    held, out = Held(), io.StringIO()
    text = "äöü" * 500
    with held.hold():
        held.write(out, text)
        assert held._spool is not None and held._spool._rolled  # type: ignore[attr-defined]
    assert out.getvalue() == text


def test_what_finds_no_room_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError("no space")

    monkeypatch.setattr("tempfile.SpooledTemporaryFile", lambda size: Full())
    held, out = Held(), io.StringIO()
    with held.hold():
        held.write(out, "abc")
        held.write(out, "de")
    assert "5 characters were lost" in out.getvalue()


def test_a_failing_stream_is_reported_to_the_next_writer() -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    held, out = Held(), io.StringIO()
    with held.hold():
        held.write(Broken(), "a")
    with pytest.raises(BrokenPipeError):
        held.write(out, "b")
    held.write(out, "c")
    assert out.getvalue() == "c"


def test_messages_that_cannot_be_written_end_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as err:
        monkeypatch.setattr(sys, "stderr", err)
        put_err("a notice\n")
        put_out("the answer\n")
        put_err("another notice\n")
    assert capsys.readouterr().out == "the answer\n"


def test_there_is_one_question_at_a_time() -> None:
    held = Held()
    with held.hold(), pytest.raises(RuntimeError), held.hold():
        pass


def test_a_holder_of_output_is_notified_once_that_there_is_some(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: list[str] = []
    with held.hold(lambda: told.append("kept")):
        put_err("one ")
        put_err("two")
    assert told == ["kept"]
    assert capsys.readouterr().err == "one two"
    with held.hold(lambda: told.append("again")):
        pass
    assert told == ["kept"]


def test_it_is_known_whether_the_next_output_begins_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    put_err("half")
    assert not held.at_line_start
    put_err("")
    assert not held.at_line_start
    with held.hold():
        put_err(" and half\n")
        assert not held.at_line_start
    assert held.at_line_start
    assert capsys.readouterr().err == "half and half\n"
