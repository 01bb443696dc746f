"""The numbers are read by programs that we did not write: they are what the standards say."""

from __future__ import annotations

from dragoman.wire import codes


def numbers() -> dict[str, int]:
    return {name: value for name, value in vars(codes).items() if name.isupper()}


def test_the_codes_are_those_of_the_standards() -> None:
    assert numbers() == {
        "PARSE_ERROR": -32700,
        "INVALID_REQUEST": -32600,
        "METHOD_NOT_FOUND": -32601,
        "INVALID_PARAMS": -32602,
        "INTERNAL_ERROR": -32603,
        "REQUEST_CANCELLED": -32800,
        "AUTH_REQUIRED": -32000,
        "OVERLOADED": -32001,
        "NOT_FOUND": -32002,
        "UNSUPPORTED_VERSION": -32022,
        "UNKNOWN": 0,
    }


def test_no_code_has_two_meanings() -> None:
    assert len(set(numbers().values())) == len(numbers())
