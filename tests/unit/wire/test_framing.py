"""Lines come out the same however the bytes were cut, in linear time and bounded memory."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest

from dragoman.errors import UsageError
from dragoman.wire.framing import (
    DEFAULT_MAX_LINE_SIZE,
    MIN_LINE_SIZE,
    Framer,
    require_line_size,
)

KIB = 1024
MIB = 1024 * KIB
BOM = b"\xef\xbb\xbf"


def fed(framer: Framer, chunks: Iterable[bytes]) -> list[bytes]:
    return [line for chunk in chunks for line in framer.feed(chunk)]


def pieces(data: bytes, *sizes: int) -> Iterator[bytes]:
    """The data cut into pieces of the sizes, one after another and over again."""
    start = 0
    for size in itertools.cycle(sizes):
        if start >= len(data):
            return
        yield data[start : start + size]
        start += size


def two_cuts(data: bytes) -> Iterator[list[bytes]]:
    """Every way to cut the data into three pieces, empty ones included."""
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            yield [data[:first], data[first:second], data[second:]]


# -- lines


def test_many_lines_in_one_chunk_come_out_in_order() -> None:
    assert Framer().feed(b"one\ntwo\nthree\n") == [b"one", b"two", b"three"]


def test_a_line_over_many_chunks_comes_out_with_its_newline() -> None:
    framer = Framer()
    assert fed(framer, [b"o", b"n", b"e"]) == []
    assert framer.feed(b"\n") == [b"one"]


def test_a_chunk_may_end_one_line_and_begin_another() -> None:
    framer = Framer()
    assert framer.feed(b"on") == []
    assert framer.feed(b"e\ntwo\nth") == [b"one", b"two"]
    assert framer.feed(b"ree\n") == [b"three"]


def test_a_long_chunk_may_be_a_line_a_part_of_one_or_many() -> None:
    framer = Framer()
    long = b"x" * 4 * KIB
    assert framer.feed(long) == []
    assert framer.feed(long + b"\r\n") == [long + long]
    assert framer.feed(long + b"\n") == [long]
    assert framer.feed(long + b"\n" + long + b"\n") == [long, long]
    assert framer.feed(b"\n" + long + b"\n") == [b"", long]
    assert framer.feed(long + b"\n\n") == [long, b""]
    assert framer.feed(long + b"\n" + long) == [long]
    assert framer.end() == long


def test_blank_lines_are_given_out_as_they_are() -> None:
    assert Framer().feed(b"\n\r\n  \n\n") == [b"", b"", b"  ", b""]


def test_an_empty_chunk_changes_nothing() -> None:
    framer = Framer()
    assert fed(framer, [b"", b"", b"on", b"", b"e\n", b""]) == [b"one"]
    assert framer.end() is None


def test_lines_are_the_same_for_every_cut_in_three() -> None:
    data = BOM + b"a\r\n\r\nbc\r\r\n\rd\n\ne"
    for chunks in two_cuts(data):
        framer = Framer()
        assert fed(framer, chunks) == [b"a", b"", b"bc\r", b"\rd", b""], chunks
        assert framer.end() == b"e"


# -- carriage returns


def test_a_carriage_return_before_the_newline_is_not_part_of_the_line() -> None:
    assert Framer().feed(b"one\r\ntwo\r\n") == [b"one", b"two"]


def test_a_carriage_return_cut_off_from_its_newline_is_not_part_of_the_line() -> None:
    framer = Framer()
    assert fed(framer, [b"one\r", b"\ntwo\r", b"\n"]) == [b"one", b"two"]


def test_a_carriage_return_elsewhere_stays() -> None:
    assert Framer().feed(b"\rone\rtwo\n") == [b"\rone\rtwo"]


def test_only_one_carriage_return_belongs_to_the_end_of_a_line() -> None:
    for chunks in two_cuts(b"one\r\r\n"):
        assert fed(Framer(), chunks) == [b"one\r"], chunks


# -- byte order mark


def test_a_byte_order_mark_at_the_beginning_is_skipped_wherever_it_is_cut() -> None:
    for chunks in two_cuts(BOM + b"one\n"):
        assert fed(Framer(), chunks) == [b"one"], chunks


def test_only_the_first_byte_order_mark_is_skipped() -> None:
    assert Framer().feed(BOM + BOM + b"one\n" + BOM + b"two\n") == [BOM + b"one", BOM + b"two"]


def test_the_beginning_of_a_byte_order_mark_alone_is_part_of_the_line() -> None:
    for chunks in two_cuts(BOM[:2] + b"\n" + BOM + b"one\n"):
        assert fed(Framer(), chunks) == [BOM[:2], BOM + b"one"], chunks


def test_the_beginning_of_a_byte_order_mark_is_a_last_line_if_nothing_follows() -> None:
    framer = Framer()
    assert framer.feed(BOM[:2]) == []
    assert framer.end() == BOM[:2]
    assert framer.end() is None


def test_a_stream_of_a_byte_order_mark_only_has_no_line() -> None:
    framer = Framer()
    assert framer.feed(BOM) == []
    assert framer.end() is None


# -- the end of the stream


def test_the_end_gives_out_a_last_line_without_a_newline_once() -> None:
    framer = Framer()
    assert framer.feed(b"one\ntw") == [b"one"]
    assert framer.feed(b"o") == []
    assert framer.end() == b"two"
    assert framer.end() is None


def test_the_end_after_a_newline_gives_out_nothing() -> None:
    framer = Framer()
    framer.feed(b"one\n")
    assert framer.end() is None


def test_the_end_of_a_stream_without_bytes_gives_out_nothing() -> None:
    assert Framer().end() is None


def test_the_last_line_loses_its_carriage_return_too() -> None:
    framer = Framer()
    framer.feed(b"one\r\r")
    assert framer.end() == b"one\r"


# -- the size guard


def test_the_limit_is_sixteen_mebibytes_inclusive() -> None:
    assert DEFAULT_MAX_LINE_SIZE == 16 * MIB
    line = bytes(64 * KIB) * 256
    framer = Framer()
    assert fed(framer, pieces(line + b"\n", 64 * KIB)) == [line]
    assert fed(framer, pieces(line + b"\0", 64 * KIB)) == []
    assert framer.overflowed


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_a_line_of_exactly_the_limit_passes_for_every_cut(limit: int, ending: bytes) -> None:
    line = b"x" * limit
    for chunks in two_cuts(line + ending + line + ending):
        framer = Framer(limit)
        assert fed(framer, chunks) == [line, line], chunks
        assert not framer.overflowed


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"", b"\r", b"\r\r\n", b"\rx\n"])
@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_a_line_of_one_byte_more_overflows_for_every_cut(limit: int, ending: bytes) -> None:
    before = b"y" * limit
    for chunks in two_cuts(before + b"\n" + b"x" * (limit + 1) + ending):
        framer = Framer(limit)
        assert fed(framer, chunks) == [before], chunks
        assert framer.overflowed


@pytest.mark.parametrize("more", [b"\r", b"x", b"\rx"])
def test_a_carriage_return_at_the_limit_counts_if_no_newline_follows(more: bytes) -> None:
    for chunks in two_cuts(b"xxx\r" + more):
        framer = Framer(3)
        assert fed(framer, chunks) == []
        assert framer.overflowed, chunks


def test_a_carriage_return_at_the_limit_may_be_the_last_byte_of_the_stream() -> None:
    framer = Framer(3)
    assert fed(framer, [b"xxx\r", b""]) == []
    assert not framer.overflowed
    assert framer.end() == b"xxx"


def test_overflow_is_noticed_before_the_newline_arrives() -> None:
    framer = Framer(3)
    framer.feed(b"xx")
    assert not framer.overflowed
    framer.feed(b"xx")
    assert framer.overflowed


def test_lines_before_a_line_that_is_too_long_are_given_out_and_nothing_after_it() -> None:
    framer = Framer(3)
    assert framer.feed(b"one\ntwo\nthree\nsix\n") == [b"one", b"two"]
    assert framer.overflowed
    assert framer.feed(b"one\n") == []
    assert framer.end() is None


def test_a_chunk_longer_than_the_limit_is_not_an_overflow_if_its_lines_are_not() -> None:
    framer = Framer(3)
    assert framer.feed(b"one\ntwo\nsix\n") == [b"one", b"two", b"six"]
    assert not framer.overflowed


def test_the_byte_order_mark_does_not_count() -> None:
    framer = Framer(3)
    assert framer.feed(BOM + b"one\n") == [b"one"]


def test_a_last_line_over_the_limit_overflows_even_if_it_began_like_a_byte_order_mark() -> None:
    framer = Framer(1)
    assert framer.feed(BOM[:2]) == []
    assert framer.end() is None
    assert framer.overflowed


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Framer(0)


# -- linear time, bounded memory

CUTS = [
    (1,),
    (2, 1),
    (7,),
    (1000,),
    (4 * KIB,),
    (33 * KIB,),
    (64 * KIB - 1,),
    (64 * KIB,),
    (100_000,),
    (1, 64 * KIB),
    (1, 4 * KIB),
    (64 * KIB - 1, 2),
    (3, 70_000, 11, 40_000),
    (300 * KIB,),
    # Large pieces after so many small ones that those are being gathered.
    (*[1] * 20, 64 * KIB, 5, 65 * KIB),
]
# Nothing in it comes twice, so that pieces in a wrong order cannot go unnoticed.
LONG_LINE = random.Random(1).randbytes(250 * KIB).translate(None, b"\r\n")

BYTE_BY_BYTE = pytest.mark.no_cover
"""For hundreds of thousands of calls: measuring coverage makes each of them five times as slow, and
the other tests cover everything that is called."""


@BYTE_BY_BYTE
@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("sizes", CUTS, ids=str)
def test_no_byte_is_copied_more_than_twice(sizes: tuple[int, ...], ending: bytes) -> None:
    data = b"before" + ending + LONG_LINE + ending + b"after" + ending
    framer = Framer()
    assert fed(framer, pieces(data, *sizes)) == [b"before", LONG_LINE, b"after"]
    assert framer.copied <= 2 * len(data)


@pytest.mark.parametrize("start", [BOM, BOM[:2] + b"x"], ids=["mark", "no mark"])
def test_the_beginning_of_a_stream_is_copied_once_more_at_most(start: bytes) -> None:
    data = start + b"x" * KIB + b"\n"
    for cut in range(len(start) + 1):
        framer = Framer()
        assert fed(framer, [data[:cut], data[cut:]]) == [data[:-1].removeprefix(BOM)]
        assert framer.copied <= 2 * len(data), cut


def test_pieces_as_large_as_a_read_are_copied_once() -> None:
    framer = Framer()
    assert fed(framer, itertools.repeat(bytes(64 * KIB), 40)) == []
    assert framer.copied == 0
    assert framer.feed(b"\n") == [bytes(40 * 64 * KIB)]
    assert framer.copied <= 40 * 64 * KIB + 1


@BYTE_BY_BYTE
def test_short_lines_are_copied_at_most_twice_in_any_cut() -> None:
    data = BOM + b'{"method":"x"}\r\n\n{}\n' * 500
    for size in range(1, 60):
        framer = Framer()
        fed(framer, pieces(data, size))
        assert framer.copied <= 2 * len(data), size


def held_size(framer: Framer) -> int:
    """Every byte of memory that the framer keeps alive, found by following its references."""
    seen: dict[int, object] = {}
    found = gc.get_referents(framer)
    while found:
        thing = found.pop()
        if id(thing) not in seen and not isinstance(thing, type):
            seen[id(thing)] = thing
            found.extend(gc.get_referents(thing))
    return sum(map(sys.getsizeof, seen.values()))


@BYTE_BY_BYTE
def test_single_bytes_of_a_long_line_take_twice_its_memory_and_little_more() -> None:
    size = 2 * MIB
    framer = Framer()
    feed = framer.feed
    for _ in range(size):
        feed(b"x")
    held = held_size(framer)
    # Tracing two million calls takes half a minute; only the last one makes something large.
    tracemalloc.start()
    try:
        (line,) = feed(b"\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(line) == size
    assert size < held < size + 256 * KIB
    assert held + peak < 2 * size + 512 * KIB


@BYTE_BY_BYTE
def test_single_bytes_leave_nothing_behind_that_following_references_would_miss() -> None:
    size = 64 * KIB
    feed = Framer().feed
    tracemalloc.start()
    try:
        for _ in range(size):
            feed(b"x")
        (line,) = feed(b"\n")
        _, peak = tracemalloc.get_traced_memory()
        del line
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * size
    assert left < 8 * KIB


@pytest.mark.parametrize("sizes", CUTS[2:], ids=str)
def test_an_unfinished_line_holds_at_most_about_twice_its_bytes(sizes: tuple[int, ...]) -> None:
    size = 512 * KIB
    framer = Framer()
    assert fed(framer, pieces(bytes(size), *sizes)) == []
    assert held_size(framer) < 2 * size + 128 * KIB
    assert framer.end() == bytes(size)
    assert held_size(framer) < KIB


@pytest.mark.parametrize("sizes", [(1000,), (64 * KIB,)], ids=str)
def test_an_overflow_lets_go_of_what_was_held(sizes: tuple[int, ...]) -> None:
    framer = Framer(MIB)
    assert fed(framer, pieces(bytes(MIB + 1), *sizes)) == []
    assert framer.overflowed
    assert held_size(framer) < KIB


@pytest.mark.parametrize("size", [-1, 0, MIN_LINE_SIZE - 1, True, 5000.0, "5000"])
def test_a_limit_that_cannot_work_is_refused(size: object) -> None:
    with pytest.raises(UsageError, match="^max_line_size= "):
        require_line_size(size)


@pytest.mark.parametrize("size", [None, MIN_LINE_SIZE, DEFAULT_MAX_LINE_SIZE])
def test_a_limit_that_a_handshake_fits_in_is_accepted(size: int | None) -> None:
    require_line_size(size)
