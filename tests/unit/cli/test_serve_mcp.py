"""The options of `dragoman serve mcp`. The server itself is tried in tests/integration."""

from __future__ import annotations

import sys

import pytest

from dragoman.cli.serve_mcp import _wished
from dragoman.errors import UsageError
from tests.unit.cli.calling import Shell


def test_a_token_without_http_is_wrong_usage(shell: Shell) -> None:
    said = shell("serve", "mcp", "--token-file", "token")
    assert (said.code, "--token-file is for --http" in said.err) == (2, True)


def test_without_the_sdk_the_way_to_get_it_is_told(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    said = shell("serve", "mcp")
    assert (said.code, "pip install 'dragoman[mcp]'" in said.err) == (2, True)


def test_flags_say_what_peers_may_do_and_nothing_leaves_it_to_the_settings() -> None:
    assert _wished(False, False, False) is None
    assert _wished(True, False, False) == "approve-all"
    assert _wished(False, True, False) == "approve-reads"
    assert _wished(False, False, True) == "deny-all"
    with pytest.raises(UsageError, match="contradict"):
        _wished(True, False, True)
