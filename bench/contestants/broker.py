"""dragoman's ACP client with a warm broker, whose peer is the agent of `dragoman_acp`.

The broker is the real program, in a temporary directory. It detaches itself from its starter. To
include its CPU time, this process becomes the subreaper, which adopts orphaned processes.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Sequence

from bench.contestants import dragoman_acp

PR_SET_CHILD_SUBREAPER = 36


class Client(dragoman_acp.Client):
    """The driver of `bench.works`."""

    async def open(self, agent: Sequence[str]) -> int:
        from dragoman.broker.client.find_or_start import ensure
        from dragoman.broker.spec import BrokerSpec, Folders
        from dragoman.client.acp import AcpClient, ClientOptions
        from dragoman.client.acp.options import connection_settings
        from dragoman.client.permissions import approve_all

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._folder = tempfile.TemporaryDirectory(prefix="dragoman-bench-")
        folder = self._folder.name
        spec = BrokerSpec(
            peer="bench",
            command=tuple(agent),
            protocol="acp",
            env=dict(os.environ),
            workspace=folder,
            paths=Folders(state=folder, runtime=folder, data=folder),
            parallel=True,
            ttl=60.0,
        )
        reached = await ensure(spec, settings=connection_settings(None))
        client = AcpClient(reached.connection, ClientOptions(permit=approve_all))
        self._client = await self._stack.enter_async_context(client)
        self.workspace = folder
        status = await self._client.call_extension("_dragoman/status", {})
        return int(status["peerPid"])

    async def close(self) -> None:
        await self._client.call_extension("_dragoman/stop", {"drain": False})
        await super().close()
        reap()
        self._folder.cleanup()


def reap() -> None:
    """Wait for the broker, which became our child when its starter exited, and for its children."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def main() -> None:
    from bench.works import client

    client(Client, sys.argv[2:])


if __name__ == "__main__":
    main()
