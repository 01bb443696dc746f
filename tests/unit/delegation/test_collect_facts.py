"""The facts about everybody who could be asked, in the fixed order, without starting anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from dragoman.catalogue.card import MeasuredFacts, RungVerdict
from dragoman.delegation.collect_facts import LOCAL, gather, in_fixed_order, local_model, login_of
from dragoman.delegation.request import DelegationRequest
from dragoman.delegation.routing import Inputs, PeerFacts
from dragoman.errors import ConfigInvalid, StoreError
from dragoman.runs.context import RunContext
from dragoman.runs.lineage import Lineage
from dragoman.store.ledger import AttemptRecord, Ending, Ledger, ledger_path
from dragoman.store.values import Charge, Provenance
from tests.unit.runs.contexts import card_of, place_in, program

NOW = 1_000_000.0


def configured(folder: Path, text: str) -> RunContext:
    (folder / "config_home").mkdir(exist_ok=True)
    (folder / "config_home" / "config.toml").write_text(text)
    return place_in(folder)


def gathered(place: RunContext, ledger: Ledger | None = None, **wish: str) -> Inputs:
    wanted = {"role": "review", "prompt": "look", **wish}
    return gather(
        DelegationRequest(workspace=place.cwd, **wanted),  # type: ignore[arg-type]
        place,
        ledger=ledger,
        lineage=Lineage(depth=1),
        now=NOW,
    )


def of(inputs: Inputs, name: str) -> PeerFacts:
    return next(peer for peer in inputs.peers if peer.name == name)


def test_the_users_order_comes_first_and_scout_last(tmp_path: Path) -> None:
    place = configured(tmp_path, 'enabled_peers = ["qwen", "codex", "nonesuch"]\n')
    order = in_fixed_order(place)
    assert order[:2] == ["qwen", "codex"] and order[-1] == "scout"
    assert sorted(order) == sorted(place.catalogue.names)


def test_a_peer_is_what_files_say_of_it(tmp_path: Path) -> None:
    program(tmp_path, "codex")
    place = configured(tmp_path, 'enabled_peers = ["codex"]\nadaptive = "on"\nmax_depth = 3\n')
    facts = MeasuredFacts(
        echo=True, asks_permission=False, models=("m-preview",), parent_models=("m",)
    )
    place.cards().save(card_of("codex", version=None, facts=facts, verdict=RungVerdict.FAIL))
    inputs = gathered(place, tier="fast")
    codex, gemini, scout = (of(inputs, name) for name in ("codex", "gemini", "scout"))
    assert (codex.installed, codex.enabled, codex.roles) == (True, True, ("execute",))
    assert codex.card is not None and codex.card.turns_ok and codex.card.models == ("m",)
    assert codex.card.problem == "handshake: it answered; wait"
    assert not gemini.installed and not gemini.enabled and "npm install" in gemini.hint
    assert scout.always and scout.enabled and gemini.card is None
    assert (inputs.depth, inputs.max_depth, inputs.adaptive) == (1, 3, "on")
    assert (inputs.tier, inputs.size, inputs.posteriors) == ("fast", "small", {})


def test_a_login_that_was_missing_is_not_held_against_a_peer(tmp_path: Path) -> None:
    program(tmp_path, "codex")
    place = configured(tmp_path, 'enabled_peers = ["codex"]\n')
    facts = MeasuredFacts(echo=False, authenticated=False)
    card = card_of("codex", version=None, facts=facts, verdict=RungVerdict.FAIL)
    place.cards().save(structs.replace(card, usable=False))
    found = of(gathered(place), "codex").card
    assert found is not None and (found.usable, found.turns_ok) == (True, None)


def test_health_and_spending_come_from_the_ledger(tmp_path: Path) -> None:
    place = configured(tmp_path, "[limits]\nday_cost = 9.0\n[peer.codex.limits]\nday_cost = 1.0\n")
    with Ledger.open(ledger_path(place.paths.state)) as ledger:
        ledger.park("qwen", NOW + 60, "its quota is used up")
        ledger.park("gemini", NOW - 60, "its quota was used up")
        ledger.change_health(
            "kimi", lambda health: structs.replace(health, failures=3, opened_at=NOW - 1)
        )
        attempt = AttemptRecord(
            job="j", decision_id="d", number=1, peer="codex", role="execute", started_at=NOW - 50
        )
        id = ledger.begin("d", {}, attempt)
        cost = Charge(amount=1.5, currency="USD", provenance=Provenance.REPORTED)
        ledger.finish(id, Ending(ended_at=NOW - 40, outcome="ok", cost=cost))
        inputs = gathered(place, ledger)
    assert of(inputs, "qwen").parked_why == "its quota is used up"
    assert of(inputs, "gemini").parked_why is None
    assert of(inputs, "kimi").breaker == "open" and of(inputs, "qwen").breaker == "closed"
    over = {peer.name: peer.over_budget for peer in inputs.peers if peer.over_budget}
    assert over == {"codex": "the daily limit for codex is used up: 1.5 of 1 dollars"}


def test_limits_without_a_ledger_are_not_freedom(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="limits are set"):
        gathered(configured(tmp_path, "[limits]\nday_turns = 1\n"))
    with pytest.raises(StoreError, match="limits are set"):
        gathered(configured(tmp_path, "[peer.codex.limits]\nday_turns = 1\n"))


LOCAL_MODEL = '[local_model]\napi = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'


def test_the_local_model_stands_behind_the_peers_and_before_scout(tmp_path: Path) -> None:
    inputs = gathered(configured(tmp_path, LOCAL_MODEL))
    assert [peer.name for peer in inputs.peers][-2:] == [LOCAL, "scout"]
    local = of(inputs, LOCAL)
    assert local.always and local.roles == () and local.tiers == {"default": "m"}


def test_the_local_model_competes_only_if_it_is_enabled(tmp_path: Path) -> None:
    inputs = gathered(configured(tmp_path, f"{LOCAL_MODEL}competes = true\n"))
    local = of(inputs, LOCAL)
    assert not local.always and "review" in local.roles and "execute" in local.roles


def test_a_local_model_that_is_not_whole_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="base_url"):
        gathered(configured(tmp_path, '[local_model]\napi = "openai"\nmodel = "m"\n'))
    with pytest.raises(ConfigInvalid, match="api is not set"):
        local_model(configured(tmp_path, ""))
    made = local_model(configured(tmp_path, f"{LOCAL_MODEL}max_tokens = 5\n"))
    assert (made.max_tokens, made.system) == (5, "")
    peers = tmp_path / "config_home" / "peers"
    peers.mkdir()
    (peers / f"{LOCAL}.toml").write_text(
        f'name = "{LOCAL}"\ntitle = "x"\n[[launch]]\ncommand = ["x"]\n'
    )
    with pytest.raises(ConfigInvalid, match="rename it"):
        local_model(configured(tmp_path, LOCAL_MODEL))


def test_the_login_is_the_command_in_the_descriptors_words(tmp_path: Path) -> None:
    catalogue = place_in(tmp_path).catalogue
    assert login_of(catalogue.get("auggie")) == "auggie login"
    assert login_of(catalogue.get("scout")) == "" and login_of(None) == ""
