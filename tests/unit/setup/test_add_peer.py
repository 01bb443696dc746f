"""Adding, enabling and disabling: checked before, validated afterwards, taken back if it breaks."""

from __future__ import annotations

import errno
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dragoman.catalogue.card import Card, MeasuredFacts
from dragoman.catalogue.launch import LaunchSpec, way_to
from dragoman.errors import ConfigInvalid, UnknownPeer, UsageError, WrongLaunch
from dragoman.runs.context import RunContext
from dragoman.setup.add_peer import (
    add_peer,
    disable,
    enable,
    in_dialect,
    measure,
    note_verified,
    plan_removal,
    prepare,
    remove_peer,
    settled_command,
    verify_known,
)
from dragoman.setup.descriptor_draft import PeerDraft
from dragoman.store.ledger import Ledger, ledger_path
from tests.aio import aio
from tests.unit.runs.contexts import agent_file, card_of, place_in


@pytest.fixture
def place(tmp_path: Path) -> RunContext:
    return place_in(tmp_path)


def wish(name: str = "mine", *roles: str, **more: Any) -> PeerDraft:
    return PeerDraft(name=name, roles=roles or ("review",), command=("mine-agent",), **more)


def files(place: RunContext) -> list[str]:
    folder = place.paths.peers_folder
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


# -- before anything is started


def test_a_name_that_is_taken_is_refused_with_who_has_it(place: RunContext) -> None:
    with pytest.raises(UsageError, match="already a peer 'codex', from dragoman itself"):
        prepare(wish("codex"), place)


def test_a_file_that_is_in_the_way_is_not_overwritten(place: RunContext) -> None:
    place.paths.peers_folder.mkdir(parents=True)
    (place.paths.peers_folder / "mine.toml").write_text("broken = ")
    with pytest.raises(UsageError, match=r"mine\.toml already exists"):
        prepare(wish(), place)


@pytest.mark.parametrize("name", ["Mine", "a_b", "../x", "none", ""])
def test_a_name_of_the_wrong_form_is_refused(place: RunContext, name: str) -> None:
    with pytest.raises(ConfigInvalid, match="name"):
        prepare(PeerDraft(name=name, roles=("review",), command=("x",)), place)


def test_a_role_of_the_wrong_form_is_refused(place: RunContext) -> None:
    with pytest.raises(ConfigInvalid, match="Code Review"):
        prepare(wish("mine", "Code Review"), place)


def test_a_launch_that_is_known_to_be_wrong_is_refused_and_never_started(place: RunContext) -> None:
    with pytest.raises(WrongLaunch, match="gemini --acp"):
        prepare(PeerDraft(name="mine", roles=("plan",), command=("gemini", "acp")), place)


def test_the_way_of_a_wish_knows_its_variables_or_its_address(place: RunContext) -> None:
    way = prepare(wish(env=("MY_KEY",)), place)
    assert (way.command, way.inherit) == (("mine-agent",), ("MY_KEY",))
    address = PeerDraft(name="mine", roles=(), command=("unix:/run/x",))
    assert prepare(address, place).address == "unix:/run/x"


def test_the_way_of_a_wish_speaks_the_dialect_that_was_named(place: RunContext) -> None:
    assert prepare(wish(), place).protocol == "auto"
    assert prepare(wish(dialect="keyed"), place).protocol == "keyed"
    known = LaunchSpec(command=("x",), protocol="codex", details={"sandbox": "read-only"})
    assert in_dialect(known, "codex") is known and in_dialect(known, None) is known
    assert in_dialect(known, "threads").details == {}


def test_paths_in_a_command_hold_from_every_folder(tmp_path: Path) -> None:
    (tmp_path / "agent.py").touch()
    (tmp_path / "acp").touch()
    settled = settled_command(("python", "agent.py", "acp", "--x", "gone.py"), tmp_path)
    assert settled == ("python", str(tmp_path / "agent.py"), "acp", "--x", "gone.py")
    assert settled_command(("./run",), tmp_path) == (str(tmp_path / "run"),)
    assert settled_command(("ws://h/x",), tmp_path) == ("ws://h/x",)
    with pytest.raises(UsageError, match="put it after --"):
        settled_command((), tmp_path)


# -- measuring


