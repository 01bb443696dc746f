from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.catalogue.card import Card, MeasuredFacts
from dragoman.catalogue.descriptor import Descriptor, Enforcement, Launch, Quirks
from dragoman.catalogue.enforcement import enforce, gap, made_to_ask, unapproved
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.load import built_in
from dragoman.errors import PolicyNotEnforced, Unsupported
from dragoman.events.parts import SessionOption
from dragoman.events.view import View
from dragoman.policy.approver import Ruling
from dragoman.policy.rules import Act, Verdict
from tests.aio import aio

TABLE = Enforcement(
    env={"ASK": "1"},
    arguments=("--ask",),
    modes=("ask", "plan"),
    options={"allow_all": "off", "auto": False},
)


def way(table: Enforcement = TABLE, **quirks: Any) -> LaunchSpec:
    descriptor = Descriptor(
        name="x",
        title="X",
        protocol="acp",
        launch=(Launch(command=("x", "acp")),),
        enforcement=table,
        quirks=Quirks(**quirks),
    )
    return LaunchSpec(
        command=("/bin/x", "acp"),
        env={"BASE": "1"},
        quirks=descriptor.quirks,
        descriptor=descriptor,
        protocol="acp",
    )


def card(**facts: Any) -> Card:
    return Card(
        peer="x",
        version="1",
        platform="linux",
        measured_at="2026-11-16T10:00:00+00:00",
        dragoman="0",
        turns=True,
        reached="echo",
        usable=True,
        rungs=(),
        facts=MeasuredFacts(**facts),
    )


# -- before the start


def test_a_policy_that_allows_everything_changes_nothing() -> None:
    found = enforce(way(), restricts=False, card=card(asks_permission=False), mode="yolo")
    assert found.way == way()
    assert not found.restricts
    assert not found.gap


def test_a_policy_that_restricts_makes_the_peer_ask_in_every_way_its_descriptor_knows() -> None:
    found = enforce(way(), restricts=True).way
    assert found.command == ("/bin/x", "acp", "--ask")
    assert found.env == {"BASE": "1", "ASK": "1"}
    assert found.quirks.mode_after_open == "ask"


def test_a_starting_mode_that_asks_is_left_as_it_is() -> None:
    assert made_to_ask(way(mode_after_open="plan")).quirks.mode_after_open == "plan"


def test_an_unknown_program_is_started_as_it_is() -> None:
    stranger = LaunchSpec(command=("python", "agent.py"))
    assert enforce(stranger, restricts=True).way == stranger


@pytest.mark.parametrize(
    ("facts", "mode", "possible", "words"),
    [
        ({"asks_permission": False}, None, True, "without asking"),
        ({"asks_permission": True, "respects_refusal": False}, None, True, "despite a refusal"),
        ({}, "yolo", True, "the mode yolo"),
        ({}, None, False, "cannot be made to ask"),
    ],
)
def test_a_peer_that_does_not_ask_is_refused_unless_that_is_allowed(
    facts: dict[str, bool], mode: str | None, possible: bool, words: str
) -> None:
    target = way(replace(TABLE, possible=possible))
    known = card(**facts)
    with pytest.raises(PolicyNotEnforced, match=words):
        enforce(target, restricts=True, card=known, mode=mode)
    allowed = enforce(target, restricts=True, card=known, mode=mode, allow_unenforced=True)
    assert words in allowed.gap
    assert allowed.way.env["ASK"] == "1"


@pytest.mark.parametrize("facts", [{}, {"asks_permission": True, "respects_refusal": True}])
def test_unmeasured_and_passed_checks_are_not_gaps(facts: Any) -> None:
    assert gap(way().descriptor, card=card(**facts), mode="plan") == ""
    assert gap(None) == ""


def test_every_peer_whose_default_was_seen_to_write_unasked_is_made_to_ask() -> None:
    tables = {one.descriptor.name: one.descriptor.enforcement for one in built_in()}
    assert '"edit": "ask"' in tables["opencode"].env["OPENCODE_PERMISSION"]
    assert '"edit": "ask"' in tables["kilo"].env["KILO_PERMISSION"]
    assert tables["kimi"].files
    assert tables["mistral-vibe"].modes == ("ask",)
    assert "auto" not in tables["qwen"].modes


# -- in the session


class Session:
    """Takes settings, or refuses them."""

    def __init__(self, view: View, *, obeys: bool = True) -> None:
        self.view, self.obeys = view, obeys
        self.asked: list[tuple[str, object]] = []

    async def set_mode(self, mode: str) -> None:
        self.asked.append(("mode", mode))
        if not self.obeys:
            raise Unsupported("no")
        self.view.mode = mode

    async def set_option(self, name: str, value: str | bool) -> None:
        self.asked.append((name, value))
        if self.obeys:
            others = [one for one in self.view.options if one.id != name]
            self.view.options = (*others, SessionOption(name, name, value))


def view(mode: str | None, **options: str | bool) -> View:
    made = View()
    made.mode = mode
    made.options = tuple(SessionOption(name, name, value) for name, value in options.items())
    return made


