"""Reading a part of a file agrees with the plain definition of lines, however the data is cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.services import files as module
from dragoman.errors import TooLarge
from dragoman.rpc.tasks import Stopped
from tests.amounts import SOME

text = st.text(st.sampled_from("ab\n\n\n\ré\U0001f600\u2028\x85\x0b"), max_size=60)
count = st.none() | st.integers(min_value=0, max_value=70)


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """Return the data in pieces of these sizes, over and over."""
    position = 0
    while position < len(data):
        for size in sizes:
            piece = data[position : position + size]
            if piece:
                yield piece
            position += size


def defined(data: bytes, skip: int, limit: int | None) -> bytes:
    lines = data.split(b"\n")
    whole = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    return b"".join(whole[skip : None if limit is None else skip + limit])


@SOME
@given(
    text=text,
    sizes=st.lists(st.integers(min_value=1, max_value=20), min_size=1, max_size=5),
    skip=st.integers(min_value=0, max_value=70),
    limit=count,
)
def test_a_part_is_the_lines_asked_for_whatever_the_chunks(
    text: str, sizes: list[int], skip: int, limit: int | None
) -> None:
    data = text.encode()
    expected = defined(data, skip, limit)
    assert module._take("f", cut(data, sizes), skip, limit, len(expected)) == expected
    if expected:
        with pytest.raises(TooLarge):
            module._take("f", cut(data, sizes), skip, limit, len(expected) - 1)


@SOME
@given(text=text, number=st.integers(min_value=1, max_value=60))
def test_the_end_of_a_line_is_found_by_halving(text: str, number: int) -> None:
    data = text.encode() + b"\n" * number
    position = 0
    for _ in range(number):
        position = data.index(b"\n", position) + 1
    assert module._end_of_line(data, number) == position


def test_an_abandoned_reading_stops_at_the_next_chunk() -> None:
    stop = threading.Event()
    chunks = module._chunks("f", lambda size: b"x", stop)
    assert next(chunks) == b"x"
    stop.set()
    with pytest.raises(Stopped):
        next(chunks)