class Climbs:
    """Notes how the ladder was climbed."""

    def __init__(self, *, usable: bool = True) -> None:
        self.usable = usable
        self.seen: list[tuple[bool, bool]] = []
        self.protocols: list[str] = []

    async def __call__(self, way: LaunchSpec, *, turns: bool, careful: bool, **more: Any) -> Card:
        self.seen.append((turns, careful))
        self.protocols.append(way.protocol)
        return card_of(more["peer"], usable=self.usable, turns=turns)


@aio
async def test_an_unknown_program_gets_nothing_to_spend_until_it_has_answered() -> None:
    for usable, expected in ((True, [(False, True), (True, False)]), (False, [(False, True)])):
        climbs = Climbs(usable=usable)
        card = await measure(LaunchSpec(command=("x",)), peer="x", turns=True, climb=climbs)
        assert climbs.seen == expected
        # What it speaks was found out without its credentials.
        assert climbs.protocols == ["auto", card.facts.dialect][: len(expected)]
        assert card.turns is usable
    climbs = Climbs()
    await measure(LaunchSpec(command=("x",)), peer="x", turns=False, climb=climbs)
    assert climbs.seen == [(False, True)]


@aio
async def test_a_known_program_is_measured_as_it_will_be_used(tmp_path: Path) -> None:
    descriptor = place_in(tmp_path).catalogue.get("gemini")
    climbs = Climbs()
    way = LaunchSpec(command=("gemini", "--acp"), descriptor=descriptor)
    await measure(way, peer="gemini", turns=True, climb=climbs)
    assert climbs.seen == [(True, False)]


# -- writing


def test_a_peer_is_written_shown_and_known_from_then_on(place: RunContext) -> None:
    done = add_peer(wish(), LaunchSpec(command=("mine-agent",)), card_of("mine"), place)
    (change,) = done.changes
    assert change.before is None and change.path.name == "mine.toml"
    assert tomllib.loads((change.after or b"").decode())["roles"] == ["review"]
    assert place.again().catalogue.get("mine").title == "Mine Agent"
    assert any("not enabled" in note for note in done.notes)


def test_an_adapter_is_written_beside_it_and_can_be_loaded(place: RunContext) -> None:
    done = add_peer(wish(python=True), LaunchSpec(command=("mine-agent",)), card_of("mine"), place)
    assert [change.path.name for change in done.changes] == ["mine_adapter.py", "mine.toml"]


def test_a_generalist_is_taken_and_flagged(place: RunContext) -> None:
    from dragoman.catalogue.roles import ROLES

    done = add_peer(wish("mine", *ROLES), LaunchSpec(command=("x",)), card_of("mine"), place)
    assert "claims every role" in done.notes[0]


def test_a_role_that_is_new_is_taken_and_told(place: RunContext) -> None:
    done = add_peer(wish("mine", "haiku"), LaunchSpec(command=("x",)), card_of("mine"), place)
    assert "is the first peer that claims haiku" in done.notes[0]
    without = PeerDraft(name="bare", roles=(), command=("x",))
    done = add_peer(without, LaunchSpec(command=("x",)), card_of("bare"), place.again())
    assert "claims no role" in done.notes[0]


def test_a_peer_that_was_added_meanwhile_is_not_overwritten(place: RunContext) -> None:
    prepare(wish(), place)
    add_peer(wish(), LaunchSpec(command=("x",)), card_of("mine"), place)
    first = (place.paths.peers_folder / "mine.toml").read_bytes()
    with pytest.raises(UsageError, match=r"mine\.toml already exists"):
        add_peer(wish("mine", "plan"), LaunchSpec(command=("y",)), card_of("mine"), place)
    assert (place.paths.peers_folder / "mine.toml").read_bytes() == first


def test_a_peer_that_did_not_prove_itself_is_not_written(place: RunContext) -> None:
    with pytest.raises(UsageError, match="failed its verification"):
        add_peer(wish(), LaunchSpec(command=("x",)), card_of("mine", usable=False), place)
    assert files(place) == []


def test_a_peer_that_gives_a_value_a_second_reading_is_taken_back(place: RunContext) -> None:
    add_peer(wish("a-b", "c"), LaunchSpec(command=("x",)), card_of("a-b"), place)
    agent_file(place, "one", "a-b-c")
    before = files(place)
    with pytest.raises(UsageError, match=r"undone.*one\.md:2.*ambiguous"):
        add_peer(
            wish("a", "b-c", python=True), LaunchSpec(command=("x",)), card_of("a"), place.again()
        )
    assert files(place) == before
    assert place.again().troubles() == []


