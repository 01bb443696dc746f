"""What is written down of a broker, for tests that only show it."""

from __future__ import annotations

from dragoman.broker.records import BrokerRecord
from dragoman.transports.process.identity import ProcessIdentity

RECORD = BrokerRecord(
    name="gemini-0123456789ab",
    address="/run/brokers/gemini-0123456789ab.sock",
    peer="gemini",
    workspace="/w",
    version="1.2.3",
    broker=ProcessIdentity(pid=4242, started="1", boot="b"),
    owner="o",
    started_at=1000.0,
    log="/state/logs/broker-gemini-0123456789ab.log",
)
