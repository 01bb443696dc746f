"""The settings themselves: defaults, and what they mean to a client."""

from __future__ import annotations

from typing import get_args

from dragoman.client.budgets import Budgets
from dragoman.config.schema import STRICTER, PeerSettings, Permissions, Settings, Timeouts


def test_nothing_is_enabled_and_nothing_is_approved_by_default() -> None:
    settings = Settings()
    assert settings.enabled_peers == ()
    assert settings.permissions == "ask"
    assert settings.budgets() == Budgets()


def test_times_that_are_set_replace_those_of_the_peer_and_the_rest_stays() -> None:
    settings = Settings(timeouts=Timeouts(total=5, silence="never"))
    base = Budgets(initialize=7.0)
    budgets = settings.budgets(base)
    assert (budgets.total, budgets.silence, budgets.initialize) == (5.0, None, 7.0)


def test_every_time_that_can_be_set_is_a_budget() -> None:
    assert set(Timeouts.__struct_fields__) <= set(Budgets.__struct_fields__)


def test_a_peer_has_its_own_permissions_or_those_of_all() -> None:
    settings = Settings(
        permissions="approve-reads", peer={"codex": PeerSettings(permissions="deny-all")}
    )
    assert settings.permissions_for("codex") == "deny-all"
    assert settings.permissions_for("gemini") == "approve-reads"
    assert settings.for_peer("gemini") == PeerSettings()


def test_no_preset_is_stricter_than_itself_and_none_of_two_than_each_other() -> None:
    presets = set(get_args(Permissions))
    assert set(STRICTER) == presets
    for one in presets:
        assert one not in STRICTER[one]
        assert all(one not in STRICTER[other] for other in STRICTER[one])
