"""Tests of the capabilities that are not stable yet."""

from __future__ import annotations

import json

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1.unstable import handshake


def test_capabilities_are_read_into_the_wider_types() -> None:
    message = {
        "protocolVersion": 1,
        "agentCapabilities": {
            "mcpCapabilities": {"acp": True, "http": True},
            "sessionCapabilities": {"fork": {}, "list": {}},
            "auth": {"status": {}, "logout": {}},
            "providers": {},
        },
    }
    response = v1.decode(json.dumps(message).encode(), handshake.InitializeResponse)
    capabilities = response.agent_capabilities
    assert capabilities.mcp_capabilities.acp is True
    assert capabilities.session_capabilities.fork == v1.Supported()
    assert capabilities.session_capabilities.list == v1.Supported()
    assert capabilities.auth.status == v1.Supported()
    assert capabilities.providers == v1.Supported()
    assert isinstance(response, v1.InitializeResponse)


def test_a_malformed_capability_counts_as_absent() -> None:
    data = b'{"protocolVersion":1,"clientCapabilities":{"plan":true,"subagents":{}}}'
    capabilities = v1.decode(data, handshake.InitializeRequest).client_capabilities
    assert capabilities.plan is None
    assert capabilities.subagents == v1.Supported()
