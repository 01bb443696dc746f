"""The messages of a stream do not depend on how its bytes are cut.

The profile decides how many streams are tried, see tests/conftest.py. The limit for a line is small
here, so that lines over it are as common as lines of exactly the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import event as label
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.wire.framing import Framer
from dragoman.wire.peer import End, Event, Noise, Overrun, PeerState

LIMIT = 64
BOM = b"\xef\xbb\xbf"

MESSAGES = [
    b'{"method":"a"}',
    b'{"jsonrpc":"2.0","method":"a","params":{"b":[1,"\\u00e4"]}}',
    b'{"id":0,"method":"a","params":{}}',
    b'{"id":0,"method":"a"}',
    b'{"id":"x","method":"a"}',
    b'{"id":0,"result":null}',
    b'{"id":1,"result":{"text":"\\ud83d"}}',
    b'{"id":1,"error":{"code":-32601,"message":"no"}}',
    b'{"id":2,"result":[]}',
    b'{"id":9,"result":[]}',
    b'{"id":3}',
    b'{"error":{"code":-32700,"message":"Parse error"}}',
    b'{"id":null,"method":"a"}',
    b'{"id":true,"method":"a"}',
    b"[]",
    b'{"id":0,',
    BOM,
]

ENDINGS = [*[b"\n"] * 8, *[b"\r\n"] * 5, b"\r\r\n", b"\r", b""]
ODDITIES = [
    *(b"", b" ", b"\t", b"\r", b"\xef", b"\xbb\xbf", b"{", b"}", b'"', b"x", b"\x00", b"\xff"),
    *(b"x" * size for size in range(LIMIT - 3, LIMIT + 2)),
]


def stream(recipe: bytes) -> bytes:
    """A stream made from a recipe: one byte for its beginning, then two for each line."""
    beginning = (b"", b"", BOM, BOM[:1], BOM[:2], BOM + BOM)[recipe[0] % 6]
    lines = [
        (MESSAGES[what % len(MESSAGES)] if what < 200 else ODDITIES[what % len(ODDITIES)])
        + ENDINGS[how % len(ENDINGS)]
        for what, how in zip(recipe[1::2], recipe[2::2], strict=False)
    ]
    return beginning + b"".join(lines)


# Bytes are by far the fastest thing to generate, and they shrink well.
streams = st.binary(min_size=13, max_size=37).map(stream)
sizes = st.binary(max_size=12).map(lambda sizes: [size % 71 for size in sizes])


def cut(data: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """Return the data in pieces of these sizes, the last one as long as needed."""
    start = 0
    for size in sizes:
        yield data[start : start + size]
        start += size
    yield data[start:]


def split(data: bytes, limit: int) -> tuple[list[bytes], bool]:
    """Return the lines of a whole stream, in the plainest way, and whether one was too long."""
    *complete, rest = data.removeprefix(BOM).split(b"\n")
    found: list[bytes] = []
    for line in complete + ([rest] if rest else []):
        line = line.removesuffix(b"\r")
        if len(line) > limit:
            return found, True
        found.append(line)
    return found, False


def framed(chunks: Iterable[bytes], limit: int) -> tuple[list[bytes], bool]:
    framer = Framer(limit)
    found = [line for chunk in chunks for line in framer.feed(chunk)]
    last = framer.end()
    return found + ([] if last is None else [last]), framer.overflowed


def said(end: End, chunks: Iterable[bytes]) -> list[object]:
    """Return the events of a stream, for a peer that has sent three requests and given up one."""
    peer: PeerState[str] = PeerState(end, max_line_size=LIMIT)
    for slot in ("zero", "one", "two"):
        peer.request("m", slot)
    peer.abandon(2)
    events: list[Event[str]] = []
    for chunk in chunks:
        events += peer.receive(chunk)
    # A stream that ends without a newline is not answered; that does not depend on the cuts.
    events += peer.receive_end()
    assert sum(isinstance(event, Overrun) for event in events) <= 1
    state = [peer.unanswered, peer.is_open(0), peer.is_open("x")]
    return [("overrun", e.error.limit) if isinstance(e, Overrun) else e for e in events] + state


@pytest.mark.timeout(300)
@given(data=streams, sizes=sizes, limit=st.sampled_from([LIMIT, LIMIT, LIMIT, 14, 1]))
@example(data=b"x" * 5 + b"\r\r\n", sizes=[6, 0, 1], limit=5)
@example(data=BOM[:2], sizes=[1], limit=1)
def test_lines_are_those_of_the_plainest_splitter(
    data: bytes, sizes: list[int], limit: int
) -> None:
    wanted = split(data, limit)
    assert framed(cut(data, sizes), limit) == wanted
    assert framed([data], limit) == wanted
    label("overflow" if wanted[1] else "no overflow")


@pytest.mark.timeout(300)
@given(data=streams, sizes=sizes, end=st.sampled_from(End))
def test_events_do_not_depend_on_how_the_bytes_were_cut(
    data: bytes, sizes: list[int], end: End
) -> None:
    whole = said(end, [data])
    assert said(end, cut(data, sizes)) == whole
    assert said(end, (data[i : i + 1] for i in range(len(data)))) == whole
    label(f"{sum(not isinstance(e, Noise) for e in whole) - 3} events that are no noise")
