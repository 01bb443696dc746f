"""Tests of authentication methods."""

from __future__ import annotations

import json

import msgspec
import pytest

from dragoman.dialects.acp import v1
from tests.unit.dialects.acp.v1 import samples


def test_each_method_has_its_type() -> None:
    kinds = [type(v1.convert(method, v1.AuthMethod)) for method in samples.AUTH_METHODS]
    assert kinds == [
        v1.AuthMethodAgent,
        v1.AuthMethodAgent,
        v1.AuthMethodTerminal,
        v1.AuthMethodEnvVar,
    ]


@pytest.mark.parametrize("kind", ["agent", "retina_scan"])
def test_a_method_with_another_type_is_carried_out_by_the_agent(kind: str) -> None:
    method = {"type": kind, "id": "i", "name": "n", "color": "red"}
    decoded = v1.decode(json.dumps(method).encode(), v1.AuthMethod)
    assert isinstance(decoded, v1.AuthMethodAgent)
    assert decoded.extra == {"type": kind, "color": "red"}
    assert json.loads(v1.encode(decoded)) == method


def test_a_malformed_terminal_method_is_not_taken_for_another() -> None:
    method = {"type": "terminal", "id": "i", "name": "n", "args": "login"}
    with pytest.raises(msgspec.ValidationError, match=r"\$\.args"):
        v1.decode(json.dumps(method).encode(), v1.AuthMethod)
    message = {"protocolVersion": 1, "authMethods": [method, samples.AUTH_METHODS[0]]}
    response = v1.decode(json.dumps(message).encode(), v1.InitializeResponse)
    assert [kept.id for kept in response.auth_methods] == ["oauth"]


def test_variables_that_are_not_listed_do_not_lose_the_method() -> None:
    method = v1.decode(b'{"type":"env_var","id":"i","name":"n"}', v1.AuthMethod)
    assert method == v1.AuthMethodEnvVar(id="i", name="n")


def test_an_agent_method_has_no_type_on_the_wire() -> None:
    assert v1.encode(v1.AuthMethodAgent(id="i", name="n")) == b'{"id":"i","name":"n"}'


def test_a_terminal_method_says_its_type() -> None:
    method = v1.AuthMethodTerminal(id="i", name="n")
    assert v1.encode(method) == b'{"type":"terminal","id":"i","name":"n"}'


def test_members_are_of_the_family() -> None:
    assert isinstance(v1.AuthMethodAgent(id="i", name="n"), v1.AuthMethod)
