"""The kept output is the end of the whole text, whatever was printed and however it was cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.services.scrollback import Scrollback
from tests.amounts import SOME

printed = st.lists(
    st.binary(max_size=6)
    | st.text(st.sampled_from("aä€\U0001f600\n"), max_size=6).map(str.encode)
    | st.sampled_from([b"\xf0\x9f", b"\x98\x80", b"\xe2", b"\x80", b"\xff"]),
    max_size=20,
)


@SOME
@given(pieces=printed, limit_size=st.integers(min_value=0, max_value=60))
def test_what_is_kept_is_the_longest_end_of_the_text_that_fits(
    pieces: list[bytes], limit_size: int
) -> None:
    whole = b"".join(pieces).decode("utf-8", "replace")
    scrollback = Scrollback(limit_size)
    for piece in pieces:
        scrollback.feed(piece)
        assert len(scrollback.text().encode()) <= limit_size
    scrollback.end()
    kept = scrollback.text()
    assert whole.endswith(kept)
    assert scrollback.truncated == (kept != whole)
    if kept != whole:
        one_more = whole[len(whole) - len(kept) - 1 :]
        assert len(one_more.encode()) > limit_size
