"""The settings of a connection are what the protocols ask for unless somebody says otherwise."""

from __future__ import annotations

from dragoman.rpc import ConnectionSettings, Limits
from dragoman.wire.framing import DEFAULT_MAX_LINE_SIZE


def test_by_default_both_ends_talk_at_once_in_standard_messages() -> None:
    settings = ConnectionSettings()
    assert settings.jsonrpc
    assert not settings.half_duplex
    assert settings.max_line_size == DEFAULT_MAX_LINE_SIZE == 16 * 1024 * 1024
    assert settings.limits == Limits()
    assert settings.cancel_notice is None
    assert settings.reserved is None
