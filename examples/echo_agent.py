"""An agent as small as it gets: it says a text back word by word, then answers.

It owns one method, `echo`, served on its own stdin and stdout. It does not know who started it:
echo_client.py does. Run by hand it waits for JSON lines, such as
{"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {"text": "hello there"}}
"""

from __future__ import annotations

import asyncio

import msgspec

from dragoman.rpc import Connection, End, Router
from dragoman.transports import open_stdio


class Echo(msgspec.Struct):
    """What we are asked."""

    text: str
    pause: float = 0.0
    """Seconds between two words, for a listener who likes to watch."""


class Word(msgspec.Struct):
    """What we say on the way."""

    number: int
    word: str


async def main() -> None:
    router = Router()
    connection = Connection(await open_stdio(), End.AGENT, router)

    async def echo(request: Echo) -> dict[str, int]:
        words = request.text.split()
        for number, word in enumerate(words, 1):
            await connection.notify("echo/word", Word(number, word))
            await asyncio.sleep(request.pause)
        # The stream has stdout for itself, so this cannot get between two messages: it lands on
        # stderr.
        print(f"echoed {len(words)} words")
        return {"words": len(words)}

    router.on_request("echo", echo, Echo)
    async with connection:
        await connection.wait_ended()


asyncio.run(main())
