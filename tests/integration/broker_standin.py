"""A broker that greets, tells its status and stops, with a sleeping process for a peer.

For tests of how brokers are found, started, replaced and cleaned up after; what a real one serves
is none of their business. Words in the spec's details change how it behaves.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any, cast

from dragoman.broker.server.process import BrokerProcess, main
from dragoman.broker.spec import PROTOCOL, BrokerSpec
from dragoman.rpc import Connection, End, Router
from dragoman.transports import spawn
from dragoman.transports.base import Stream

SLEEPER = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]


class StandIn:
    def __init__(self, spec: BrokerSpec, host: BrokerProcess) -> None:
        self._spec = spec
        self._host = host
        self._callers = 0
        self._idle_since = time.monotonic()
        self._stopped = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._draining = False
        self._peer_pid = 0
        if spec.details.get("fail"):
            raise RuntimeError("it fails with " + spec.env.get("TOKEN", ""))

    async def serve(self, stream: Stream) -> None:
        router = Router()
        router.on_request("_dragoman/hello", self._hello, dict)
        router.on_request("_dragoman/status", self._status, dict)
        router.on_request("_dragoman/stop", self._stop, dict)
        initialized = False

        def initialize(params: dict[str, Any]) -> Any:
            nonlocal initialized
            initialized = True
            self._callers += 1
            self._free.clear()
            self._host.idle_changed(False)
            return {"protocolVersion": 1, "agentInfo": {"name": "stand-in", "version": "1"}}

        router.on_request("initialize", initialize, dict)
        async with Connection(stream, End.AGENT, router) as connection:
            await connection.wait_ended()
        if initialized:
            self._callers -= 1
            if not self._callers:
                self._free.set()
                self._idle_since = time.monotonic()
                self._host.idle_changed(True)

    async def run(self) -> None:
        peer = await spawn(SLEEPER, env=self._spec.env)
        self._peer_pid = peer.pid
        self._host.peer_started(peer.pid)
        try:
            if self._spec.details.get("block"):
                time.sleep(600)  # noqa: ASYNC251 - this one hangs on purpose
            await self._stopped.wait()
            if self._draining:
                await self._free.wait()
        finally:
            await peer.aclose()
            self._host.peer_ended(peer.pid)

    def stop(self, *, drain: bool) -> None:
        self._draining = drain
        self._host.release()
        self._stopped.set()

    def _hello(self, params: dict[str, Any]) -> Any:
        if ttl := params.get("ttl"):
            self._host.keep_for(ttl)
        return {
            "version": self._spec.version,
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "draining": self._stopped.is_set(),
            "identity": self._spec.identity_digest,
        }

    def _status(self, params: dict[str, Any]) -> Any:
        idle_for = None if self._callers else time.monotonic() - self._idle_since
        return {"idleFor": idle_for, "peerPid": self._peer_pid, "callers": self._callers}

    def _stop(self, params: dict[str, Any]) -> Any:
        if params.get("ifIdle") and self._callers:
            return {"stopping": False}
        self.stop(drain=params["drain"])
        return {"stopping": True}


if __name__ == "__main__":
    sys.exit(main(cast("Any", StandIn)))
