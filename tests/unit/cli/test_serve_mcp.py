"""The options of `dragoman serve mcp`. The server itself is tried in tests/integration."""

from __future__ import annotations

import sys

import pytest

from tests.unit.cli.calling import Shell


def test_a_token_without_http_is_wrong_usage(shell: Shell) -> None:
    said = shell("serve", "mcp", "--token-file", "token")
    assert (said.code, "--token-file needs --http" in said.err) == (2, True)


@pytest.mark.parametrize("root", ["missing", "file"])
def test_a_root_that_is_not_a_directory_is_wrong_usage(shell: Shell, root: str) -> None:
    (shell.home / "file").touch()
    said = shell("serve", "mcp", "--root", str(shell.home / root))
    assert (said.code, "--root" in said.err, root in said.err) == (2, True, True)


def test_without_the_sdk_the_error_says_how_to_install_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    said = shell("serve", "mcp")
    assert (said.code, "pip install 'dragoman[mcp]'" in said.err) == (2, True)
