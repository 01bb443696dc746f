"""Tests of the handshake."""

from __future__ import annotations

import json

import msgspec
import pytest

from dragoman.dialects.acp import v1


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


def test_null_and_an_empty_object_are_told_apart() -> None:
    capabilities = v1.decode(b'{"list":{},"resume":null}', v1.SessionCapabilities)
    assert capabilities.list == v1.Supported()
    assert capabilities.resume is None


def test_capabilities_that_are_not_stable_are_kept() -> None:
    data = b'{"sessionCapabilities":{"fork":{}},"providers":{}}'
    capabilities = v1.decode(data, v1.AgentCapabilities)
    assert capabilities.extra == {"providers": {}}
    assert capabilities.session_capabilities.extra == {"fork": {}}


@pytest.mark.parametrize("version", ['"2025-06-18"', "1.0", "true", "null"])
def test_a_version_that_is_no_integer_is_an_error(version: str) -> None:
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
