"""What a client may choose in a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.acp_server.choices import AUTO, ServerChoices, first_role, peers_in, theirs
from dragoman.dialects.acp import v1 as acp
from dragoman.events.parts import Choice, SessionOption
from dragoman.events.view import View
from dragoman.gateway.choices import Choices
from dragoman.runs.context import RunContext
from tests.unit.runs.contexts import place_in

CLIENT = acp.ClientCapabilities()


@pytest.fixture
def place(tmp_path: Path) -> RunContext:
    config = tmp_path / "config_home"
    config.mkdir()
    (config / "config.toml").write_text('enabled_peers = ["gemini", "nobody", "codex"]\n')
    return place_in(tmp_path)


def options(choices: ServerChoices) -> dict[str, acp.SessionConfigSelect]:
    told = choices.config_options(None, {}, CLIENT)
    return {one.id: one for one in told if isinstance(one, acp.SessionConfigSelect)}


def test_enabled_peers_can_be_chosen_in_their_order_and_scout_always(place: RunContext) -> None:
    assert peers_in(place) == ["gemini", "codex", "scout"]
    told = options(ServerChoices(place, peer=AUTO, role="review"))
    offered = [one.value for one in told["peer"].options]  # type: ignore[union-attr]
    assert offered == ["auto", "gemini", "codex", "scout"]
    assert (told["peer"].current_value, told["role"].current_value) == ("auto", "review")


def test_a_peer_that_is_not_enabled_and_an_unclaimed_role_are_refused(place: RunContext) -> None:
    choices = ServerChoices(place, peer=AUTO, role="review")
    assert choices.allows("peer", "codex") and choices.allows("peer", AUTO)
    assert not choices.allows("peer", "qwen")
    assert choices.allows("role", "review") and not choices.allows("role", "juggle")
    assert not choices.allows("model", "large")
    assert first_role(place) == "execute"


def test_a_session_keeps_its_peer_also_when_it_is_not_enabled_any_more(place: RunContext) -> None:
    told = options(ServerChoices(place, peer="qwen", role="review"))
    assert told["peer"].current_value == "qwen"
    assert "qwen" in [one.value for one in told["peer"].options]  # type: ignore[union-attr]


def test_an_option_of_the_peer_that_is_called_like_ours_gets_another_name(
    place: RunContext,
) -> None:
    choices = ServerChoices(place, peer="codex", role="review")
    offered = (Choice("a", "A"),)
    view = View(
        options=(
            SessionOption("peer", "Peer", "a", offered),
            SessionOption("speed", "S", "a", offered),
        )
    )
    choices.show(Choices(None, view))
    told = options(choices)
    assert list(told) == ["peer", "role", "peer.peer", "speed"]
    assert [theirs(name) for name in ("peer.peer", "speed")] == ["peer", "speed"]
    assert choices.allows("speed", "a") and choices.has_mode("code")
    choices.show(None)
    assert list(options(choices)) == ["peer", "role"] and not choices.has_mode("code")
    assert choices.mode_state(None) is None and choices.first_mode is None
