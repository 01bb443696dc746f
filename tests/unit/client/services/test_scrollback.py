"""What is kept of a terminal's output: its end, as text, at most so many bytes."""

from __future__ import annotations

import pytest

from dragoman.client.services.scrollback import Scrollback


def fed(limit_size: int, *pieces: bytes, end: bool = True) -> Scrollback:
    scrollback = Scrollback(limit_size)
    for piece in pieces:
        scrollback.feed(piece)
    if end:
        scrollback.end()
    return scrollback


@pytest.mark.parametrize(
    ("limit_size", "pieces", "text", "truncated"),
    [
        (10, [], "", False),
        (10, [b"hello"], "hello", False),
        (5, [b"hello"], "hello", False),
        (4, [b"hello"], "ello", True),
        (4, [b"he", b"l", b"lo"], "ello", True),
        (0, [b"hello"], "", True),
        (0, [], "", False),
        (6, ["äöü".encode()], "äöü", False),
        (5, ["äöü".encode()], "öü", True),
        (4, ["äöü".encode()], "öü", True),
        (3, ["äöü".encode()], "ü", True),
        (1, ["äöü".encode()], "", True),
        (3, ["a\U0001f600".encode()], "", True),
        (4, ["a\U0001f600".encode()], "\U0001f600", True),
        (10, [b"\xe2", b"\x82", b"\xac"], "€", False),
        (10, [b"\xe2\x82", b"\xacx"], "€x", False),
        (10, [b"\xff"], "\ufffd", False),
        (10, [b"a\xffb"], "a\ufffdb", False),
        (10, [b"a\xe2\x82"], "a\ufffd", False),
        (10, [b"a\xe2", b"b"], "a\ufffdb", False),
        (4, [b"\xff\xff\xff"], "\ufffd", True),
        (6, [b"\xff\xff\xff"], "\ufffd\ufffd", True),
        (10, [b"\xed\xa0\x80"], "\ufffd\ufffd\ufffd", False),
        (20, [b"\x1b[31mred\r\n\0"], "\x1b[31mred\r\n\0", False),
    ],
)
def test_the_end_is_kept_and_characters_stay_whole(
    limit_size: int, pieces: list[bytes], text: str, truncated: bool
) -> None:
    scrollback = fed(limit_size, *pieces)
    assert (scrollback.text(), scrollback.truncated) == (text, truncated)


def test_half_a_character_waits_for_its_other_half() -> None:
    scrollback = fed(10, b"a\xe2\x82", end=False)
    assert scrollback.text() == "a"
    scrollback.feed(b"\xac")
    assert scrollback.text() == "a€"


def test_memory_stays_near_the_limit_however_much_is_printed() -> None:
    scrollback = Scrollback(1000)
    for _ in range(1000):
        scrollback.feed(b"0123456789" * 100)
    assert scrollback.text() == "0123456789" * 100
    assert scrollback._kept.__sizeof__() < 10_000
