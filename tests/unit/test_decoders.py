"""Typed values from JSON. `tests/faults/test_typed_decoding.py` does it in several threads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from dragoman.decoders import convert_typed, decode_typed, typed_decoder
from dragoman.wire.messages import UNDECODABLE


class Part(Struct):
    name: str


class Whole(Struct):
    parts: list[Part]
    count: int = 0


WHOLE = Whole([Part("a")], 2)


def test_json_becomes_the_type_that_is_named_however_often() -> None:
    for _ in range(2):
        assert decode_typed(b'{"parts": [{"name": "a"}], "count": 2}', Whole) == WHOLE
    assert decode_typed('[{"name": "a"}]', list[Part]) == [Part("a")]


def test_decoded_json_becomes_the_type_that_is_named() -> None:
    assert convert_typed({"parts": [{"name": "a"}], "count": 2}, Whole) == WHOLE
    assert convert_typed({"parts": [], "count": "2"}, Whole, strict=False) == Whole([], 2)
    assert convert_typed(WHOLE, Whole, from_attributes=True) == WHOLE


def test_what_does_not_fit_is_an_error_that_callers_know() -> None:
    for data in (b"{", b"{}", b'{"parts": 1}', b"\xff"):
        with pytest.raises(UNDECODABLE):
            decode_typed(data, Whole)
    with pytest.raises(msgspec.ValidationError):
        convert_typed({"parts": [{"name": 1}]}, Whole)


def test_a_decoder_has_its_own_hook_for_foreign_types() -> None:
    def hook(hint: type, value: Any) -> Any:
        return hint(value)

    assert typed_decoder(complex, dec_hook=hook)(b"1") == 1 + 0j
