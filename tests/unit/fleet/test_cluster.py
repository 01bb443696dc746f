"""The addresses and the configuration of the servers of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.errors import UsageError
from dragoman.fleet.cluster import cluster_lines, parse_cluster, replicas

THREE = "a.lan:4222, b.lan:4222,[::1]:4223"


def lines(*, tls: bool, seed: str = "seed") -> str:
    cluster = parse_cluster(THREE, 2)
    return "\n".join(
        cluster_lines(cluster, operator_seed=seed, host="0.0.0.0", folder=Path("/f"), tls=tls)
    )


def test_a_cluster_is_parsed_into_its_addresses_and_own_position() -> None:
    cluster = parse_cluster(THREE, 3)
    assert cluster.nodes == (("a.lan", 4222), ("b.lan", 4222), ("::1", 4223))
    assert cluster.own == ("::1", 4223)
    assert cluster.hosts == ("a.lan", "b.lan", "::1")


@pytest.mark.parametrize(
    ("text", "number", "told"),
    [
        ("a:1,b:1", 1, "three or five"),
        ("a:1,a:1,b:1", 1, "three or five"),
        ("a:1,b:1,c", 1, "ADDRESS:PORT"),
        ("a:0,b:1,c:1", 1, "ports must be between"),
        ("a:64000,b:1,c:1", 1, "ports must be between"),
        ("a:1,b:1,c:1", None, "--node"),
        ("a:1,b:1,c:1", 4, "1 to 3"),
        ("a:1,b:1,c:1", 0, "1 to 3"),
    ],
)
def test_an_invalid_cluster_is_rejected_with_the_reason(
    text: str, number: int | None, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        parse_cluster(text, number)


def test_a_server_advertises_its_own_address_and_lists_all_routes() -> None:
    text = lines(tls=False)
    assert 'client_advertise: "b.lan:4222"' in text
    assert 'listen: "0.0.0.0:6222"' in text
    assert "@a.lan:6222" in text and "@[::1]:6223" in text
    assert "tls" not in text


def test_routes_need_a_secret_derived_from_the_keys_and_with_tls_a_certificate() -> None:
    assert lines(tls=False, seed="other") != lines(tls=False)
    assert "seed" not in lines(tls=False)
    text = lines(tls=True)
    assert "verify: true" in text and "authority.crt" in text


def test_each_stream_has_at_most_three_copies() -> None:
    assert [replicas(nodes) for nodes in (0, 1, 3, 5)] == [1, 1, 3, 3]
