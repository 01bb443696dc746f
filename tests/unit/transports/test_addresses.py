"""Addresses as text: host and port, brackets, and which addresses are this machine."""

from __future__ import annotations

import pytest

from dragoman.errors import UsageError
from dragoman.transports.addresses import (
    bracketed,
    is_loopback,
    is_this_machine,
    parse_address,
    without_secrets,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:4222", ("127.0.0.1", 4222)),
        ("[::1]:0", ("::1", 0)),
        ("::1:80", ("::1", 80)),
        (" box.example.org:65535 ", ("box.example.org", 65535)),
    ],
)
def test_an_address_is_host_and_port(text: str, found: tuple[str, int]) -> None:
    assert parse_address(text, option="--listen", example="x:1") == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "4222",
        "host:",
        ":1",
        "host:port",
        "host:65536",
        "host:-1",
        "host:²",
        "host:" + "9" * 9999,
    ],
)
def test_what_is_not_an_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="--listen takes ADDRESS:PORT, such as x:1, not"):
        parse_address(text, option="--listen", example="x:1")


@pytest.mark.parametrize("text", ["80", ":80", "[]:80"])
def test_a_host_may_be_omitted_if_there_is_a_default(text: str) -> None:
    found = parse_address(text, option="--websocket", example="8765", default_host="127.0.0.1")
    assert found == ("127.0.0.1", 80)
    with pytest.raises(UsageError, match=r"--websocket takes \[HOST:\]PORT"):
        parse_address("host", option="--websocket", example="8765", default_host="127.0.0.1")


def test_only_an_ipv6_address_is_in_brackets() -> None:
    assert [bracketed(host) for host in ("::1", "127.0.0.1", "box")] == [
        "[::1]",
        "127.0.0.1",
        "box",
    ]


@pytest.mark.parametrize(
    ("host", "loopback", "here"),
    [
        ("127.0.0.1", True, True),
        ("127.9.9.9", True, True),
        ("::1", True, True),
        ("localhost", True, True),
        ("LOCALHOST", True, True),
        ("agent.localhost", False, True),
        ("Agent.LocalHost", False, True),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("10.0.0.1", False, False),
        ("localhost.example", False, False),
        ("127.0.0.1.example.org", False, False),
        ("notlocalhost", False, False),
        ("", False, False),
    ],
)
def test_a_listener_is_loopback_by_number_and_a_server_also_by_name(
    host: str, loopback: bool, here: bool
) -> None:
    assert (is_loopback(host), is_this_machine(host)) == (loopback, here)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("wss://me:secret@example.com:8/agent?token=secret#secret", "wss://example.com:8/agent"),
        ("ws://[::1]:80", "ws://[::1]:80"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
