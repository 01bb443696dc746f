"""Tests of methods beside sessions that are not stable yet."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET

from dragoman.dialects.acp import v1
from dragoman.dialects.acp.v1.unstable import services


def test_null_is_an_answer_of_an_mcp_server() -> None:
    response = v1.decode(b'{"result":null}', services.MessageMcpResponse)
    assert response.result is None
    assert v1.encode(response) == b'{"result":null}'


def test_an_error_of_an_mcp_server_keeps_all_its_fields() -> None:
    data = b'{"error":{"code":1,"message":"no","hint":"try again"}}'
    response = v1.decode(data, services.MessageMcpResponse)
    assert response.result is UNSET
    assert response.error is not None
    assert response.error.extra == {"hint": "try again"}
    assert v1.encode(response) == data


@pytest.mark.parametrize("data", [b"{}", b'{"error":null}', b'{"error":{"code":"x"}}'])
def test_an_answer_without_result_and_error_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        v1.decode(data, services.MessageMcpResponse)


def test_unknown_values_survive() -> None:
    data = b'{"state":"in_limbo"}'
    response = v1.decode(data, services.AuthStatusResponse)
    assert response.state not in set(services.AuthState)
    assert v1.encode(response) == data
    provider = v1.decode(
        b'{"providerId":"p","supported":["openai","tin_can"],"required":false}',
        services.ProviderInfo,
    )
    assert provider.supported == [services.LlmProtocol.OPENAI, "tin_can"]