@aio
async def test_mode_and_options_are_set_where_they_differ_and_read_back() -> None:
    seen = view("yolo", allow_all="on", auto=False)
    session = Session(seen)
    assert await enforce(way(), restricts=True).hold(session, seen) == ""  # type: ignore[arg-type]
    assert session.asked == [("mode", "ask"), ("allow_all", "off")]


@aio
async def test_a_session_that_already_asks_or_tells_nothing_is_left_alone() -> None:
    for seen in (view("plan", allow_all="off"), view(None)):
        session = Session(seen, obeys=False)
        assert await enforce(way(), restricts=True).hold(session, seen) == ""  # type: ignore[arg-type]
        assert session.asked == []


@pytest.mark.parametrize("seen", [view("yolo"), view("ask", auto=True)])
@aio
async def test_a_session_that_says_it_does_not_ask_is_refused_before_any_prompt(
    seen: View,
) -> None:
    session: Any = Session(seen, obeys=False)
    with pytest.raises(PolicyNotEnforced):
        await enforce(way(), restricts=True).hold(session, seen)
    asked = enforce(way(), restricts=True, mode="yolo", allow_unenforced=True)
    assert "yolo" in await asked.hold(session, seen)


def test_a_session_says_whether_the_policy_is_kept_in_it() -> None:
    enforced = enforce(way(), restricts=True)
    assert enforced.unkept(view("ask", allow_all="off", auto=False)) == ""
    assert "in the mode auto" in enforced.unkept(view("auto"))
    assert "its option auto is on" in enforced.unkept(view("ask", auto=True))
    assert enforce(way(), restricts=False).unkept(view("auto")) == ""


@aio
async def test_a_policy_that_allows_everything_sets_nothing() -> None:
    session: Any = Session(view("yolo"))
    assert await enforce(way(), restricts=False).hold(session, session.view) == ""
    assert session.asked == []


# -- on the disk


def ruling(kind: str, *paths: str, allowed: bool = True, **more: Any) -> Ruling:
    act = Act(kind=kind, paths=paths, peer="x", role="", workspace="/w", **more)
    return Ruling("c", act, Verdict(action="allow", rule="", why=""), allowed, "policy", "")


@pytest.mark.parametrize(
    ("rulings", "left"),
    [
        ([], ("a.txt", "d/b.txt")),
        ([ruling("edit", "a.txt", allowed=False)], ("a.txt", "d/b.txt")),
        ([ruling("read", "a.txt")], ("a.txt", "d/b.txt")),
        ([ruling("edit", "a.txt")], ("d/b.txt",)),
        ([ruling("edit", "{w}/a.txt"), ruling("delete", "{w}/d")], ()),
        ([ruling("execute", argv=("make",))], ()),
        ([ruling("other")], ()),
    ],
)
def test_changed_files_without_an_allowed_request_are_reported(
    tmp_path: Path, rulings: list[Ruling], left: tuple[str, ...]
) -> None:
    workspace = tmp_path.resolve()
    made = [
        Ruling(
            one.tool_call_id,
            replace(one.act, paths=tuple(p.replace("{w}", str(workspace)) for p in one.act.paths)),
            one.verdict,
            one.allowed,
            one.by,
            one.why,
        )
        for one in rulings
    ]
    assert unapproved(("a.txt", "d/b.txt"), made, workspace=workspace) == left


def test_a_command_that_only_reads_explains_no_change(tmp_path: Path) -> None:
    verdict = Verdict(action="allow", rule="approve-reads", why="", by="preset")
    act = ruling("execute", argv=("ls",)).act
    looked = Ruling("c", act, verdict, True, "policy", "")
    assert unapproved(("a.txt",), [looked], workspace=tmp_path) == ("a.txt",)


def test_a_command_of_an_earlier_turn_is_over_and_a_file_of_it_may_be_saved_again(
    tmp_path: Path,
) -> None:
    earlier = [ruling("execute", argv=("make",)), ruling("other"), ruling("edit", "a.txt")]
    earlier.append(ruling("edit", "c.txt", allowed=False))
    changed = ("a.txt", "b.txt", "c.txt")
    left = unapproved(changed, [], workspace=tmp_path, earlier=earlier)
    assert left == ("b.txt", "c.txt")


def test_settings_with_which_a_peer_does_not_ask_are_refused_unless_that_is_allowed() -> None:
    held = enforce(way(), restricts=True)
    held.check_mode("plan")
    held.check_option("allow_all", "off")
    held.check_option("theme", "dark")
    with pytest.raises(PolicyNotEnforced, match="it does not ask in the mode yolo"):
        held.check_mode("yolo")
    with pytest.raises(PolicyNotEnforced, match="option auto is on"):
        held.check_option("auto", True)
    for free in (
        enforce(way(), restricts=False),
        enforce(way(), restricts=True, allow_unenforced=True),
    ):
        free.check_mode("yolo")
        free.check_option("auto", True)
