"""What the other side may learn about a failure of ours, and what it may not."""

from __future__ import annotations

import logging

import msgspec
import pytest

from dragoman.errors import CallCancelled, ConnectionEnded, MessageTooLong, RemoteError, UsageError
from dragoman.rpc import boundary
from dragoman.wire import codes


def test_an_error_raised_on_purpose_travels_as_it_is() -> None:
    error = RemoteError(-32042, "no such thing", {"thing": 7})
    assert boundary.to_wire(error, "x") == (-32042, "no such thing", {"thing": 7})


@pytest.mark.parametrize(
    "error",
    [ValueError("/home/me/secret"), UsageError("/home/me/secret"), ConnectionEnded("secret")],
)
def test_any_other_error_travels_as_an_incident_that_stands_in_our_log(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="dragoman.rpc"):
        code, message, data = boundary.to_wire(error, "files/read")
    assert (code, message) == (codes.INTERNAL_ERROR, "Internal error")
    assert set(data) == {"incident"}
    (record,) = caplog.records
    assert data["incident"] in record.getMessage()
    assert "files/read" in record.getMessage()
    assert record.exc_info is not None and record.exc_info[1] is error


def test_two_incidents_have_two_names() -> None:
    incidents = {boundary.to_wire(ValueError(), "x")[2]["incident"] for _ in range(50)}
    assert len(incidents) == 50


def test_a_message_that_is_too_long_says_by_how_much() -> None:
    code, message, data = boundary.to_wire(MessageTooLong(20, 10), "x")
    assert code == codes.INTERNAL_ERROR
    assert "exceeds the maximum line size" in message
    assert data == {"size": 20, "limit": 10}


def test_invalid_params_name_the_field_and_its_type_but_no_value() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(b'{"token": "hunter2"}', type=dict[str, int])
    error = boundary.invalid_params(caught.value)
    assert error.code == codes.INVALID_PARAMS
    assert "expected `int`" in error.data["detail"].lower()
    assert "hunter2" not in error.data["detail"]


def test_params_that_cannot_be_read_at_all_are_called_malformed() -> None:
    error = boundary.invalid_params(RecursionError("at /home/me"))
    assert error.data == {"detail": "malformed"}


def test_params_without_a_type_are_any_json_or_nothing_at_all() -> None:
    assert boundary.plain_params(msgspec.Raw(b'{"a": [1]}')) == {"a": [1]}
    assert boundary.plain_params(msgspec.Raw(b"")) is None
    with pytest.raises(RemoteError) as caught:
        boundary.plain_params(msgspec.Raw(b"{"))
    assert (caught.value.code, caught.value.data) == (
        codes.INVALID_PARAMS,
        {"detail": "malformed"},
    )


def test_an_unknown_method_is_named() -> None:
    error = boundary.method_not_found("x/y")
    assert (error.code, error.data) == (codes.METHOD_NOT_FOUND, {"method": "x/y"})


def test_a_cancelled_answer_has_a_class_of_its_own() -> None:
    assert isinstance(boundary.from_wire(codes.REQUEST_CANCELLED, "gone", None), CallCancelled)
    plain = boundary.from_wire(-32042, "no", [1])
    assert type(plain) is RemoteError
    assert (plain.code, plain.message, plain.data) == (-32042, "no", [1])
