"""Who is passed over, for which one reason, with what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.delegation.routing import CardFacts, PassedOver, Reason
from dragoman.delegation.routing.filters import offers, reason_against
from tests.unit.delegation.routing.peers import NOW, inputs, peer, scout

AGAINST: list[tuple[Reason, dict[str, Any], dict[str, Any], str]] = [
    (Reason.TOO_DEEP, {}, {"depth": 2, "max_depth": 2}, "raise max_depth"),
    (Reason.NOT_WISHED, {}, {"peer": "birch"}, "birch was requested"),
    (Reason.ROLE_NOT_CLAIMED, {"roles": ("plan", "debug")}, {}, "it claims plan, debug"),
    (Reason.ROLE_NOT_CLAIMED, {"roles": ()}, {}, "it claims none"),
    (
        Reason.NOT_WISHED,
        {"card": CardFacts(models=("a-1",))},
        {"model": "b-1"},
        "dragoman peers show amber",
    ),
    (Reason.NOT_INSTALLED, {"installed": False, "hint": "npm i amber"}, {}, "`npm i amber`"),
    (Reason.NOT_INSTALLED, {"installed": False}, {}, "`dragoman peers show amber`"),
    (Reason.NOT_ENABLED, {"enabled": False}, {}, "`dragoman peers enable amber`"),
    (Reason.HOST_UNUSABLE, {"host_problem": "box was never checked"}, {}, "box was never checked"),
    (
        Reason.ADAPTER_INVALID,
        {"adapter_problem": "there is no amber.py"},
        {},
        "its adapter cannot be used: there is no amber.py; `dragoman doctor`",
    ),
    (Reason.NO_CARD, {"card": None}, {"require_card": True}, "`dragoman peers verify amber`"),
    (Reason.CARD_SAYS_NO, {"card": CardFacts(usable=False)}, {}, "it failed when"),
    (Reason.CARD_SAYS_NO, {"card": CardFacts(turns_ok=False)}, {}, "a turn produced no text"),
    (Reason.CARD_SAYS_NO, {"card": CardFacts(usable=False, problem="no login")}, {}, "no login"),
    (Reason.NOT_ENFORCED, {"unenforced": "it wrote"}, {}, "`--allow-unenforced`"),
    (
        Reason.PARKED,
        {"parked_until": NOW + 7200, "parked_why": "its quota is used up"},
        {},
        "its quota is used up; parked for another 2 h",
    ),
    (
        Reason.PARKED,
        {"parked_why": "it requires a login", "hint": "amber login"},
        {},
        "it requires a login; parked until you unpark it: `amber login`",
    ),
    (Reason.BROKEN, {"breaker": "open"}, {}, "failed too often"),
    (Reason.OVER_BUDGET, {"over_budget": "5 $ a day are spent"}, {}, "5 $ a day are spent"),
]


def against(facts: dict[str, Any], wishes: dict[str, Any]) -> PassedOver | None:
    subject = peer("amber", **facts)
    return reason_against(subject, inputs(subject, **wishes), NOW)


@pytest.mark.parametrize(("reason", "facts", "wishes", "said"), AGAINST)
def test_each_reason_is_given_with_what_to_do_about_it(
    reason: Reason, facts: dict[str, Any], wishes: dict[str, Any], said: str
) -> None:
    found = against(facts, wishes)
    assert found is not None
    assert found.reason is reason
    assert said in found.detail


def test_every_reason_there_is_has_a_case_above() -> None:
    assert {reason for reason, *_ in AGAINST} == set(Reason)


def test_the_reasons_apply_in_the_order_in_which_they_are_written_down() -> None:
    # Everything is wrong at once; each round puts right what was named.
    wrong: dict[Reason, tuple[dict[str, Any], dict[str, Any]]] = {
        Reason.TOO_DEEP: ({}, {"depth": 1, "max_depth": 1}),
        Reason.NOT_WISHED: ({}, {"peer": "birch"}),
        Reason.ROLE_NOT_CLAIMED: ({"roles": ()}, {}),
        Reason.NOT_INSTALLED: ({"installed": False}, {}),
        Reason.NOT_ENABLED: ({"enabled": False}, {}),
        Reason.HOST_UNUSABLE: ({"host_problem": "never checked"}, {}),
        Reason.ADAPTER_INVALID: ({"adapter_problem": "it fails"}, {}),
        Reason.NO_CARD: ({"card": None}, {"require_card": True}),
        Reason.CARD_SAYS_NO: ({"card": CardFacts(usable=False)}, {}),
        Reason.NOT_ENFORCED: ({"unenforced": "it wrote"}, {}),
        Reason.PARKED: ({"parked_until": NOW + 1}, {}),
        Reason.BROKEN: ({"breaker": "open"}, {}),
        Reason.OVER_BUDGET: ({"over_budget": "spent"}, {}),
    }
    seen = []
    while wrong:
        facts: dict[str, Any] = {}
        wishes: dict[str, Any] = {}
        for their_facts, their_wishes in reversed(wrong.values()):
            facts |= their_facts
            wishes |= their_wishes
        found = against(facts, wishes)
        assert found is not None
        seen.append(found.reason)
        del wrong[found.reason]
    assert seen == list(Reason)


def test_a_peer_with_nothing_against_it_is_a_candidate() -> None:
    assert against({}, {}) is None
    assert against({}, {"peer": "amber"}) is None


def test_a_parked_peer_is_back_when_its_time_has_come() -> None:
    assert against({"parked_until": NOW, "parked_why": "quota"}, {}) is None
    found = against({"parked_until": NOW + 1}, {})
    assert found is not None and found.until == NOW + 1


def test_a_peer_gets_one_try_when_the_circuit_is_half_open() -> None:
    assert against({"breaker": "half_open"}, {}) is None


def test_a_peer_that_was_never_verified_is_used_unless_a_card_is_asked_for() -> None:
    assert against({"card": None}, {}) is None


def test_naming_a_peer_does_not_put_it_on_the_allow_list() -> None:
    found = against({"enabled": False}, {"peer": "amber"})
    assert found is not None and found.reason is Reason.NOT_ENABLED


def test_a_last_resort_needs_neither_role_nor_enabling_nor_card() -> None:
    assert reason_against(scout(), inputs(scout(), require_card=True), NOW) is None
    assert reason_against(scout(), inputs(scout(), model="b-1"), NOW) is None


def test_a_last_resort_does_not_replace_a_named_peer() -> None:
    against = reason_against(scout(), inputs(scout(), peer="amber"), NOW)
    assert against is not None and against.reason is Reason.NOT_WISHED


@pytest.mark.parametrize(
    ("facts", "wishes"),
    [
        ({}, {"depth": 1, "max_depth": 1}),
        ({"installed": False}, {}),
        ({"parked_until": NOW + 1}, {}),
        ({"breaker": "open"}, {}),
        ({"over_budget": "spent"}, {}),
    ],
)
def test_a_last_resort_can_be_too_deep_missing_parked_broken_or_spent(
    facts: dict[str, Any], wishes: dict[str, Any]
) -> None:
    subject = scout(**facts)
    assert reason_against(subject, inputs(subject, **wishes), NOW) is not None


def test_a_model_is_offered_by_tier_or_card_and_a_preview_is_the_same_model() -> None:
    assert offers(peer("amber", tiers={"fast": "a-1"}), "a-1") is True
    assert offers(peer("amber", card=CardFacts(models=("a-1-preview",))), "a-1") is True
    assert offers(peer("amber", card=CardFacts(models=("a-1",))), "a-1-preview") is True
    assert offers(peer("amber", card=CardFacts(models=("a-1",))), "A-1") is True
    assert offers(peer("amber", card=CardFacts(models=("a-1",))), "b-1") is False
    assert offers(peer("amber"), "b-1") is None
    assert offers(peer("amber", card=None), "b-1") is None


def test_a_peer_that_was_named_says_itself_which_models_it_has() -> None:
    card = {"card": CardFacts(models=("a-1",))}
    assert against(card, {"model": "b-1", "peer": "amber"}) is None
    assert against(card, {"model": "b-1"}) is not None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (1, "1 min"),
        (59 * 60, "59 min"),
        (3541, "1 h"),
        (47 * 3600, "47 h"),
        (48 * 3600, "2 days"),
        (49 * 3600, "3 days"),
    ],
)
def test_a_waiting_time_is_rounded_and_never_too_short(seconds: float, said: str) -> None:
    found = against({"parked_until": NOW + seconds}, {})
    assert found is not None
    assert f"another {said}: `" in found.detail


def test_a_peer_on_a_host_is_passed_over_with_its_host() -> None:
    found = against({"host": "box", "installed": False, "hint": "dragoman hosts check box"}, {})
    assert found is not None and found.host == "box"
    assert found.detail == "it is not installed on box: `dragoman hosts check box`"
    found = against({"host": "box", "card": None}, {"require_card": True})
    assert found is not None and "a card of box cannot be read" in found.detail
