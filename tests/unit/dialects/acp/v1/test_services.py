"""Tests of the files and terminals of a client."""

from __future__ import annotations

import json

import msgspec
import pytest

from dragoman.dialects.acp import v1


def test_nothing_to_say_is_an_empty_object() -> None:
    for response in (
        v1.WriteTextFileResponse(),
        v1.KillTerminalResponse(),
        v1.ReleaseTerminalResponse(),
    ):
        assert v1.encode(response) == b"{}"


def test_null_is_read_as_nothing_to_say() -> None:
    assert v1.decode(b"null", v1.WriteTextFileResponse) == v1.WriteTextFileResponse()


def test_a_file_without_content_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"`\$\.content`"):
        v1.decode(b'{"content":null}', v1.ReadTextFileResponse)


def test_empty_values_that_are_required_are_still_sent() -> None:
    output = v1.TerminalOutputResponse(output="", truncated=False)
    assert json.loads(v1.encode(output)) == {"output": "", "truncated": False}
    assert v1.encode(v1.ReadTextFileResponse(content="")) == b'{"content":""}'


def test_an_exit_code_of_zero_is_sent() -> None:
    assert v1.encode(v1.WaitForTerminalExitResponse(exit_code=0)) == b'{"exitCode":0}'
    assert v1.encode(v1.TerminalExitStatus(exit_code=0)) == b'{"exitCode":0}'


def test_a_malformed_exit_status_is_no_exit_status() -> None:
    data = b'{"output":"x","truncated":false,"exitStatus":"gone"}'
    assert v1.decode(data, v1.TerminalOutputResponse).exit_status is None
