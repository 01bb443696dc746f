"""A client of the console's WebSocket that follows one session, as a separate process.

`bench.console` starts it, and stops it with SIGSTOP to simulate a browser that stops reading. It
prints a line when it has received the first events.
"""

from __future__ import annotations

import asyncio
import json
import sys

from websockets.asyncio.client import connect


async def follow(address: str, origin: str, cookies: str, session: str) -> None:
    headers = {"origin": origin, "cookie": cookies}
    async with connect(
        address, additional_headers=headers, ping_interval=None, max_size=None, proxy=None
    ) as socket:
        await socket.send(json.dumps({"type": "follow", "session": session}))
        announced = False
        async for text in socket:
            message = json.loads(text)
            if not announced and message["type"] == "events" and message["caughtUp"]:
                announced = True
                sys.stdout.write("following\n")
                sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(follow(*sys.argv[1:]))
