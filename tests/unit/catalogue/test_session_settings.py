"""Settings of a session, and how they reach a peer by the data of its descriptor."""

from __future__ import annotations

import pytest

from dragoman.catalogue.descriptor import Descriptor, Launch, SessionSupport, SettingWay
from dragoman.catalogue.launch import LaunchSpec
from dragoman.catalogue.session_settings import WantedSettings, lacking, with_settings
from dragoman.errors import Unsupported

ALL = WantedSettings(system_prompt="Be brief.", allow_tool=("read", "write"), max_turns=3)


def peer(name: str, **support: SettingWay) -> Descriptor:
    launch = (Launch(command=(name,)),)
    return Descriptor(name=name, title=name, launch=launch, session=SessionSupport(**support))


BY_DETAIL = peer(
    "detail",
    system_prompt=SettingWay(detail="meta.prompt.append"),
    allow_tool=SettingWay(detail="meta.options.tools"),
    max_turns=SettingWay(detail="meta.options.turns"),
)
BY_WORDS = peer(
    "words",
    system_prompt=SettingWay(arguments=("--system", "{value}")),
    allow_tool=SettingWay(arguments=("--allow={value}",)),
    max_turns=SettingWay(arguments=("--turns", "{value}")),
)


def spec(descriptor: Descriptor | None) -> LaunchSpec:
    return LaunchSpec(
        command=("/bin/it", "--acp"), descriptor=descriptor, details={"meta": {"old": 1}}
    )


def test_options_of_the_dialect_go_into_tables_beside_what_is_there() -> None:
    done = with_settings(spec(BY_DETAIL), ALL)
    assert done.command == ("/bin/it", "--acp")
    assert done.details == {
        "meta": {
            "old": 1,
            "prompt": {"append": "Be brief."},
            "options": {"tools": ["read", "write"], "turns": 3},
        }
    }


def test_words_of_the_command_line_stand_at_its_end_once_for_each_value() -> None:
    done = with_settings(spec(BY_WORDS), ALL)
    words = ("--system", "Be brief.", "--allow=read", "--allow=write", "--turns", "3")
    assert done.command == ("/bin/it", "--acp", *words)


def test_nothing_wanted_changes_nothing() -> None:
    assert with_settings(spec(None), WantedSettings()) == spec(None)


def test_a_peer_that_cannot_is_refused_with_those_that_can() -> None:
    plain = peer("plain", system_prompt=SettingWay(detail="x"))
    assert lacking(plain, WantedSettings(system_prompt="x")) == ""
    assert lacking(plain, ALL) == "--allow-tool"
    with pytest.raises(Unsupported, match="plain does not support --allow-tool; detail, words do"):
        with_settings(spec(plain), ALL, others=[plain, BY_DETAIL, BY_WORDS])
    with pytest.raises(Unsupported, match="--system-prompt; none of the enabled peers does"):
        with_settings(spec(None), ALL)
