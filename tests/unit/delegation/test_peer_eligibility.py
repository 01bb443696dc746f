"""Where peers stand in routing, for every role."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from dragoman.delegation.peer_eligibility import standings
from dragoman.store.ledger import Ledger, ledger_path
from tests.unit.runs.contexts import place_in


def test_every_peer_has_one_reason_for_each_role_that_it_claims(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    found = standings(place)
    claims = {name: set(place.catalogue.get(name).roles) for name in place.catalogue.names}
    for name, standing in found.items():
        roles = [each.role for each in standing.roles]
        assert len(roles) == len(set(roles))
        if name != "scout":
            assert set(roles) == claims[name], name
        for each in standing.roles:
            assert each.why and (each.position is None) == (each.reason is not None)
    codex = {each.role: each for each in found["codex"].roles}
    assert codex["execute"].reason in ("not_installed", "not_enabled")
    # Scout needs no permission of the user, and is the last resort of every role.
    assert all(each.position for each in found["scout"].roles)


def test_the_health_of_a_peer_that_was_tried_is_known(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    with Ledger.open(ledger_path(place.paths.state)) as ledger:
        ledger.park("scout", 5000.0, "its quota is used up")
        ledger.change_health(
            "scout", lambda health: structs.replace(health, failures=2, last_failed_at=900.0)
        )
    found = standings(place, now=1000.0)
    health = found["scout"].health
    assert health is not None
    assert (health.breaker, health.failures, health.last_failed_at) == ("closed", 2, 900.0)
    parked = [each for each in found["scout"].roles if each.reason == "parked"]
    assert parked and parked[0].until == 5000.0 and "quota" in parked[0].why
    assert found["codex"].health is None
