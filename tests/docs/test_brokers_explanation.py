"""The states and methods in docs/explanation/brokers.md are those of the code."""

from __future__ import annotations

import inspect
import re

from dragoman.broker import protocol
from dragoman.broker.server import state_machine
from dragoman.redaction.redactor import REACH
from dragoman.store.recorder import QUESTION_INTERVAL, SAVE_INTERVAL
from dragoman.store.stream_redaction import MAX_SIZE
from scripts.draw_states import ARROWS, draw
from tests.docs.markdown import ROOT, links, section, table

DOCUMENT = ROOT / "docs" / "explanation" / "brokers.md"


def test_the_arrows_of_the_picture_are_those_of_the_table() -> None:
    drawn = {(state, each.event): each.following for each in ARROWS for state in each.states}
    table = state_machine.TABLE
    assert drawn == {(at, event): to for at, row in table.items() for event, to in row.items()}
    picture = ROOT / "docs" / "images" / "broker-states.svg"
    assert picture.read_text("utf-8") == draw(), "run make picture"
    assert "../images/broker-states.svg" in {target for _, target in links(DOCUMENT)}


def test_every_state_is_explained_as_in_the_code() -> None:
    source = inspect.getsource(state_machine.BrokerState)
    said = dict(re.findall(r'    [A-Z]+ = "(\w+)"\n    """(.*?)"""', source))
    assert list(said) == [state.value for state in state_machine.BrokerState]
    told = {cells[0].strip("`"): cells[1] for cells in table(section(DOCUMENT, "Its states"))}
    assert told == said


def test_every_method_on_the_socket_is_listed() -> None:
    methods = {
        value
        for value in vars(protocol).values()
        if isinstance(value, str) and value.startswith(protocol.PREFIX) and value != protocol.PREFIX
    }
    listed = [
        cells[0].strip("`") for cells in table(section(DOCUMENT, "The protocol on the socket"))
    ]
    assert sorted(listed) == sorted(methods)


def test_what_a_kill_can_lose_is_what_the_code_keeps_back() -> None:
    part = section(DOCUMENT, "When the caller disconnects")
    lost = {cells[0]: cells[1] for cells in table(part)}
    turn, question, _ = lost.values()
    assert f"the last {SAVE_INTERVAL} seconds" in turn
    assert f"the last {REACH} characters" in turn
    assert f"the last {QUESTION_INTERVAL} seconds" in question
    assert f"up to {REACH * 5 // 4} characters" in " ".join(part)
    assert f"up to about {MAX_SIZE // 1024} KiB" in " ".join(part)
