"""Rows that are redrawn in place, on the screen of a terminal emulator."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator

import pyte
import pytest

from dragoman.cli.output import live_area
from dragoman.cli.output.live_area import LiveText, is_unicode, wrapped_lines
from dragoman.cli.output.terminal import Paint, held, put
from dragoman.events.words import Role
from tests.aio import aio

WIDTH = 80


class Screen(io.StringIO):
    """A terminal of 80 columns, which does not say how large it is."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def draw(self, text: str) -> None:
        held.draw(self, text)

    @property
    def rows(self) -> list[str]:
        screen = pyte.Screen(WIDTH, 30)
        pyte.Stream(screen).feed(self.getvalue().replace("\n", "\r\n"))
        rows = [row.rstrip() for row in screen.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(live_area, "STATUS_DELAY", 0.0)
    yield
    held.overlay = None


def made() -> tuple[Screen, LiveText]:
    out = Screen()
    return out, LiveText(out, out.draw)


async def drawn() -> None:
    """Let the loop draw."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@aio
async def test_a_status_is_below_the_text_and_is_erased_by_lines() -> None:
    out, text = made()
    text.status("thinking", lambda: "12 tokens")
    await drawn()
    assert out.rows == ["… thinking, 0 s, 12 tokens"]
    text.say(Role.AGENT, "one ")
    text.say(Role.AGENT, "**two")
    await drawn()
    assert out.rows == ["one **two", "… thinking, 0 s, 12 tokens"]
    text.say(Role.AGENT, "**\n")
    text.line("[tool] x", "cyan")
    await drawn()
    assert out.rows == ["one two", "[tool] x", "… thinking, 0 s, 12 tokens"]
    text.status("")
    await drawn()
    assert out.rows == ["one two", "[tool] x"]
    held.close_overlay()


@aio
async def test_nothing_is_drawn_again_that_is_there() -> None:
    out, text = made()
    text.say(Role.AGENT, "one")
    await drawn()
    before = out.getvalue()
    text.flush()
    await drawn()
    assert out.getvalue() == before
    held.close_overlay()
    assert out.rows == ["one"] and out.getvalue().endswith("\n")


@aio
async def test_other_output_begins_a_line_and_the_text_goes_on_below() -> None:
    out, text = made()
    text.status("thinking")
    text.say(Role.AGENT, "- one")
    await drawn()
    put(out, "from elsewhere\n")
    assert out.rows == ["• one", "from elsewhere"]
    text.say(Role.AGENT, " two")
    await drawn()
    assert out.rows == ["• one", "from elsewhere", "  two", "… thinking, 0 s"]
    put(out, "a question? ")
    text.status("waiting")
    await drawn()
    # Nothing is drawn behind a line that is not complete.
    assert out.rows[-1] == "a question?"
    held.close_overlay()


@aio
async def test_text_that_was_not_drawn_yet_comes_before_other_output() -> None:
    out, text = made()
    text.say(Role.AGENT, "one\n")
    put(out, "two\n")
    assert out.rows == ["one", "two"]
    held.close_overlay()


@aio
async def test_nothing_is_drawn_while_a_question_is_open() -> None:
    out, text = made()
    text.status("thinking")
    text.say(Role.AGENT, "before")
    await drawn()
    held.settle_overlay()
    with held.hold():
        assert out.rows == ["before"]
        text.say(Role.AGENT, "meanwhile\nhalf")
        text.status("waiting")
        await drawn()
        assert out.rows == ["before"]
    assert out.rows == ["before", "meanwhile"]
    text.flush()
    assert out.rows == ["before", "meanwhile", "half", "… waiting, 0 s"]
    held.close_overlay()
    assert out.rows == ["before", "meanwhile", "half"]


@aio
async def test_thoughts_are_marked_once() -> None:
    out, text = made()
    text.say(Role.THOUGHT, "hm ")
    text.say(Role.THOUGHT, "*so*")
    text.end()
    await drawn()
    assert out.rows == ["[thinking] hm *so*"]
    held.close_overlay()


@aio
async def test_a_plan_is_replaced_until_something_is_written_behind_it() -> None:
    out, text = made()
    assert not text.has_open_plan("p")
    text.plan("p", [("[plan]", "bold"), ("  [ ] a",)])
    await drawn()
    assert text.has_open_plan("p")
    text.plan("p", [("[plan]", "bold"), ("  [x] a", "dim")])
    await drawn()
    assert out.rows == ["[plan]", "  [x] a"]
    text.line("next")
    await drawn()
    assert not text.has_open_plan("p")
    text.plan("p", [("[plan] [x] b",)])
    text.plan("q", [("[plan]", "bold"), ("  [ ] c",)])
    await drawn()
    assert out.rows == ["[plan]", "  [x] a", "next", "[plan] [x] b", "[plan]", "  [ ] c"]
    held.close_overlay()


def test_without_a_loop_only_lines_are_written() -> None:
    out, text = made()
    text.status("thinking")
    text.say(Role.AGENT, "one\ntwo")
    assert out.getvalue() == "one\n"
    text.flush()
    assert out.getvalue() == "one\ntwo\n"


@aio
async def test_a_process_that_ends_at_once_can_leave_lines() -> None:
    left: list[bool] = []
    held.erase_overlay(lambda: left.append(True))
    out, text = made()
    text.status("thinking")
    text.line("one")
    text.say(Role.AGENT, "two")
    await drawn()
    assert held.overlay is not None
    out.write(held.overlay.last_words())
    assert out.rows == ["one", "two"]
    # It has no descriptor: nothing is written, and nothing fails.
    held.erase_overlay(lambda: left.append(True))
    assert left == [True, True]
    text.status("")


@aio
async def test_nothing_is_drawn_between_the_erasing_and_the_exit() -> None:
    _, text = made()
    text.status("thinking")
    await drawn()
    seen: list[bool] = []

    def leave() -> None:
        other = threading.Thread(target=lambda: seen.append(held._lock.acquire(blocking=False)))
        other.start()
        other.join()

    held.erase_overlay(leave)
    assert seen == [False]
    text.status("")


def test_signs_need_an_encoding_that_has_them() -> None:
    assert is_unicode(io.TextIOWrapper(io.BytesIO(), encoding="UTF-8"))
    assert not is_unicode(io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert not is_unicode(io.StringIO())


def test_lines_of_ours_are_wrapped_below_their_beginning() -> None:
    assert wrapped_lines("  one two three", 10, Paint(False)) == "  one two\n    three\n"
    assert wrapped_lines("one\ntwo", 10, Paint(False)) == "one\ntwo\n"
    assert wrapped_lines("red", 10, Paint(True), "red") == "\x1b[31mred\x1b[0m\n"
