"""The roles: which there are, and who claims them all."""

from __future__ import annotations

from dragoman.catalogue.roles import ROLES, is_generalist
from dragoman.config.validate import ROLE


def test_the_roles_of_the_documents_are_there_and_well_formed() -> None:
    expected = {"execute", "research", "exploration", "debug", "plan", "review", "write"}
    assert set(ROLES) == expected
    assert all(ROLE.fullmatch(role) for role in ROLES)


def test_only_a_peer_that_claims_every_role_is_a_generalist() -> None:
    assert is_generalist([*ROLES, "translate"])
    assert not is_generalist(list(ROLES)[1:])
    assert not is_generalist([])
