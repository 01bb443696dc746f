"""Tests of the handshake and of authentication."""

from __future__ import annotations

import json

import msgspec
import pytest

from dragoman.dialects.acp import v1
from tests.unit.dialects.acp.v1 import samples


def test_absent_capabilities_are_unsupported() -> None:
    response = v1.decode(b'{"protocolVersion":1}', v1.InitializeResponse)
    capabilities = response.agent_capabilities
    assert capabilities.load_session is False
    assert capabilities.prompt_capabilities.image is False
    assert capabilities.mcp_capabilities.http is False
    assert capabilities.session_capabilities.resume is None
    assert capabilities.auth.logout is None
    assert response.auth_methods == []
    assert response.agent_info is None


def test_null_and_an_empty_object_are_distinguished() -> None:
    capabilities = v1.decode(b'{"list":{},"resume":null}', v1.SessionCapabilities)
    assert capabilities.list == v1.Supported()
    assert capabilities.resume is None


def test_capabilities_that_are_not_stable_are_kept() -> None:
    data = b'{"sessionCapabilities":{"fork":{}},"providers":{}}'
    capabilities = v1.decode(data, v1.AgentCapabilities)
    assert capabilities.extra == {"providers": {}}
    assert capabilities.session_capabilities.extra == {"fork": {}}


@pytest.mark.parametrize("version", ['"2025-06-18"', "1.0", "true", "null"])
def test_a_version_that_is_not_an_integer_is_an_error(version: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        v1.decode(f'{{"protocolVersion":{version}}}'.encode(), v1.InitializeRequest)


def test_names_of_a_later_version_beside_ours_do_no_harm() -> None:
    message = {
        "protocolVersion": 1,
        "clientInfo": {"name": "c", "version": "1"},
        "clientCapabilities": {"terminal": True},
        "info": {"name": "c", "version": "1"},
        "capabilities": {},
    }
    request = v1.decode(json.dumps(message).encode(), v1.InitializeRequest)
    assert request.client_capabilities.terminal is True
    assert request.extra == {"info": {"name": "c", "version": "1"}, "capabilities": {}}


def test_elicitation_needs_a_mode() -> None:
    capabilities = v1.decode(b'{"elicitation":{}}', v1.ClientCapabilities)
    assert capabilities.elicitation == v1.ElicitationCapabilities()
    assert v1.PROTOCOL_VERSION == 1


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


def test_a_variable_is_secret_and_needed_unless_it_says_otherwise() -> None:
    variable = v1.decode(b'{"name":"KEY"}', v1.AuthEnvVar)
    assert (variable.secret, variable.optional) == (True, False)
