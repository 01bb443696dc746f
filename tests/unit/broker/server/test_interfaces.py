"""The two sides of a broker keep what they promise each other."""

from __future__ import annotations

import inspect

from dragoman.broker.server.broker import Broker
from dragoman.broker.server.interfaces import BrokerHost, BrokerServer
from dragoman.broker.server.process import BrokerProcess


def promised(protocol: type) -> set[str]:
    return {name for name in vars(protocol) if not name.startswith("_")}


def test_the_process_is_a_host() -> None:
    for name in promised(BrokerHost):
        given = inspect.signature(getattr(BrokerProcess, name))
        assert (
            given.parameters.keys()
            == inspect.signature(getattr(BrokerHost, name)).parameters.keys()
        )


def test_the_broker_serves() -> None:
    for name in promised(BrokerServer):
        given = inspect.signature(getattr(Broker, name))
        wanted = inspect.signature(getattr(BrokerServer, name))
        assert given.parameters.keys() == wanted.parameters.keys()
