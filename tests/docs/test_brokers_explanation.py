"""What docs/explanation/brokers.md says of states and methods is what the code has."""

from __future__ import annotations

import inspect
import re

from dragoman.broker import methods as broker_methods
from dragoman.broker.server import state_machine
from tests.docs.markdown import ROOT, blocks, section, table

DOCUMENT = ROOT / "docs" / "explanation" / "brokers.md"


def test_the_picture_is_made_of_the_table() -> None:
    (picture,) = [block for block in blocks(DOCUMENT) if block.info == "mermaid"]
    assert picture.text == state_machine.diagram()


def test_every_state_is_explained_as_in_the_code() -> None:
    source = inspect.getsource(state_machine.BrokerState)
    said = dict(re.findall(r'    [A-Z]+ = "(\w+)"\n    """(.*?)"""', source))
    assert list(said) == [state.value for state in state_machine.BrokerState]
    told = {cells[0].strip("`"): cells[1] for cells in table(section(DOCUMENT, "Its states"))}
    assert told == said


def test_every_method_on_the_socket_is_listed() -> None:
    methods = {
        value
        for value in vars(broker_methods).values()
        if isinstance(value, str)
        and value.startswith(broker_methods.PREFIX)
        and value != broker_methods.PREFIX
    }
    listed = [
        cells[0].strip("`") for cells in table(section(DOCUMENT, "What is spoken on the socket"))
    ]
    assert sorted(listed) == sorted(methods)
