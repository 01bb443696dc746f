"""Sessions begun and opened again, with an acted agent in the place of a peer."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.client.conversation import Opening
from dragoman.errors import HandshakeFailed
from dragoman.runs import run
from dragoman.store import SessionRecord
from dragoman.store.open import open_store
from tests.unit.cli.acting import ActedAgent
from tests.unit.cli.calling import Shell

Agents = list[ActedAgent]


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Agents:
    """The agents that were started."""
    started: Agents = []

    def open_peer(*args: Any, **terms: Any) -> AbstractAsyncContextManager[ActedAgent]:
        started.append(ActedAgent())
        started[-1].capabilities = replace(started[-1].capabilities, resume=True)
        return started[-1].open_peer(*args, **terms)

    monkeypatch.setattr(run, "open_peer", open_peer)
    return started


def record(key: str) -> SessionRecord:
    with open_store(read_only=True) as store:
        found = store.session(key)
    assert found is not None
    return found


def test_a_new_session_is_stored_and_stays_open_at_its_agent(shell: Shell, agents: Agents) -> None:
    key = shell("sessions", "new", "scout", "-s", "a").out.strip()
    found = record(key)
    assert (found.name, found.peer, found.peer_session_id) == ("a", "scout", "s1")
    (agent,) = agents
    assert (agent.left, agent.closed) == (0, 1)


def test_a_session_that_is_there_needs_no_agent(shell: Shell, agents: Agents) -> None:
    key = shell("sessions", "ensure", "scout", "-s", "a").out
    assert shell("sessions", "ensure", "scout", "-s", "a").out == key
    assert len(agents) == 1
    told = json.loads(shell("sessions", "ensure", "scout", "-s", "a", "--format", "json").out)
    assert (told["type"], told["key"]) == ("Session", key.strip())


def test_a_new_one_takes_the_name_of_the_old_one(shell: Shell, agents: Agents) -> None:
    first = shell("sessions", "new", "scout", "-s", "a").out.strip()
    second = shell("sessions", "new", "scout", "-s", "a").out.strip()
    assert record(first).closed_at is not None
    assert record(second).closed_at is None


def test_a_closed_session_is_opened_again_under_another_name(shell: Shell, agents: Agents) -> None:
    key = shell("sessions", "new", "scout", "-s", "a").out.strip()
    assert shell("sessions", "close", "a").code == 0
    again = shell("sessions", "resume", "scout", key, "-s", "b")
    assert again.out.strip() == key
    assert (record(key).name, record(key).closed_at) == ("b", None)
    assert agents[-1].opened_with[0].session_id == "s1"


def test_a_session_that_only_the_peer_knows_is_taken_over(shell: Shell, agents: Agents) -> None:
    taken = shell("sessions", "resume", "scout", "their-id", "-s", "mine")
    assert taken.code == 0, taken.err
    assert agents[0].opened_with[0].session_id == "their-id"
    assert record(taken.out.strip()).name == "mine"


def test_a_session_cannot_be_resumed_under_a_name_that_is_taken(
    shell: Shell, agents: Agents
) -> None:
    old = shell("sessions", "new", "scout", "-s", "a").out.strip()
    taken_by = shell("sessions", "new", "scout", "-s", "a").out.strip()
    other = shell("sessions", "new", "scout", "-s", "b").out.strip()
    for words in ((old,), (other, "-s", "a"), ("their-id", "-s", "a")):
        refused = shell("sessions", "resume", "scout", *words)
        assert (refused.code, refused.out) == (2, "")
        assert f"the name 'a' is taken by the session {taken_by}" in refused.err
        assert "whose fault" not in refused.err
    assert record(old).closed_at is not None
    assert record(other).name == "b"
    assert len(agents) == 3


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes agents fail to open a session from now on."""

    async def open(agent: ActedAgent, opening: Opening) -> ActedAgent:
        raise HandshakeFailed("the agent does not answer")

    return lambda: monkeypatch.setattr(ActedAgent, "open", open)


def test_a_closed_session_that_cannot_be_reopened_stays_as_it_was(
    shell: Shell, agents: Agents, broken: Callable[[], None]
) -> None:
    key = shell("sessions", "new", "scout", "-s", "a").out.strip()
    assert shell("sessions", "close", "a").code == 0
    broken()
    assert shell("sessions", "resume", "scout", key, "-s", "b").code == 1
    assert record(key).closed_at is not None
    assert record(key).name == "a"


def test_a_session_stays_open_if_its_replacement_cannot_be_started(
    shell: Shell, agents: Agents, broken: Callable[[], None]
) -> None:
    key = shell("sessions", "new", "scout", "-s", "a").out.strip()
    broken()
    assert shell("sessions", "new", "scout", "-s", "a").code == 1
    assert record(key).closed_at is None


def test_an_agent_that_keeps_no_list_is_not_asked_for_one(shell: Shell, agents: Agents) -> None:
    shell("sessions", "new", "scout", "-s", "a")
    listed = shell("sessions", "list", "scout", "--format", "json")
    (row,) = [json.loads(line) for line in listed.out.splitlines()]
    assert (row["name"], row["at_peer"]) == ("a", None)