def test_an_adapter_that_cannot_be_loaded_takes_everything_back(
    place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.setup.add_peer.adapter_text", lambda wish, card: "1 / 0\n")
    with pytest.raises(ConfigInvalid, match="ZeroDivisionError"):
        add_peer(wish(python=True), LaunchSpec(command=("x",)), card_of("mine"), place)
    assert files(place) == []


# -- enabling


def test_enabling_and_disabling_edit_the_configuration_and_show_it(place: RunContext) -> None:
    done = enable(["codex", "gemini"], place)
    assert b'enabled_peers = ["codex", "gemini"]' in (done.changes[0].after or b"")
    assert place.again().is_enabled("codex")
    done = disable(["codex"], place.again())
    assert done.notes == ()
    assert not place.again().is_enabled("codex")


def test_what_was_so_already_is_reported(place: RunContext) -> None:
    assert disable(["codex"], place).notes == ("codex was already disabled.",)
    assert enable(["scout"], place).notes == ("scout was already enabled.",)
    assert not place.again().config.settings.enabled_peers


def test_a_peer_that_does_not_exist_cannot_be_enabled_but_let_go_of(place: RunContext) -> None:
    with pytest.raises(UnknownPeer):
        enable(["codx"], place)
    with pytest.raises(UnknownPeer):
        disable(["codx"], place)
    place.paths.config.mkdir()
    place.paths.config_file.write_text('enabled_peers = ["gone"]\n')
    assert disable(["gone"], place.again()).changes


def test_scout_cannot_be_disabled(place: RunContext) -> None:
    with pytest.raises(UsageError, match="ships with dragoman"):
        disable(["scout"], place)


def test_a_setting_that_wins_over_the_file_is_named(tmp_path: Path) -> None:
    place = place_in(tmp_path, {"DRAGOMAN_ENABLED_PEERS": "gemini"})
    (note,) = enable(["codex"], place).notes
    assert "DRAGOMAN_ENABLED_PEERS overrides your config.toml" in note


def test_agent_files_that_lose_their_peer_are_named(place: RunContext) -> None:
    enable(["codex"], place)
    agent_file(place, "a", "codex-execute")
    (note,) = disable(["codex"], place.again()).notes
    assert note == "Agent files that delegate to codex, which is now disabled: agents/a.md."


def test_a_change_of_settings_that_breaks_something_is_taken_back(
    place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    enable(["codex"], place)
    before = place.paths.config_file.read_bytes()
    fresh = place.again()

    def breaking(*_: object) -> tuple[str, ...]:
        place.paths.config_file.write_text("nonsense = 1\n")
        return ()

    monkeypatch.setattr("dragoman.setup.add_peer.enable_peers", breaking)
    with pytest.raises(UsageError, match="undone.*nonsense"):
        enable(["gemini"], fresh)
    assert place.paths.config_file.read_bytes() == before


@aio
async def test_a_known_peer_is_measured_and_its_card_stored(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    steps: list[str] = []
    card = await verify_known(
        "scout", place, turns=False, on_rung=lambda result: steps.append(result.rung)
    )
    assert card.usable and [each.rung for each in card.rungs] == steps
    assert place.cards().latest("scout") == card


def test_a_peer_whose_turn_worked_is_unparked(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    way = way_to("scout", catalogue=place.catalogue, settings=place.config.settings)
    with Ledger.open(ledger_path(place.paths.state)) as ledger:
        ledger.park("scout", 9e9, "it requires a login")
        for echo, parked in ((None, True), (True, False)):
            card = card_of("scout", facts=MeasuredFacts(echo=echo))
            note_verified(card, way, place)
            assert (ledger.health("scout").parked_until is not None) is parked


# -- removing


def test_a_card_that_cannot_be_removed_is_reported_and_the_peer_is_gone(
    place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.paths.peers_folder.mkdir(parents=True)
    (place.paths.peers_folder / "mine.toml").write_text(
        'name = "mine"\ntitle = "Mine"\nroles = ["review"]\n[[launch]]\ncommand = ["mine"]\n'
    )
    card = place.cards().save(card_of("mine"))
    unlink = Path.unlink

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self == card:
            raise PermissionError(errno.EACCES, "Permission denied")
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    place = place.again()
    done = remove_peer(plan_removal("mine", place), place)
    assert done.notes == (f"The card {card} could not be removed: Permission denied.",)
    assert files(place) == []
