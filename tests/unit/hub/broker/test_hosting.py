"""The two sides of a broker keep what they promise each other."""

from __future__ import annotations

import inspect

from dragoman.hub.broker.hosting import Host, Serving
from dragoman.hub.broker.process import BrokerProcess
from dragoman.hub.broker.serving import Broker


def promised(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


def test_the_process_is_a_host() -> None:
    for name in promised(Host):
        given = inspect.signature(getattr(BrokerProcess, name))
        assert given.parameters.keys() == inspect.signature(getattr(Host, name)).parameters.keys()


def test_the_broker_serves() -> None:
    for name in promised(Serving):
        given = inspect.signature(getattr(Broker, name))
        wanted = inspect.signature(getattr(Serving, name))
        assert given.parameters.keys() == wanted.parameters.keys()
